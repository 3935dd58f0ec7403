#include "common/bulk_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include "common/check.h"
#include "common/random.h"
#include "gtest/gtest.h"

namespace salius {
namespace {

constexpr size_t kFileBytes = size_t{12} << 20;

// A nameless file of random bytes on the file system that `dir` lies on.
class File {
 public:
  explicit File(const char* dir) : expected_(kFileBytes, '\0') {
    auto fd = OpenAt(AT_FDCWD, dir, O_RDWR | O_TMPFILE, 0600);
    SALIUS_CHECK_OK(fd);
    fd_ = *std::move(fd);
    Random random(1);
    for (char& byte : expected_) byte = static_cast<char>(random.Below(256));
    const iovec part = {expected_.data(), expected_.size()};
    SALIUS_CHECK_OK(PwritevFull(fd_.get(), {&part, 1}, 0));
  }
  int fd() const { return fd_.get(); }
  std::string& expected() { return expected_; }
  std::string Content() const {
    std::string content(*FileSize(fd()), '\0');
    SALIUS_CHECK(*PreadFull(fd(), content.data(), content.size(), 0) == content.size());
    return content;
  }

 private:
  UniqueFd fd_;
  std::string expected_;
};

std::vector<iovec> Parts(std::vector<std::string>& strings) {
  std::vector<iovec> parts;
  for (std::string& text : strings) parts.push_back({text.data(), text.size()});
  return parts;
}

class BulkWriterTest : public testing::TestWithParam<const char*> {
 protected:
  const char* Dir() const {
    const char* dir = GetParam();
    return *dir != '\0' ? dir : getenv("TEST_TMPDIR");
  }
};

TEST_P(BulkWriterTest, WritesWhatAnOrdinaryWriteWould) {
  File file(Dir());
  BulkWriter writer(file.fd());
  Random random(7);
  for (int round = 0; round < 60; ++round) {
    std::vector<std::string> strings(random.Below(200));
    size_t total = 0;
    const size_t most = random.Chance(0.5) ? 60000 : 4096;
    for (std::string& text : strings) {
      text.assign(random.Chance(0.3) ? 4096 : random.Below(most),
                  static_cast<char>(random.Below(256)));
      total += text.size();
    }
    if (total > kFileBytes) continue;
    uint64_t offset = random.Below(kFileBytes - total + 1);
    if (random.Chance(0.5)) offset = offset / 4096 * 4096;
    ASSERT_TRUE(writer.Write(Parts(strings), static_cast<int64_t>(offset)).ok());
    for (const std::string& text : strings) {
      file.expected().replace(offset, text.size(), text);
      offset += text.size();
    }
    ASSERT_TRUE(file.Content() == file.expected()) << "round " << round;
  }
}

TEST_P(BulkWriterTest, AWriteAtTheEndMakesTheFileAsLongAsItsBytes) {
  File file(Dir());
  BulkWriter writer(file.fd());
  std::vector<std::string> strings = {std::string(1000001, 'a'), std::string(333, 'b')};
  ASSERT_TRUE(writer.Write(Parts(strings), kFileBytes - 10).ok());
  EXPECT_EQ(*FileSize(file.fd()), kFileBytes - 10 + 1000001 + 333);
  EXPECT_TRUE(file.Content() ==
              file.expected().substr(0, kFileBytes - 10) + strings[0] + strings[1]);
}

TEST_P(BulkWriterTest, AFailedWriteSaysWhy) {
  File file(Dir());
  BulkWriter writer(file.fd());
  std::vector<std::string> strings = {std::string(3 << 20, 'a')};
  signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit tight = before;
  tight.rlim_cur = kFileBytes + 4096;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  const absl::Status status = writer.Write(Parts(strings), kFileBytes);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(StatusErrno(status), EFBIG) << status;
}

INSTANTIATE_TEST_SUITE_P(FileSystems, BulkWriterTest, testing::Values("", "/dev/shm"));

// Returns how many bytes of the file are in the page cache.
size_t Cached(int fd) {
  const size_t pages = *FileSize(fd) / 4096;
  void* const map = mmap(nullptr, pages * 4096, PROT_READ, MAP_SHARED, fd, 0);
  SALIUS_CHECK(map != MAP_FAILED);
  std::vector<unsigned char> in(pages);
  SALIUS_CHECK(mincore(map, pages * 4096, in.data()) == 0);
  munmap(map, pages * 4096);
  size_t cached = 0;
  for (const unsigned char page : in) cached += (page & 1) != 0 ? 4096 : 0;
  return cached;
}

TEST(BulkWriterCacheTest, LongWritesStayOutOfThePageCache) {
  const char* const dir = getenv("TEST_TMPDIR");
  const auto probe = OpenAt(AT_FDCWD, dir, O_WRONLY | O_TMPFILE | O_DIRECT, 0600);
  if (!probe.ok()) GTEST_SKIP() << dir << " takes no O_DIRECT: " << probe.status();
  File file(dir);
  ASSERT_TRUE(FdatasyncFd(file.fd()).ok());
  ASSERT_EQ(posix_fadvise(file.fd(), 0, 0, POSIX_FADV_DONTNEED), 0);
  BulkWriter writer(file.fd());
  std::vector<std::string> strings = {std::string(8 << 20, 'a')};
  ASSERT_TRUE(writer.Write(Parts(strings), 100).ok());
  EXPECT_LT(Cached(file.fd()), size_t{1} << 20);
}

}  // namespace
}  // namespace salius
