#include "common/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/bytes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace salius {
namespace {

using ::testing::HasSubstr;

class FileTest : public ::testing::Test {
 protected:
  FileTest() {
    std::string path = ::testing::TempDir() + "/salius_file_XXXXXX";
    EXPECT_NE(mkdtemp(path.data()), nullptr);
    auto dir = OpenAt(AT_FDCWD, path, O_RDONLY | O_DIRECTORY);
    EXPECT_TRUE(dir.ok()) << dir.status();
    dir_ = *std::move(dir);
  }

  int dir() const { return dir_.get(); }

  UniqueFd Create(const char* name) {
    auto fd = OpenAt(dir(), name, O_RDWR | O_CREAT | O_EXCL, 0600);
    EXPECT_TRUE(fd.ok()) << fd.status();
    return *std::move(fd);
  }

 private:
  UniqueFd dir_;
};

TEST(ErrnoTest, SurvivesTheTripThroughStatus) {
  for (const int err :
       {EPERM,  ENOENT,       EIO,     ENXIO,     E2BIG,  EBADF,   EAGAIN,     ENOMEM, EACCES,
        EEXIST, EXDEV,        ENOTDIR, EISDIR,    EINVAL, EMFILE,  EFBIG,      ENOSPC, EROFS,
        EMLINK, ENAMETOOLONG, ENOSYS,  ENOTEMPTY, ELOOP,  ENODATA, EOPNOTSUPP, EDQUOT, ESTALE}) {
    const absl::Status status = ErrnoStatus(err, "open x");
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(StatusErrno(status), err);
    EXPECT_THAT(std::string(status.message()), HasSubstr("open x: "));
  }
}

TEST(ErrnoTest, ErrnosMapToStatusCodes) {
  EXPECT_EQ(ErrnoStatus(ENOENT, "").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ErrnoStatus(ESTALE, "").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ErrnoStatus(EEXIST, "").code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ErrnoStatus(ENOSPC, "").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrnoStatus(EDQUOT, "").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrnoStatus(EACCES, "").code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(ErrnoStatus(EPERM, "").code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(ErrnoStatus(EINVAL, "").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrnoStatus(EFBIG, "").code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(ErrnoStatus(EOPNOTSUPP, "").code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(ErrnoStatus(EIO, "").code(), absl::StatusCode::kInternal);
}

TEST(ErrnoTest, StatusWithoutErrnoMapsToTheNearest) {
  EXPECT_EQ(StatusErrno(absl::OkStatus()), 0);
  EXPECT_EQ(StatusErrno(absl::NotFoundError("")), ENOENT);
  EXPECT_EQ(StatusErrno(absl::AlreadyExistsError("")), EEXIST);
  EXPECT_EQ(StatusErrno(absl::ResourceExhaustedError("")), ENOSPC);
  EXPECT_EQ(StatusErrno(absl::PermissionDeniedError("")), EACCES);
  EXPECT_EQ(StatusErrno(absl::UnauthenticatedError("")), EACCES);
  EXPECT_EQ(StatusErrno(absl::InvalidArgumentError("")), EINVAL);
  EXPECT_EQ(StatusErrno(absl::OutOfRangeError("")), EFBIG);
  EXPECT_EQ(StatusErrno(absl::UnimplementedError("")), EOPNOTSUPP);
  EXPECT_EQ(StatusErrno(absl::CancelledError("")), EINTR);
  EXPECT_EQ(StatusErrno(absl::AbortedError("")), EAGAIN);
  for (const absl::Status& status : {absl::UnavailableError(""), absl::DeadlineExceededError(""),
                                     absl::FailedPreconditionError(""), absl::DataLossError(""),
                                     absl::InternalError(""), absl::UnknownError("")}) {
    EXPECT_EQ(StatusErrno(status), EIO) << status;
  }
}

TEST(ErrnoTest, UnreadablePayloadFallsBackToTheCode) {
  absl::Status status = absl::NotFoundError("");
  status.SetPayload("salius/errno", absl::Cord("nonsense"));
  EXPECT_EQ(StatusErrno(status), ENOENT);
}

TEST(ErrnoDeathTest, NoErrorIsABug) {
  EXPECT_DEATH((void)ErrnoStatus(0, "call"), "no error in: call");
}

TEST_F(FileTest, UniqueFdClosesOnceAndMoves) {
  UniqueFd a = Create("a");
  const int number = a.get();
  UniqueFd b = std::move(a);
  EXPECT_FALSE(a.valid());
  EXPECT_EQ(b.get(), number);
  EXPECT_EQ(b.Close(), absl::OkStatus());
  EXPECT_FALSE(b.valid());
  EXPECT_EQ(b.Close(), absl::OkStatus()) << "nothing is held";
  EXPECT_EQ(fcntl(number, F_GETFD), -1);
}

TEST_F(FileTest, CloseReportsItsError) {
  UniqueFd fd = Create("a");
  close(fd.get());
  EXPECT_EQ(StatusErrno(fd.Close()), EBADF);
}

TEST_F(FileTest, OpenSetsCloexecAndKeepsErrno) {
  const UniqueFd fd = Create("a");
  EXPECT_EQ(fcntl(fd.get(), F_GETFD), FD_CLOEXEC);
  const auto missing = OpenAt(dir(), "missing", O_RDONLY);
  EXPECT_EQ(StatusErrno(missing.status()), ENOENT);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("missing"));
}

TEST_F(FileTest, MkdirRefusesATakenName) {
  EXPECT_EQ(MkdirAt(dir(), "d", 0700), absl::OkStatus());
  EXPECT_EQ(MkdirAt(dir(), "d", 0700).code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(FileTest, DirectoriesAreWritableForTheirOwnerUnderAnyUmask) {
  const std::string top = absl::StrCat("/proc/self/fd/", dir());
  const mode_t umask_before = umask(0);
  EXPECT_TRUE(MakeOwnDirs(top + "/a/b").ok());
  EXPECT_TRUE(MakeDirs(top + "/c").ok());
  umask(umask_before);
  const auto mode = [&](const char* name) {
    struct stat st {};
    EXPECT_EQ(fstatat(dir(), name, &st, 0), 0) << name;
    return st.st_mode & 07777;
  };
  for (const char* name : {"a", "a/b", "c"}) EXPECT_EQ(mode(name), 0755u) << name;
  // MakeOwnDirs closes a directory to other writers; MakeDirs leaves an existing one unchanged.
  ASSERT_EQ(fchmodat(dir(), "a/b", 01777, 0), 0);
  EXPECT_TRUE(MakeDirs(top + "/a/b").ok());
  EXPECT_EQ(mode("a/b"), 01777u);
  EXPECT_TRUE(MakeOwnDirs(top + "/a/b").ok());
  EXPECT_EQ(mode("a/b"), 01755u);
  if (geteuid() == 0) {
    ASSERT_EQ(fchownat(dir(), "a/b", 1, 1, 0), 0);
    EXPECT_TRUE(absl::IsPermissionDenied(MakeOwnDirs(top + "/a/b")));
  }
}

TEST_F(FileTest, ReadStopsAtTheEndOfTheFile) {
  const UniqueFd fd = Create("a");
  ASSERT_EQ(PwriteFull(fd.get(), AsBytes("hello"), 2), absl::OkStatus());
  char buffer[16] = {};
  EXPECT_EQ(PreadFull(fd.get(), buffer, sizeof(buffer), 0).value(), 7u);
  EXPECT_EQ(std::string(buffer, 7), std::string("\0\0hello", 7));
  EXPECT_EQ(PreadFull(fd.get(), buffer, sizeof(buffer), 7).value(), 0u);
  EXPECT_EQ(FileSize(fd.get()).value(), 7u);
}

TEST_F(FileTest, ReadAndWriteErrorsCarryErrno) {
  char byte = 0;
  EXPECT_EQ(StatusErrno(PreadFull(-1, &byte, 1, 0).status()), EBADF);
  EXPECT_EQ(StatusErrno(PwriteFull(-1, AsBytes("x"), 0)), EBADF);
  EXPECT_EQ(StatusErrno(PwriteFull(dir(), AsBytes("x"), 0)), EBADF);
  EXPECT_EQ(StatusErrno(FsyncFd(-1)), EBADF);
  EXPECT_EQ(StatusErrno(FdatasyncFd(-1)), EBADF);
  EXPECT_EQ(StatusErrno(SyncFs(-1)), EBADF);
  EXPECT_EQ(StatusErrno(FileSize(-1).status()), EBADF);
  EXPECT_EQ(StatusErrno(StatfsFree(-1).status()), EBADF);
  EXPECT_EQ(StatusErrno(LockExclusive(-1)), EBADF);
}

TEST_F(FileTest, VectoredWriteTakesMorePartsThanTheKernelDoes) {
  const UniqueFd fd = Create("a");
  std::string expected;
  std::vector<std::string> texts;
  for (int i = 0; i < 3000; ++i)
    texts.push_back(std::string(static_cast<size_t>(i % 5), 'a' + i % 26));
  std::vector<iovec> parts;
  for (std::string& text : texts) {
    parts.push_back({text.data(), text.size()});
    expected += text;
  }
  ASSERT_EQ(PwritevFull(fd.get(), parts, 10, RWF_DSYNC), absl::OkStatus());
  std::string found(expected.size(), 0);
  EXPECT_EQ(PreadFull(fd.get(), found.data(), found.size(), 10).value(), expected.size());
  EXPECT_EQ(found, expected);
  EXPECT_EQ(PwritevFull(fd.get(), {}, 0), absl::OkStatus());
}

TEST_F(FileTest, SyncsSucceedOnAnOpenFile) {
  const UniqueFd fd = Create("a");
  EXPECT_EQ(FsyncFd(fd.get()), absl::OkStatus());
  EXPECT_EQ(FdatasyncFd(fd.get()), absl::OkStatus());
  EXPECT_EQ(SyncFs(fd.get()), absl::OkStatus());
}

TEST_F(FileTest, AtomicWriteReplacesAndLeavesNoTemporaryFile) {
  ASSERT_EQ(WriteFileAtomically(dir(), "a", AsBytes("one")), absl::OkStatus());
  ASSERT_EQ(WriteFileAtomically(dir(), "a", AsBytes("two!"), 0640), absl::OkStatus());
  EXPECT_EQ(ReadWholeFile(dir(), "a").value(), "two!");
  EXPECT_EQ(OpenAt(dir(), "a.tmp", O_RDONLY).status().code(), absl::StatusCode::kNotFound);
  struct stat st;
  ASSERT_EQ(fstatat(dir(), "a", &st, 0), 0);
  EXPECT_EQ(st.st_mode & 0777, 0640u);
}

TEST_F(FileTest, AtomicWriteOverATornEarlierAttempt) {
  ASSERT_EQ(PwriteFull(Create("a.tmp").get(), AsBytes("left by a crash"), 0), absl::OkStatus());
  ASSERT_EQ(WriteFileAtomically(dir(), "a", AsBytes("x")), absl::OkStatus());
  EXPECT_EQ(ReadWholeFile(dir(), "a").value(), "x");
}

TEST_F(FileTest, FailedAtomicWriteKeepsTheOldContent) {
  ASSERT_EQ(MkdirAt(dir(), "d", 0700), absl::OkStatus());
  EXPECT_FALSE(WriteFileAtomically(dir(), "d", AsBytes("x")).ok()) << "a directory has the name";
  EXPECT_EQ(OpenAt(dir(), "d.tmp", O_RDONLY).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(StatusErrno(WriteFileAtomically(dir(), "d/e", AsBytes("x"))), EINVAL);
  EXPECT_EQ(StatusErrno(WriteFileAtomically(dir(), "", AsBytes("x"))), EINVAL);
}

TEST_F(FileTest, WholeFileIsBounded) {
  ASSERT_EQ(WriteFileAtomically(dir(), "a", std::vector<uint8_t>(200'000, 'x')), absl::OkStatus());
  EXPECT_EQ(ReadWholeFile(dir(), "a", 200'000)->size(), 200'000u);
  EXPECT_EQ(ReadWholeFile(dir(), "a", 199'999).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(StatusErrno(ReadWholeFile(dir(), ".").status()), EISDIR);
  EXPECT_FALSE(ReadWholeFile("/proc/self/status")->empty()) << "a file whose size is 0";
}

TEST_F(FileTest, SpaceIsPlausible) {
  const auto space = StatfsFree(dir());
  ASSERT_TRUE(space.ok()) << space.status();
  EXPECT_GT(space->bytes_total, 0u);
  EXPECT_LE(space->bytes_avail, space->bytes_free);
  EXPECT_LE(space->bytes_free, space->bytes_total);
}

TEST_F(FileTest, LockIsHeldAgainstAnotherOpenUntilClosed) {
  UniqueFd first = Create("lock");
  const UniqueFd second = *OpenAt(dir(), "lock", O_RDWR);
  EXPECT_EQ(LockExclusive(first.get(), "volume X"), absl::OkStatus());
  EXPECT_EQ(LockExclusive(first.get(), "volume X"), absl::OkStatus()) << "the same open file";
  const absl::Status refused = LockExclusive(second.get(), "volume X");
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("volume X is locked"));
  first.Reset();
  EXPECT_EQ(LockExclusive(second.get(), "volume X"), absl::OkStatus());
}

TEST_F(FileTest, HandleNamesTheSameFileAfterARename) {
  const UniqueFd fd = Create("a");
  const auto handle = HandleOf(dir(), "a", 0);
  ASSERT_TRUE(handle.ok()) << handle.status();
  ASSERT_EQ(renameat(dir(), "a", dir(), "b"), 0);
  EXPECT_EQ(HandleOf(dir(), "b", 0).value(), *handle);
  EXPECT_EQ(HandleOf(fd.get(), "", AT_EMPTY_PATH).value(), *handle);
  EXPECT_EQ(StatusErrno(HandleOf(dir(), "a", 0).status()), ENOENT);
}

TEST_F(FileTest, HandleOpensTheFileUntilItIsGone) {
  if (geteuid() != 0) GTEST_SKIP() << "open_by_handle_at needs CAP_DAC_READ_SEARCH";
  { ASSERT_EQ(PwriteFull(Create("a").get(), AsBytes("x"), 0), absl::OkStatus()); }
  const FileHandle handle = *HandleOf(dir(), "a", 0);
  {
    const auto fd = OpenByHandle(dir(), handle, O_RDONLY);
    ASSERT_TRUE(fd.ok()) << fd.status();
    EXPECT_EQ(fcntl(fd->get(), F_GETFD), FD_CLOEXEC);
    EXPECT_EQ(FileSize(fd->get()).value(), 1u);
  }
  ASSERT_EQ(unlinkat(dir(), "a", 0), 0);
  EXPECT_EQ(StatusErrno(OpenByHandle(dir(), handle, O_RDONLY).status()), ESTALE);
}

// ext4 has an answer of its own while a new file gets the inode number of the removed one.
TEST_F(FileTest, HandleOfAGoneFileIsStaleWhileItsInodeIsTakenAgain) {
  if (geteuid() != 0) GTEST_SKIP() << "open_by_handle_at needs CAP_DAC_READ_SEARCH";
  Create("a");
  const FileHandle handle = *HandleOf(dir(), "a", 0);
  ASSERT_EQ(unlinkat(dir(), "a", 0), 0);
  std::atomic<int> made = 0;
  std::thread creator([&] {
    for (; made < 300'000; ++made) {
      Create("b");
      unlinkat(dir(), "b", 0);
    }
  });
  absl::Status other;
  while (made < 300'000) {
    const absl::Status status = OpenByHandle(dir(), handle, O_RDONLY).status();
    if (StatusErrno(status) != ESTALE) other = status;
  }
  creator.join();
  EXPECT_EQ(other, absl::OkStatus());
}

TEST_F(FileTest, OverlongHandleIsRefused) {
  const FileHandle handle{1, std::string(129, 'x')};
  EXPECT_EQ(StatusErrno(OpenByHandle(dir(), handle, O_RDONLY).status()), EINVAL);
}

TEST(FilePathTest, ErrorsNameTheWholePath) {
  const std::string dir = ::testing::TempDir() + "named";
  std::filesystem::create_directory(dir);
  const auto fd = OpenAt(AT_FDCWD, dir, O_RDONLY | O_DIRECTORY);
  ASSERT_TRUE(fd.ok());
  const std::string real = PathOfFd(fd->get());
  const auto says = [](const absl::Status& status) { return std::string(status.message()); };
  EXPECT_THAT(says(OpenAt(fd->get(), "state", O_RDONLY).status()), HasSubstr(real + "/state: "));
  EXPECT_THAT(says(ReadWholeFile(fd->get(), "state").status()), HasSubstr(real + "/state: "));
  EXPECT_THAT(says(MkdirAt(fd->get(), "a/b", 0700)), HasSubstr(real + "/a/b: "));
  const uint8_t byte = 1;
  EXPECT_THAT(says(PwriteFull(fd->get(), {&byte, 1}, 0)), HasSubstr(real + ": "));
  EXPECT_THAT(says(OpenAt(AT_FDCWD, "/no/such", O_RDONLY).status()), HasSubstr("open /no/such: "));
  EXPECT_EQ(PathOfFd(-1), "");
}

TEST(FilePathTest, AtPathKeepsCodeAndErrnoAndNamesThePathOnce) {
  const absl::Status named = AtPath(ErrnoStatus(ENOSPC, "pwrite"), "/a/b");
  EXPECT_TRUE(absl::IsResourceExhausted(named));
  EXPECT_EQ(StatusErrno(named), ENOSPC);
  EXPECT_EQ(AtPath(named, "/a/b"), named);
  EXPECT_TRUE(AtPath(absl::OkStatus(), "/a/b").ok());
}

}  // namespace
}  // namespace salius
