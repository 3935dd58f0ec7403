// Applying records, on every backing.
#include "storage/apply.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "tests/unit/storage/backing_worlds.h"

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

class ApplyTest : public BackingTest {
 protected:
  BackingFd Path(const std::string& name) { return Open(name); }
  absl::StatusOr<FileId> IdAt(const std::string& name) {
    return ReadFileId(backing(), Path(name).get());
  }
  absl::Status ApplyTo(const BackingFd& fd, const RecordHeader& header, std::string_view body) {
    return IsDataOp(header.op) ? ApplyData(backing(), fd.get(), header, body)
                               : ApplyAttr(backing(), fd.get(), header, body);
  }
  absl::StatusOr<BackingFd> MakeIn(int dirfd, const std::string& name, FileId id,
                                   const CreateBody& create) {
    return MakeObject(backing(), dirfd, name, id, create);
  }
};

TEST_P(ApplyTest, FileIdsAreKeptOnEveryTypeOfObject) {
  MakeFile("reg");
  ASSERT_TRUE(backing().MkdirAt(root(), "dir", 0755).ok());
  ASSERT_TRUE(backing().Symlink("nowhere", root(), "lnk").ok());
  ASSERT_TRUE(backing().MakeNode(root(), "fifo", S_IFIFO | 0600, 0).ok());
  ASSERT_TRUE(backing().MakeNode(root(), "sock", S_IFSOCK | 0600, 0).ok());
  ASSERT_TRUE(backing().MakeNode(root(), "chr", S_IFCHR | 0600, makedev(1, 3)).ok());
  FileId id = 0x1122334455667788;
  for (const char* name : {"reg", "dir", "lnk", "fifo", "sock", "chr"}) {
    SCOPED_TRACE(name);
    EXPECT_EQ(*IdAt(name), kNoFileId);
    ASSERT_TRUE(WriteFileId(backing(), Path(name).get(), ++id).ok());
    EXPECT_EQ(*ReadFileId(backing(), Path(name).get()), id);
    EXPECT_EQ(*IdAt(name), id);
  }
  EXPECT_EQ(ReadFileId(backing(), -1).ok(), false);
}

TEST_P(ApplyTest, FileIdIsEightBytesLittleEndian) {
  const BackingFd fd = OpenNew("f");
  ASSERT_TRUE(WriteFileId(backing(), fd.get(), 0x0102030405060708).ok());
  EXPECT_EQ(*backing().XattrValue(fd.get(), "trusted.salius.id"),
            "\x08\x07\x06\x05\x04\x03\x02\x01");
}

TEST_P(ApplyTest, DamagedFileIdIsDataLoss) {
  const BackingFd fd = OpenNew("f");
  for (const std::string& value : {std::string("1234567"), std::string("123456789"),
                                   std::string(8, '\0'), std::string(1000, 'x')}) {
    ASSERT_TRUE(backing().SetXattr(fd.get(), kFileIdXattr, value).ok());
    EXPECT_EQ(ReadFileId(backing(), fd.get()).status().code(), Code::kDataLoss);
  }
}

TEST_P(ApplyTest, ClosedDescriptorGivesEbadf) {
  EXPECT_EQ(Errno(ReadFileId(backing(), -1)), EBADF);
  EXPECT_EQ(Errno(WriteFileId(backing(), -1, 5)), EBADF);
}

TEST_P(ApplyTest, WritesAndTruncatesConverge) {
  const BackingFd fd = OpenNew("f");
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(ApplyTo(fd, Header(Op::kWrite, 2), "hello").ok());
    EXPECT_EQ(Content("f"), std::string("\0\0hello", 7));
    ASSERT_TRUE(ApplyTo(fd, Header(Op::kTruncate, 4), "").ok());
    EXPECT_EQ(Content("f"), std::string("\0\0he", 4));
    ASSERT_TRUE(ApplyTo(fd, Header(Op::kTruncate, 6), "").ok());
    EXPECT_EQ(Content("f"), std::string("\0\0he\0\0", 6));
    ASSERT_TRUE(ApplyTo(fd, Header(Op::kTruncate, 0), "").ok());
  }
}

TEST_P(ApplyTest, FallocatesConverge) {
  const BackingFd fd = OpenNew("f");
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(ApplyTo(fd, Header(Op::kWrite, 0), std::string(10, 'x')).ok());
    ASSERT_TRUE(ApplyTo(fd, Header(Op::kFallocate, 0, 20, 0), "").ok());
    EXPECT_EQ(Content("f").size(), 20u);
    ASSERT_TRUE(ApplyTo(fd, Header(Op::kFallocate, 0, 100, FALLOC_FL_KEEP_SIZE), "").ok());
    EXPECT_EQ(Content("f").size(), 20u);
    const uint64_t punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    ASSERT_TRUE(ApplyTo(fd, Header(Op::kFallocate, 2, 3, punch), "").ok());
    EXPECT_EQ(Content("f").substr(0, 10), std::string("xx\0\0\0xxxxx", 10));
    ASSERT_TRUE(ApplyTo(fd, Header(Op::kFallocate, 6, 30, FALLOC_FL_ZERO_RANGE), "").ok());
    EXPECT_EQ(Content("f"), std::string("xx\0\0\0x", 6) + std::string(30, '\0'));
    ASSERT_TRUE(ApplyTo(fd, Header(Op::kTruncate, 0), "").ok());
  }
}

TEST_P(ApplyTest, DataOperationsThatDoNotConvergeOrMakeSenseAreRefused) {
  const BackingFd fd = OpenNew("f");
  const auto code = [&](const RecordHeader& header, std::string_view body) {
    return ApplyData(backing(), fd.get(), header, body).code();
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

TEST_P(ApplyTest, ErrorsKeepTheirErrno) {
  MakeFile("f");
  const BackingFd fd = Open("f", O_RDONLY);
  EXPECT_EQ(Errno(ApplyTo(fd, Header(Op::kWrite, 0), "x")), EBADF);
  const BackingFd writable = Open("f", O_RDWR);
  const bool fits = backing().SizeFits(writable.get(), INT64_MAX);  // on xfs
  EXPECT_EQ(Errno(ApplyTo(writable, Header(Op::kTruncate, INT64_MAX), "")), fits ? 0 : EFBIG);
}

TEST_P(ApplyTest, OpsAreOfOneKind) {
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

TEST_P(ApplyTest, OwnerModeAndTimesOfAPathDescriptor) {
  MakeFile("f");
  const BackingFd fd = Path("f");
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(ApplyTo(fd, Header(Op::kSetAttr), FullAttr().Encode()).ok());
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

TEST_P(ApplyTest, OnlyAttributesInTheMaskAreChanged) {
  MakeFile("f");
  const BackingFd fd = Path("f");
  ASSERT_TRUE(ApplyTo(fd, Header(Op::kSetAttr), FullAttr().Encode()).ok());
  const auto apply = [&](uint32_t mask) {
    AttrBody attr;
    attr.mask = mask;
    SALIUS_CHECK_OK(ApplyTo(fd, Header(Op::kSetAttr), attr.Encode()));
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

TEST_P(ApplyTest, SymbolicLinkItselfGetsOwnerAndTimesAndItsTargetNothing) {
  MakeFile("target");
  const struct stat before = Stat("target");
  ASSERT_TRUE(backing().Symlink("target", root(), "lnk").ok());
  ASSERT_TRUE(ApplyTo(Path("lnk"), Header(Op::kSetAttr), FullAttr().Encode()).ok());
  EXPECT_EQ(Stat("lnk").st_uid, 1234u);
  EXPECT_EQ(Stat("lnk").st_mtim.tv_sec, 1100000000);
  EXPECT_EQ(Stat("lnk").st_mode, S_IFLNK | 0777u);
  EXPECT_EQ(Stat("target").st_uid, before.st_uid);
  EXPECT_EQ(Stat("target").st_mode, before.st_mode);
  EXPECT_EQ(Stat("target").st_mtim.tv_sec, before.st_mtim.tv_sec);
}

TEST_P(ApplyTest, FifoGetsAttributesWithoutBeingOpened) {
  ASSERT_TRUE(backing().MakeNode(root(), "fifo", S_IFIFO | 0600, 0).ok());
  ASSERT_TRUE(ApplyTo(Path("fifo"), Header(Op::kSetAttr), FullAttr().Encode()).ok());
  EXPECT_EQ(Stat("fifo").st_uid, 1234u);
  EXPECT_EQ(Stat("fifo").st_mode & 0777, 0755u);
}

TEST_P(ApplyTest, XattrsAreSetAndRemovedAndBothConverge) {
  MakeFile("f");
  const BackingFd fd = Path("f");
  const std::string set = XattrBody{"user.a", "value"}.Encode();
  const std::string remove = XattrBody{"user.a", ""}.Encode();
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(ApplyTo(fd, Header(Op::kSetXattr), set).ok());
    EXPECT_EQ(*backing().XattrValue(fd.get(), "user.a"), "value");
  }
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(ApplyTo(fd, Header(Op::kRemoveXattr), remove).ok());
    EXPECT_EQ(Errno(backing().XattrValue(fd.get(), "user.a")), ENODATA);
  }
  const std::string large(3000, 'v');
  ASSERT_TRUE(ApplyTo(fd, Header(Op::kSetXattr), XattrBody{"user.b", large}.Encode()).ok());
  EXPECT_EQ(*backing().XattrValue(fd.get(), "user.b"), large);
}

TEST_P(ApplyTest, BadAttributeRecordsAreRefused) {
  MakeFile("f");
  const BackingFd fd = Path("f");
  const auto code = [&](Op op, const std::string& body) {
    return ApplyAttr(backing(), fd.get(), Header(op), body).code();
  };
  EXPECT_EQ(code(Op::kSetAttr, "short"), Code::kInvalidArgument);
  EXPECT_EQ(code(Op::kSetXattr, "short"), Code::kInvalidArgument);
  EXPECT_EQ(code(Op::kRemoveXattr, "short"), Code::kInvalidArgument);
  EXPECT_EQ(code(Op::kSetXattr, XattrBody{kFileIdXattr, "12345678"}.Encode()),
            Code::kInvalidArgument);
  EXPECT_EQ(code(Op::kRemoveXattr, XattrBody{kFileIdXattr, ""}.Encode()), Code::kInvalidArgument);
  EXPECT_EQ(code(Op::kWrite, ""), Code::kInvalidArgument);
  const absl::Status unknown =
      ApplyTo(fd, Header(Op::kSetXattr), XattrBody{"nonsense.a", "v"}.Encode());
  EXPECT_EQ(Errno(unknown), EOPNOTSUPP);
  EXPECT_EQ(Errno(ApplyAttr(backing(), -1, Header(Op::kSetAttr), FullAttr().Encode())), EBADF);
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

TEST_P(ApplyTest, EveryTypeOfObjectIsMadeComplete) {
  umask(077);
  FileId id = 100;
  for (const uint32_t type : {S_IFREG, S_IFDIR, S_IFLNK, S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK}) {
    ++id;
    SCOPED_TRACE(absl::StrFormat("type %o", type));
    const uint32_t mode = type | (type == S_IFLNK ? 0777 : 06775);
    // Make it twice: the second replaces the first.
    for (int round = 0; round < 2; ++round) {
      auto fd = MakeIn(root(), IdName(id), id, Create(mode));
      ASSERT_TRUE(fd.ok()) << fd.status();
      EXPECT_EQ(*ReadFileId(backing(), fd->get()), id);
      const struct stat st = Stat(IdName(id));
      EXPECT_EQ(st.st_mode, mode);
      EXPECT_EQ(st.st_uid, 1234u);
      EXPECT_EQ(st.st_gid, 4321u);
      EXPECT_EQ(backing().StatAt(fd->get(), "")->st_ino, st.st_ino);
      EXPECT_EQ(st.st_rdev, type == S_IFCHR || type == S_IFBLK ? makedev(7, 9) : 0);
    }
  }
  EXPECT_EQ(*backing().ReadLinkOf(Path(IdName(103)).get()), "some/where");
}

TEST_P(ApplyTest, ObjectHasItsModeWithAnyUmaskAndOwner) {
  FileId id = 200;
  for (const uid_t owner : {0, 1234}) {
    for (const mode_t mask : {0, 077}) {
      umask(mask);
      for (const uint32_t mode : {S_IFREG | 06775, S_IFREG | 0, S_IFDIR | 01777, S_IFIFO | 0666}) {
        SCOPED_TRACE(absl::StrFormat("owner %d, umask %o, mode %o", owner, mask, mode));
        CreateBody create = Create(mode);
        create.uid = create.gid = owner;
        ++id;
        ASSERT_TRUE(MakeIn(root(), IdName(id), id, create).ok());
        const struct stat st = Stat(IdName(id));
        EXPECT_EQ(st.st_mode, mode);
        EXPECT_EQ(st.st_uid, owner);
        EXPECT_EQ(st.st_gid, owner);
      }
    }
  }
  umask(0);
}

TEST_P(ApplyTest, ObjectsGetTheirXattrs) {
  CreateBody create = Create(S_IFREG | 0640);
  create.xattrs = {{"user.a", "1"}, {"user.b", ""}};
  auto fd = MakeIn(root(), "x", 5, create);
  ASSERT_TRUE(fd.ok()) << fd.status();
  EXPECT_EQ(*backing().XattrValue(fd->get(), "user.a"), "1");
  EXPECT_EQ(*backing().XattrValue(fd->get(), "user.b"), "");
  create.xattrs = {{kFileIdXattr, "12345678"}};
  EXPECT_EQ(MakeIn(root(), "x", 5, create).status().code(), Code::kInvalidArgument);
}

TEST_P(ApplyTest, OldObjectOfAnotherTypeIsReplaced) {
  ASSERT_TRUE(backing().MkdirAt(root(), "x", 0755).ok());
  ASSERT_TRUE(MakeIn(root(), "x", 5, Create(S_IFREG | 0600)).ok());
  EXPECT_TRUE(S_ISREG(Stat("x").st_mode));
  ASSERT_TRUE(MakeIn(root(), "x", 5, Create(S_IFDIR | 0700)).ok());
  EXPECT_TRUE(S_ISDIR(Stat("x").st_mode));
}

TEST_P(ApplyTest, NonEmptyDirectoryIsNeverRemoved) {
  ASSERT_TRUE(backing().MkdirAt(root(), "x", 0755).ok());
  ASSERT_TRUE(backing().MakeNode(Path("x").get(), "precious", S_IFREG | 0600, 0).ok());
  EXPECT_EQ(Errno(MakeIn(root(), "x", 5, Create(S_IFREG | 0600)).status()), ENOTEMPTY);
  EXPECT_TRUE(S_ISREG((*backing().StatAt(Path("x").get(), "precious")).st_mode));
}

TEST_P(ApplyTest, UnknownTypeOfObjectIsRefused) {
  EXPECT_EQ(MakeIn(root(), "x", 5, Create(0644)).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(MakeIn(-1, "x", 5, Create(S_IFREG)).ok(), false);
}

TEST_P(ApplyTest, IdNamesAreSixteenHexDigits) {
  EXPECT_EQ(IdName(1), "0000000000000001");
  EXPECT_EQ(IdName(0xFEDCBA9876543210), "fedcba9876543210");
}

SALIUS_IN_EVERY_WORLD(ApplyTest);

}  // namespace
}  // namespace salius
