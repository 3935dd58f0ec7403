// The same cases on every backing: descriptors, attributes, extended attributes, data, space.
// Names and directories are in backing_names_test.cc. So the one in memory cannot differ from the
// kernel's in what the product relies on.
#include "storage/backing.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/bytes.h"
#include "storage/apply.h"
#include "storage/posix_acl.h"
#include "tests/unit/storage/backing_worlds.h"

namespace salius {
namespace {

constexpr uint64_t kBlock = 4096;
constexpr uint64_t kMiB = uint64_t{1} << 20;

// Returns an ACL; with `mask` also an entry for user 1000.
std::string Acl(uint16_t user, uint16_t group, uint16_t other, int mask = -1) {
  std::vector<uint8_t> bytes;
  ByteWriter out(&bytes);
  const auto add = [&](uint16_t tag, uint16_t bits, uint32_t id) {
    out.PutU16(tag);
    out.PutU16(bits);
    out.PutU32(id);
  };
  constexpr uint32_t kNoId = UINT32_MAX;
  out.PutU32(kAclVersion);
  add(kAclUserObj, user, kNoId);
  if (mask >= 0) add(kAclUser, 7, 1000);
  add(kAclGroupObj, group, kNoId);
  if (mask >= 0) add(kAclMask, static_cast<uint16_t>(mask), kNoId);
  add(kAclOther, other, kNoId);
  return std::string(bytes.begin(), bytes.end());
}

// Has cachestat(2) fail on this thread, as before Linux 6.5.
void ForgetCachestat() {
  constexpr uint32_t kCachestat = 451;
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kCachestat, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {std::size(filter), filter};
  SALIUS_CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  SALIUS_CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

// Calls `attempt` until it returns true; returns false when it did not within a minute.
template <typename Attempt>
bool Succeeds(const Attempt& attempt) {
  const absl::Time give_up = absl::Now() + absl::Minutes(1);
  while (!attempt()) {
    if (absl::Now() > give_up) return false;
  }
  return true;
}

class BackingCallsTest : public BackingTest {
 protected:
  // Makes one object of each type and returns their names.
  std::vector<std::string> MakeEachType() {
    MakeFile("file");
    MakeDir("dir");
    SALIUS_CHECK_OK(backing().Symlink("nowhere", root(), "link"));
    SALIUS_CHECK_OK(backing().MakeNode(root(), "fifo", S_IFIFO | 0600, 0));
    SALIUS_CHECK_OK(backing().MakeNode(root(), "socket", S_IFSOCK | 0600, 0));
    SALIUS_CHECK_OK(backing().MakeNode(root(), "device", S_IFCHR | 0600, makedev(1, 3)));
    return {"file", "dir", "link", "fifo", "socket", "device"};
  }
};

TEST_P(BackingCallsTest, ClosedNumberGivesEbadf) {
  Backing& b = backing();
  char byte = 0;
  const timespec times[2] = {};
  for (const int bad : {-1, 1 << 28}) {
    EXPECT_EQ(Errno(b.Stat(bad)), EBADF);
    EXPECT_EQ(Errno(b.StatAt(bad, "x")), EBADF);
    EXPECT_EQ(Errno(b.OpenAt(bad, "x", O_PATH)), EBADF);
    EXPECT_EQ(Errno(b.OpenChild(bad, "x")), EBADF);
    EXPECT_EQ(Errno(b.Pread(bad, &byte, 1, 0)), EBADF);
    EXPECT_EQ(Errno(b.Pwrite(bad, "x", 0)), EBADF);
    EXPECT_EQ(Errno(b.Truncate(bad, 0)), EBADF);
    EXPECT_EQ(Errno(b.Fallocate(bad, 0, 0, 1)), EBADF);
    EXPECT_EQ(Errno(b.Chown(bad, 1, 1)), EBADF);
    EXPECT_EQ(Errno(b.SetTimes(bad, times)), EBADF);
    EXPECT_EQ(Errno(b.Fsync(bad)), EBADF);
    EXPECT_EQ(Errno(b.SyncFs(bad)), EBADF);
    EXPECT_EQ(Errno(b.StatVfs(bad)), EBADF);
    EXPECT_EQ(Errno(b.Unlink(bad, "x", 0)), EBADF);
    EXPECT_EQ(Errno(b.MkdirAt(bad, "x", 0700)), EBADF);
    EXPECT_EQ(Errno(b.Rename(bad, "x", bad, "y", 0)), EBADF);
    EXPECT_FALSE(b.SizeFits(bad, 1));
    EXPECT_EQ(b.UnallocatedBytes(bad, 0, 7), 7u);
  }
  EXPECT_EQ(Errno(b.XattrValue(-1, "user.x")), EBADF);
  EXPECT_EQ(Errno(b.SetXattr(-1, "user.x", "")), EBADF);
  EXPECT_EQ(Errno(b.RemoveXattr(-1, "user.x")), EBADF);
  EXPECT_EQ(Errno(b.Chmod(-1, 0)), EBADF);
  EXPECT_EQ(Errno(b.Reopen(-1, O_RDONLY)), EBADF);
  EXPECT_EQ(Errno(b.PathOf(-1)), EBADF);
}

TEST_P(BackingCallsTest, OpenRefusesTheWrongType) {
  MakeEachType();
  Backing& b = backing();
  EXPECT_EQ(Errno(b.OpenAt(root(), "none", O_PATH)), ENOENT);
  EXPECT_EQ(Errno(b.OpenAt(root(), std::string(256, 'n'), O_PATH)), ENAMETOOLONG);
  EXPECT_EQ(Errno(b.OpenAt(Open("file").get(), "x", O_PATH)), ENOTDIR);
  EXPECT_EQ(Errno(b.OpenAt(root(), "file", O_RDONLY | O_DIRECTORY)), ENOTDIR);
  EXPECT_EQ(Errno(b.OpenAt(root(), "dir", O_RDWR)), EISDIR);
  EXPECT_EQ(Errno(b.OpenAt(root(), "link", O_RDONLY | O_NOFOLLOW)), ELOOP);
  EXPECT_EQ(Errno(b.OpenAt(root(), "socket", O_RDONLY)), ENXIO);
  EXPECT_EQ(Errno(b.Reopen(Open("link").get(), O_RDONLY)), ELOOP);
  EXPECT_EQ(Errno(b.OpenChild(root(), "none")), ENOENT);
  for (const char* const name : {"file", "dir", "link", "socket"}) {
    EXPECT_EQ(Errno(b.OpenChild(root(), name)), 0) << name;
  }
}

TEST_P(BackingCallsTest, ReopenedPathDescriptorReadsAndWrites) {
  MakeFile("f");
  const BackingFd path = Open("f");
  char byte = 0;
  EXPECT_EQ(Errno(backing().Pread(path.get(), &byte, 1, 0)), EBADF);
  EXPECT_EQ(Errno(backing().Fsync(path.get())), EBADF);
  auto fd = backing().Reopen(path.get(), O_RDWR);
  ASSERT_TRUE(fd.ok());
  EXPECT_EQ(Errno(backing().Pwrite(fd->get(), "abc", 0)), 0);
  EXPECT_EQ(Content("f"), "abc");
}

TEST_P(BackingCallsTest, NamelessFileGetsOneName) {
  auto fd = backing().OpenTmpFile(root());
  ASSERT_TRUE(fd.ok());
  EXPECT_EQ(backing().Stat(fd->get())->st_nlink, 0u);
  EXPECT_EQ(Errno(backing().LinkFd(fd->get(), root(), "f")), 0);
  EXPECT_EQ(Stat("f").st_nlink, 1u);
  EXPECT_EQ(Errno(backing().Unlink(root(), "f", 0)), 0);
  EXPECT_EQ(Errno(backing().LinkFd(fd->get(), root(), "f")), ENOENT);
}

TEST_P(BackingCallsTest, HandleFindsAFileUntilItIsGone) {
  MakeFile("f");
  BackingFd path = Open("f");
  auto handle = backing().HandleOf(path.get());
  ASSERT_TRUE(handle.ok());
  EXPECT_EQ(Errno(backing().Rename(root(), "f", root(), "g", 0)), 0);
  path.Reset();
  auto found = backing().OpenByHandle(root(), *handle, O_PATH);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(backing().Stat(found->get())->st_ino, Stat("g").st_ino);
  found->Reset();
  EXPECT_EQ(Errno(backing().Unlink(root(), "g", 0)), 0);
  const auto gone = backing().OpenByHandle(root(), *handle, O_PATH);
  EXPECT_EQ(Errno(gone), ESTALE);
  EXPECT_TRUE(absl::IsNotFound(gone.status()));
}

TEST_P(BackingCallsTest, StatTellsTypeLinksAndSize) {
  const std::vector<mode_t> types = {S_IFREG, S_IFDIR, S_IFLNK, S_IFIFO, S_IFSOCK, S_IFCHR};
  const std::vector<std::string> names = MakeEachType();
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(Stat(names[i]).st_mode & S_IFMT, types[i]) << names[i];
    EXPECT_EQ(Stat(names[i]).st_dev, Stat("").st_dev);
  }
  EXPECT_EQ(Stat("dir").st_nlink, 2u);
  EXPECT_EQ(Stat("").st_nlink, 3u);
  EXPECT_EQ(Stat("link").st_size, 7);
  EXPECT_EQ(Stat("device").st_rdev, makedev(1, 3));
  EXPECT_EQ(Errno(backing().StatAt(root(), "none")), ENOENT);
}

TEST_P(BackingCallsTest, ChownClearsSetIdBitsOfFiles) {
  MakeFile("f");
  MakeDir("d");
  const BackingFd f = Open("f"), d = Open("d");
  EXPECT_EQ(Errno(backing().Chmod(f.get(), 06755)), 0);
  EXPECT_EQ(Errno(backing().Chmod(d.get(), 02755)), 0);
  EXPECT_EQ(Errno(backing().Chown(f.get(), 7, static_cast<gid_t>(-1))), 0);
  EXPECT_EQ(Errno(backing().Chown(d.get(), 7, 8)), 0);
  EXPECT_EQ(Stat("f").st_mode & 07777, 0755u);
  EXPECT_EQ(Stat("f").st_uid, 7u);
  EXPECT_EQ(Stat("f").st_gid, 0u);
  EXPECT_EQ(Stat("d").st_mode & 07777, 02755u);
  // A set-group-id bit without the group's right to execute is mandatory locking's, and stays.
  EXPECT_EQ(Errno(backing().Chmod(f.get(), 02744)), 0);
  EXPECT_EQ(Errno(backing().Chown(f.get(), 9, 9)), 0);
  EXPECT_EQ(Stat("f").st_mode & 07777, 02744u);
}

TEST_P(BackingCallsTest, SymbolicLinkHasOwnerAndTimesButNoMode) {
  ASSERT_TRUE(backing().Symlink("target", root(), "link").ok());
  const BackingFd link = Open("link");
  const timespec times[2] = {{11, 12}, {13, 14}};
  EXPECT_EQ(Errno(backing().Chmod(link.get(), 0600)), EOPNOTSUPP);
  EXPECT_EQ(Errno(backing().Chown(link.get(), 5, 6)), 0);
  EXPECT_EQ(Errno(backing().SetTimes(link.get(), times)), 0);
  EXPECT_EQ(Stat("link").st_uid, 5u);
  EXPECT_EQ(Stat("link").st_mtim.tv_sec, 13);
  EXPECT_EQ(*backing().ReadLinkOf(link.get()), "target");
  MakeFile("f");
  EXPECT_EQ(Errno(backing().ReadLinkOf(Open("f").get())), ENOENT);
}

TEST_P(BackingCallsTest, TimesAreSetAndOmitted) {
  MakeFile("f");
  const BackingFd f = Open("f");
  const timespec both[2] = {{100, 1}, {200, 2}};
  const timespec atime[2] = {{300, 3}, {0, UTIME_OMIT}};
  const timespec wrong[2] = {{0, 0}, {0, 1'000'000'000}};
  EXPECT_EQ(Errno(backing().SetTimes(f.get(), both)), 0);
  EXPECT_EQ(Errno(backing().SetTimes(f.get(), atime)), 0);
  EXPECT_EQ(Errno(backing().SetTimes(f.get(), wrong)), EINVAL);
  EXPECT_EQ(Stat("f").st_atim.tv_sec, 300);
  EXPECT_EQ(Stat("f").st_atim.tv_nsec, 3);
  EXPECT_EQ(Stat("f").st_mtim.tv_sec, 200);
  EXPECT_EQ(Stat("f").st_mtim.tv_nsec, 2);
  const auto birth = backing().BirthTimeOf(f.get());
  ASSERT_TRUE(birth.ok() && birth->has_value());
  EXPECT_LE((*birth)->tv_sec, Stat("f").st_ctim.tv_sec);
}

TEST_P(BackingCallsTest, ClockOfTheFileSystemIsNotBehindItsStamps) {
  const BackingFd f = OpenNew("f");
  const timespec now = backing().FileTimeNow(f.get());
  EXPECT_GE(std::pair(now.tv_sec, now.tv_nsec),
            std::pair(Stat("").st_mtim.tv_sec, Stat("").st_mtim.tv_nsec));
}

TEST_P(BackingCallsTest, EveryTypeKeepsATrustedXattr) {
  for (const std::string& name : MakeEachType()) {
    SCOPED_TRACE(name);
    const BackingFd fd = Open(name);
    EXPECT_EQ(Errno(backing().XattrValue(fd.get(), "trusted.x")), ENODATA);
    EXPECT_EQ(Errno(backing().SetXattr(fd.get(), "trusted.x", "value")), 0);
    EXPECT_EQ(*backing().XattrValue(fd.get(), "trusted.x"), "value");
    const auto names = backing().XattrNames(fd.get());
    ASSERT_TRUE(names.ok());
    EXPECT_EQ(std::count(names->begin(), names->end(), "trusted.x"), 1);
    EXPECT_EQ(Errno(backing().RemoveXattr(fd.get(), "trusted.x")), 0);
    EXPECT_EQ(Errno(backing().RemoveXattr(fd.get(), "trusted.x")), 0);
    EXPECT_EQ(Errno(backing().XattrValue(fd.get(), "trusted.x")), ENODATA);
    const bool takes_user = name == "file" || name == "dir";
    EXPECT_EQ(Errno(backing().SetXattr(fd.get(), "user.x", "v")), takes_user ? 0 : EPERM);
  }
}

TEST_P(BackingCallsTest, XattrLimitsAreKept) {
  MakeFile("f");
  const BackingFd f = Open("f");
  EXPECT_EQ(Errno(backing().SetXattr(f.get(), "user." + std::string(251, 'n'), "v")), ERANGE);
  EXPECT_EQ(Errno(backing().SetXattr(f.get(), "user.v", std::string(65537, 'v'))), E2BIG);
  EXPECT_EQ(Errno(backing().SetXattr(f.get(), "other.v", "v")), EOPNOTSUPP);
  EXPECT_EQ(Errno(backing().XattrValue(f.get(), "other.v")), EOPNOTSUPP);
  EXPECT_EQ(Errno(backing().SetXattr(f.get(), "user.v", std::string(60000, 'v'))),
            GetParam() == World::kXfs ? 0 : ENOSPC);
  EXPECT_EQ(Errno(backing().SetXattr(f.get(), "user.w", std::string(3000, 'v'))), 0);
  EXPECT_EQ(backing().XattrValue(f.get(), "user.w")->size(), 3000u);
}

TEST_P(BackingCallsTest, AccessAclAndModeFollowEachOther) {
  MakeFile("f");
  const BackingFd f = Open("f");
  EXPECT_EQ(Errno(backing().XattrValue(f.get(), kAccessAclXattr)), ENODATA);
  EXPECT_EQ(Errno(backing().SetXattr(f.get(), kAccessAclXattr, Acl(6, 4, 0, /*mask=*/6))), 0);
  EXPECT_EQ(Stat("f").st_mode & 07777, 0660u);
  EXPECT_EQ(Errno(backing().Chmod(f.get(), 0741)), 0);
  EXPECT_EQ(*backing().XattrValue(f.get(), kAccessAclXattr), Acl(7, 4, 1, /*mask=*/4));
  // One that says no more than the mode is not kept.
  EXPECT_EQ(Errno(backing().SetXattr(f.get(), kAccessAclXattr, Acl(6, 4, 4))), 0);
  EXPECT_EQ(Stat("f").st_mode & 07777, 0644u);
  EXPECT_EQ(Errno(backing().XattrValue(f.get(), kAccessAclXattr)), ENODATA);
}

TEST_P(BackingCallsTest, AclsAreRefusedWhereTheyMeanNothing) {
  MakeFile("f");
  MakeDir("d");
  ASSERT_TRUE(backing().Symlink("t", root(), "l").ok());
  EXPECT_EQ(Errno(backing().SetXattr(Open("f").get(), kDefaultAclXattr, Acl(7, 5, 0))), EACCES);
  EXPECT_EQ(Errno(backing().SetXattr(Open("f").get(), kAccessAclXattr, "nonsense")), EOPNOTSUPP);
  EXPECT_EQ(Errno(backing().SetXattr(Open("l").get(), kAccessAclXattr, Acl(7, 5, 0))), EOPNOTSUPP);
  EXPECT_EQ(Errno(backing().SetXattr(Open("d").get(), kDefaultAclXattr, Acl(7, 5, 0))), 0);
  EXPECT_EQ(*backing().XattrValue(Open("d").get(), kDefaultAclXattr), Acl(7, 5, 0));
  EXPECT_EQ(Stat("d").st_mode & 07777, 0755u);
}

TEST_P(BackingCallsTest, CapabilityGoesWithAChangeOfDataOrOwner) {
  const BackingFd f = OpenNew("f");
  // VFS_CAP_REVISION_2, no rights.
  std::string capability(20, '\0');
  StoreU32(capability.data(), 0x02000000);
  const auto set = [&] {
    SALIUS_CHECK_OK(backing().SetXattr(f.get(), kCapabilityXattr, capability));
  };
  const auto there = [&] { return backing().XattrValue(f.get(), kCapabilityXattr).ok(); };
  set();
  EXPECT_EQ(Errno(backing().Chmod(f.get(), 0600)), 0);
  EXPECT_TRUE(there());
  EXPECT_EQ(Errno(backing().Pwrite(f.get(), "x", 0)), 0);
  EXPECT_FALSE(there());
  set();
  EXPECT_EQ(Errno(backing().Truncate(f.get(), 100)), 0);
  EXPECT_FALSE(there());
  set();
  EXPECT_EQ(Errno(backing().Chown(f.get(), 3, 3)), 0);
  EXPECT_FALSE(there());
}

TEST_P(BackingCallsTest, DataIsReadAsWritten) {
  const BackingFd f = OpenNew("f");
  std::string a = "abc", b = "defg";
  const iovec parts[2] = {{a.data(), a.size()}, {b.data(), b.size()}};
  EXPECT_EQ(Errno(backing().Pwritev(f.get(), parts, kBlock - 2)), 0);
  EXPECT_EQ(Content("f"), std::string(kBlock - 2, '\0') + "abcdefg");
  char out[8] = {};
  EXPECT_EQ(*backing().Pread(f.get(), out, sizeof(out), kBlock + 1), 4u);
  EXPECT_EQ(std::string(out, 4), "defg");
  EXPECT_EQ(*backing().Pread(f.get(), out, sizeof(out), kMiB), 0u);
  const BackingFd reader = Open("f", O_RDONLY), writer = Open("f", O_WRONLY);
  EXPECT_EQ(Errno(backing().Pwrite(reader.get(), "x", 0)), EBADF);
  EXPECT_EQ(Errno(backing().Pread(writer.get(), out, 1, 0)), EBADF);
  EXPECT_EQ(Errno(backing().Pread(root(), out, 1, 0)), EISDIR);
}

TEST_P(BackingCallsTest, DroppedPageIsMissingUntilItIsFetched) {
  constexpr uint64_t kAt = 15 * kMiB;  // far behind what a read ahead of the begin would fetch
  const BackingFd f = OpenNew("f");
  ASSERT_TRUE(backing().Pwrite(f.get(), std::string(16 * kMiB, 'x'), 0).ok());
  ASSERT_TRUE(backing().Fsync(f.get()).ok());
  const auto cached = [&] { return backing().ArePagesCached(f.get(), kAt + 100, 10); };
  const auto missing = [&] {
    DropPages(f.get());
    return !cached();
  };
  EXPECT_TRUE(cached());
  ASSERT_TRUE(Succeeds(missing));
  EXPECT_FALSE(backing().ArePagesCached(f.get(), 0, 16 * kMiB));
  EXPECT_TRUE(Succeeds([&] {
    char byte = 0;
    return backing().Pread(f.get(), &byte, 1, kAt).ok() && cached();
  }));
  ASSERT_TRUE(Succeeds(missing));
  EXPECT_TRUE(Succeeds([&] {
    backing().BeginFetch(f.get(), kAt, kBlock);
    return cached();
  }));
}

TEST_P(BackingCallsTest, MissingPageIsKnownWithoutCachestat) {
  const BackingFd f = OpenNew("f");
  ASSERT_TRUE(backing().Pwrite(f.get(), std::string(kBlock, 'x'), 0).ok());
  ASSERT_TRUE(backing().Fsync(f.get()).ok());
  const auto cached = [&] { return backing().ArePagesCached(f.get(), 0, kBlock); };
  std::thread old_kernel([&] {
    ForgetCachestat();
    EXPECT_TRUE(cached());
    EXPECT_TRUE(Succeeds([&] {
      DropPages(f.get());
      return !cached();
    }));
    EXPECT_TRUE(Succeeds([&] {
      backing().BeginFetch(f.get(), 0, kBlock);
      return cached();
    }));
  });
  old_kernel.join();
}

TEST_P(BackingCallsTest, TruncatedBytesComeBackAsZeros) {
  const BackingFd f = OpenNew("f");
  ASSERT_TRUE(backing().Pwrite(f.get(), std::string(2 * kBlock, 'x'), 0).ok());
  EXPECT_EQ(Errno(backing().Truncate(f.get(), 3)), 0);
  EXPECT_EQ(Errno(backing().Truncate(f.get(), 6)), 0);
  EXPECT_EQ(Content("f"), std::string("xxx\0\0\0", 6));
  EXPECT_EQ(Errno(backing().Truncate(Open("f", O_RDONLY).get(), 0)), EINVAL);
  EXPECT_EQ(Errno(backing().Truncate(f.get(), uint64_t{1} << 63)), EFBIG);
}

TEST_P(BackingCallsTest, FallocateChangesBlocksAndKeepsTheSize) {
  const BackingFd f = OpenNew("f");
  EXPECT_EQ(backing().UnallocatedBytes(f.get(), 0, 8 * kBlock), 8 * kBlock);
  EXPECT_EQ(Errno(backing().Fallocate(f.get(), FALLOC_FL_KEEP_SIZE, 0, 4 * kBlock)), 0);
  EXPECT_EQ(Stat("f").st_size, 0);
  EXPECT_EQ(Stat("f").st_blocks, static_cast<blkcnt_t>(4 * kBlock / 512));
  EXPECT_EQ(backing().UnallocatedBytes(f.get(), 0, 8 * kBlock), 4 * kBlock);
  EXPECT_EQ(backing().UnallocatedBytes(f.get(), 3 * kBlock, 5), 0u);
  EXPECT_EQ(Errno(backing().Fallocate(f.get(), 0, 0, 5 * kBlock)), 0);
  EXPECT_EQ(Stat("f").st_size, static_cast<off_t>(5 * kBlock));
  ASSERT_TRUE(backing().Pwrite(f.get(), std::string(5 * kBlock, 'x'), 0).ok());
  ASSERT_TRUE(backing().Fsync(f.get()).ok());
  constexpr int kPunch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  EXPECT_EQ(Errno(backing().Fallocate(f.get(), kPunch, 1, 2 * kBlock)), 0);
  EXPECT_EQ(backing().UnallocatedBytes(f.get(), 0, 5 * kBlock), kBlock);
  EXPECT_EQ(Content("f"), "x" + std::string(2 * kBlock, '\0') + std::string(3 * kBlock - 1, 'x'));
  EXPECT_EQ(Errno(backing().Fallocate(f.get(), FALLOC_FL_ZERO_RANGE, 0, 4 * kBlock)), 0);
  EXPECT_EQ(backing().UnallocatedBytes(f.get(), 0, 5 * kBlock), 0u);
  EXPECT_EQ(Content("f"), std::string(4 * kBlock, '\0') + std::string(kBlock, 'x'));
}

TEST_P(BackingCallsTest, FallocateRefuses) {
  const BackingFd f = OpenNew("f");
  EXPECT_EQ(Errno(backing().Fallocate(f.get(), 0, 0, 0)), EINVAL);
  EXPECT_EQ(Errno(backing().Fallocate(f.get(), 0, uint64_t{1} << 63, 1)), EFBIG);
  EXPECT_EQ(Errno(backing().Fallocate(f.get(), FALLOC_FL_PUNCH_HOLE, 0, 1)), EOPNOTSUPP);
  EXPECT_EQ(Errno(backing().Fallocate(Open("f", O_RDONLY).get(), 0, 0, 1)), EBADF);
}

TEST_P(BackingCallsTest, SeekFindsDataAndHoles) {
  const BackingFd f = OpenNew("f");
  ASSERT_TRUE(backing().Pwrite(f.get(), std::string(kBlock, 'x'), 2 * kBlock).ok());
  ASSERT_TRUE(backing().Truncate(f.get(), 5 * kBlock).ok());
  ASSERT_TRUE(backing().Fsync(f.get()).ok());
  EXPECT_EQ(*backing().Seek(f.get(), 0, SEEK_DATA), 2 * kBlock);
  EXPECT_EQ(*backing().Seek(f.get(), 2 * kBlock + 5, SEEK_DATA), 2 * kBlock + 5);
  EXPECT_EQ(*backing().Seek(f.get(), 7, SEEK_HOLE), 7u);
  EXPECT_EQ(*backing().Seek(f.get(), 2 * kBlock, SEEK_HOLE), 3 * kBlock);
  EXPECT_EQ(Errno(backing().Seek(f.get(), 3 * kBlock, SEEK_DATA)), ENXIO);
  EXPECT_EQ(Errno(backing().Seek(f.get(), 5 * kBlock, SEEK_HOLE)), ENXIO);
}

TEST_P(BackingCallsTest, LargestFileIsTheSameForAllCalls) {
  const BackingFd f = OpenNew("f");
  uint64_t fits = 0, end = uint64_t{1} << 63;
  while (end - fits > 1) {
    const uint64_t middle = fits + (end - fits) / 2;
    (backing().SizeFits(f.get(), middle) ? fits : end) = middle;
  }
  EXPECT_GT(fits, uint64_t{1} << 40);
  if (fits == static_cast<uint64_t>(INT64_MAX)) return;
  EXPECT_EQ(Errno(backing().Truncate(f.get(), fits)), 0);
  EXPECT_EQ(Errno(backing().Truncate(f.get(), fits + 1)), EFBIG);
  EXPECT_EQ(Errno(backing().Pwrite(f.get(), "x", fits)), EFBIG);
  EXPECT_EQ(Errno(backing().Fallocate(f.get(), 0, fits, 1)), EFBIG);
}

TEST_P(BackingCallsTest, FullDiskGivesEnospcUntilSpaceIsFreed) {
  const uint64_t before = backing().FreeSpace(root())->bytes_avail;
  BackingFd big = OpenNew("big");
  EXPECT_EQ(Errno(backing().Fallocate(big.get(), 0, 0, before + kMiB)), ENOSPC);
  ASSERT_TRUE(backing().Truncate(big.get(), 0).ok());
  EXPECT_EQ(Errno(backing().Fallocate(big.get(), 0, 0, before / 2)), 0);
  EXPECT_LT(backing().FreeSpace(root())->bytes_avail, before / 2 + kMiB);
  const BackingFd second = OpenNew("second");
  EXPECT_EQ(Errno(backing().Fallocate(second.get(), 0, 0, before / 2 + kMiB)), ENOSPC);
  // A removed file keeps its space while it is open.
  EXPECT_EQ(Errno(backing().Unlink(root(), "big", 0)), 0);
  ASSERT_TRUE(backing().Truncate(second.get(), 0).ok());
  EXPECT_LT(backing().FreeSpace(root())->bytes_avail, before / 2 + kMiB);
  big.Reset();
  // xfs gives the space back in the background.
  uint64_t after = 0;
  const absl::Time give_up = absl::Now() + absl::Seconds(30);
  do {
    ASSERT_TRUE(backing().SyncFs(root()).ok());
    after = backing().FreeSpace(root())->bytes_avail;
  } while (after <= before - kMiB && absl::Now() < give_up);
  EXPECT_GT(after, before - kMiB);
}

TEST_P(BackingCallsTest, StatVfsAgreesWithFreeSpace) {
  const auto st = backing().StatVfs(root());
  const auto space = backing().FreeSpace(root());
  ASSERT_TRUE(st.ok() && space.ok());
  EXPECT_EQ(space->bytes_total, st->f_blocks * st->f_frsize);
  EXPECT_EQ(space->bytes_avail, st->f_bavail * st->f_frsize);
  EXPECT_EQ(space->inodes_total, st->f_files);
  EXPECT_EQ(st->f_namemax, 255u);
}

TEST_P(BackingCallsTest, NoFileSystemHereCopiesOnWriteOrCountsQuotas) {
  EXPECT_FALSE(backing().CopiesOnWrite(root()));
  EXPECT_EQ(backing().QuotaOf(root(), fs::QuotaType::kUser, 1000), std::nullopt);
}

TEST_P(BackingCallsTest, SyncsSucceed) {
  const BackingFd f = OpenNew("f");
  EXPECT_EQ(Errno(backing().Fsync(f.get())), 0);
  EXPECT_EQ(Errno(backing().Fdatasync(f.get())), 0);
  EXPECT_EQ(Errno(backing().Fsync(root())), 0);
  EXPECT_EQ(Errno(backing().SyncFs(root())), 0);
}

TEST_P(BackingCallsTest, MarkedFileRefusesChanges) {
  MakeFile("f");
  SetMarks("f", {.immutable = true});
  const BackingFd f = Open("f");
  const timespec times[2] = {};
  EXPECT_TRUE(backing().ChangeMarksOf(f.get())->immutable);
  EXPECT_EQ(Errno(backing().OpenAt(root(), "f", O_RDWR)), EPERM);
  EXPECT_EQ(Errno(backing().Chown(f.get(), 1, 1)), EPERM);
  EXPECT_EQ(Errno(backing().Chmod(f.get(), 0)), EPERM);
  EXPECT_EQ(Errno(backing().SetTimes(f.get(), times)), EPERM);
  EXPECT_EQ(Errno(backing().SetXattr(f.get(), "user.x", "v")), EPERM);
  EXPECT_EQ(Errno(backing().Unlink(root(), "f", 0)), EPERM);
  EXPECT_EQ(Errno(backing().LinkFd(f.get(), root(), "g")), EPERM);
  EXPECT_EQ(Errno(backing().Rename(root(), "f", root(), "g", 0)), EPERM);
  SetMarks("f", {});
  EXPECT_FALSE(backing().ChangeMarksOf(f.get())->immutable);
  EXPECT_EQ(Errno(backing().Unlink(root(), "f", 0)), 0);
}

TEST_P(BackingCallsTest, SynchronousDirectoryIsKnownAtOnce) {
  ASSERT_EQ(Errno(backing().MkdirAt(root(), "d", 0755)), 0);
  const BackingFd d = Open("d", O_PATH | O_DIRECTORY);
  EXPECT_FALSE(*backing().IsSyncDir(d.get()));
  SetDirsync("d", true);
  EXPECT_TRUE(*backing().IsSyncDir(d.get()));
  EXPECT_TRUE(*backing().IsPlainDir(d.get()));
  SetDirsync("d", false);
  EXPECT_FALSE(*backing().IsSyncDir(d.get()));
}

SALIUS_IN_EVERY_WORLD(BackingCallsTest);

}  // namespace
}  // namespace salius
