#include "client/preload/coverage.h"

#include <elf.h>

#include <cstring>
#include <optional>

#include "absl/status/status.h"
#include "client/preload/program.h"

namespace salius::preload {
namespace {

struct Known {
  std::string_view name;
  Cover cover;
  std::string_view note;
};

constexpr std::string_view kStdioNote = "stdio writes are not seen: reason stdio";
constexpr std::string_view kCopyNote = "the bytes are not seen: reason copy";
constexpr std::string_view kAllocateNote = "reason allocate";
constexpr std::string_view kSpawnNote = "with O_TRUNC each start uncovers every file: position";
constexpr std::string_view kIoctlNote = "a request that may change bytes: reason allocate or copy";
constexpr std::string_view kMapNote = "a shared writable map: reason map, until the session ends";
constexpr std::string_view kNameNote = "the new name is synced for real: reason name";
constexpr std::string_view kRingNote = "io_uring is answered ENOSYS";
constexpr std::string_view kAioNote = "the kernel's asynchronous I/O is answered ENOSYS";
constexpr std::string_view kRawNote = "calls by number: those that matter are seen";

constexpr Known kKnown[] = {
    {"write", Cover::kLogged, ""},
    {"pwrite", Cover::kLogged, ""},
    {"pwrite64", Cover::kLogged, ""},
    {"writev", Cover::kLogged, ""},
    {"pwritev", Cover::kLogged, ""},
    {"pwritev64", Cover::kLogged, ""},
    {"pwritev2", Cover::kLogged, ""},
    {"pwritev64v2", Cover::kLogged, ""},
    {"ftruncate", Cover::kLogged, ""},
    {"ftruncate64", Cover::kLogged, ""},
    {"aio_write", Cover::kLogged, ""},
    {"aio_write64", Cover::kLogged, ""},
    {"lio_listio", Cover::kLogged, ""},
    {"lio_listio64", Cover::kLogged, ""},
    {"fsync", Cover::kLogged, ""},
    {"fdatasync", Cover::kLogged, ""},
    {"fopen", Cover::kUncovered, kStdioNote},
    {"fopen64", Cover::kUncovered, kStdioNote},
    {"freopen", Cover::kUncovered, kStdioNote},
    {"freopen64", Cover::kUncovered, kStdioNote},
    {"fdopen", Cover::kUncovered, kStdioNote},
    {"tmpfile", Cover::kUncovered, kStdioNote},
    {"tmpfile64", Cover::kUncovered, kStdioNote},
    {"sendfile", Cover::kUncovered, kCopyNote},
    {"sendfile64", Cover::kUncovered, kCopyNote},
    {"copy_file_range", Cover::kUncovered, kCopyNote},
    {"splice", Cover::kUncovered, kCopyNote},
    {"dprintf", Cover::kUncovered, kCopyNote},
    {"vdprintf", Cover::kUncovered, kCopyNote},
    {"__dprintf_chk", Cover::kUncovered, kCopyNote},
    {"__vdprintf_chk", Cover::kUncovered, kCopyNote},
    {"backtrace_symbols_fd", Cover::kUncovered, kCopyNote},
    {"truncate", Cover::kUncovered, kAllocateNote},
    {"truncate64", Cover::kUncovered, kAllocateNote},
    {"fallocate", Cover::kUncovered, kAllocateNote},
    {"fallocate64", Cover::kUncovered, kAllocateNote},
    {"posix_fallocate", Cover::kUncovered, kAllocateNote},
    {"posix_fallocate64", Cover::kUncovered, kAllocateNote},
    {"posix_spawn_file_actions_addopen", Cover::kUncovered, kSpawnNote},
    {"ioctl", Cover::kUncovered, kIoctlNote},
    {"mmap", Cover::kUncovered, kMapNote},
    {"mmap64", Cover::kUncovered, kMapNote},
    {"rename", Cover::kUncovered, kNameNote},
    {"renameat", Cover::kUncovered, kNameNote},
    {"renameat2", Cover::kUncovered, kNameNote},
    {"link", Cover::kUncovered, kNameNote},
    {"linkat", Cover::kUncovered, kNameNote},
    {"syscall", Cover::kUncovered, kRawNote},
    {"io_setup", Cover::kRefused, kAioNote},
    {"io_submit", Cover::kRefused, kAioNote},
    {"io_uring_queue_init", Cover::kRefused, kRingNote},
    {"io_uring_queue_init_params", Cover::kRefused, kRingNote},
    {"io_uring_setup", Cover::kRefused, kRingNote},
};

// Reads structures out of a file that may be cut or wrong.
class Image {
 public:
  explicit Image(std::string_view bytes) : bytes_(bytes) {}

  template <typename Value>
  std::optional<Value> At(uint64_t offset) const {
    if (offset > bytes_.size() || bytes_.size() - offset < sizeof(Value)) return std::nullopt;
    Value value;
    memcpy(&value, bytes_.data() + offset, sizeof(value));
    return value;
  }

  // Returns the bytes of a section, as far as they are in the file.
  std::string_view Bytes(const Elf64_Shdr& section) const {
    if (section.sh_type == SHT_NOBITS || section.sh_offset > bytes_.size()) return {};
    return bytes_.substr(section.sh_offset, section.sh_size);
  }

 private:
  const std::string_view bytes_;
};

// Returns the text at `offset` of a string table; "" when it is not there.
std::string_view TextAt(std::string_view table, uint64_t offset) {
  if (offset >= table.size()) return {};
  const std::string_view rest = table.substr(offset);
  const size_t end = rest.find('\0');
  return end == std::string_view::npos ? std::string_view() : rest.substr(0, end);
}

void AddCalls(std::string_view symbols, std::string_view names, Coverage& coverage) {
  const Image table(symbols);
  for (uint64_t at = 0; const auto symbol = table.At<Elf64_Sym>(at); at += sizeof(Elf64_Sym)) {
    if (symbol->st_shndx != SHN_UNDEF) continue;
    const std::string_view name = TextAt(names, symbol->st_name);
    for (const Known& known : kKnown) {
      if (known.name == name)
        coverage.calls.push_back({std::string(name), known.cover, known.note});
    }
  }
}

void AddLibraries(std::string_view dynamic, std::string_view names, Coverage& coverage) {
  const Image table(dynamic);
  for (uint64_t at = 0; const auto entry = table.At<Elf64_Dyn>(at); at += sizeof(Elf64_Dyn)) {
    if (entry->d_tag == DT_NULL) return;
    if (entry->d_tag != DT_NEEDED) continue;
    coverage.libraries.emplace_back(TextAt(names, entry->d_un.d_val));
  }
}

bool HasInterpreter(const Image& image, const Elf64_Ehdr& header) {
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    const auto segment = image.At<Elf64_Phdr>(header.e_phoff + i * sizeof(Elf64_Phdr));
    if (segment && segment->p_type == PT_INTERP) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<Coverage> ReadCoverage(std::string_view bytes, bool set_id) {
  const Image image(bytes);
  const auto header = image.At<Elf64_Ehdr>(0);
  if (!header || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) {
    return absl::InvalidArgumentError("not an ELF file");
  }
  if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_machine != EM_X86_64) {
    return absl::InvalidArgumentError("an ELF file for another machine");
  }
  const auto section = [&](uint64_t index) {
    return image.At<Elf64_Shdr>(header->e_shoff + index * sizeof(Elf64_Shdr));
  };
  if (header->e_shentsize != sizeof(Elf64_Shdr) || !section(header->e_shstrndx)) {
    return absl::InvalidArgumentError("an ELF file without its section table");
  }
  Coverage coverage;
  const std::string_view section_names = image.Bytes(*section(header->e_shstrndx));
  bool go = false;
  for (unsigned i = 0; i < header->e_shnum; ++i) {
    const auto one = section(i);
    if (!one) return absl::InvalidArgumentError("an ELF file whose section table is cut");
    go |= TextAt(section_names, one->sh_name) == ".note.go.buildid";
    if (one->sh_type != SHT_DYNSYM && one->sh_type != SHT_DYNAMIC) continue;
    const auto names = section(one->sh_link);
    if (!names) return absl::InvalidArgumentError("an ELF file without its symbols' names");
    if (one->sh_type == SHT_DYNSYM) {
      AddCalls(image.Bytes(*one), image.Bytes(*names), coverage);
    } else {
      AddLibraries(image.Bytes(*one), image.Bytes(*names), coverage);
    }
  }
  const bool library = header->e_type == ET_DYN && !coverage.libraries.empty();
  if (set_id) {
    coverage.refusal = VerdictText(Verdict::kSetId);
  } else if (go) {
    coverage.refusal = VerdictText(Verdict::kGo);
  } else if (!library && !HasInterpreter(image, *header)) {
    coverage.refusal = VerdictText(Verdict::kStatic);
  }
  return coverage;
}

}  // namespace salius::preload
