#include "client/run/program.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace salius::run {
namespace {

class ProgramTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/program.XXXXXX";
    directory_ = mkdtemp(pattern.data());
    std::filesystem::create_directory(directory_ + "/second");
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  // Makes a script of that mode. Returns its path.
  std::string Script(const std::string& name, mode_t mode) {
    const std::string path = directory_ + "/" + name;
    std::ofstream(path) << "#!/bin/sh\n";
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
    return path;
  }
  std::string SearchPath() const { return directory_ + ":" + directory_ + "/second"; }

  std::string directory_;
};

TEST_F(ProgramTest, FirstExecutableInThePathIsFound) {
  Script("tool", 0644);
  const std::string second = Script("second/tool", 0755);
  const absl::StatusOr<std::string> found = FindProgram("tool", SearchPath(), Programs::kLogged);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(*found, second);
}

TEST_F(ProgramTest, NameWithASlashIsNotSearched) {
  Script("second/tool", 0755);
  EXPECT_TRUE(absl::IsNotFound(FindProgram("./tool", SearchPath(), Programs::kLogged).status()));
  EXPECT_TRUE(FindProgram(directory_ + "/second/tool", "", Programs::kLogged).ok());
}

TEST_F(ProgramTest, FileWithoutTheRightIsRefusedByName) {
  const std::string path = Script("tool", 0644);
  const absl::Status status = FindProgram("tool", SearchPath(), Programs::kLogged).status();
  EXPECT_TRUE(absl::IsPermissionDenied(status));
  EXPECT_NE(status.message().find(path), std::string::npos);
}

TEST_F(ProgramTest, DirectoryIsRefused) {
  EXPECT_TRUE(absl::IsPermissionDenied(FindProgram(directory_ + "/second", "", Programs::kLogged).status()));
  EXPECT_TRUE(absl::IsNotFound(FindProgram("second", SearchPath(), Programs::kLogged).status()));
}

TEST_F(ProgramTest, ProgramThatTakesAnotherIdIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  const std::string copy = directory_ + "/copy";
  std::filesystem::copy_file("/bin/true", copy);
  ASSERT_EQ(chown(copy.c_str(), 1, 1), 0);
  ASSERT_EQ(chmod(copy.c_str(), 04755), 0);
  const absl::Status status = FindProgram(copy, "", Programs::kLogged).status();
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  // With its outputs gated it gains nothing, and runs.
  EXPECT_TRUE(FindProgram(copy, "", Programs::kGated).ok());
  ASSERT_EQ(chmod(copy.c_str(), 0755), 0);
  EXPECT_TRUE(FindProgram(copy, "", Programs::kLogged).ok());
}

TEST_F(ProgramTest, ProgramForAnotherMachineIsRefusedEverywhere) {
  const std::string path = directory_ + "/other";
  std::ofstream(path) << std::string("\177ELF\1\1\1", 7) << std::string(64, '\0');
  ASSERT_EQ(chmod(path.c_str(), 0755), 0);
  for (const Programs programs : {Programs::kLogged, Programs::kGated}) {
    const absl::Status status = FindProgram(path, "", programs).status();
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
    EXPECT_NE(status.message().find("another C library or machine"), std::string::npos) << status;
  }
}

TEST_F(ProgramTest, LibraryThatIsMissingIsNamed) {
  // This test's program is in no folder of the library's.
  const absl::Status status = FindLibrary().status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_NE(status.message().find("libsalius_preload.so"), std::string::npos);
}

}  // namespace
}  // namespace salius::run
