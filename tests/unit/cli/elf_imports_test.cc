#include "client/cli/elf_imports.h"

#include <elf.h>

#include <cstring>
#include <string>
#include <vector>

#include "client/cli/doctor_preload.h"
#include "client/cli/findings.h"
#include "common/bytes.h"
#include "common/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace salius::cli {
namespace {

// Builds a dynamic ELF file: its header, a program header, and the sections that name its imports.
class ElfBuilder {
 public:
  std::vector<std::string> functions;
  std::vector<std::string> libraries;
  bool interpreter = true;
  std::string section_name = ".dynsym";

  std::vector<uint8_t> Build() {
    std::string texts(1, '\0');
    const auto text = [&texts](const std::string& name) {
      const size_t at = texts.size();
      texts += name;
      texts += '\0';
      return at;
    };
    std::vector<Elf64_Sym> symbols(1);
    for (const std::string& name : functions) {
      Elf64_Sym symbol{};
      symbol.st_name = static_cast<Elf64_Word>(text(name));
      symbols.push_back(symbol);
    }
    std::vector<Elf64_Dyn> dynamic;
    for (const std::string& name : libraries) {
      Elf64_Dyn entry{};
      entry.d_tag = DT_NEEDED;
      entry.d_un.d_val = text(name);
      dynamic.push_back(entry);
    }
    dynamic.push_back({});
    const size_t name_at = text(section_name);

    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_phoff = sizeof(header);
    header.e_phnum = 1;
    Elf64_Phdr segment{};
    segment.p_type = interpreter ? PT_INTERP : PT_LOAD;
    const size_t symbols_at = sizeof(header) + sizeof(segment);
    const size_t dynamic_at = symbols_at + symbols.size() * sizeof(Elf64_Sym);
    const size_t texts_at = dynamic_at + dynamic.size() * sizeof(Elf64_Dyn);
    header.e_shoff = texts_at + texts.size();
    header.e_shnum = 3;
    header.e_shstrndx = 2;
    Elf64_Shdr sections[3] = {};
    sections[0].sh_type = SHT_DYNSYM;
    sections[0].sh_name = static_cast<Elf64_Word>(name_at);
    sections[0].sh_offset = symbols_at;
    sections[0].sh_size = symbols.size() * sizeof(Elf64_Sym);
    sections[0].sh_link = 2;
    sections[1].sh_type = SHT_DYNAMIC;
    sections[1].sh_offset = dynamic_at;
    sections[1].sh_size = dynamic.size() * sizeof(Elf64_Dyn);
    sections[1].sh_link = 2;
    sections[2].sh_type = SHT_STRTAB;
    sections[2].sh_offset = texts_at;
    sections[2].sh_size = texts.size();

    std::vector<uint8_t> file;
    const auto put = [&file](const void* from, size_t size) {
      const uint8_t* const bytes = static_cast<const uint8_t*>(from);
      file.insert(file.end(), bytes, bytes + size);
    };
    put(&header, sizeof(header));
    put(&segment, sizeof(segment));
    put(symbols.data(), symbols.size() * sizeof(Elf64_Sym));
    put(dynamic.data(), dynamic.size() * sizeof(Elf64_Dyn));
    put(texts.data(), texts.size());
    put(sections, sizeof(sections));
    return file;
  }
};

TEST(ElfImportsTest, FunctionsAndLibrariesAreRead) {
  ElfBuilder elf;
  elf.functions = {"write", "fsync", "write"};
  elf.libraries = {"libaio.so.1", "libc.so.6"};
  const auto imports = ReadElfImports(elf.Build());
  ASSERT_TRUE(imports.ok()) << imports.status();
  EXPECT_TRUE(imports->dynamic);
  EXPECT_FALSE(imports->go);
  EXPECT_THAT(imports->functions, testing::ElementsAre("fsync", "write"));
  EXPECT_THAT(imports->libraries, testing::ElementsAre("libaio.so.1", "libc.so.6"));
}

TEST(ElfImportsTest, FileWithoutInterpreterAndLibrariesIsStatic) {
  ElfBuilder elf;
  elf.interpreter = false;
  EXPECT_FALSE(ReadElfImports(elf.Build())->dynamic);
}

TEST(ElfImportsTest, GoIsKnownByItsSections) {
  ElfBuilder elf;
  elf.section_name = ".gopclntab";
  EXPECT_TRUE(ReadElfImports(elf.Build())->go);
}

TEST(ElfImportsTest, OtherFilesAreRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(ReadElfImports({}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadElfImports(AsBytes("#!/bin/sh")).status()));
  std::vector<uint8_t> file = ElfBuilder().Build();
  file[EI_CLASS] = ELFCLASS32;
  EXPECT_TRUE(absl::IsInvalidArgument(ReadElfImports(file).status()));
}

TEST(ElfImportsTest, NoCutOrFlippedByteReadsOutOfBounds) {
  ElfBuilder elf;
  elf.functions = {"write"};
  elf.libraries = {"libc.so.6"};
  const std::vector<uint8_t> file = elf.Build();
  for (size_t size = 0; size < file.size(); ++size) {
    const std::vector<uint8_t> cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
    ReadElfImports(cut).status().IgnoreError();
  }
  for (size_t at = 0; at < file.size(); ++at) {
    std::vector<uint8_t> flipped = file;
    flipped[at] = 0xff;
    ReadElfImports(flipped).status().IgnoreError();
  }
}

TEST(ElfImportsTest, ThisProgramIsDynamicAndWrites) {
  const auto file = ReadWholeFile("/proc/self/exe");
  ASSERT_TRUE(file.ok()) << file.status();
  const auto imports = ReadElfImports(AsBytes(*file));
  ASSERT_TRUE(imports.ok()) << imports.status();
  EXPECT_TRUE(imports->dynamic);
  EXPECT_FALSE(imports->functions.empty());
}

// Returns the level of the finding `name`; kOk when there is none.
Level LevelOf(const BinaryFacts& facts, const std::string& name) {
  Findings findings;
  JudgeBinary(facts, findings);
  for (const Finding& finding : findings.all()) {
    if (finding.name == name) return finding.level;
  }
  return Level::kOk;
}

TEST(DoctorPreloadTest, StaticSetIdAndGoProgramsFail) {
  BinaryFacts facts;
  EXPECT_EQ(LevelOf(facts, "linking"), Level::kFail);
  facts.imports.dynamic = true;
  EXPECT_EQ(LevelOf(facts, "linking"), Level::kOk);
  facts.set_id = true;
  EXPECT_EQ(LevelOf(facts, "set-id"), Level::kFail);
  facts.imports.go = true;
  EXPECT_EQ(LevelOf(facts, "Go"), Level::kFail);
}

TEST(DoctorPreloadTest, CallsAreJudgedByNameWithTheirVariants) {
  BinaryFacts facts;
  facts.imports.dynamic = true;
  EXPECT_EQ(LevelOf(facts, "covered calls"), Level::kWarn);
  facts.imports.functions = {"__open64_2", "pwrite64"};
  EXPECT_EQ(LevelOf(facts, "covered calls"), Level::kOk);
  EXPECT_EQ(LevelOf(facts, "uncovered calls"), Level::kOk);
  facts.imports.functions = {"mmap64"};
  EXPECT_EQ(LevelOf(facts, "uncovered calls"), Level::kWarn);
  facts.imports.functions = {"io_submit"};
  EXPECT_EQ(LevelOf(facts, "asynchronous I/O"), Level::kWarn);
  facts.imports.functions = {"fsync"};
  facts.imports.libraries = {"liburing.so.2"};
  EXPECT_EQ(LevelOf(facts, "asynchronous I/O"), Level::kWarn);
}

TEST(DoctorPreloadTest, ScriptIsPassedToItsInterpreter) {
  BinaryFacts facts;
  facts.script = true;
  EXPECT_EQ(LevelOf(facts, "program"), Level::kWarn);
}

}  // namespace
}  // namespace salius::cli
