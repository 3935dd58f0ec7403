// Programs that cannot run under the library, and the library as an ELF file.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "client/preload/program.h"
#include "tests/unit/preload/subjects.h"

namespace salius::preload {
namespace {

namespace fs = std::filesystem;

std::string OutputOf(const std::string& command) {
  std::string text;
  FILE* pipe = popen(command.c_str(), "r");
  std::array<char, 4096> part;
  for (size_t got; (got = fread(part.data(), 1, part.size(), pipe)) > 0;) {
    text.append(part.data(), got);
  }
  pclose(pipe);
  return text;
}

// Runs the case of the subject that tries to start `path` in each way.
void ExpectRefused(const std::string& path, const std::string& reason) {
  SubjectRun run;
  run.Set("REFUSED=" + path);
  EXPECT_EQ(run.Run("subject", {"refused"}), 0) << run.Messages();
  EXPECT_NE(run.Messages().find("salius: " + path + " is not started: it " + reason),
            std::string::npos)
      << run.Messages();
}

TEST(ProgramTest, StaticProgramIsRefused) {
  ExpectRefused(SubjectRun::PathOf("static_subject"), "is linked statically");
}

TEST(ProgramTest, ScriptOfStaticInterpreterIsRefused) {
  SubjectRun scratch;
  const std::string path = scratch.volume() + "/script";
  std::ofstream(path) << "#! " << SubjectRun::PathOf("static_subject") << " -x\n";
  chmod(path.c_str(), 0755);
  ExpectRefused(path, "is linked statically");
}

TEST(ProgramTest, SetIdProgramIsRefused) {
  SubjectRun scratch;
  const std::string path = scratch.volume() + "/set-id";
  fs::copy_file("/bin/true", path);
  if (chown(path.c_str(), getuid() + 1, getgid()) != 0) GTEST_SKIP() << "needs root";
  chmod(path.c_str(), 04755);
  ExpectRefused(path, "changes its identity");
}

TEST(ProgramTest, OtherMachineIsRefused) {
  SubjectRun scratch;
  const std::string path = scratch.volume() + "/other";
  fs::copy_file("/bin/true", path);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(18);  // e_machine
  file.write("\xB7\0", 2);
  file.close();
  chmod(path.c_str(), 0755);
  EXPECT_EQ(JudgeProgram(AT_FDCWD, path.c_str()), Verdict::kOther);
}

// A dynamic program with the Go linker's note, as a Go program that uses C code has it.
TEST(ProgramTest, GoProgramIsRefused) {
  ExpectRefused(SubjectRun::PathOf("go_subject"), "is a Go program");
}

TEST(ProgramTest, ProgramOutOfTheLibrarysReachIsRefused) {
  SubjectRun run;
  const std::string library = run.volume() + "/library.so";
  fs::copy_file(SubjectRun::PathOf("librecording.so"), library);
  run.Set("LD_PRELOAD=" + library);
  EXPECT_EQ(run.Run("subject", {"library_is_gone"}), 0) << run.Messages();
  EXPECT_NE(run.Messages().find("cannot be read from here"), std::string::npos);
}

TEST(ProgramTest, OrdinaryProgramsRun) {
  EXPECT_EQ(JudgeProgram(AT_FDCWD, "/bin/true"), Verdict::kRuns);
  EXPECT_EQ(JudgeProgram(AT_FDCWD, "/lib64/ld-linux-x86-64.so.2"), Verdict::kRuns);
  EXPECT_EQ(JudgeProgram(AT_FDCWD, "/absent"), Verdict::kRuns);
  EXPECT_EQ(JudgeProgram(AT_FDCWD, "/"), Verdict::kRuns);
  SubjectRun scratch;
  for (const char* text : {"", "#!", "#!/bin/sh",
                           "\x7F"
                           "ELF",
                           "hello"}) {
    const std::string path = scratch.volume() + "/text";
    std::ofstream(path) << text;
    EXPECT_NE(JudgeProgram(AT_FDCWD, path.c_str()), Verdict::kStatic) << text;
  }
}

// Nothing of the C++ runtime, and nothing but the functions of the version script, is visible; the
// C library is all that it needs.
class SharedObjectTest : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Both, SharedObjectTest,
                         testing::Values("librecording.so",
                                         "../../../client/preload/libsalius_preload.so"));

TEST_P(SharedObjectTest, ExportsOnlyInterposedFunctions) {
  const std::string path = SubjectRun::PathOf(GetParam());
  std::istringstream symbols(OutputOf("readelf --dyn-syms --wide " + path));
  int exported = 0;
  for (std::string line; std::getline(symbols, line);) {
    std::istringstream words(line);
    std::string number, value, size, type, bind, visibility, section, name;
    words >> number >> value >> size >> type >> bind >> visibility >> section >> name;
    // A local symbol is there for a relocation; no other object sees it.
    if (name.empty() || number == "Num:" || bind == "LOCAL") continue;
    EXPECT_NE(name.compare(0, 2, "_Z"), 0) << name;
    EXPECT_EQ(name.find("cxa_"), name.find("cxa_finalize")) << name;
    EXPECT_NE(name.compare(0, 6, "malloc"), 0) << name;
    if (section != "UND") {
      EXPECT_EQ(type, "FUNC") << name;
      ++exported;
    }
  }
  EXPECT_GT(exported, 100);
}

TEST_P(SharedObjectTest, NeedsOnlyTheCLibrary) {
  const std::string dynamic =
      OutputOf("readelf --dynamic --wide " + SubjectRun::PathOf(GetParam()));
  std::istringstream lines(dynamic);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("(NEEDED)") == std::string::npos) continue;
    EXPECT_TRUE(line.find("[libc.so.6]") != std::string::npos ||
                line.find("[ld-linux-x86-64.so.2]") != std::string::npos)
        << line;
  }
  EXPECT_NE(dynamic.find("INITFIRST"), std::string::npos);
  EXPECT_EQ(dynamic.find("TEXTREL"), std::string::npos);
}

// Without a coordinator's variables the library only passes on.
TEST(LibraryTest, PassesOnWithoutAVolume) {
  SubjectRun run;
  run.Set("SALIUS_DIRECT_VOLUME=");
  EXPECT_EQ(run.Run("subject", {"write_family"}), 0) << run.Messages();
  EXPECT_TRUE(run.Record().empty());
}

}  // namespace
}  // namespace salius::preload
