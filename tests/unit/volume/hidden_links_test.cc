// Hidden links of files without a name: how long they stay.
#include <fcntl.h>

#include <chrono>
#include <string>
#include <thread>

#include "log/record.h"
#include "storage/apply.h"
#include "tests/unit/volume/fake_stream.h"
#include "tests/unit/volume/volume_fixture.h"

namespace salius {
namespace {

class HiddenLinksTest : public VolumeFixture {
 protected:
  // Returns whether the file is removed within 10 s: a thread of the volume removes hidden links.
  bool GoesSoon(const std::string& path) { return GoesWithin(std::chrono::seconds(10), path); }
  bool GoesWithin(std::chrono::milliseconds time, const std::string& path) {
    const auto bound = std::chrono::steady_clock::now() + time;
    while (IsThere(path)) {
      if (std::chrono::steady_clock::now() > bound) return false;
      std::this_thread::yield();
    }
    return true;
  }
  FakeStream& fake() { return FakeOf(volume->stream()); }
  int LooksOfOthers() {
    absl::MutexLock lock(&fake().mu);
    return fake().looks_of_others;
  }
  // Closes the last handle of a nameless file, and waits until the volume's thread has looked which
  // links may go.
  void ReleaseAndLook(Handle* handle) {
    const int before = LooksOfOthers();
    volume->open_files().Release(handle);
    const auto bound = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (LooksOfOthers() == before && std::chrono::steady_clock::now() < bound) {
      std::this_thread::yield();
    }
    ASSERT_GT(LooksOfOthers(), before);
  }
  // Makes an O_TMPFILE; sets `hidden` to the path of its hidden link.
  Created NamelessFile(std::string* hidden) {
    auto created = volume->names().CreateTmpFile(root(), O_RDWR, 0600, caller);
    SALIUS_CHECK_OK(created);
    *hidden = ".salius/open/" + IdName(fake().Issued(Op::kCreate).back()->header().file_id);
    return *created;
  }
  // Makes one that is closed and that a checkpoint covers: its link may be removed from now on. The
  // next issue looks through all hidden links.
  Created ClosedNamelessFile(std::string* hidden) {
    const Created created = NamelessFile(hidden);
    std::string other_hidden;
    Handle* const other = NamelessFile(&other_hidden).handle;
    ReleaseAndLook(created.handle);  // a look after the checkpoint would remove the link
    SALIUS_CHECK_OK(volume->stream().Checkpoint());
    fake().before_issue = [this, other, hidden = *hidden](Op) {
      ReleaseAndLook(other);
      // The look ends when the caller gives the file back. It must not remove the link meanwhile.
      GoesWithin(std::chrono::milliseconds(500), hidden);
      fake().before_issue = nullptr;  // this function goes with it
    };
    return created;
  }
};

TEST_F(HiddenLinksTest, NamelessFileIsLoggedAndKeepsAHiddenLink) {
  Make();
  std::string hidden;
  const Created created = NamelessFile(&hidden);
  EXPECT_EQ(CreateBody::Decode(fake().Issued(Op::kCreate).at(0)->body())->dir, kNoFileId);
  EXPECT_TRUE(IsThere(hidden));
  Write(created.handle, 0, "x", Contract::kDurable);
  EXPECT_EQ(fake().Issued(Op::kWrite).size(), 1u);
  ASSERT_TRUE(volume->names().Link(*created.entry.node, root(), "named").ok());
  EXPECT_TRUE(IsThere(hidden));
  volume->open_files().Release(created.handle);
  EXPECT_TRUE(IsThere(hidden)) << "no checkpoint covers the link's record yet";
  ASSERT_TRUE(volume->stream().Checkpoint().ok());
  ASSERT_TRUE(volume->stream().SyncNow().ok());
  EXPECT_TRUE(GoesSoon(hidden));
}

// The change is made through an O_PATH descriptor. Recovery could not tell the file from a lost
// one.
TEST_F(HiddenLinksTest, HiddenLinkStaysWhileAChangeOfTheClosedFileIsInNoCheckpoint) {
  Make();
  std::string hidden;
  const Created created = NamelessFile(&hidden);
  Node& node = *created.entry.node;
  ReleaseAndLook(created.handle);
  struct stat want {};
  want.st_mode = 0640;
  for (const mode_t mode : {0640, 0600}) {
    want.st_mode = mode;
    ASSERT_TRUE(volume->stream().Checkpoint().ok());
    ASSERT_TRUE(volume->attrs().SetAttr(node, kSetMode, want).ok());
    std::string other_hidden;
    ReleaseAndLook(NamelessFile(&other_hidden).handle);  // looks through all hidden links
    EXPECT_TRUE(IsThere(hidden));
  }
  ASSERT_TRUE(volume->stream().Checkpoint().ok());
  ASSERT_TRUE(volume->stream().SyncNow().ok());
  EXPECT_TRUE(GoesSoon(hidden));
}

TEST_F(HiddenLinksTest, HiddenLinkGoesAlsoWhenARecordWasOnItsWayAtTheCheckpoint) {
  Make();
  // The thread that drops links may come so late after the close that it finds the checkpoint.
  // Then the link goes before the record is on its way, and the attempt shows nothing.
  bool stayed = false;
  for (int attempt = 0; attempt < 20 && !stayed; ++attempt) {
    std::string hidden;
    const Created created = NamelessFile(&hidden);
    Node& node = *created.entry.node;
    ASSERT_TRUE(volume->names().Link(node, root(), "named" + std::to_string(attempt)).ok());
    volume->open_files().Release(created.handle);
    ASSERT_TRUE(volume->stream().Checkpoint().ok());
    std::string other_hidden;
    Handle* const other = NamelessFile(&other_hidden).handle;
    fake().on_wait_durable = [&](Seq) {  // the change of the mode is under way
      fake().on_wait_durable = nullptr;
      volume->open_files().Release(other);  // looks through all hidden links
    };
    struct stat want {};
    want.st_mode = 0640;
    ASSERT_TRUE(volume->attrs().SetAttr(node, kSetMode, want).ok());
    stayed = IsThere(hidden);
    ASSERT_TRUE(volume->stream().Checkpoint().ok());
    ASSERT_TRUE(volume->stream().SyncNow().ok());
    EXPECT_TRUE(GoesSoon(hidden));
  }
  EXPECT_TRUE(stayed) << "it was looked at while a record was unapplied";
}

TEST_F(HiddenLinksTest, HiddenLinkStaysWhileAChangeOfTheClosedFileIsBeingStamped) {
  Make();
  std::string hidden;
  const Created created = ClosedNamelessFile(&hidden);
  struct stat want {};
  want.st_mode = 0640;
  ASSERT_TRUE(volume->attrs().SetAttr(*created.entry.node, kSetMode, want).ok());
  EXPECT_TRUE(IsThere(hidden));
  fake().reports_checkpoints = true;
  ASSERT_TRUE(volume->stream().Checkpoint().ok());
  EXPECT_TRUE(GoesSoon(hidden));
}

TEST_F(HiddenLinksTest, HiddenLinkGoesWithItsCheckpointThoughNothingElseHappens) {
  Make();
  fake().reports_checkpoints = true;
  std::string hidden;
  ReleaseAndLook(NamelessFile(&hidden).handle);
  EXPECT_TRUE(IsThere(hidden));
  ASSERT_TRUE(volume->stream().Checkpoint().ok());
  EXPECT_TRUE(GoesSoon(hidden));
}

TEST_F(HiddenLinksTest, HiddenLinkStaysWhileTheFileIsBeingNamed) {
  Make();
  std::string hidden;
  const Created created = ClosedNamelessFile(&hidden);
  EXPECT_EQ(Errno(volume->names().Link(*created.entry.node, root(), "named")), 0);
  // Links that were passed over are looked at again, also when no further checkpoint is needed.
  std::string third_hidden;
  volume->open_files().Release(NamelessFile(&third_hidden).handle);
  EXPECT_TRUE(GoesSoon(hidden));
  EXPECT_EQ(Stat(*created.entry.node).st_nlink, 1u);
}

TEST_F(HiddenLinksTest, HiddenLinkOfAFileThatIsOpenedAgainGoesAtTheCloseThatACheckpointCovers) {
  Make();
  std::string hidden;
  const Created created = NamelessFile(&hidden);
  volume->open_files().Release(created.handle);
  for (int i = 0; i < 3; ++i) {
    Handle* const again = OpenFile(*created.entry.node);
    Write(again, 0, "x", Contract::kDurable);
    volume->open_files().Release(again);
    EXPECT_TRUE(IsThere(hidden));
  }
  Handle* const again = OpenFile(*created.entry.node);
  ASSERT_TRUE(volume->stream().Checkpoint().ok());
  ASSERT_TRUE(volume->stream().SyncNow().ok());
  EXPECT_TRUE(IsThere(hidden));
  volume->open_files().Release(again);
  EXPECT_TRUE(GoesSoon(hidden)) << "nothing is left that it could wait for";
}

}  // namespace
}  // namespace salius
