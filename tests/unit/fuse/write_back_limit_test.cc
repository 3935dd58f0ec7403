// The limits of a mount's dirty pages, in a directory like the kernel's.
#include "client/fuse/write_back_limit.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/file.h"

namespace salius {
namespace {

class WriteBackLimitTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "bdi";
    std::filesystem::create_directories(directory_ + "/0:71");
    std::ofstream(directory_ + "/0:71/max_ratio") << "1";
    std::ofstream(directory_ + "/0:71/strict_limit") << "1";
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string Setting(const std::string& name) {
    return *ReadWholeFile(directory_ + "/0:71/" + name);
  }

  std::string directory_;
};

TEST_F(WriteBackLimitTest, MountGetsTheLimitsOfADisk) {
  ASSERT_TRUE(LiftWriteBackLimit(directory_, "0:71").ok());
  EXPECT_EQ(Setting("max_ratio"), "100");
  EXPECT_EQ(Setting("strict_limit"), "0");
}

TEST_F(WriteBackLimitTest, MissingSettingIsAnError) {
  std::filesystem::remove(directory_ + "/0:71/strict_limit");
  EXPECT_EQ(StatusErrno(LiftWriteBackLimit(directory_, "0:71")), ENOENT);
  EXPECT_EQ(StatusErrno(LiftWriteBackLimit(directory_, "0:72")), ENOENT);
}

}  // namespace
}  // namespace salius
