// A directory for one test, removed at its end.
#ifndef SALIUS_TESTS_UNIT_LOG_TEST_DIR_H_
#define SALIUS_TESTS_UNIT_LOG_TEST_DIR_H_

#include <fcntl.h>
#include <stdlib.h>

#include <string>

#include "common/check.h"
#include "common/file.h"
#include "common/file_system.h"

namespace salius {

// For a test that syncs thousands of times and needs no disk under it.
inline constexpr char kInMemory[] = "/dev/shm";

class TestDir {
 public:
  TestDir() : TestDir(getenv("TEST_TMPDIR") != nullptr ? getenv("TEST_TMPDIR") : "/tmp") {}
  explicit TestDir(const std::string& base) {
    path_ = base + "/salius.XXXXXX";
    SALIUS_CHECK(mkdtemp(path_.data()) != nullptr);
    auto fd = OpenAt(AT_FDCWD, path_, O_RDONLY | O_DIRECTORY);
    SALIUS_CHECK_OK(fd);
    fd_ = std::move(*fd);
  }
  ~TestDir() { SALIUS_CHECK_OK(fs::RemoveTree(AT_FDCWD, path_)); }

  const std::string& path() const { return path_; }
  int fd() const { return fd_.get(); }

  // Opens a file in it.
  UniqueFd Open(const std::string& name, int flags, mode_t mode = 0600) const {
    auto fd = OpenAt(fd_.get(), name, flags, mode);
    SALIUS_CHECK_OK(fd);
    return std::move(*fd);
  }

 private:
  std::string path_;
  UniqueFd fd_;
};

}  // namespace salius

#endif  // SALIUS_TESTS_UNIT_LOG_TEST_DIR_H_
