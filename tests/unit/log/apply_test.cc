// Applying records to a real file system. Needs root, and trusted xattrs under TEST_TMPDIR.
#include "storage/apply.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/bytes.h"
#include "common/file.h"
#include "common/file_system.h"
#include "gtest/gtest.h"
#include "storage/fs_calls.h"
#include "tests/unit/log/test_dir.h"

namespace salius {
namespace {

using Code = absl::StatusCode;

RecordHeader Header(Op op, uint64_t arg0 = 0, uint64_t arg1 = 0, uint64_t arg2 = 0) {
  RecordHeader header;
  header.op = op;
  header.arg0 = arg0;
  header.arg1 = arg1;
  header.arg2 = arg2;
  return header;
}

class ApplyTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(geteuid(), 0u) << "this test needs root";
    ASSERT_TRUE(WriteFileId(dir_.fd(), 9).ok())
        << "no trusted xattrs under " << dir_.path() << ": set TEST_TMPDIR to ext4, xfs or btrfs";
  }

  struct stat Stat(const std::string& name) {
    auto st = fs::StatAt(dir_.fd(), name);
    SALIUS_CHECK_OK(st);
    return *st;
  }
  std::string Content(const std::string& name) { return *ReadWholeFile(dir_.fd(), name); }
  UniqueFd Path(const std::string& name) { return dir_.Open(name, O_PATH | O_NOFOLLOW); }

  TestDir dir_;
};

TEST_F(ApplyTest, FileIdsAreKeptOnEveryTypeOfObject) {
  dir_.Open("reg", O_RDWR | O_CREAT);
  ASSERT_TRUE(MkdirAt(dir_.fd(), "dir", 0755).ok());
  ASSERT_TRUE(fs::Symlink("nowhere", dir_.fd(), "lnk").ok());
  ASSERT_TRUE(fs::MakeNode(dir_.fd(), "fifo", S_IFIFO | 0600, 0).ok());
  ASSERT_TRUE(fs::MakeNode(dir_.fd(), "sock", S_IFSOCK | 0600, 0).ok());
  ASSERT_TRUE(fs::MakeNode(dir_.fd(), "chr", S_IFCHR | 0600, makedev(1, 3)).ok());
  FileId id = 0x1122334455667788;
  for (const char* name : {"reg", "dir", "lnk", "fifo", "sock", "chr"}) {
    SCOPED_TRACE(name);
    EXPECT_EQ(*ReadFileIdAt(dir_.fd(), name), kNoFileId);
    ASSERT_TRUE(WriteFileId(Path(name).get(), ++id).ok());
    EXPECT_EQ(*ReadFileId(Path(name).get()), id);
    EXPECT_EQ(*ReadFileIdAt(dir_.fd(), name), id);
  }
  EXPECT_EQ(ReadFileIdAt(dir_.fd(), "none").status().code(), Code::kNotFound);
  EXPECT_EQ(ReadFileId(-1).ok(), false);
}

TEST_F(ApplyTest, FileIdIsEightBytesLittleEndian) {
  const UniqueFd fd = dir_.Open("f", O_RDWR | O_CREAT);
  ASSERT_TRUE(WriteFileId(fd.get(), 0x0102030405060708).ok());
  char value[16];
  ASSERT_EQ(fgetxattr(fd.get(), "trusted.salius.id", value, sizeof(value)), 8);
  EXPECT_EQ(std::string(value, 8), "\x08\x07\x06\x05\x04\x03\x02\x01");
}

TEST_F(ApplyTest, DamagedFileIdIsDataLoss) {
  const UniqueFd fd = dir_.Open("f", O_RDWR | O_CREAT);
  for (const std::string& value : {std::string("1234567"), std::string("123456789"),
                                   std::string(8, '\0'), std::string(1000, 'x')}) {
    ASSERT_TRUE(fs::SetXattr(fd.get(), kFileIdXattr, value).ok());
    EXPECT_EQ(ReadFileId(fd.get()).status().code(), Code::kDataLoss);
  }
}

TEST_F(ApplyTest, PathDescriptorCanBeReopened) {
  dir_.Open("f", O_RDWR | O_CREAT);
  auto fd = Reopen(Path("f").get(), O_RDWR);
  ASSERT_TRUE(fd.ok()) << fd.status();
  EXPECT_TRUE(ApplyData(fd->get(), Header(Op::kWrite, 0), "abc").ok());
  EXPECT_EQ(Content("f"), "abc");
  EXPECT_FALSE(Reopen(-1, O_RDWR).ok());
}

TEST_F(ApplyTest, WithoutADescriptorNoCallSaysThatTheFileDoesNotExist) {
  bool found = false;
  EXPECT_EQ(StatusErrno(Reopen(-1, O_RDWR).status()), EBADF);
  EXPECT_EQ(StatusErrno(ReadFileId(-1).status()), EBADF);
  EXPECT_EQ(StatusErrno(WriteFileId(-1, 5)), EBADF);
  EXPECT_EQ(StatusErrno(fs::StatAt(-1, "").status()), EBADF);
  EXPECT_EQ(StatusErrno(fs::GetXattr(-1, "user.x", &found).status()), EBADF);
  EXPECT_EQ(StatusErrno(fs::SetXattr(-1, "user.x", "y")), EBADF);
  EXPECT_EQ(StatusErrno(fs::RemoveXattr(-1, "user.x")), EBADF);
}

TEST_F(ApplyTest, WritesAndTruncatesConverge) {
  const UniqueFd fd = dir_.Open("f", O_RDWR | O_CREAT);
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(ApplyData(fd.get(), Header(Op::kWrite, 2), "hello").ok());
    EXPECT_EQ(Content("f"), std::string("\0\0hello", 7));
    ASSERT_TRUE(ApplyData(fd.get(), Header(Op::kTruncate, 4), "").ok());
    EXPECT_EQ(Content("f"), std::string("\0\0he", 4));
    ASSERT_TRUE(ApplyData(fd.get(), Header(Op::kTruncate, 6), "").ok());
    EXPECT_EQ(Content("f"), std::string("\0\0he\0\0", 6));
    ASSERT_TRUE(ApplyData(fd.get(), Header(Op::kTruncate, 0), "").ok());
  }
}

TEST_F(ApplyTest, FallocatesConverge) {
  const UniqueFd fd = dir_.Open("f", O_RDWR | O_CREAT);
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(ApplyData(fd.get(), Header(Op::kWrite, 0), std::string(10, 'x')).ok());
    ASSERT_TRUE(ApplyData(fd.get(), Header(Op::kFallocate, 0, 20, 0), "").ok());
    EXPECT_EQ(Content("f").size(), 20u);
    ASSERT_TRUE(ApplyData(fd.get(), Header(Op::kFallocate, 0, 100, FALLOC_FL_KEEP_SIZE), "").ok());
    EXPECT_EQ(Content("f").size(), 20u);
    const uint64_t punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    ASSERT_TRUE(ApplyData(fd.get(), Header(Op::kFallocate, 2, 3, punch), "").ok());
    EXPECT_EQ(Content("f").substr(0, 10), std::string("xx\0\0\0xxxxx", 10));
    ASSERT_TRUE(ApplyData(fd.get(), Header(Op::kFallocate, 6, 30, FALLOC_FL_ZERO_RANGE), "").ok());
    EXPECT_EQ(Content("f"), std::string("xx\0\0\0x", 6) + std::string(30, '\0'));
    ASSERT_TRUE(ApplyData(fd.get(), Header(Op::kTruncate, 0), "").ok());
  }
}

TEST_F(ApplyTest, DataOperationsThatDoNotConvergeOrMakeSenseAreRefused) {
  const UniqueFd fd = dir_.Open("f", O_RDWR | O_CREAT);
  const auto code = [&](const RecordHeader& header, std::string_view body) {
    return ApplyData(fd.get(), header, body).code();
  };
  EXPECT_EQ(code(Header(Op::kFallocate, 0, 4096, FALLOC_FL_COLLAPSE_RANGE), ""),
            Code::kInvalidArgument);
  EXPECT_EQ(code(Header(Op::kFallocate, 0, 4096, FALLOC_FL_INSERT_RANGE), ""),
            Code::kInvalidArgument);
  EXPECT_EQ(code(Header(Op::kFallocate, 0, 4096, uint64_t{1} << 33), ""), Code::kInvalidArgument);
  EXPECT_EQ(code(Header(Op::kFallocate, uint64_t{1} << 63, 1, 0), ""), Code::kOutOfRange);
  EXPECT_EQ(code(Header(Op::kTruncate, uint64_t{1} << 63), ""), Code::kOutOfRange);
  EXPECT_EQ(code(Header(Op::kTruncate, 1), "body"), Code::kInvalidArgument);
  EXPECT_EQ(code(Header(Op::kWrite, UINT64_MAX), "x"), Code::kInvalidArgument);
  EXPECT_EQ(code(Header(Op::kWrite, INT64_MAX - 1), "xyz"), Code::kInvalidArgument);
  EXPECT_EQ(code(Header(Op::kSetAttr), ""), Code::kInvalidArgument);
  EXPECT_EQ(Content("f"), "");
}

TEST_F(ApplyTest, ErrorsKeepTheirErrno) {
  const UniqueFd fd = dir_.Open("f", O_RDONLY | O_CREAT);
  EXPECT_EQ(StatusErrno(ApplyData(fd.get(), Header(Op::kWrite, 0), "x")), EBADF);
  const UniqueFd writable = dir_.Open("f", O_RDWR);
  EXPECT_EQ(StatusErrno(ApplyData(writable.get(), Header(Op::kTruncate, INT64_MAX), "")), EFBIG);
}

TEST_F(ApplyTest, OpsAreOfOneKind) {
  int data = 0;
  int names = 0;
  for (uint16_t op = 1; op <= 13; ++op) {
    data += IsDataOp(static_cast<Op>(op));
    names += IsNameOp(static_cast<Op>(op));
    EXPECT_FALSE(IsDataOp(static_cast<Op>(op)) && IsNameOp(static_cast<Op>(op)));
  }
  EXPECT_EQ(data, 3);
  EXPECT_EQ(names, 4);
}

AttrBody FullAttr() {
  AttrBody attr;
  attr.mask = kAttrMode | kAttrUid | kAttrGid | kAttrAtime | kAttrMtime;
  attr.mode = 06755;
  attr.uid = 1234;
  attr.gid = 4321;
  attr.atime_sec = 1000000000;
  attr.atime_nsec = 1;
  attr.mtime_sec = 1100000000;
  attr.mtime_nsec = 999999999;
  return attr;
}

TEST_F(ApplyTest, OwnerModeAndTimesOfAPathDescriptor) {
  dir_.Open("f", O_RDWR | O_CREAT);
  const UniqueFd fd = Path("f");
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(ApplyAttr(fd.get(), Header(Op::kSetAttr), FullAttr().Encode()).ok());
    const struct stat st = Stat("f");
    // suid and sgid survive: the owner is set first.
    EXPECT_EQ(st.st_mode & 07777, 06755u);
    EXPECT_EQ(st.st_uid, 1234u);
    EXPECT_EQ(st.st_gid, 4321u);
    EXPECT_EQ(st.st_atim.tv_sec, 1000000000);
    EXPECT_EQ(st.st_atim.tv_nsec, 1);
    EXPECT_EQ(st.st_mtim.tv_sec, 1100000000);
    EXPECT_EQ(st.st_mtim.tv_nsec, 999999999);
  }
}

TEST_F(ApplyTest, OnlyAttributesInTheMaskAreChanged) {
  dir_.Open("f", O_RDWR | O_CREAT);
  const UniqueFd fd = Path("f");
  ASSERT_TRUE(ApplyAttr(fd.get(), Header(Op::kSetAttr), FullAttr().Encode()).ok());
  const auto apply = [&](uint32_t mask) {
    AttrBody attr;
    attr.mask = mask;
    SALIUS_CHECK_OK(ApplyAttr(fd.get(), Header(Op::kSetAttr), attr.Encode()));
    return Stat("f");
  };
  struct stat st = apply(0);
  EXPECT_EQ(st.st_mode & 07777, 06755u);
  st = apply(kAttrAtime);
  EXPECT_EQ(st.st_atim.tv_sec, 0);
  EXPECT_EQ(st.st_mtim.tv_sec, 1100000000);
  st = apply(kAttrMtime);
  EXPECT_EQ(st.st_mtim.tv_sec, 0);
  EXPECT_EQ(st.st_uid, 1234u);
  st = apply(kAttrUid);
  EXPECT_EQ(st.st_uid, 0u);
  EXPECT_EQ(st.st_gid, 4321u);
  st = apply(kAttrGid);
  EXPECT_EQ(st.st_gid, 0u);
  st = apply(kAttrMode);
  EXPECT_EQ(st.st_mode & 07777, 0u);
}

TEST_F(ApplyTest, SymbolicLinkItselfGetsOwnerAndTimesAndItsTargetNothing) {
  dir_.Open("target", O_RDWR | O_CREAT, 0640);
  const struct stat before = Stat("target");
  ASSERT_TRUE(fs::Symlink("target", dir_.fd(), "lnk").ok());
  ASSERT_TRUE(ApplyAttr(Path("lnk").get(), Header(Op::kSetAttr), FullAttr().Encode()).ok());
  EXPECT_EQ(Stat("lnk").st_uid, 1234u);
  EXPECT_EQ(Stat("lnk").st_mtim.tv_sec, 1100000000);
  EXPECT_EQ(Stat("lnk").st_mode, S_IFLNK | 0777u);
  EXPECT_EQ(Stat("target").st_uid, before.st_uid);
  EXPECT_EQ(Stat("target").st_mode, before.st_mode);
  EXPECT_EQ(Stat("target").st_mtim.tv_sec, before.st_mtim.tv_sec);
}

TEST_F(ApplyTest, FifoGetsAttributesWithoutBeingOpened) {
  ASSERT_TRUE(fs::MakeNode(dir_.fd(), "fifo", S_IFIFO | 0600, 0).ok());
  ASSERT_TRUE(ApplyAttr(Path("fifo").get(), Header(Op::kSetAttr), FullAttr().Encode()).ok());
  EXPECT_EQ(Stat("fifo").st_uid, 1234u);
  EXPECT_EQ(Stat("fifo").st_mode & 0777, 0755u);
}

TEST_F(ApplyTest, XattrsAreSetAndRemovedAndBothConverge) {
  dir_.Open("f", O_RDWR | O_CREAT);
  const UniqueFd fd = Path("f");
  const std::string set = XattrBody{"user.a", "value"}.Encode();
  const std::string remove = XattrBody{"user.a", ""}.Encode();
  bool found = false;
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(ApplyAttr(fd.get(), Header(Op::kSetXattr), set).ok());
    EXPECT_EQ(*fs::GetXattr(fd.get(), "user.a", &found), "value");
  }
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(ApplyAttr(fd.get(), Header(Op::kRemoveXattr), remove).ok());
    ASSERT_TRUE(fs::GetXattr(fd.get(), "user.a", &found).ok());
    EXPECT_FALSE(found);
  }
  const std::string large(3000, 'v');
  ASSERT_TRUE(ApplyAttr(fd.get(), Header(Op::kSetXattr), XattrBody{"user.b", large}.Encode()).ok());
  EXPECT_EQ(*fs::GetXattr(fd.get(), "user.b", &found), large);
}

TEST_F(ApplyTest, BadAttributeRecordsAreRefused) {
  dir_.Open("f", O_RDWR | O_CREAT);
  const UniqueFd fd = Path("f");
  const auto code = [&](Op op, const std::string& body) {
    return ApplyAttr(fd.get(), Header(op), body).code();
  };
  EXPECT_EQ(code(Op::kSetAttr, "short"), Code::kInvalidArgument);
  EXPECT_EQ(code(Op::kSetXattr, "short"), Code::kInvalidArgument);
  EXPECT_EQ(code(Op::kRemoveXattr, "short"), Code::kInvalidArgument);
  EXPECT_EQ(code(Op::kSetXattr, XattrBody{kFileIdXattr, "12345678"}.Encode()),
            Code::kInvalidArgument);
  EXPECT_EQ(code(Op::kRemoveXattr, XattrBody{kFileIdXattr, ""}.Encode()), Code::kInvalidArgument);
  EXPECT_EQ(code(Op::kWrite, ""), Code::kInvalidArgument);
  const absl::Status unknown =
      ApplyAttr(fd.get(), Header(Op::kSetXattr), XattrBody{"nonsense.a", "v"}.Encode());
  EXPECT_EQ(StatusErrno(unknown), EOPNOTSUPP);
  EXPECT_EQ(StatusErrno(ApplyAttr(-1, Header(Op::kSetAttr), FullAttr().Encode())), EBADF);
}

CreateBody Create(uint32_t mode) {
  CreateBody create;
  create.dir = 1;
  create.name = "n";
  create.mode = mode;
  create.uid = 1234;
  create.gid = 4321;
  if (S_ISLNK(mode)) create.symlink_target = "some/where";
  if (S_ISCHR(mode) || S_ISBLK(mode)) create.rdev = makedev(7, 9);
  return create;
}

TEST_F(ApplyTest, EveryTypeOfObjectIsMadeComplete) {
  umask(077);
  FileId id = 100;
  for (const uint32_t type : {S_IFREG, S_IFDIR, S_IFLNK, S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK}) {
    ++id;
    SCOPED_TRACE(absl::StrFormat("type %o", type));
    const uint32_t mode = type | (type == S_IFLNK ? 0777 : 06775);
    // Make it twice: the second replaces the first.
    for (int round = 0; round < 2; ++round) {
      auto fd = MakeObject(dir_.fd(), IdName(id), id, Create(mode));
      ASSERT_TRUE(fd.ok()) << fd.status();
      EXPECT_EQ(*ReadFileId(fd->get()), id);
      const struct stat st = Stat(IdName(id));
      EXPECT_EQ(st.st_mode, mode);
      EXPECT_EQ(st.st_uid, 1234u);
      EXPECT_EQ(st.st_gid, 4321u);
      EXPECT_EQ(fs::StatAt(fd->get(), "")->st_ino, st.st_ino);
      EXPECT_EQ(st.st_rdev, type == S_IFCHR || type == S_IFBLK ? makedev(7, 9) : 0);
    }
  }
  char target[100] = {};
  ASSERT_EQ(readlinkat(dir_.fd(), IdName(103).c_str(), target, sizeof(target)), 10);
  EXPECT_STREQ(target, "some/where");
}

TEST_F(ApplyTest, ObjectsGetTheirXattrs) {
  CreateBody create = Create(S_IFREG | 0640);
  create.xattrs = {{"user.a", "1"}, {"user.b", ""}};
  auto fd = MakeObject(dir_.fd(), "x", 5, create);
  ASSERT_TRUE(fd.ok()) << fd.status();
  bool found = false;
  EXPECT_EQ(*fs::GetXattr(fd->get(), "user.a", &found), "1");
  ASSERT_TRUE(fs::GetXattr(fd->get(), "user.b", &found).ok());
  EXPECT_TRUE(found);
  create.xattrs = {{kFileIdXattr, "12345678"}};
  EXPECT_EQ(MakeObject(dir_.fd(), "x", 5, create).status().code(), Code::kInvalidArgument);
}

TEST_F(ApplyTest, OldObjectOfAnotherTypeIsReplaced) {
  ASSERT_TRUE(MkdirAt(dir_.fd(), "x", 0755).ok());
  ASSERT_TRUE(MakeObject(dir_.fd(), "x", 5, Create(S_IFREG | 0600)).ok());
  EXPECT_TRUE(S_ISREG(Stat("x").st_mode));
  ASSERT_TRUE(MakeObject(dir_.fd(), "x", 5, Create(S_IFDIR | 0700)).ok());
  EXPECT_TRUE(S_ISDIR(Stat("x").st_mode));
}

TEST_F(ApplyTest, NonEmptyDirectoryIsNeverRemoved) {
  ASSERT_TRUE(MkdirAt(dir_.fd(), "x", 0755).ok());
  dir_.Open("x/precious", O_RDWR | O_CREAT);
  EXPECT_EQ(StatusErrno(MakeObject(dir_.fd(), "x", 5, Create(S_IFREG | 0600)).status()), ENOTEMPTY);
  EXPECT_TRUE(S_ISREG(Stat("x/precious").st_mode));
}

TEST_F(ApplyTest, UnknownTypeOfObjectIsRefused) {
  EXPECT_EQ(MakeObject(dir_.fd(), "x", 5, Create(0644)).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(MakeObject(-1, "x", 5, Create(S_IFREG)).ok(), false);
}

TEST_F(ApplyTest, IdNamesAreSixteenHexDigits) {
  EXPECT_EQ(IdName(1), "0000000000000001");
  EXPECT_EQ(IdName(0xFEDCBA9876543210), "fedcba9876543210");
}

TEST_F(ApplyTest, TreesAreRemovedWithoutFollowingLinks) {
  ASSERT_TRUE(MkdirAt(dir_.fd(), "keep", 0755).ok());
  dir_.Open("keep/f", O_RDWR | O_CREAT);
  ASSERT_TRUE(MkdirAt(dir_.fd(), "t", 0755).ok());
  ASSERT_TRUE(MkdirAt(dir_.fd(), "t/u", 0755).ok());
  dir_.Open("t/u/f", O_RDWR | O_CREAT);
  ASSERT_TRUE(fs::Symlink("../keep", dir_.fd(), "t/l").ok());
  ASSERT_TRUE(fs::RemoveTree(dir_.fd(), "t").ok());
  EXPECT_EQ(fs::StatAt(dir_.fd(), "t").status().code(), Code::kNotFound);
  EXPECT_TRUE(fs::StatAt(dir_.fd(), "keep/f").ok());
  EXPECT_TRUE(fs::RemoveTree(dir_.fd(), "t").ok()) << "nothing to remove";
}

}  // namespace
}  // namespace salius
