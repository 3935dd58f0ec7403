// Shared by the tests of refused changes: a file on an ext4 of its own, and records for it.
#pragma once

#include <linux/fs.h>
#include <sys/ioctl.h>

#include <optional>
#include <string>

#include "tests/unit/recovery/replay_testing.h"

namespace salius::recovery {

inline constexpr FileId kRoot = kRootFileId;
inline constexpr FileId kFile = 50;

class RefusalTest : public ::testing::Test {
 protected:
  RefusalTest() : disk_(64, "-b 4096") {}
  void SetUp() override {
    if (!disk_.mounted()) GTEST_SKIP() << "needs root and a loop device";
    tree_.emplace(disk_.path());
    WriteFile(tree_->At("f"), "x");
    tree_->SetId("f", kFile);
  }
  void TearDown() override { tree_.reset(); }

  void SetXattr(const char* name, const std::string& value) {
    s_.Stamp(Op::kSetXattr, kFile, XattrBody{name, value}.Encode());
  }
  // Returns "" when there is none.
  std::string XattrOf(const char* name) {
    const UniqueFd fd = MustOpen(tree_->At("f"), O_PATH);
    bool found = false;
    return *fs::GetXattr(fd.get(), name, &found);
  }
  void Mark(const std::string& name, int flag) {
    const UniqueFd fd = MustOpen(tree_->At(name), O_RDONLY);
    ASSERT_EQ(ioctl(fd.get(), FS_IOC_SETFLAGS, &flag), 0) << strerror(errno);
  }
  // Checks that recovery stops with the place and the remedy, and continues after the remedy.
  void ExpectStoppedByMark(const std::string& name) {
    Mark(name, FS_IMMUTABLE_FL);
    const absl::Status stopped = tree_->Run(s_);
    Mark(name, 0);
    EXPECT_EQ(stopped.code(), absl::StatusCode::kPermissionDenied) << stopped;
    for (const std::string& word : {std::string("chattr -i"), tree_->At(name)}) {
      EXPECT_NE(stopped.message().find(word), absl::string_view::npos) << stopped;
    }
    ASSERT_OK(tree_->Run(s_));
    EXPECT_TRUE(tree_->report.refused.empty());
  }

  LoopExt4 disk_;
  std::optional<Tree> tree_;
  Stamper s_{7};
};

}  // namespace salius::recovery
