// A recovery's note about itself: .salius/recoveries.
#include "log/recovery_notes.h"

#include "storage/backing.h"
#include "tests/unit/recovery/recovery_testing.h"

namespace salius::recovery {
namespace {

class RecoveryNotesTest : public RecoveryTest {
 protected:
  RecoveryNotes Notes() const {
    const UniqueFd fd = SaliusFd();
    const auto notes = ReadRecoveryNotes(LinuxBacking(), fd.get());
    SALIUS_CHECK_OK(notes);
    return *notes;
  }
  // Makes a volume with three acknowledged records, of which the third is lost.
  void LoseTheThird() {
    NoteState();
    s_.Write(50, 0, "a");
    s_.Write(50, 1, "b");
    Replicate({"a:1", "b:1", "c:1"});
    for (const char* address : {"a:1", "b:1", "c:1"}) net_.at(address).durable_mark = 3;
    options_.force = true;
  }
};

TEST_F(RecoveryNotesTest, AnOrdinaryRecoveryIsNotedAndGaveNothingUp) {
  NoteState();
  s_.Write(50, 0, "abc");
  Replicate({"a:1", "b:1", "c:1"});
  options_.force = true;  // without effect
  ASSERT_OK(Run());
  const RecoveryNotes notes = Notes();
  ASSERT_EQ(notes.all().size(), 1u);
  const RecoveryNote& note = notes.all()[0];
  EXPECT_GT(note.at_unix_ms, 0u);
  EXPECT_EQ(note.epoch, kEpoch);
  EXPECT_EQ(note.next_epoch, kEpoch + 1);
  EXPECT_EQ(note.decided, 1u);
  EXPECT_EQ(note.records, 1u);
  EXPECT_FALSE(note.GaveUp()) << GivenUpText(note);
  EXPECT_EQ(report_.given_up, "");
}

TEST_F(RecoveryNotesTest, RecordsThatForceGaveUpAreNamed) {
  LoseTheThird();
  ASSERT_OK(Run());
  const std::vector<RecoveryNote> open = Notes().Unacknowledged();
  ASSERT_EQ(open.size(), 1u);
  EXPECT_EQ(open[0].given_up, (std::vector<std::pair<Seq, Seq>>{{3, 3}}));
  EXPECT_EQ(GivenUpText(open[0]), "records 3");
  EXPECT_EQ(report_.given_up, "records 3");
  EXPECT_NE(RecoveryReportText(report_).find("GIVEN UP"), std::string::npos);
}

TEST_F(RecoveryNotesTest, TooFewMembersThatForceWentPastAreNamed) {
  NoteState();
  s_.Write(50, 0, "abc");
  Replicate({"a:1"});
  for (const char* address : {"b:1", "c:1"}) net_.at(address).unreachable = true;
  options_.force = true;
  ASSERT_OK(Run());
  const std::vector<RecoveryNote> open = Notes().Unacknowledged();
  ASSERT_EQ(open.size(), 1u);
  ASSERT_EQ(open[0].overridden.size(), 1u);
  EXPECT_NE(open[0].overridden[0].find("2 of 3 members must answer"), std::string::npos)
      << open[0].overridden[0];
}

TEST_F(RecoveryNotesTest, RecordsThatUntilDropsAreNamed) {
  NoteState();
  s_.Write(50, 0, "a");
  s_.Write(50, 1, "b");
  s_.Write(50, 2, "c");
  Replicate({"a:1", "b:1", "c:1"});
  options_.until = 1;
  options_.force = true;
  ASSERT_OK(Run());
  ASSERT_EQ(Notes().Unacknowledged().size(), 1u);
  EXPECT_EQ(GivenUpText(Notes().Unacknowledged()[0]), "records 2-3");
}

TEST_F(RecoveryNotesTest, ALaterSessionThatForceWentPastIsNamed) {
  NoteState();
  net_.at("c:1").epoch = kEpoch + 3;
  options_.force = true;
  ASSERT_OK(Run());
  ASSERT_EQ(Notes().Unacknowledged().size(), 1u);
  EXPECT_NE(GivenUpText(Notes().Unacknowledged()[0]).find("c:1"), std::string::npos);
}

TEST_F(RecoveryNotesTest, ForcedLossOutlivesACrashAfterTheDecision) {
  LoseTheThird();
  options_.step_hook = [](RecoveryStep step) {
    return step == RecoveryStep::kPinned ? absl::CancelledError("cut off") : absl::OkStatus();
  };
  EXPECT_FALSE(Run().ok());
  ASSERT_EQ(Notes().Unacknowledged().size(), 1u);
  EXPECT_EQ(Notes().all()[0].next_epoch, 0u) << "it has not ended";
  // The second run overrides nothing: all is decided.
  options_.step_hook = nullptr;
  options_.force = false;
  ASSERT_OK(Run());
  EXPECT_TRUE(report_.already_decided);
  ASSERT_EQ(Notes().Unacknowledged().size(), 1u);
  EXPECT_EQ(GivenUpText(Notes().Unacknowledged()[0]), "records 3");
  EXPECT_EQ(Notes().all()[0].next_epoch, kEpoch + 1);
}

TEST_F(RecoveryNotesTest, MarksOfEarlierRecoveriesStayAndADryRunLeavesNone) {
  LoseTheThird();
  options_.dry_run = true;
  ASSERT_OK(Run());
  EXPECT_TRUE(Notes().all().empty());
  EXPECT_EQ(report_.given_up, "records 3");
  options_.dry_run = false;
  RecoveryNotes earlier;
  RecoveryNote note;
  note.epoch = 2;
  note.given_up = {{8, 9}};
  earlier.Put(note);
  const UniqueFd fd = SaliusFd();
  ASSERT_OK(WriteRecoveryNotes(LinuxBacking(), fd.get(), earlier));
  ASSERT_OK(Run());
  EXPECT_EQ(Notes().Unacknowledged().size(), 2u);
}

TEST_F(RecoveryNotesTest, DamagedNotesStopNoRecoveryAndAreSaid) {
  NoteState();
  s_.Write(50, 0, "abc");
  Replicate({"a:1", "b:1", "c:1"});
  WriteFile(At(".salius/recoveries"), "rubbish");
  ASSERT_OK(Run());
  ASSERT_EQ(Notes().Unacknowledged().size(), 1u);
  EXPECT_NE(GivenUpText(Notes().all()[0]).find(At(".salius/recoveries")), std::string::npos);
}

}  // namespace
}  // namespace salius::recovery
