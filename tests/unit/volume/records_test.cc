// Which records a change issues, in which order, and when its caller is answered.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "common/limits.h"
#include "log/record.h"
#include "log/state_file.h"
#include "storage/apply.h"
#include "tests/unit/volume/fake_stream.h"
#include "tests/unit/volume/volume_fixture.h"

namespace salius {
namespace {

// Returns whether the file is removed within 10 s: a thread of the volume removes hidden links.
bool GoesSoon(const std::string& path) {
  const auto bound = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (access(path.c_str(), F_OK) == 0) {
    if (std::chrono::steady_clock::now() > bound) return false;
    std::this_thread::yield();
  }
  return true;
}

class RecordsTest : public VolumeFixture {
 protected:
  FakeStream& fake() { return FakeOf(volume->stream()); }
  // Makes an O_TMPFILE; sets `hidden` to the path of its hidden link.
  Volume::Created NamelessFile(std::string* hidden) {
    auto created = volume->CreateTmpFile(root(), O_RDWR, 0600, caller);
    SALIUS_CHECK_OK(created);
    *hidden =
        Backing(".salius/open/" + IdName(fake().Issued(Op::kCreate).back()->header().file_id));
    return *created;
  }
  // Makes one that is closed and that a checkpoint covers: its link may be removed from now on. The
  // next issue looks through all hidden links.
  Volume::Created ClosedNamelessFile(std::string* hidden) {
    const Volume::Created created = NamelessFile(hidden);
    std::string other_hidden;
    Handle* const other = NamelessFile(&other_hidden).handle;
    volume->Release(created.handle);
    SALIUS_CHECK_OK(volume->stream().Checkpoint());
    fake().before_issue = [this, other](Op) {
      fake().before_issue = nullptr;
      volume->Release(other);
    };
    return created;
  }
};

TEST_F(RecordsTest, AppendIsLoggedWithItsAbsoluteOffset) {
  Make();
  Handle* const file = Create("a");
  Write(file, 0, "12345");
  ASSERT_TRUE(volume->Write(*file, 999, "678", /*append=*/true, Contract::kPlain).ok());
  ASSERT_TRUE(volume->Write(*file, 0, "9", /*append=*/true, Contract::kPlain).ok());
  const auto writes = fake().Issued(Op::kWrite);
  ASSERT_EQ(writes.size(), 3u);
  EXPECT_EQ(writes[1]->header().arg0, 5u);
  EXPECT_EQ(writes[2]->header().arg0, 8u);
  EXPECT_EQ(fake().applied, fake().Issued(Op::kCreate)[0]->seq()) << "a patch was applied early";
  volume->Release(file);
}

TEST_F(RecordsTest, PlainWriteWaitsForNothingAndSynchronousOneForDurable) {
  Make();
  Handle* const file = Create("a");
  const Seq before = fake().durable;
  Write(file, 0, "plain");
  EXPECT_EQ(fake().durable, before);
  Write(file, 0, "sync", Contract::kDurable);
  EXPECT_EQ(fake().durable, fake().Issued().back()->seq());
  EXPECT_LT(fake().applied, fake().durable);
  Write(file, 0, "plain");
  ASSERT_TRUE(Fsync(file).ok());
  EXPECT_EQ(fake().durable, fake().Issued().back()->seq());
  volume->Release(file);
}

// XFS then answers even fstat with an error.
TEST_F(RecordsTest, RemovingANameOnADiskThatIsGoneIsAnError) {
  Make(400 * kMiB, "mkfs.xfs -q");
  Handle* const file = Create("a");
  fake().before_apply = [this](const RecordRef&) { scratch->Shutdown(); };
  EXPECT_NE(Errno(volume->Unlink(root(), "a")), 0);
  fake().before_apply = nullptr;
  EXPECT_EQ(Errno(volume->health()), EIO);
  volume->Release(file);
}

TEST_F(RecordsTest, LargeWriteIsSplitIntoRecordsInOrder) {
  Make();
  Handle* const file = Create("a");
  for (const size_t size :
       {size_t{300000}, size_t{512} << 10, (size_t{512} << 10) + 1, size_t{1} << 20}) {
    const size_t before = fake().Issued(Op::kWrite).size();
    std::string data(size, '\0');
    for (size_t i = 0; i < size; ++i) data[i] = static_cast<char>(i * 31 + i / 1000);
    Write(file, 7, data);
    const auto writes = fake().Issued(Op::kWrite);
    EXPECT_LE(writes.size() - before, size / kMaxRecordBody + 1);
    std::string written;
    for (size_t i = before; i < writes.size(); ++i) {
      EXPECT_EQ(writes[i]->header().arg0, 7 + written.size());
      EXPECT_LE(writes[i]->body().size(), kMaxRecordBody);
      written += writes[i]->body();
    }
    EXPECT_TRUE(written == data) << size;
  }
  volume->Release(file);
}

TEST_F(RecordsTest, CreatingWithTruncateStampsNoTruncation) {
  Make();
  volume->Release(Create("a", O_RDWR | O_TRUNC));
  EXPECT_TRUE(fake().Issued(Op::kTruncate).empty());
  volume->Release(Create("a", O_RDWR | O_TRUNC));
  EXPECT_EQ(fake().Issued(Op::kTruncate).size(), 1u);
}

TEST_F(RecordsTest, NameOperationIsDurableAndAppliedBeforeItReturns) {
  Make();
  bool seen = true;
  fake().on_wait_durable = [&](Seq) { seen = access(Backing("d").c_str(), F_OK) == 0; };
  ASSERT_TRUE(volume->MakeDir(root(), "d", 0755, caller).ok());
  EXPECT_FALSE(seen) << "visible on the backing file system before it was durable";
  fake().on_wait_durable = nullptr;
  EXPECT_EQ(access(Backing("d").c_str(), F_OK), 0);
  EXPECT_EQ(fake().applied, fake().Issued().back()->seq());
}

TEST_F(RecordsTest, RenameNamesDirectoriesAndFilesById) {
  Make();
  Node& d = Dir(root(), "d");
  volume->Release(Create("a"));
  volume->Release(Create(d, "b"));
  ASSERT_TRUE(volume->Rename(root(), "a", d, "b", 0).ok());
  const auto creates = fake().Issued(Op::kCreate);
  ASSERT_EQ(creates.size(), 3u);
  const RecordRef record = fake().Issued(Op::kRename).at(0);
  auto body = RenameBody::Decode(record->body());
  ASSERT_TRUE(body.ok());
  EXPECT_EQ(record->header().file_id, creates[1]->header().file_id);
  EXPECT_EQ(body->from_dir, kRootFileId);
  EXPECT_EQ(body->to_dir, creates[0]->header().file_id);
  EXPECT_EQ(body->other, creates[2]->header().file_id);
  EXPECT_EQ(body->from_name, "a");
  EXPECT_EQ(body->to_name, "b");
}

TEST_F(RecordsTest, RecordThatRemovesTheLastNameIsMarked) {
  Make();
  for (const char* name : {"one", "two", "other"}) volume->Release(Create(name));
  ASSERT_TRUE(volume->Link(Find("two"), root(), "second").ok());
  for (const char* name : {"one", "two"}) ASSERT_TRUE(volume->Unlink(root(), name).ok()) << name;
  const auto unlinks = fake().Issued(Op::kUnlink);
  ASSERT_EQ(unlinks.size(), 2u);
  EXPECT_EQ(unlinks[0]->header().arg1, 1u);
  EXPECT_EQ(unlinks[1]->header().arg1, 0u);
  ASSERT_TRUE(volume->Rename(root(), "other", root(), "second", 0).ok());
  ASSERT_TRUE(volume->Rename(root(), "second", root(), "third", 0).ok());
  const auto renames = fake().Issued(Op::kRename);
  ASSERT_EQ(renames.size(), 2u);
  EXPECT_EQ(renames[0]->header().arg0, 1u);
  EXPECT_EQ(renames[1]->header().arg0, 0u);
}

TEST_F(RecordsTest, AdoptComesBeforeTheFirstChangeWithPathAndHandle) {
  MakeClosed();
  if (IsSkipped()) return;
  MustRun("mkdir -p " + Backing("x/y") + " && touch " + Backing("x/y/f"));
  Open();
  Handle* const file = OpenFile(Find(Find(Find("x"), "y"), "f"));
  Write(file, 0, "1");
  Write(file, 1, "2");
  const auto records = fake().Issued();
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0]->header().op, Op::kAdopt);
  auto body = AdoptBody::Decode(records[0]->body());
  ASSERT_TRUE(body.ok());
  EXPECT_EQ(body->path, "x/y/f");
  EXPECT_FALSE(body->handle.empty());
  EXPECT_EQ(records[1]->header().file_id, records[0]->header().file_id);
  volume->Release(file);
  ASSERT_TRUE(volume->Unlink(Find(Find("x"), "y"), "f").ok());
  const auto adopts = fake().Issued(Op::kAdopt);
  ASSERT_EQ(adopts.size(), 2u);  // the file's directory too, but not the directories above
  EXPECT_EQ(AdoptBody::Decode(adopts[1]->body())->path, "x/y");
}

// Names the file that the session means, in case others have its id as copies.
TEST_F(RecordsTest, AdoptOfAFileWithAnIdHasItsHandle) {
  MakeClosed();
  if (IsSkipped()) return;
  MustRun("touch " + Backing("f"));
  ASSERT_TRUE(WriteFileId(OpenAt(AT_FDCWD, Backing("f"), O_RDWR)->get(), 5).ok());
  {  // an earlier session gives the id
    const auto dir = OpenAt(AT_FDCWD, Backing(".salius"), O_RDONLY | O_DIRECTORY);
    auto state = StateFile::Open(dir->get(), kStateFileName);
    ASSERT_TRUE(state.ok());
    VolumeState next = state->state();
    next.file_id_limit = 100;
    ASSERT_TRUE(state->Write(next).ok());
  }
  Open();
  Handle* const file = OpenFile(Find("f"));
  Write(file, 0, "1");
  Write(file, 1, "2");
  volume->Release(file);
  const auto records = fake().Issued();
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0]->header().op, Op::kAdopt);
  for (const auto& record : records) EXPECT_EQ(record->header().file_id, 5u);
  auto body = AdoptBody::Decode(records[0]->body());
  ASSERT_TRUE(body.ok());
  EXPECT_EQ(body->handle, HandleOf(AT_FDCWD, Backing("f"), 0)->bytes);
  EXPECT_EQ(body->path, "");
}

// Recovery takes a body that it cannot decode for damage.
TEST_F(RecordsTest, AdoptOfAFileWithTooLongAPathHasItsHandleAlone) {
  MakeClosed();
  if (IsSkipped()) return;
  const std::string name(250, 'd');
  constexpr int kDepth = 20;
  UniqueFd at(::open(Backing("").c_str(), O_PATH | O_DIRECTORY));
  for (int i = 0; i < kDepth; ++i) {
    ASSERT_EQ(::mkdirat(at.get(), name.c_str(), 0755), 0);
    at.Reset(::openat(at.get(), name.c_str(), O_PATH | O_DIRECTORY));
    ASSERT_TRUE(at.valid());
  }
  ASSERT_TRUE(UniqueFd(::openat(at.get(), "f", O_CREAT | O_WRONLY, 0644)).valid());
  Open();
  Node* dir = &Find(name);
  for (int i = 1; i < kDepth; ++i) dir = &Find(*dir, name);
  Handle* const file = OpenFile(Find(*dir, "f"));
  Write(file, 0, "1");
  const auto adopts = fake().Issued(Op::kAdopt);
  ASSERT_EQ(adopts.size(), 1u);
  const auto body = AdoptBody::Decode(adopts[0]->body());
  ASSERT_TRUE(body.ok()) << body.status();
  EXPECT_EQ(body->path, "");
  EXPECT_FALSE(body->handle.empty());
  volume->Release(file);
}

// The file was copied from another volume, whose ids this one has not handed out yet.
TEST_F(RecordsTest, IdThatAForeignFileClaimsMeanwhileIsAnErrorOfTheCall) {
  Make();
  volume->Release(Create("a"));
  MustRun("touch " + Backing("foreign"));
  const FileId next = *ReadFileIdAt(AT_FDCWD, Backing("a")) + 1;
  ASSERT_TRUE(WriteFileId(OpenAt(AT_FDCWD, Backing("foreign"), O_RDWR)->get(), next).ok());
  Handle* const foreign = OpenFile(Find("foreign"));
  fake().before_apply = [&](const RecordRef& record) {
    if (record->header().op != Op::kCreate) return;
    fake().before_apply = nullptr;
    Write(foreign, 0, "x");
  };
  EXPECT_EQ(Errno(volume->MakeDir(root(), "b", 0755, caller)), EIO);
  EXPECT_EQ(Errno(volume->MakeDir(root(), "c", 0755, caller)), 0);
  volume->Release(foreign);
}

TEST_F(RecordsTest, FailedApplyIsCancelledBeforeTheCallReturns) {
  Make();
  // Another program takes the name between check and apply.
  fake().before_apply = [&](const RecordRef& record) {
    if (record->header().op == Op::kCreate) MustRun("touch " + Backing("taken"));
  };
  EXPECT_EQ(Errno(volume->MakeDir(root(), "taken", 0755, caller)), EEXIST);
  fake().before_apply = nullptr;
  const RecordRef create = fake().Issued(Op::kCreate).at(0);
  const RecordRef cancel = fake().Issued(Op::kCancel).at(0);
  EXPECT_EQ(cancel->header().arg0, create->seq());
  EXPECT_GE(fake().durable, cancel->seq());
  EXPECT_NE(access(Backing(".salius/tmp/" + IdName(create->header().file_id)).c_str(), F_OK), 0);
  EXPECT_EQ(Errno(volume->MakeDir(root(), "free", 0755, caller)), 0);
}

TEST_F(RecordsTest, CancelThatCannotBeMadeDurableIsAnErrorOfTheVolume) {
  Make();
  fake().before_apply = [&](const RecordRef& record) {
    if (record->header().op == Op::kCreate) {
      MustRun("touch " + Backing("taken"));
      fake().on_wait_durable = [&](Seq) { fake().Fail(absl::InternalError("test")); };
    }
  };
  EXPECT_EQ(Errno(volume->MakeDir(root(), "taken", 0755, caller)), EIO);
}

TEST_F(RecordsTest, NameUnderWayWhenTheVolumeFailsIsAnIoError) {
  Make();
  fake().on_wait_durable = [&](Seq) { fake().Fail(absl::InternalError("test")); };
  EXPECT_EQ(Errno(volume->MakeDir(root(), "d", 0755, caller)), EIO) << "recovery may make it";
  EXPECT_EQ(Errno(volume->MakeDir(root(), "e", 0755, caller)), EROFS) << "nothing was issued";
}

TEST_F(RecordsTest, NothingIsStampedForRefusedChanges) {
  Make();
  volume->Release(Create("f"));
  Node& dir = Dir(root(), "d");
  volume->Release(Create(dir, "inner"));
  const size_t before = fake().Issued().size();
  EXPECT_NE(Errno(volume->MakeDir(root(), "f", 0755, caller)), 0);
  EXPECT_NE(Errno(volume->RemoveDir(root(), "d")), 0);
  EXPECT_NE(Errno(volume->Unlink(root(), "none")), 0);
  EXPECT_NE(Errno(volume->Rename(root(), "f", root(), "d", 0)), 0);
  EXPECT_NE(Errno(volume->Rename(root(), "d", dir, "x", 0)), 0);
  EXPECT_NE(Errno(volume->Link(dir, root(), "x")), 0);
  EXPECT_NE(Errno(volume->SetXattr(dir, "user.a", "x", XATTR_REPLACE, false)), 0);
  EXPECT_EQ(fake().Issued().size(), before);
}

// Recovery would stop at such a record.
TEST_F(RecordsTest, NothingIsStampedForImmutableFiles) {
  Make();
  volume->Release(Create("f"));
  volume->Release(Create("g"));
  Node& dir = Dir(root(), "d");
  volume->Release(Create(dir, "inner"));
  ASSERT_TRUE(volume->stream().Checkpoint().ok());
  MustRun("chattr +i " + Backing("f") + " && chattr +i " + Backing("d"));
  Node& file = Find("f");
  const size_t before = fake().Issued().size();
  struct stat want {};
  want.st_mode = 0600;
  EXPECT_EQ(Errno(volume->SetAttr(file, kSetMode, want)), EPERM);
  EXPECT_EQ(Errno(volume->SetXattr(file, "user.a", "x", 0, false)), EPERM);
  EXPECT_EQ(Errno(volume->Unlink(root(), "f")), EPERM);
  EXPECT_EQ(Errno(volume->Link(file, root(), "h")), EPERM);
  EXPECT_EQ(Errno(volume->Rename(root(), "f", root(), "h", 0)), EPERM);
  EXPECT_EQ(Errno(volume->Rename(root(), "g", root(), "f", 0)), EPERM);
  EXPECT_EQ(Errno(volume->Rename(root(), "g", dir, "g", 0)), EPERM);
  EXPECT_EQ(Errno(volume->Unlink(dir, "inner")), EPERM);
  EXPECT_EQ(Errno(volume->MakeDir(dir, "x", 0755, caller)), EPERM);
  MustRun("chattr -i " + Backing("f") + " && chattr -i " + Backing("d"));
  EXPECT_EQ(fake().Issued().size(), before);
  EXPECT_EQ(Errno(volume->Rename(root(), "g", dir, "g", 0)), 0);
}

TEST_F(RecordsTest, NamelessFileIsLoggedAndKeepsAHiddenLink) {
  Make();
  std::string hidden;
  const Volume::Created created = NamelessFile(&hidden);
  EXPECT_EQ(CreateBody::Decode(fake().Issued(Op::kCreate).at(0)->body())->dir, kNoFileId);
  EXPECT_EQ(access(hidden.c_str(), F_OK), 0);
  Write(created.handle, 0, "x", Contract::kDurable);
  EXPECT_EQ(fake().Issued(Op::kWrite).size(), 1u);
  ASSERT_TRUE(volume->Link(*created.entry.node, root(), "named").ok());
  EXPECT_EQ(access(hidden.c_str(), F_OK), 0);
  volume->Release(created.handle);
  EXPECT_EQ(access(hidden.c_str(), F_OK), 0) << "no checkpoint covers the link's record yet";
  ASSERT_TRUE(volume->stream().Checkpoint().ok());
  ASSERT_TRUE(volume->stream().SyncNow().ok());
  EXPECT_NE(access(hidden.c_str(), F_OK), 0);
}

// The change is made through an O_PATH descriptor. Recovery could not tell the file from a lost
// one.
TEST_F(RecordsTest, HiddenLinkStaysWhileAChangeOfTheClosedFileIsInNoCheckpoint) {
  Make();
  std::string hidden;
  const Volume::Created created = NamelessFile(&hidden);
  Node& node = *created.entry.node;
  volume->Release(created.handle);
  struct stat want {};
  want.st_mode = 0640;
  for (const mode_t mode : {0640, 0600}) {
    want.st_mode = mode;
    ASSERT_TRUE(volume->stream().Checkpoint().ok());
    ASSERT_TRUE(volume->SetAttr(node, kSetMode, want).ok());
    std::string other_hidden;
    volume->Release(NamelessFile(&other_hidden).handle);  // looks through all hidden links
    EXPECT_EQ(access(hidden.c_str(), F_OK), 0);
  }
  ASSERT_TRUE(volume->stream().Checkpoint().ok());
  ASSERT_TRUE(volume->stream().SyncNow().ok());
  EXPECT_NE(access(hidden.c_str(), F_OK), 0);
}

TEST_F(RecordsTest, HiddenLinkGoesAlsoWhenARecordWasOnItsWayAtTheCheckpoint) {
  Make();
  std::string hidden;
  const Volume::Created created = NamelessFile(&hidden);
  Node& node = *created.entry.node;
  ASSERT_TRUE(volume->Link(node, root(), "named").ok());
  volume->Release(created.handle);
  ASSERT_TRUE(volume->stream().Checkpoint().ok());
  std::string other_hidden;
  Handle* const other = NamelessFile(&other_hidden).handle;
  fake().on_wait_durable = [&](Seq) {  // the change of the mode is under way
    fake().on_wait_durable = nullptr;
    volume->Release(other);  // looks through all hidden links
  };
  struct stat want {};
  want.st_mode = 0640;
  ASSERT_TRUE(volume->SetAttr(node, kSetMode, want).ok());
  EXPECT_EQ(access(hidden.c_str(), F_OK), 0) << "it was not looked at while a record was unapplied";
  ASSERT_TRUE(volume->stream().Checkpoint().ok());
  ASSERT_TRUE(volume->stream().SyncNow().ok());
  EXPECT_NE(access(hidden.c_str(), F_OK), 0);
}

// XFS then answers even fstat with an error.
TEST_F(RecordsTest, FileWithUnreadableAttributesIsNotLeftOpen) {
  Make(400 * kMiB, "mkfs.xfs -q");
  volume->Release(Create("a"));
  Node& node = Find("a");
  fake().before_issue = [this](Op op) {
    if (op == Op::kTruncate) scratch->Shutdown();
  };
  EXPECT_NE(Errno(volume->CreateFile(root(), "a", O_RDWR | O_TRUNC, 0644, caller)), 0);
  absl::MutexLock lock(&node.state);
  EXPECT_EQ(node.handles, 0u);
}

// The link is removed only when no record of the file can be stamped any more: for a later record
// recovery would look for a file that is rightly gone.
TEST_F(RecordsTest, HiddenLinkStaysWhileAChangeOfTheClosedFileIsBeingStamped) {
  Make();
  std::string hidden;
  const Volume::Created created = ClosedNamelessFile(&hidden);
  struct stat want {};
  want.st_mode = 0640;
  ASSERT_TRUE(volume->SetAttr(*created.entry.node, kSetMode, want).ok());
  EXPECT_EQ(access(hidden.c_str(), F_OK), 0);
  ASSERT_TRUE(volume->stream().Checkpoint().ok());
  ASSERT_TRUE(volume->stream().SyncNow().ok());
  EXPECT_NE(access(hidden.c_str(), F_OK), 0);
}

TEST_F(RecordsTest, HiddenLinkStaysWhileTheFileIsBeingNamed) {
  Make();
  std::string hidden;
  const Volume::Created created = ClosedNamelessFile(&hidden);
  EXPECT_EQ(Errno(volume->Link(*created.entry.node, root(), "named")), 0);
  // Links that were passed over are looked at again, also when no further checkpoint is needed.
  std::string third_hidden;
  volume->Release(NamelessFile(&third_hidden).handle);
  EXPECT_TRUE(GoesSoon(hidden));
  EXPECT_EQ(Stat(*created.entry.node).st_nlink, 1u);
}

TEST_F(RecordsTest, HiddenLinkOfAFileThatIsOpenedAgainGoesAtTheCloseThatACheckpointCovers) {
  Make();
  std::string hidden;
  const Volume::Created created = NamelessFile(&hidden);
  volume->Release(created.handle);
  for (int i = 0; i < 3; ++i) {
    Handle* const again = OpenFile(*created.entry.node);
    Write(again, 0, "x", Contract::kDurable);
    volume->Release(again);
    EXPECT_EQ(access(hidden.c_str(), F_OK), 0);
  }
  Handle* const again = OpenFile(*created.entry.node);
  ASSERT_TRUE(volume->stream().Checkpoint().ok());
  ASSERT_TRUE(volume->stream().SyncNow().ok());
  EXPECT_EQ(access(hidden.c_str(), F_OK), 0);
  volume->Release(again);
  EXPECT_TRUE(GoesSoon(hidden)) << "nothing is left that it could wait for";
}

TEST_F(RecordsTest, UnappliedRecordsKeepAForgottenFileAlive) {
  Make();
  Handle* const file = Create("a");
  Write(file, 0, "late");
  Node& node = file->node;
  volume->Release(file);
  volume->Forget(node, 1);
  Handle* const again = OpenFile(Find("a"));
  EXPECT_EQ(Read(again, 0, 10), "late");
  volume->Release(again);
  fake().ApplySome(SIZE_MAX);
  EXPECT_EQ(BackingContent("a"), "late");
}

// A checkpoint could leave only a record that was stamped after the one that removes the last name.
// Then recovery would look for a file that is rightly gone.
TEST_F(RecordsTest, NothingIsStampedAfterTheLastNameIsRemoved) {
  Make();
  for (const bool by_rename : {false, true}) {
    Handle* const file = Create("a");
    std::thread writer;
    std::atomic<bool> written_between = false;
    fake().before_apply = [&](const RecordRef& record) {
      if (record->header().op != Op::kUnlink && record->header().op != Op::kRename) return;
      writer = std::thread([&] {
        Write(file, 0, "between");
        written_between = true;
      });
      // It has to wait until the name is gone; otherwise it would be done long before this ends.
      const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
      while (!written_between && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    };
    const size_t written = fake().Issued(Op::kWrite).size();
    if (by_rename) {
      volume->Release(Create("b"));
      ASSERT_TRUE(volume->Rename(root(), "b", root(), "a", 0).ok());
    } else {
      ASSERT_TRUE(volume->Unlink(root(), "a").ok());
    }
    fake().before_apply = nullptr;
    writer.join();
    EXPECT_EQ(Read(file, 0, 100), "between");
    Write(file, 7, "+direct");
    EXPECT_EQ(Read(file, 0, 100), "between+direct");
    EXPECT_EQ(fake().Issued(Op::kWrite).size(), written);
    volume->Release(file);
  }
}

}  // namespace
}  // namespace salius
