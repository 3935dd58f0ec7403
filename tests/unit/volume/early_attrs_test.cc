// Attribute changes that return before they are durable: the attributes that callers see until they
// are applied, and those of the disk afterwards. The stream applies nothing by itself.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <algorithm>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/bytes.h"
#include "log/record.h"
#include "storage/apply.h"
#include "storage/posix_acl.h"
#include "tests/unit/volume/fake_stream.h"
#include "tests/unit/volume/volume_fixture.h"

namespace salius {
namespace {

std::pair<time_t, long> Pair(const timespec& time) { return {time.tv_sec, time.tv_nsec}; }

// Returns an ACL that gives the user 77 all rights.
std::string Acl() {
  const std::vector<std::pair<uint16_t, uint16_t>> entries = {
      {kAclUserObj, 7}, {kAclUser, 7}, {kAclGroupObj, 5}, {kAclMask, 7}, {kAclOther, 0}};
  std::string acl(kAclHeaderBytes + entries.size() * kAclEntryBytes, '\0');
  StoreU32(acl.data(), kAclVersion);
  char* at = acl.data() + kAclHeaderBytes;
  for (const auto& [tag, bits] : entries) {
    StoreU16(at, tag);
    StoreU16(at + 2, bits);
    StoreU32(at + 4, tag == kAclUser ? 77 : 0xffffffff);
    at += kAclEntryBytes;
  }
  return acl;
}

class EarlyAttrsTest : public VolumeFixture {
 protected:
  void SetUp() override { Make(); }

  FakeStream& fake() { return FakeOf(volume->stream()); }
  void ApplyAll() {
    ASSERT_TRUE(volume->stream().WaitApplied(volume->stream().watermarks().issued).ok());
  }
  struct stat Disk(Node& node) {
    return *backing().Stat(node.path_fd.get());
  }
  int Set(Node& node, uint32_t mask, const struct stat& want) {
    return Errno(volume->attrs().SetAttr(node, mask, want));
  }
  int Chmod(Node& node, mode_t mode) {
    struct stat want {};
    want.st_mode = mode;
    return Set(node, kSetMode, want);
  }
  // Checks that the node's attributes are the same before and after all records are applied, and
  // then on the disk. (No call sets a ctime on the disk.)
  void ExpectNothingChangesWhenApplied(Node& node) {
    const struct stat before = Stat(node);
    ApplyAll();
    const struct stat after = Stat(node);
    const struct stat disk = Disk(node);
    for (const struct stat& st : {after, disk}) {
      EXPECT_EQ(st.st_mode, before.st_mode);
      EXPECT_EQ(st.st_uid, before.st_uid);
      EXPECT_EQ(st.st_gid, before.st_gid);
      EXPECT_EQ(st.st_size, before.st_size);
      EXPECT_EQ(st.st_nlink, before.st_nlink);
      EXPECT_EQ(Pair(st.st_atim), Pair(before.st_atim));
      EXPECT_EQ(Pair(st.st_mtim), Pair(before.st_mtim));
    }
    EXPECT_EQ(Pair(after.st_ctim), Pair(before.st_ctim));
  }
};

TEST_F(EarlyAttrsTest, ChangesAreSeenBeforeAnythingIsAppliedOrDurable) {
  Handle* const file = Create("f");
  Node& node = file->node;
  Write(file, 0, "text");
  struct stat want {};
  want.st_mode = 0640;
  want.st_uid = 7;
  want.st_gid = 8;
  want.st_atim = {100, 1};
  want.st_mtim = {200, 2};
  ASSERT_EQ(Set(node, kSetMode | kSetUid | kSetGid | kSetAtime | kSetMtime, want), 0);
  ASSERT_EQ(Errno(volume->attrs().SetXattr(node, "user.a", "1", 0, false)), 0);
  ASSERT_EQ(Errno(volume->attrs().SetXattr(node, "user.b", "2", 0, false)), 0);
  ASSERT_EQ(Errno(volume->attrs().RemoveXattr(node, "user.b")), 0);
  EXPECT_EQ(fake().durable, 0u);
  EXPECT_EQ(fake().applied, 0u);
  const struct stat st = Stat(node);
  EXPECT_EQ(st.st_mode, mode_t{S_IFREG | 0640});
  EXPECT_EQ(st.st_uid, 7u);
  EXPECT_EQ(st.st_gid, 8u);
  EXPECT_EQ(st.st_size, 4);
  EXPECT_EQ(Pair(st.st_mtim), Pair({200, 2}));
  EXPECT_EQ(*volume->attrs().GetXattr(node, "user.a"), "1");
  EXPECT_EQ(Errno(volume->attrs().GetXattr(node, "user.b")), ENODATA);
  EXPECT_EQ(*volume->attrs().ListXattr(node), std::vector<std::string>{"user.a"});
  EXPECT_EQ(Errno(volume->attrs().SetXattr(node, "user.a", "x", XATTR_CREATE, false)), EEXIST);
  EXPECT_EQ(Errno(volume->attrs().SetXattr(node, "user.b", "x", XATTR_REPLACE, false)), ENODATA);
  EXPECT_EQ(Disk(node).st_uid, 1000u);
  ExpectNothingChangesWhenApplied(node);
  EXPECT_EQ(*volume->attrs().ListXattr(node), std::vector<std::string>{"user.a"});
  volume->open_files().Release(file);
}

TEST_F(EarlyAttrsTest, FsyncCoversAttributes) {
  Handle* const file = Create("f");
  ASSERT_EQ(Chmod(file->node, 0600), 0);
  const Seq changed = fake().Issued().back()->seq();
  EXPECT_LT(fake().durable, changed);
  ASSERT_TRUE(Fsync(file).ok());
  EXPECT_GE(fake().durable, changed);
  volume->open_files().Release(file);
}

TEST_F(EarlyAttrsTest, TimesOfANewFileAndItsDirectoryStayWhenTheyAreApplied) {
  Node& d = Dir(root(), "d");
  Handle* const file = Create(d, "f");
  ExpectNothingChangesWhenApplied(file->node);
  Write(file, 0, "one");
  ExpectNothingChangesWhenApplied(file->node);
  Write(file, 3, "two");
  ASSERT_EQ(Chmod(file->node, 0600), 0);
  ASSERT_EQ(Errno(volume->names().Link(file->node, root(), "g")), 0);
  ExpectNothingChangesWhenApplied(file->node);
  ASSERT_EQ(Errno(volume->names().Rename(d, "f", d, "h", 0)), 0);
  ExpectNothingChangesWhenApplied(d);
  ExpectNothingChangesWhenApplied(root());
  volume->open_files().Release(file);
}

// Meanwhile other threads use more files than there are descriptors, so those that are not in use
// are closed.
TEST_F(EarlyAttrsTest, DescriptorStaysOpenWhileTimesAreGiven) {
  Close();
  descriptors = 512;
  Open();
  constexpr int kFiles = 512;
  Node& crowd = Dir(root(), "crowd");
  for (int i = 0; i < kFiles; ++i) {
    Handle* const file = Create(crowd, std::to_string(i));
    Node& node = file->node;
    volume->open_files().Release(file);
    ApplyAll();
    volume->names().Forget(node, 1);
  }
  Node& d = Dir(root(), "d");
  ApplyAll();
  volume->open_files().Release(Create(d, "f"));
  const struct stat before = Stat(d);
  int times = 0;
  memory->OnEachSetTimes([&] {
    if (times++ > 0) return;
    std::thread([&] {
      for (int i = 0; i < kFiles; ++i) Find(crowd, std::to_string(i));
    }).join();
  });
  ApplyAll();
  memory->OnEachSetTimes(nullptr);
  EXPECT_GT(times, 0);
  EXPECT_EQ(Pair(Disk(d).st_mtim), Pair(before.st_mtim));
}

// On a busy machine the kernel's clock for files may move between two calls, to a time that is still
// before the record's.
TEST_F(EarlyAttrsTest, CtimeOfTheDiskPassesThePredictedOneThoughTheClockIsLate) {
  Handle* const file = Create("f");
  ApplyAll();
  ASSERT_EQ(Chmod(file->node, 0640), 0);
  const struct stat shown = Stat(file->node);
  ASSERT_LT(Pair(Disk(file->node).st_ctim), Pair(shown.st_ctim));
  int times = 0;
  memory->OnEachSetTimes([&] {
    if (++times == 2) memory->AdvanceTo(shown.st_ctim);
  });
  ApplyAll();
  memory->OnEachSetTimes(nullptr);
  EXPECT_EQ(times, 2);
  EXPECT_GE(Pair(Disk(file->node).st_ctim), Pair(shown.st_ctim));
  EXPECT_EQ(Pair(Stat(file->node).st_ctim), Pair(shown.st_ctim));
  volume->open_files().Release(file);
}

TEST_F(EarlyAttrsTest, DirectoryChangesItsTimeWithEachName) {
  Node& d = Dir(root(), "d");
  const struct stat first = Stat(d);
  volume->open_files().Release(Create(d, "f"));
  const struct stat second = Stat(d);
  EXPECT_GT(Pair(second.st_mtim), Pair(first.st_mtim));
  EXPECT_GT(Pair(second.st_ctim), Pair(first.st_ctim));
  ASSERT_EQ(Errno(volume->names().Unlink(d, "f")), 0);
  EXPECT_GT(Pair(Stat(d).st_mtim), Pair(second.st_mtim));
  EXPECT_EQ(fake().applied, 0u);
}

// A program that compares times (make) must see the order of its writes, whichever file was looked at before.
TEST_F(EarlyAttrsTest, OrderOfWritesIsTheOrderOfTimes) {
  std::vector<Handle*> files;
  for (const char* const name : {"a", "b", "c"}) files.push_back(Create(name));
  ApplyAll();
  for (Handle* const file : files) Write(file, 0, "text");
  const timespec b = Stat(files[1]->node).st_mtim;  // the others were not looked at
  ApplyAll();
  EXPECT_EQ(Pair(Stat(files[1]->node).st_mtim), Pair(b));
  EXPECT_LT(Pair(Stat(files[0]->node).st_mtim), Pair(b));
  EXPECT_GT(Pair(Stat(files[2]->node).st_mtim), Pair(b));
  for (Handle* const file : files) {
    EXPECT_EQ(Pair(Disk(file->node).st_mtim), Pair(Stat(file->node).st_mtim));
    volume->open_files().Release(file);
  }
}

TEST_F(EarlyAttrsTest, GivenMtimeStaysOverRecordsBeforeIt) {
  Handle* const file = Create("f");
  struct stat want {};
  want.st_mtim = {200, 2};
  Write(file, 0, "text");
  ASSERT_EQ(Set(file->node, kSetMtime, want), 0);
  ASSERT_EQ(Errno(volume->names().Rename(root(), "f", root(), "g", 0)), 0);
  ExpectNothingChangesWhenApplied(file->node);
  EXPECT_EQ(Pair(Stat(file->node).st_mtim), Pair({200, 2}));
  volume->open_files().Release(file);
}

TEST_F(EarlyAttrsTest, NewObjectInheritsFromTheDirectoryAsItWillBe) {
  Node& d = Dir(root(), "d");
  ApplyAll();
  struct stat want {};
  want.st_mode = 02770;
  want.st_gid = 55;
  ASSERT_EQ(Set(d, kSetMode | kSetGid, want), 0);
  ASSERT_EQ(Chmod(d, 02770), 0);
  ASSERT_EQ(Errno(volume->attrs().SetXattr(d, kDefaultAclXattr, Acl(), 0, false)), 0);
  EXPECT_EQ(fake().applied, fake().records.size() - 3);
  Node& e = Dir(d, "e");
  EXPECT_EQ(Stat(e).st_gid, 55u);
  EXPECT_EQ(Stat(e).st_mode & 02000, 02000u);
  EXPECT_EQ(*volume->attrs().GetXattr(e, kDefaultAclXattr), Acl());
  ExpectNothingChangesWhenApplied(e);
}

// Its record has no room for what it inherits.
TEST_F(EarlyAttrsTest, RenameWaitsWhenItsWhiteoutInheritsAnAcl) {
  Node& d = Dir(root(), "d");
  ASSERT_EQ(Errno(volume->attrs().SetXattr(d, kDefaultAclXattr, Acl(), 0, false)), 0);
  volume->open_files().Release(VolumeFixture::Create(d, "f"));
  ASSERT_EQ(Errno(volume->names().Rename(d, "f", d, "g", RENAME_WHITEOUT, caller)), 0);
  EXPECT_GE(fake().applied, fake().Issued(Op::kRename).back()->seq());
}

TEST_F(EarlyAttrsTest, DataTakesTheCapabilityAtOnce) {
  Handle* const file = Create("f");
  const std::string capability("\1\0\0\2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20);
  ASSERT_EQ(Errno(volume->attrs().SetXattr(file->node, kCapabilityXattr, capability, 0, false)), 0);
  EXPECT_EQ(*volume->attrs().GetXattr(file->node, kCapabilityXattr), capability);
  ApplyAll();
  Write(file, 0, "text");
  EXPECT_EQ(Errno(volume->attrs().GetXattr(file->node, kCapabilityXattr)), ENODATA);
  EXPECT_TRUE(volume->attrs().ListXattr(file->node)->empty());
  volume->open_files().Release(file);
}

TEST_F(EarlyAttrsTest, NamelessFileIsMadeChangedAndNamedWithoutAWait) {
  ApplyAll();
  const Seq before = fake().durable;
  auto made = volume->names().CreateTmpFile(root(), O_RDWR, 0600, caller);
  ASSERT_TRUE(made.ok()) << made.status();
  Node& node = *made->entry.node;
  EXPECT_EQ(made->entry.attr.st_nlink, 0u);
  Write(made->handle, 0, "text");
  ASSERT_EQ(Chmod(node, 0640), 0);
  EXPECT_EQ(Stat(node).st_nlink, 0u);
  ASSERT_EQ(Errno(volume->names().Link(node, root(), "f")), 0);
  EXPECT_EQ(Stat(node).st_nlink, 1u);
  EXPECT_EQ(fake().durable, before);
  const struct stat shown = Stat(node);
  ApplyAll();
  EXPECT_EQ(Disk(node).st_nlink, 2u) << "with the hidden link";
  EXPECT_EQ(Stat(node).st_nlink, 1u);
  EXPECT_EQ(Pair(Stat(node).st_ctim), Pair(shown.st_ctim));
  volume->open_files().Release(made->handle);
  ASSERT_TRUE(volume->stream().Checkpoint().ok());
  ASSERT_EQ(Errno(volume->StatFs()), 0);
  EXPECT_EQ(Stat(node).st_nlink, 1u);
  EXPECT_EQ(BackingContent("f"), "text");
}

// ext4 leaves the ctime then, xfs does not.
TEST_F(EarlyAttrsTest, XattrThatChangesNothingIsWaitedFor) {
  Handle* const file = Create("f");
  ASSERT_EQ(Errno(volume->attrs().SetXattr(file->node, "user.a", "1", 0, false)), 0);
  EXPECT_EQ(fake().applied, 0u);
  ASSERT_EQ(Errno(volume->attrs().SetXattr(file->node, "user.a", "1", 0, false)), 0);
  EXPECT_EQ(fake().applied, fake().records.size());
  ExpectNothingChangesWhenApplied(file->node);
  volume->open_files().Release(file);
}

// The disk may refuse it, so the caller gets the disk's answer.
TEST_F(EarlyAttrsTest, LargeXattrIsWaitedFor) {
  Handle* const file = Create("f");
  const std::string large(600, 'x');
  ASSERT_EQ(Errno(volume->attrs().SetXattr(file->node, "user.a", large, 0, false)), 0);
  EXPECT_GE(fake().applied, fake().Issued(Op::kSetXattr).back()->seq());
  memory->FailNth(MemoryBacking::Call::kSetXattr, 1, ENOSPC);
  EXPECT_EQ(Errno(volume->attrs().SetXattr(file->node, "user.b", large, 0, false)), ENOSPC);
  EXPECT_EQ(Errno(volume->attrs().GetXattr(file->node, "user.b")), ENODATA);
  volume->open_files().Release(file);
}

TEST_F(EarlyAttrsTest, WaitedChangeEntersThePredictionOfOthers) {
  Node& d = Dir(root(), "d");
  ApplyAll();
  // A name is issued while a change that is waited for is on its way.
  fake().before_apply = [&](const RecordRef& record) {
    if (record->header().op != Op::kSetAttr) return;
    fake().before_apply = nullptr;
    volume->open_files().Release(Create(d, "f"));
  };
  struct stat want {};
  want.st_mode = 0711;
  want.st_atim = {-5, 0};  // some file systems cannot keep it
  ASSERT_EQ(Set(d, kSetMode | kSetAtime, want), 0);
  EXPECT_LT(fake().applied, fake().records.size());
  EXPECT_EQ(Stat(d).st_mode & 0777, 0711u);
  ExpectNothingChangesWhenApplied(d);
}

TEST_F(EarlyAttrsTest, BlocksOfAFileWithHolesAreProvisionalUntilTheyAreApplied) {
  Handle* const whole = Create("whole");
  Handle* const sparse = Create("sparse");
  Write(whole, 0, std::string(8192, 'w'));
  struct stat want {};
  want.st_size = 64 << 20;
  ASSERT_EQ(Errno(volume->attrs().SetAttr(sparse->node, kSetSize, want)), 0);
  for (uint64_t i = 0; i < 4; ++i) Write(sparse, i * kMiB, std::string(65536, 's'));
  const auto provisional = [&](Node& node) {
    bool may_change = false;
    SALIUS_CHECK_OK(volume->attrs().GetAttr(node, &may_change));
    return may_change;
  };
  EXPECT_FALSE(provisional(whole->node));
  EXPECT_TRUE(provisional(sparse->node));
  ASSERT_TRUE(volume->stream().WaitApplied(volume->stream().watermarks().issued).ok());
  EXPECT_FALSE(provisional(sparse->node));
  EXPECT_EQ(Stat(sparse->node).st_blocks, 4 * 65536 / 512);
  volume->open_files().Release(whole);
  volume->open_files().Release(sparse);
}

TEST_F(EarlyAttrsTest, AttributesOfABulkFileAreThoseOfTheDisk) {
  Close();
  config.bulk_limit_bytes = 8192;
  Open();
  Handle* const file = Create("f");
  for (uint64_t at = 0; at < 65536; at += 4096) Write(file, at, std::string(4096, 'x'));
  EXPECT_EQ(Stat(file->node).st_size, 65536);
  ASSERT_EQ(Chmod(file->node, 0600), 0);
  ASSERT_EQ(Errno(volume->names().Rename(root(), "f", root(), "g", 0)), 0);
  Write(file, 65536, "end");
  EXPECT_EQ(Stat(file->node).st_size, 65539);
  ASSERT_TRUE(Fsync(file).ok());
  ASSERT_EQ(Chmod(file->node, 0640), 0);
  ExpectNothingChangesWhenApplied(file->node);
  volume->open_files().Release(file);
}

// Such a directory takes new names, but refuses times.
TEST_F(EarlyAttrsTest, NameInAnAppendOnlyDirectoryDoesNotFailTheVolume) {
  Node& d = Dir(root(), "d");
  ApplyAll();
  SetMarks("d", {.append_only = true});
  volume->open_files().Release(Create(d, "f"));
  ApplyAll();
  EXPECT_EQ(Chmod(Find(d, "f"), 0600), 0);
  ApplyAll();
}

TEST_F(EarlyAttrsTest, AttributeThatTheDiskRefusesFailsTheVolume) {
  Handle* const file = Create("f");
  ASSERT_EQ(Chmod(file->node, 0600), 0);
  memory->FailNth(MemoryBacking::Call::kSetAttr, 1, EIO);
  EXPECT_FALSE(volume->stream().WaitApplied(volume->stream().watermarks().issued).ok());
  EXPECT_EQ(Stat(file->node).st_mode & 0777, 0600u) << "what was issued is still answered";
  volume->open_files().Release(file);
}

// A listing that was begun before the removal still has the name. The kernel would make it again.
TEST_F(EarlyAttrsTest, ListedNameThatWasRemovedIsNotFound) {
  Handle* const file = Create("f");
  Node& node = file->node;
  ASSERT_EQ(Errno(volume->names().Link(node, root(), "g")), 0);
  volume->names().Forget(node, 1);
  ASSERT_EQ(Errno(volume->names().Unlink(root(), "g")), 0);
  ApplyAll();
  ASSERT_EQ(Chmod(node, 0600), 0);
  EXPECT_EQ(Errno(volume->names().LookupListed(root(), "g", node.ino)), ENOENT);
  const auto other = volume->names().LookupListed(root(), "f", node.ino);
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(other->attr.st_mode, mode_t{S_IFREG | 0600});
  volume->names().Forget(node, 1);
  volume->open_files().Release(file);
}

// Records are applied as soon as they are issued: before the issuing thread goes on.
TEST_F(EarlyAttrsTest, RecordThatIsAppliedAtOnceLeavesNoPrediction) {
  fake().apply_at_once = true;
  Handle* const file = Create("f");
  Write(file, 0, "text");
  struct stat want {};
  want.st_mtim = {200, 2};
  ASSERT_EQ(Set(file->node, kSetMtime, want), 0);
  ASSERT_EQ(Chmod(file->node, 0600), 0);
  {
    absl::MutexLock lock(&file->node.state);
    EXPECT_EQ(file->node.seen_records().prediction, nullptr);
  }
  ASSERT_EQ(Errno(volume->names().Link(file->node, root(), "g")), 0);
  ExpectNothingChangesWhenApplied(file->node);
  EXPECT_EQ(Pair(Disk(file->node).st_mtim), Pair({200, 2}));
  ExpectNothingChangesWhenApplied(root());
  volume->open_files().Release(file);
}

}  // namespace
}  // namespace salius
