// Whole recoveries that were cut off and run again: a decision stays.
#include <set>

#include "recovery/run_file.h"
#include "storage/fs_calls.h"
#include "tests/unit/recovery/recovery_testing.h"

namespace salius::recovery {
namespace {

TEST_F(RecoveryTest, UntilStopsEarlierAndComesTooLateAfterADecision) {  // R49
  NoteState();
  s_.Write(50, 0, "a");
  s_.Write(50, 1, "b");
  Replicate({"a:1", "b:1", "c:1"});
  options_.until = 1;
  options_.force = true;
  ASSERT_OK(Run());
  EXPECT_EQ(ReadFile(At("f")), "a123456789");
}

// The disk is ahead of the log: the file that record 2 unlinks is gone already.
TEST_F(RecoveryTest, UntilDecidesNothingWithoutForce) {  // R49
  NoteState();
  s_.Write(51, 0, "abc");
  s_.Unlink(51, kRoot, "x");
  s_.CreateFile(60, kRoot, "y");
  s_.Write(60, 0, "hello");
  Replicate({"a:1", "b:1", "c:1"});
  options_.until = 1;
  EXPECT_TRUE(absl::IsFailedPrecondition(Run()));
  EXPECT_EQ(report_.outcome, RecoveryOutcome::kBadRequest);
  options_.until.reset();
  ASSERT_OK(Run());
  EXPECT_FALSE(report_.already_decided);
  EXPECT_EQ(report_.decided, 4u);
  EXPECT_EQ(ReadFile(At("y")), "hello");
}

TEST_F(RecoveryTest, ForcedUntilNamesMissingRecordsOnce) {
  NoteState();
  s_.Write(51, 0, "abc");
  s_.Unlink(51, kRoot, "x");
  Replicate({"a:1", "b:1", "c:1"});
  options_.until = 1;
  options_.force = true;
  ASSERT_OK(Run());
  EXPECT_EQ(report_.missing.size(), 1u);
  EXPECT_EQ(report_.dropped, std::make_pair(Seq{2}, Seq{2}));
}

TEST_F(RecoveryTest, UntilDropsOnlyWhenForced) {  // R50
  NoteState();
  s_.Write(50, 0, "a");
  s_.Write(50, 1, "b");
  s_.Write(50, 2, "c");
  s_.durable = 3;
  s_.Write(50, 3, "d");
  Replicate({"a:1", "b:1", "c:1"});
  for (const bool dry_run : {true, false}) {
    options_.dry_run = dry_run;
    options_.until = 1;
    const absl::Status refused = Run();
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_NE(refused.message().find("the records 2-4 would be dropped"), absl::string_view::npos)
        << refused;
    EXPECT_EQ(report_.outcome, RecoveryOutcome::kBadRequest);
    EXPECT_EQ(ReadFile(At("f")), "0123456789");
  }
  options_.force = true;
  options_.dry_run = true;
  ASSERT_OK(Run());
  const std::string text = RecoveryReportText(report_);
  EXPECT_NE(text.find("seqs 2-4 by --until, acknowledged of them at least 2-3"), std::string::npos)
      << text;
  EXPECT_NE(RecoveryReportJson(report_).find("\"dropped\":[[2,4]]"), std::string::npos);
  options_.force = false;
  options_.dry_run = false;
  options_.until = 3;  // the last one may have been acknowledged
  EXPECT_TRUE(absl::IsFailedPrecondition(Run()));
  options_.until = 4;
  ASSERT_OK(Run());
  EXPECT_EQ(report_.dropped, std::nullopt);
  EXPECT_EQ(ReadFile(At("f")), "abcd456789");
}

TEST_F(RecoveryTest, AFailureAfterAnEarlierRunsDecisionSaysSo) {
  NoteState();
  s_.Write(51, 0, "abc");
  Replicate({"a:1", "b:1", "c:1"});
  const absl::Status undecided = Run();  // it decides, as there is no other T
  EXPECT_TRUE(absl::IsDataLoss(undecided));
  EXPECT_EQ(undecided.message().find("already decided"), absl::string_view::npos) << undecided;
  const absl::Status decided = Run();
  EXPECT_TRUE(absl::IsDataLoss(decided));
  EXPECT_NE(decided.message().find("already decided: records up to 1, by an earlier run"),
            absl::string_view::npos)
      << decided;
  EXPECT_EQ(report_.explanation, decided.message());
}

TEST_F(RecoveryTest, UntilAgainstTheDiskIsABadRequest) {
  state_.checkpoint = 1;
  NoteState();
  s_.Write(50, 0, "a");
  s_.Write(50, 1, "b");
  Replicate({"a:1", "b:1", "c:1"});
  options_.until = 0;
  EXPECT_TRUE(absl::IsInvalidArgument(Run()));
  EXPECT_EQ(report_.outcome, RecoveryOutcome::kBadRequest);
  options_.until.reset();
  options_.step_hook = [](RecoveryStep step) {
    return step == RecoveryStep::kPinned ? absl::AbortedError("crash") : absl::OkStatus();
  };
  EXPECT_TRUE(absl::IsAborted(Run()));
  EXPECT_EQ(report_.outcome, RecoveryOutcome::kInterrupted);
  options_.step_hook = nullptr;
  options_.until = 1;
  EXPECT_TRUE(absl::IsFailedPrecondition(Run()));
  EXPECT_EQ(report_.outcome, RecoveryOutcome::kBadRequest);
}

TEST_F(RecoveryTest, AfterTheDecisionNoReplicaIsAskedAndLaterRecordsAreIgnored) {  // R10, R52
  NoteState();
  s_.Write(50, 0, "a");
  Replicate({"a:1", "b:1", "c:1"});
  options_.step_hook = [](RecoveryStep step) {
    return step == RecoveryStep::kPinned ? absl::AbortedError("crash") : absl::OkStatus();
  };
  EXPECT_TRUE(absl::IsAborted(Run()));
  options_.step_hook = nullptr;
  s_.Write(50, 1, "b");
  Replicate({"a:1", "b:1", "c:1"});
  const int fences = net_.at("a:1").fences;
  for (const char* address : {"a:1", "b:1", "c:1"}) net_.at(address).unreachable = true;
  ASSERT_OK(Run());
  EXPECT_TRUE(report_.already_decided);
  EXPECT_EQ(net_.at("a:1").fences, fences);
  EXPECT_EQ(ReadFile(At("f")), "a123456789");
  EXPECT_EQ(ReadState().epoch, kEpoch + 1);
}

TEST_F(RecoveryTest, AnEmptyLogIsDecidedToo) {  // R52
  NoteState();
  options_.step_hook = [](RecoveryStep step) {
    return step == RecoveryStep::kPinned ? absl::AbortedError("crash") : absl::OkStatus();
  };
  EXPECT_TRUE(absl::IsAborted(Run()));
  options_.step_hook = nullptr;
  for (const char* address : {"a:1", "b:1", "c:1"}) net_.at(address).unreachable = true;
  ASSERT_OK(Run());
  EXPECT_EQ(report_.decided, 0u);
}

TEST_F(RecoveryTest, NameThatAnotherProgramPutBackIsNotCommitted) {  // R80
  NoteState();
  s_.Unlink(50, kRoot, "f", /*directory=*/false, /*only=*/true);
  Replicate({"a:1", "b:1", "c:1"});
  options_.step_hook = [this](RecoveryStep step) {
    if (step == RecoveryStep::kReplayRemoved) WriteFile(At("f"), "another program's");
    return absl::OkStatus();
  };
  const absl::Status refused = Run();
  EXPECT_TRUE(absl::IsInternal(refused)) << refused;
  EXPECT_NE(refused.message().find("name \"f\" in directory 1 should be file 0"),
            absl::string_view::npos)
      << refused;
  EXPECT_EQ(report_.outcome, RecoveryOutcome::kFailed);
  EXPECT_TRUE(ReadState().open);
  EXPECT_EQ(ReadState().epoch, kEpoch);
  EXPECT_EQ(net_.at("a:1").drops, 0);
  options_.step_hook = nullptr;
  ASSERT_OK(Run());
  EXPECT_FALSE(ReadState().open);
  EXPECT_FALSE(Exists(At("f")));
}

TEST_F(RecoveryTest, AStableLogTooSmallForTheDecidedRecordsSaysSo) {  // R53
  NoteState();
  const std::string data(100'000, 'x');
  for (int i = 0; i < 40; ++i) s_.Write(50, 0, data);
  Replicate({"a:1", "b:1", "c:1"});
  EXPECT_TRUE(absl::IsResourceExhausted(Run()));
  EXPECT_EQ(report_.outcome, RecoveryOutcome::kFailed);
  EXPECT_TRUE(ReadState().open);
}

// The recovery is cut off at every step, once and twice, and another quorum answers the rerun. The
// end is always the same.
TEST_F(RecoveryTest, CutOffAnywhereAndRunAgainItEndsTheSame) {  // R19, R51
  const auto setup = [this] {
    for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
      if (entry.path().filename() != ".salius") std::filesystem::remove_all(entry.path());
    }
    std::filesystem::remove_all(At(".salius"));
    SALIUS_CHECK_OK(fs::RemoveXattr(MustOpen(dir_.path()).get(), kFileIdXattr));
    SALIUS_CHECK_OK(CreateVolume(dir_.path(), config_));
    WriteFile(At("f"), "0123456789");
    SetId("f", 50);
    mkdir(At("d").c_str(), 0755);
    SetId("d", 51);
    WriteFile(At("d/x"), "x");
    SetId("d/x", 52);
    NoteState();
    s_.~Stamper();
    new (&s_) Stamper(kEpoch);
    const std::string first = s_.Write(50, 0, "abc");
    s_.CreateFile(60, kRoot, "new");
    s_.Write(60, 0, "hello");
    s_.MakeDir(61, kRoot, "e");
    s_.Rename(51, kRoot, "d", 61, "d");
    s_.Rename(52, 51, "x", kRoot, "f", 50);
    s_.Link(60, 61, "again");
    s_.Unlink(60, kRoot, "new");
    AppendStable({first});
    for (const Member& member : state_.members) {
      FakeReplica& replica = net_.at(member.address);
      replica = FakeReplica();
      replica.incarnation = member.incarnation;
      replica.epoch = kEpoch;
    }
    Replicate({"a:1", "b:1", "c:1"});
  };
  const auto check = [this] {
    EXPECT_EQ(ReadFile(At("f")), "x");
    EXPECT_EQ(ReadFile(At("e/again")), "hello");
    EXPECT_TRUE(Exists(At("e/d")));
    EXPECT_FALSE(Exists(At("new")));
    EXPECT_FALSE(Exists(At("d")));
    EXPECT_FALSE(Exists(At("e/d/x")));
    const VolumeState state = ReadState();
    EXPECT_FALSE(state.open);
    EXPECT_EQ(state.epoch, kEpoch + 1);
    EXPECT_EQ(state.recovered_seq, 8u);
    EXPECT_TRUE(std::filesystem::is_empty(At(".salius/tmp")));
  };
  int total = 0;
  setup();
  options_.step_hook = [&total](RecoveryStep) {
    ++total;
    return absl::OkStatus();
  };
  ASSERT_OK(Run());
  check();
  ASSERT_GT(total, 15);
  for (int first = 1; first <= total; ++first) {
    SCOPED_TRACE(first);
    setup();
    for (int cut : {first, 1 + first / 2}) {
      options_.step_hook = [&cut](RecoveryStep) {
        return --cut == 0 ? absl::AbortedError("crash") : absl::OkStatus();
      };
      const absl::Status status = Run();
      ASSERT_TRUE(status.ok() || absl::IsAborted(status)) << status;
      // Another member is away each time; two suffice.
      net_.at("a:1").unreachable = !net_.at("a:1").unreachable;
      net_.at("b:1").unreachable = !net_.at("a:1").unreachable;
    }
    options_.step_hook = nullptr;
    ASSERT_OK(Run());
    check();
  }
}

}  // namespace
}  // namespace salius::recovery
