// Name operations that return before they are durable: the merged view until they are applied. The
// stream applies nothing by itself.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/volume/pending_names.h"
#include "log/record.h"
#include "tests/unit/volume/fake_stream.h"
#include "tests/unit/volume/volume_fixture.h"

namespace salius {
namespace {

class EarlyNamesTest : public VolumeFixture {
 protected:
  void SetUp() override { Make(); }

  FakeStream& fake() { return FakeOf(volume->stream()); }
  void ApplyAll() {
    ASSERT_TRUE(volume->stream().WaitApplied(volume->stream().watermarks().issued).ok());
  }
  void Make(Node& dir, const std::string& name) {
    volume->open_files().Release(VolumeFixture::Create(dir, name));
  }
  using VolumeFixture::Make;
  Handle* OpenDir(Node& node) {
    auto handle = volume->open_files().OpenDir(node);
    SALIUS_CHECK_OK(handle);
    return *handle;
  }
  int LookupErrno(Node& dir, const std::string& name) {
    const auto entry = volume->names().Lookup(dir, name);
    if (entry.ok()) volume->names().Forget(*entry->node, 1);
    return Errno(entry);
  }
  // Lists `count` entries from `offset` on, which it moves; without "." and "..".
  std::multiset<std::string> List(Handle* dir, uint64_t* offset, size_t count = 1000) {
    std::multiset<std::string> names;
    SALIUS_CHECK_OK(volume->names().ReadDir(*dir, *offset, [&](const DirEntry& entry) {
      if (names.size() == count) return false;
      *offset = entry.next_offset;
      if (entry.name != "." && entry.name != "..") names.insert(entry.name);
      return true;
    }));
    return names;
  }
  // Returns whether `holds` does within a minute.
  static bool Until(const std::function<bool()>& holds) {
    const absl::Time end = absl::Now() + absl::Minutes(1);
    while (!holds()) {
      if (absl::Now() > end) return false;
    }
    return true;
  }
  std::multiset<std::string> ListAll(Node& node) {
    Handle* const dir = OpenDir(node);
    uint64_t offset = 0;
    std::multiset<std::string> names = List(dir, &offset);
    volume->open_files().Release(dir);
    return names;
  }
};

TEST_F(EarlyNamesTest, NamesWaitAtTheBoundOfEntries) {
  Close();
  pending_names.entries = 5;
  Open();
  for (int i = 0; i < 4; ++i) Make(root(), "f" + std::to_string(i));
  EXPECT_EQ(fake().applied, 0u);
  ASSERT_EQ(volume->pending_names().size().entries, 4u);
  Make(root(), "last");  // reaches the bound
  EXPECT_EQ(fake().applied, 0u);
  Make(root(), "waits");
  EXPECT_GT(fake().applied, 0u);
  EXPECT_EQ(volume->pending_names().size().entries, 0u);
  // With room again, names return early again.
  const Seq applied = fake().applied;
  Make(root(), "early");
  EXPECT_EQ(fake().applied, applied);
  EXPECT_EQ(volume->pending_names().size().entries, 1u);
  EXPECT_EQ(ListAll(root()),
            (std::multiset<std::string>{"early", "f0", "f1", "f2", "f3", "last", "waits"}));
}

TEST_F(EarlyNamesTest, NamesWaitAtTheBoundOfBytes) {
  Close();
  pending_names.bytes = 4096;
  Open();
  size_t most = 0;
  int made = 0;
  while (fake().applied == 0 && made < 100) {
    Make(root(), std::string(200, 'n') + std::to_string(made++));
    most = std::max(most, volume->pending_names().size().bytes);
  }
  EXPECT_GT(made, 2);
  EXPECT_LT(made, 100);
  EXPECT_GE(most, 4096u);
  EXPECT_LT(most, 2 * 4096u) << "one operation beyond the bound";
  EXPECT_EQ(volume->pending_names().size().bytes, 0u);
}

TEST_F(EarlyNamesTest, OperationsReturnBeforeAnythingIsAppliedOrDurable) {
  Node& d = Dir(root(), "d");
  Make(d, "f");
  ASSERT_EQ(Errno(volume->names().Symlink(d, "l", "target", caller)), 0);
  ASSERT_EQ(Errno(volume->names().Link(Find(d, "f"), d, "g")), 0);
  ASSERT_EQ(Errno(volume->names().Rename(d, "g", root(), "h", 0)), 0);
  ASSERT_EQ(Errno(volume->names().Unlink(d, "l")), 0);
  EXPECT_EQ(fake().applied, 0u);
  EXPECT_EQ(fake().durable, 0u);
  EXPECT_EQ(LookupErrno(d, "f"), 0);
  EXPECT_EQ(LookupErrno(d, "g"), ENOENT);
  EXPECT_EQ(LookupErrno(d, "l"), ENOENT);
  EXPECT_EQ(LookupErrno(root(), "h"), 0);
  EXPECT_EQ(&Find(d, "f"), &Find("h"));
  EXPECT_EQ(ListAll(root()), (std::multiset<std::string>{"d", "h"}));
  ApplyAll();
  EXPECT_EQ(ListAll(root()), (std::multiset<std::string>{"d", "h"}));
  EXPECT_EQ(ListAll(d), (std::multiset<std::string>{"f"}));
}

TEST_F(EarlyNamesTest, DiskKeepsItsNamesUntilTheRecordsAreApplied) {
  Make(root(), "old");
  ApplyAll();
  Make(root(), "new");
  ASSERT_EQ(Errno(volume->names().Unlink(root(), "old")), 0);
  EXPECT_EQ(Errno(memory->StatAt(backing_root(), "old")), 0);
  EXPECT_EQ(Errno(memory->StatAt(backing_root(), "new")), ENOENT);
  ApplyAll();
  EXPECT_EQ(Errno(memory->StatAt(backing_root(), "old")), ENOENT);
  EXPECT_EQ(Errno(memory->StatAt(backing_root(), "new")), 0);
}

TEST_F(EarlyNamesTest, InodeAndDescriptorStayWhenTheNameIsApplied) {
  Handle* const file = VolumeFixture::Create("f");
  const struct stat before = Stat(file->node);
  Write(file, 0, "text");
  ApplyAll();
  EXPECT_EQ(&Find("f"), &file->node);
  EXPECT_EQ(Stat(file->node).st_ino, before.st_ino);
  EXPECT_EQ(Read(file, 0, 10), "text");
  EXPECT_EQ(BackingContent("f"), "text");
  volume->open_files().Release(file);
}

TEST_F(EarlyNamesTest, LinkCountsArePredicted) {
  Make(root(), "f");
  Node& f = Find("f");
  Node& d = Dir(root(), "d");
  ASSERT_EQ(Errno(volume->names().Link(f, d, "g")), 0);
  Node& e = Dir(d, "e");
  const nlink_t top = Stat(root()).st_nlink;
  EXPECT_EQ(Stat(f).st_nlink, 2u);
  EXPECT_EQ(Stat(d).st_nlink, 3u);
  ASSERT_EQ(Errno(volume->names().Rename(d, "e", root(), "e", 0)), 0);
  EXPECT_EQ(Stat(d).st_nlink, 2u);
  EXPECT_EQ(Stat(root()).st_nlink, top + 1);
  ASSERT_EQ(Errno(volume->names().Unlink(root(), "f")), 0);
  ASSERT_EQ(Errno(volume->names().RemoveDir(root(), "e")), 0);
  EXPECT_EQ(Stat(f).st_nlink, 1u);
  EXPECT_EQ(Stat(e).st_nlink, 0u);
  EXPECT_EQ(Stat(root()).st_nlink, top);
  EXPECT_EQ(fake().applied, 0u);
  ApplyAll();
  EXPECT_EQ(Stat(f).st_nlink, 1u);
  EXPECT_EQ(Stat(d).st_nlink, 2u);
  EXPECT_EQ(Stat(root()).st_nlink, top);
}

// A file system may refuse the directory for its number (EMLINK).
TEST_F(EarlyNamesTest, DirectoryAmongManyWaits) {
  const auto waits = [&](const absl::Status& done) {
    SALIUS_CHECK_OK(done);
    absl::MutexLock lock(&fake().mu);
    return fake().applied == fake().records.size();
  };
  for (const char* name : {"many", "d", "e"}) MakeBackingDir(name);
  MakeBackingFile("f");
  for (int i = 2; i < 29'999; ++i) MakeBackingDir("many/" + std::to_string(i));
  Node& many = Find("many");
  NameOps& names = volume->names();
  EXPECT_FALSE(waits(names.MakeDir(many, "last", 0755, caller).status()));
  EXPECT_TRUE(waits(names.MakeDir(many, "more", 0755, caller).status()));
  EXPECT_TRUE(waits(names.Rename(root(), "d", many, "d", 0)));
  EXPECT_FALSE(waits(names.Rename(root(), "f", many, "f", 0)));
  EXPECT_TRUE(waits(names.Rename(root(), "e", many, "f", RENAME_EXCHANGE)));
  EXPECT_FALSE(waits(names.Rename(many, "d", many, "g", 0)));
  EXPECT_FALSE(waits(names.Rename(many, "g", root(), "g", 0)));
  EXPECT_EQ(Stat(many).st_nlink, 30'002u);
}

TEST_F(EarlyNamesTest, EmptinessIsThatOfTheMergedDirectory) {
  Node& d = Dir(root(), "d");
  Make(d, "f");
  EXPECT_EQ(Errno(volume->names().RemoveDir(root(), "d")), ENOTEMPTY) << "the disk's is empty";
  ApplyAll();
  ASSERT_EQ(Errno(volume->names().Unlink(d, "f")), 0);
  EXPECT_EQ(Errno(volume->names().RemoveDir(root(), "d")), 0) << "the disk's is not";
  EXPECT_EQ(Errno(volume->names().MakeDir(d, "late", 0755, caller)), ENOENT);
  ApplyAll();
  EXPECT_FALSE(IsThere("d"));
}

TEST_F(EarlyNamesTest, NameIsUsedAgainAtOnce) {
  for (int i = 0; i < 3; ++i) {
    Make(root(), "f");
    EXPECT_EQ(Errno(volume->names().MakeNode(root(), "f", S_IFREG | 0644, 0, caller)), EEXIST);
    ASSERT_EQ(Errno(volume->names().Unlink(root(), "f")), 0);
  }
  ASSERT_EQ(Errno(volume->names().MakeDir(root(), "f", 0755, caller)), 0);
  ApplyAll();
  EXPECT_TRUE(S_ISDIR(Find("f").type));
}

TEST_F(EarlyNamesTest, ListingThatWasBegunShowsEachNameOnce) {
  std::multiset<std::string> stay;
  for (int i = 0; i < 20; ++i) {
    const std::string name = "name" + std::to_string(i);
    Make(root(), name);
    stay.insert(name);
    if (i == 9) ApplyAll();
  }
  ASSERT_EQ(Errno(volume->names().Unlink(root(), "name3")), 0);
  stay.erase("name3");
  Handle* const dir = OpenDir(root());
  uint64_t offset = 0;
  std::multiset<std::string> seen = List(dir, &offset, 4);
  ApplyAll();
  std::multiset<std::string> rest;
  while (!(rest = List(dir, &offset, 3)).empty()) seen.insert(rest.begin(), rest.end());
  EXPECT_EQ(seen, stay);
  volume->open_files().Release(dir);
}

TEST_F(EarlyNamesTest, ListingWaitsWhereOthersKeepManyEntries) {
  Close();
  pending_names.listed_bytes = 1;
  Open();
  Make(root(), "a");
  const auto all_applied = [&] {
    absl::MutexLock lock(&fake().mu);
    return fake().applied == fake().records.size();
  };
  Handle* const first = OpenDir(root());
  uint64_t offset = 0;
  EXPECT_EQ(List(first, &offset, 1), std::multiset<std::string>{"a"});
  EXPECT_FALSE(all_applied());
  Make(root(), "b");
  EXPECT_EQ(ListAll(root()), (std::multiset<std::string>{"a", "b"}));
  EXPECT_TRUE(all_applied());
  Make(root(), "c");
  volume->open_files().Release(first);
  EXPECT_EQ(ListAll(root()), (std::multiset<std::string>{"a", "b", "c"}));
  EXPECT_FALSE(all_applied());
}

TEST_F(EarlyNamesTest, DirectoryIsNotMovedBelowItself) {
  Node& a = Dir(root(), "a");
  Node& b = Dir(root(), "b");
  ASSERT_EQ(Errno(volume->names().Rename(root(), "b", a, "b", 0)), 0);
  EXPECT_EQ(Errno(volume->names().Rename(root(), "a", b, "a", 0)), EINVAL);
  ApplyAll();
  EXPECT_EQ(Errno(volume->names().Rename(root(), "a", b, "a", 0)), EINVAL);
}

TEST_F(EarlyNamesTest, FsyncWaitsForTheNameOfAFileAndForTheNamesOfADirectory) {
  Node& d = Dir(root(), "d");
  Handle* const file = VolumeFixture::Create(d, "f");
  const Seq created = fake().Issued().back()->seq();
  ASSERT_TRUE(Fsync(file).ok());
  EXPECT_GE(fake().durable, created);
  ASSERT_EQ(Errno(volume->names().Rename(d, "f", d, "g", 0)), 0);
  const Seq renamed = fake().Issued().back()->seq();
  EXPECT_LT(fake().durable, renamed);
  Handle* const dir = OpenDir(d);
  ASSERT_TRUE(Fsync(dir).ok());
  EXPECT_GE(fake().durable, renamed);
  volume->open_files().Release(dir);
  volume->open_files().Release(file);
}

TEST_F(EarlyNamesTest, WriteAfterTheLastNameIsGoneWaitsAndIsNotLogged) {
  Handle* const file = VolumeFixture::Create("f");
  Write(file, 0, "one");
  ASSERT_EQ(Errno(volume->names().Unlink(root(), "f")), 0);
  const Seq removal = fake().Issued().back()->seq();
  EXPECT_EQ(Stat(file->node).st_nlink, 0u);
  EXPECT_EQ(Errno(volume->names().Link(file->node, root(), "again")), ENOENT);
  EXPECT_GE(fake().applied, removal);
  Write(file, 3, "two");
  EXPECT_EQ(fake().Issued(Op::kWrite).size(), 1u);
  EXPECT_EQ(Read(file, 0, 10), "onetwo");
  volume->open_files().Release(file);
}

TEST_F(EarlyNamesTest, RenameLeavesAWhiteoutBeforeItIsApplied) {
  Make(root(), "f");
  Make(root(), "displaced");
  ApplyAll();
  Node& f = Find("f");
  NameOps& names = volume->names();
  ASSERT_EQ(Errno(names.Rename(root(), "f", root(), "displaced", RENAME_WHITEOUT, caller)), 0);
  const Seq renamed = fake().Issued(Op::kRename).back()->seq();
  EXPECT_LT(fake().applied, renamed);
  EXPECT_EQ(&Find("displaced"), &f);
  Node& whiteout = Find("f");
  EXPECT_EQ(Stat(whiteout).st_mode, static_cast<mode_t>(S_IFCHR));
  EXPECT_EQ(Stat(whiteout).st_rdev, 0u);
  const ino_t ino = Stat(whiteout).st_ino;
  EXPECT_EQ(ListAll(root()), (std::multiset<std::string>{"displaced", "f"}));
  ApplyAll();
  EXPECT_EQ(ListAll(root()), (std::multiset<std::string>{"displaced", "f"}));
  EXPECT_EQ(memory->StatAt(backing_root(), "f")->st_ino, ino);
  EXPECT_NE(IdOf("f"), kNoFileId);
  EXPECT_EQ(&Find("displaced"), &f);
}

TEST_F(EarlyNamesTest, WhiteoutThatCannotBeMadeLeavesTheNames) {
  Make(root(), "f");
  ApplyAll();
  memory->FailNth(MemoryBacking::Call::kSetXattr, 1, ENOSPC);
  NameOps& names = volume->names();
  EXPECT_EQ(Errno(names.Rename(root(), "f", root(), "g", RENAME_WHITEOUT, caller)), ENOSPC);
  EXPECT_TRUE(fake().Issued(Op::kRename).empty());
  EXPECT_EQ(ListAll(root()), (std::multiset<std::string>{"f"}));
  EXPECT_EQ(Errno(names.Rename(root(), "f", root(), "g", RENAME_WHITEOUT, caller)), 0);
}

TEST_F(EarlyNamesTest, ObjectWhoseRecordIsNotIssuedLeavesNothing) {
  Make(root(), "f");
  ApplyAll();
  fake().before_issue = [&](Op) { fake().Fail(absl::UnavailableError("the session has ended")); };
  EXPECT_EQ(Errno(volume->names().MakeDir(root(), "d", 0755, caller)), EROFS);
  {
    absl::MutexLock lock(&root().state);
    EXPECT_EQ(root().seen_records().unapplied_names, 0u);
    EXPECT_EQ(root().seen_records().prediction, nullptr);
  }
  EXPECT_EQ(LookupErrno(root(), "d"), ENOENT);
}

TEST_F(EarlyNamesTest, FilesThatAreRemovedFasterThanFreedHoldFewDescriptors) {
  Close();
  descriptors = 512;
  Open();
  constexpr size_t kNodeDescriptors = (512 - 512 / 4) / 2;
  const size_t before = memory->open();
  std::vector<Node*> files;
  for (size_t i = 0; i < 2 * kNodeDescriptors; ++i) {
    auto created = volume->names().CreateFile(root(), std::to_string(i), O_RDWR, 0644, caller);
    ASSERT_TRUE(created.ok());
    volume->open_files().Release(created->handle);
    files.push_back(created->entry.node);
  }
  ApplyAll();
  const auto disk = std::make_shared<absl::Notification>();  // closes go on after the test
  memory->OnEachClose([disk, here = std::this_thread::get_id()] {
    if (std::this_thread::get_id() != here) disk->WaitForNotification();
  });
  for (size_t i = 0; i < files.size(); ++i) {
    ASSERT_EQ(Errno(volume->names().Unlink(root(), std::to_string(i))), 0);
    volume->names().Forget(*files[i], 1);
  }
  ApplyAll();
  const size_t most = kNodeDescriptors / PendingNames::kFreeingPart;
  EXPECT_GT(memory->open(), before) << "no other thread frees files";
  EXPECT_LE(memory->open(), before + most);
  disk->Notify();
}

TEST_F(EarlyNamesTest, InodeOfAFileThatWasRemovedJustNowIsUsedAgain) {
  Close();
  memory->SetQuota(fs::QuotaType::kUser, 1000, {.inodes_hard = 4});
  Open();
  for (int i = 0; i < 4; ++i) Make(root(), "f" + std::to_string(i));
  const auto mkdir = [&](const std::string& name) {
    return Errno(volume->names().MakeDir(root(), name, 0755, caller));
  };
  // A look at the figures that does not end in time counts for nothing.
  Until([&] { return mkdir("full") != 0; });
  for (int i = 0; i < 4; ++i) {
    const std::string name = "f" + std::to_string(i);
    volume->names().Forget(Find(name), 2);  // with that of its creation
    ASSERT_EQ(Errno(volume->names().Unlink(root(), name)), 0);
  }
  EXPECT_TRUE(Until([&] { return mkdir("d") == 0; }));
}

// The file system itself has no inode left.
TEST_F(EarlyNamesTest, ObjectThatFindsNoRoomIsMadeAfterRemovedOnesAreFreed) {
  Make(root(), "f");
  ASSERT_EQ(Errno(volume->names().Unlink(root(), "f")), 0);
  memory->FailNth(MemoryBacking::Call::kMake, 1, ENOSPC);
  EXPECT_EQ(Errno(volume->names().MakeDir(root(), "d", 0755, caller)), 0);
  EXPECT_FALSE(IsThere("f"));
  memory->FailNth(MemoryBacking::Call::kMake, 1, ENOSPC);
  memory->FailNth(MemoryBacking::Call::kMake, 2, ENOSPC);
  EXPECT_EQ(Errno(volume->names().MakeDir(root(), "e", 0755, caller)), ENOSPC);
}

// XFS refuses root's changes for the quota of the owner.
TEST_F(EarlyNamesTest, OwnerNearTheQuotaThatBindsRootWaits) {
  Close();
  memory->BindRootByQuota();
  memory->SetQuota(fs::QuotaType::kUser, 1000, {.bytes_hard = 8 * kMiB});
  Open();
  NameOps& names = volume->names();
  ASSERT_EQ(Errno(names.MakeDir(root(), "d", 0755, caller)), 0);
  Node& d = Find("d");
  Handle* const file = VolumeFixture::Create(d, "f");
  const auto waits = [&](const absl::Status& done) {
    SALIUS_CHECK_OK(done);
    absl::MutexLock lock(&fake().mu);
    return fake().applied == fake().records.size();
  };
  const auto set = [&](const char* name) {
    return volume->attrs().SetXattr(file->node, name, "value", 0, false);
  };
  // A look at the figures that does not end in time counts as near.
  int made = 0;
  EXPECT_TRUE(Until([&] {
    return !waits(names.MakeDir(d, "a" + std::to_string(made++), 0755, caller).status());
  }));
  ASSERT_EQ(Errno(set("user.a")), 0);
  EXPECT_TRUE(Until([&] { return !waits(set(("user.a" + std::to_string(made++)).c_str())); }));
  ASSERT_EQ(Errno(volume->files().Fallocate(*file, 0, 0, 7 * kMiB + kMiB / 2)), 0);
  EXPECT_TRUE(waits(names.MakeDir(d, "b", 0755, caller).status()));
  EXPECT_TRUE(waits(set("user.b")));
  EXPECT_TRUE(waits(volume->attrs().RemoveXattr(file->node, "user.a")));
  EXPECT_TRUE(waits(names.Link(file->node, d, "g").status()));
  EXPECT_TRUE(waits(names.Rename(d, "g", root(), "g", 0)));
  EXPECT_FALSE(waits(names.MakeDir(root(), "r", 0755, Caller()).status()));
  volume->open_files().Release(file);
}

// Changes names and attributes in each way that can return early.
void ChangeEverything(Volume& volume, Node& root, const Caller& caller) {
  NameOps& names = volume.names();
  const auto created = names.CreateFile(root, "f", O_RDWR, 0644, caller);
  ASSERT_TRUE(created.ok());
  Node& file = *created->entry.node;
  volume.open_files().Release(created->handle);
  const auto made = names.MakeDir(root, "d", 0755, caller);
  ASSERT_TRUE(made.ok());
  const auto linked = names.Link(file, root, "l");
  ASSERT_TRUE(linked.ok());
  struct stat want {};
  want.st_mode = 0600;
  ASSERT_TRUE(volume.attrs().SetAttr(file, kSetMode | kSetSize, want).ok());
  ASSERT_EQ(Errno(volume.attrs().SetXattr(file, "user.a", "1", 0, /*kill_sgid=*/false)), 0);
  ASSERT_EQ(Errno(volume.attrs().RemoveXattr(file, "user.a")), 0);
  ASSERT_EQ(Errno(names.Rename(root, "f", *made->node, "g", 0)), 0);
  ASSERT_EQ(Errno(names.Unlink(*made->node, "g")), 0);
  ASSERT_EQ(Errno(names.Unlink(root, "l")), 0);
  ASSERT_EQ(Errno(names.RemoveDir(root, "d")), 0);
  names.Forget(file, 2);
  names.Forget(*made->node, 1);
}

TEST_F(EarlyNamesTest, RecordsWithoutAWaiterAreSentLater) {
  ChangeEverything(*volume, root(), caller);
  for (size_t i = 0; i < fake().records.size(); ++i) {
    EXPECT_EQ(fake().sent_when[i], SendWhen::kLater) << OpName(fake().records[i]->header().op);
  }
  EXPECT_EQ(fake().durable, 0u);
}

TEST_F(EarlyNamesTest, RecordsWithAWaiterAreSentAtOnce) {
  Close();
  early = false;
  Open();
  ChangeEverything(*volume, root(), caller);
  for (size_t i = 0; i < fake().records.size(); ++i) {
    const Op op = fake().records[i]->header().op;
    const bool waits = op != Op::kTruncate && op != Op::kAdopt;
    EXPECT_EQ(fake().sent_when[i], waits ? SendWhen::kNow : SendWhen::kLater) << OpName(op);
  }
}

// The mark was set on the backing directory, behind the volume's back, after the check.
TEST_F(EarlyNamesTest, NameThatTheDiskRefusesFailsTheVolume) {
  Make(root(), "f");
  memory->FailNth(MemoryBacking::Call::kRename, 1, EPERM);
  EXPECT_FALSE(volume->stream().WaitApplied(volume->stream().watermarks().issued).ok());
}

}  // namespace
}  // namespace salius
