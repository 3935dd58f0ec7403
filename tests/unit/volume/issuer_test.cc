// Stamping: ids and adoption, results and cancelling, and the pins of unapplied records.
#include <errno.h>
#include <fcntl.h>

#include <string>
#include <utility>

#include "log/record.h"
#include "log/state_file.h"
#include "storage/apply.h"
#include "storage/backing.h"
#include "storage/volume_config.h"
#include "tests/unit/volume/fake_stream.h"
#include "tests/unit/volume/volume_fixture.h"

namespace salius {
namespace {

class IssuerTest : public VolumeFixture {
 protected:
  FakeStream& fake() { return FakeOf(volume->stream()); }
  // Has the next session believe that earlier ones gave the ids below `limit`.
  void GiveIdsBelow(FileId limit) {
    id_ceiling = limit;
    if (memory != nullptr) return;
    auto state =
        StateFile::Open(LinuxBacking(), OpenBacking(kSaliusDir, O_RDONLY).get(), kStateFileName);
    SALIUS_CHECK_OK(state);
    VolumeState next = state->state();
    next.file_id_limit = limit;
    SALIUS_CHECK_OK(state->Write(next));
  }
};

TEST_F(IssuerTest, AdoptComesBeforeTheFirstChangeWithPathAndHandle) {
  MakeClosed();
  if (IsSkipped()) return;
  MakeBackingDir("x");
  MakeBackingDir("x/y");
  MakeBackingFile("x/y/f");
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
  volume->open_files().Release(file);
  ASSERT_TRUE(volume->names().Unlink(Find(Find("x"), "y"), "f").ok());
  const auto adopts = fake().Issued(Op::kAdopt);
  ASSERT_EQ(adopts.size(), 2u);  // the file's directory too, but not the directories above
  EXPECT_EQ(AdoptBody::Decode(adopts[1]->body())->path, "x/y");
}

// Names the file that the session means, in case others have its id as copies.
TEST_F(IssuerTest, AdoptOfAFileWithAnIdHasItsHandle) {
  MakeClosed();
  if (IsSkipped()) return;
  MakeBackingFile("f");
  SetId("f", 5);
  GiveIdsBelow(100);  // an earlier session gave the id
  Open();
  Handle* const file = OpenFile(Find("f"));
  Write(file, 0, "1");
  Write(file, 1, "2");
  volume->open_files().Release(file);
  const auto records = fake().Issued();
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0]->header().op, Op::kAdopt);
  for (const auto& record : records) EXPECT_EQ(record->header().file_id, 5u);
  auto body = AdoptBody::Decode(records[0]->body());
  ASSERT_TRUE(body.ok());
  EXPECT_EQ(body->handle, backing().HandleOf(OpenBacking("f").get())->bytes);
  EXPECT_EQ(body->path, "");
}

// Recovery takes a body that it cannot decode for damage.
TEST_F(IssuerTest, AdoptOfAFileWithTooLongAPathHasItsHandleAlone) {
  MakeClosed();
  if (IsSkipped()) return;
  const std::string name(250, 'd');
  constexpr int kDepth = 20;
  BackingFd at = OpenBacking(".", O_PATH | O_DIRECTORY);
  for (int i = 0; i < kDepth; ++i) {
    ASSERT_TRUE(backing().MkdirAt(at.get(), name, 0755).ok());
    auto next = backing().OpenAt(at.get(), name, O_PATH | O_DIRECTORY);
    ASSERT_TRUE(next.ok());
    at = *std::move(next);
  }
  ASSERT_TRUE(backing().MakeNode(at.get(), "f", S_IFREG | 0644, 0).ok());
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
  volume->open_files().Release(file);
}

// The file was copied from another volume, whose ids this one has not handed out yet.
TEST_F(IssuerTest, ForeignFileThatClaimsANewIdMeanwhileGetsAnother) {
  Make();
  volume->open_files().Release(Create("a"));
  MakeBackingFile("foreign");
  SetId("foreign", IdOf("a") + 1);
  Handle* const foreign = OpenFile(Find("foreign"));
  fake().before_apply = [&](const RecordRef& record) {
    if (record->header().op != Op::kCreate) return;
    fake().before_apply = nullptr;
    Write(foreign, 0, "x");
  };
  EXPECT_EQ(Errno(volume->names().MakeDir(root(), "b", 0755, caller)), 0);
  EXPECT_NE(IdOf("foreign"), IdOf("b"));
  EXPECT_NE(IdOf("foreign"), kNoFileId);
  volume->open_files().Release(foreign);
}

TEST_F(IssuerTest, FailedApplyIsCancelledBeforeTheCallReturns) {
  Make();
  // Another program takes the name between check and apply.
  fake().before_apply = [&](const RecordRef& record) {
    if (record->header().op == Op::kCreate) MakeBackingFile("taken");
  };
  EXPECT_EQ(Errno(volume->names().MakeDir(root(), "taken", 0755, caller)), EEXIST);
  fake().before_apply = nullptr;
  const RecordRef create = fake().Issued(Op::kCreate).at(0);
  const RecordRef cancel = fake().Issued(Op::kCancel).at(0);
  EXPECT_EQ(cancel->header().arg0, create->seq());
  EXPECT_GE(fake().durable, cancel->seq());
  EXPECT_FALSE(IsThere(".salius/tmp/" + IdName(create->header().file_id)));
  EXPECT_EQ(Errno(volume->names().MakeDir(root(), "free", 0755, caller)), 0);
}

TEST_F(IssuerTest, CancelThatCannotBeMadeDurableIsAnErrorOfTheVolume) {
  Make();
  fake().before_apply = [&](const RecordRef& record) {
    if (record->header().op == Op::kCreate) {
      MakeBackingFile("taken");
      fake().on_wait_durable = [&](Seq) { fake().Fail(absl::InternalError("test")); };
    }
  };
  EXPECT_EQ(Errno(volume->names().MakeDir(root(), "taken", 0755, caller)), EIO);
}

TEST_F(IssuerTest, NameUnderWayWhenTheVolumeFailsIsAnIoError) {
  Make();
  fake().on_wait_durable = [&](Seq) { fake().Fail(absl::InternalError("test")); };
  EXPECT_EQ(Errno(volume->names().MakeDir(root(), "d", 0755, caller)), EIO)
      << "recovery may make it";
  EXPECT_EQ(Errno(volume->names().MakeDir(root(), "e", 0755, caller)), EROFS)
      << "nothing was issued";
}

TEST_F(IssuerTest, UnappliedRecordsKeepAForgottenFileAlive) {
  Make();
  Handle* const file = Create("a");
  Write(file, 0, "late");
  Node& node = file->node;
  volume->open_files().Release(file);
  volume->names().Forget(node, 1);
  Handle* const again = OpenFile(Find("a"));
  EXPECT_EQ(Read(again, 0, 10), "late");
  volume->open_files().Release(again);
  fake().ApplySome(SIZE_MAX);
  EXPECT_EQ(BackingContent("a"), "late");
}

}  // namespace
}  // namespace salius
