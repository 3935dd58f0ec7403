#include "client/cli/elf_imports.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "common/check.h"

namespace salius::cli {
namespace {

absl::Status Damaged(const char* what) {
  return absl::InvalidArgumentError(std::string("a damaged ELF file: ") + what);
}

// The file, read by offsets that may be wrong.
class ElfFile {
 public:
  explicit ElfFile(absl::Span<const uint8_t> bytes) : bytes_(bytes) {}

  template <typename T>
  std::optional<T> At(uint64_t offset) const {
    if (offset > bytes_.size() || bytes_.size() - offset < sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof(value));
    return value;
  }

  // Returns the text that ends with the first NUL from `offset` on; nullopt when none does.
  std::optional<std::string_view> TextAt(uint64_t offset) const {
    if (offset >= bytes_.size()) return std::nullopt;
    const char* const begin = reinterpret_cast<const char*>(bytes_.data()) + offset;
    const void* const end = std::memchr(begin, 0, bytes_.size() - offset);
    if (end == nullptr) return std::nullopt;
    return std::string_view(begin, static_cast<size_t>(static_cast<const char*>(end) - begin));
  }

 private:
  absl::Span<const uint8_t> bytes_;
};

class Reader {
 public:
  explicit Reader(absl::Span<const uint8_t> bytes) : file_(bytes) {}

  absl::StatusOr<ElfImports> Run() {
    const std::optional<Elf64_Ehdr> header = file_.At<Elf64_Ehdr>(0);
    if (!header.has_value() || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) {
      return absl::InvalidArgumentError("not an ELF file");
    }
    if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB) {
      return absl::InvalidArgumentError("not an ELF file of 64 bits, little-endian");
    }
    header_ = *header;
    SALIUS_RETURN_IF_ERROR(ReadSegments());
    SALIUS_RETURN_IF_ERROR(ReadSections());
    std::sort(found_.functions.begin(), found_.functions.end());
    found_.functions.erase(std::unique(found_.functions.begin(), found_.functions.end()),
                           found_.functions.end());
    return std::move(found_);
  }

 private:
  absl::Status ReadSegments() {
    for (uint64_t i = 0; i < header_.e_phnum; ++i) {
      const auto segment = file_.At<Elf64_Phdr>(header_.e_phoff + i * sizeof(Elf64_Phdr));
      if (!segment.has_value()) return Damaged("program headers");
      if (segment->p_type == PT_INTERP) found_.dynamic = true;
      if (segment->p_type == PT_NOTE) NoteGo(*segment);
    }
    return absl::OkStatus();
  }

  // Go's linker leaves a note of the name "Go".
  void NoteGo(const Elf64_Phdr& segment) {
    const auto note = file_.At<Elf64_Nhdr>(segment.p_offset);
    const auto name = file_.TextAt(segment.p_offset + sizeof(Elf64_Nhdr));
    if (note.has_value() && name.has_value() && *name == "Go") found_.go = true;
  }

  absl::Status ReadSections() {
    for (uint64_t i = 0; i < header_.e_shnum; ++i) {
      const auto section = Section(i);
      if (!section.has_value()) return Damaged("section headers");
      if (section->sh_type == SHT_DYNAMIC) SALIUS_RETURN_IF_ERROR(ReadDynamic(*section));
      if (section->sh_type == SHT_DYNSYM) SALIUS_RETURN_IF_ERROR(ReadSymbols(*section));
      const auto names = Section(header_.e_shstrndx);
      const auto name =
          names.has_value() ? file_.TextAt(names->sh_offset + section->sh_name) : std::nullopt;
      if (name == ".go.buildinfo" || name == ".gopclntab") found_.go = true;
    }
    return absl::OkStatus();
  }

  std::optional<Elf64_Shdr> Section(uint64_t index) const {
    if (index >= header_.e_shnum) return std::nullopt;
    return file_.At<Elf64_Shdr>(header_.e_shoff + index * sizeof(Elf64_Shdr));
  }

  absl::Status ReadDynamic(const Elf64_Shdr& section) {
    const auto texts = Section(section.sh_link);
    if (!texts.has_value()) return Damaged("dynamic section");
    for (uint64_t at = 0; at + sizeof(Elf64_Dyn) <= section.sh_size; at += sizeof(Elf64_Dyn)) {
      const auto entry = file_.At<Elf64_Dyn>(section.sh_offset + at);
      if (!entry.has_value()) return Damaged("dynamic section");
      if (entry->d_tag == DT_NULL) break;
      if (entry->d_tag != DT_NEEDED) continue;
      const auto name = file_.TextAt(texts->sh_offset + entry->d_un.d_val);
      if (!name.has_value()) return Damaged("name of a library");
      found_.dynamic = true;
      found_.libraries.emplace_back(*name);
    }
    return absl::OkStatus();
  }

  absl::Status ReadSymbols(const Elf64_Shdr& section) {
    const auto texts = Section(section.sh_link);
    if (!texts.has_value()) return Damaged("symbols");
    for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= section.sh_size; at += sizeof(Elf64_Sym)) {
      const auto symbol = file_.At<Elf64_Sym>(section.sh_offset + at);
      if (!symbol.has_value()) return Damaged("symbols");
      if (symbol->st_shndx != SHN_UNDEF || symbol->st_name == 0) continue;
      const auto name = file_.TextAt(texts->sh_offset + symbol->st_name);
      if (!name.has_value()) return Damaged("name of a symbol");
      found_.functions.emplace_back(*name);
    }
    return absl::OkStatus();
  }

  const ElfFile file_;
  Elf64_Ehdr header_{};
  ElfImports found_;
};

}  // namespace

absl::StatusOr<ElfImports> ReadElfImports(absl::Span<const uint8_t> file) {
  return Reader(file).Run();
}

}  // namespace salius::cli
