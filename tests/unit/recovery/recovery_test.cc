// Whole recoveries: the requests to replicas, the result on the disk, and the refusals.
#include <filesystem>

#include "recovery/recovery.h"

#include <set>

#include "common/limits.h"
#include "storage/backing.h"
#include "storage/fs_calls.h"
#include "tests/unit/recovery/recovery_testing.h"

namespace salius::recovery {
namespace {

TEST_F(RecoveryTest, CleanVolumeIsUnchangedAndNoReplicaIsAsked) {  // R1
  ASSERT_OK(Run());
  EXPECT_EQ(report_.outcome, RecoveryOutcome::kClean);
  EXPECT_EQ(net_.at("a:1").fences, 0);
}

TEST_F(RecoveryTest, AckedRecordsComeBackFromAQuorum) {  // R20, R81
  NoteState();
  s_.Write(50, 0, "abc");
  s_.CreateFile(60, kRoot, "new");
  s_.Write(60, 0, "hello");
  Replicate({"a:1", "b:1"});
  net_.at("c:1").unreachable = true;
  ASSERT_OK(Run());
  EXPECT_EQ(report_.outcome, RecoveryOutcome::kRecovered);
  EXPECT_EQ(ReadFile(At("f")), "abc3456789");
  EXPECT_EQ(ReadFile(At("new")), "hello");
  EXPECT_EQ(report_.decided, 3u);
  EXPECT_EQ(report_.quorum_counted, 2u);
  const VolumeState state = ReadState();
  EXPECT_FALSE(state.open);
  EXPECT_EQ(state.epoch, kEpoch + 1);
  EXPECT_EQ(state.recovered_epoch, kEpoch);
  EXPECT_EQ(state.recovered_seq, 3u);
  EXPECT_EQ(state.file_id_limit, 1000u);
  EXPECT_EQ(state.last_timestamp_ns, 1'600'000'000'003'000'000u);
  EXPECT_TRUE(state.members.empty());
  EXPECT_EQ(net_.at("a:1").promised, kEpoch + 1);
  EXPECT_EQ(net_.at("a:1").drops, 1);
  EXPECT_TRUE(net_.at("a:1").records.empty());
  ASSERT_OK(Run());
  EXPECT_EQ(report_.outcome, RecoveryOutcome::kClean);
}

TEST_F(RecoveryTest, EachRecordIsFetchedOnce) {  // R33
  NoteState();
  for (int i = 0; i < 30; ++i) s_.Write(50, static_cast<uint64_t>(i), "x");
  Replicate({"a:1", "b:1", "c:1"});
  ASSERT_OK(Run());
  uint64_t fetched = 0;
  for (const RecoveryReplica& replica : report_.replicas) fetched += replica.fetched;
  EXPECT_EQ(fetched, 30u);
  EXPECT_EQ(net_.at("a:1").fetches + net_.at("b:1").fetches + net_.at("c:1").fetches, 1);
}

TEST_F(RecoveryTest, RecordsSpreadOverReplicasAndTheStableLogAreJoined) {
  NoteState();
  std::vector<std::string> all;
  for (int i = 0; i < 9; ++i) {
    all.push_back(
        s_.Write(50, static_cast<uint64_t>(i), std::string(1, static_cast<char>('a' + i))));
  }
  AppendStable({all[4]});
  for (const int i : {0, 1, 3, 6, 8})
    net_.at("a:1").records[static_cast<Seq>(i + 1)] = all[static_cast<size_t>(i)];
  for (const int i : {0, 2, 5, 7})
    net_.at("b:1").records[static_cast<Seq>(i + 1)] = all[static_cast<size_t>(i)];
  net_.at("c:1").unreachable = true;
  ASSERT_OK(Run());
  EXPECT_EQ(report_.decided, 9u);
  EXPECT_EQ(ReadFile(At("f")), "abcdefghi9");
}

TEST_F(RecoveryTest, AGapAboveTheDurableMarkIsCut) {  // R45
  NoteState();
  s_.Write(50, 0, "a");
  s_.Write(50, 1, "b");
  s_.Write(50, 2, "c");
  Replicate({"a:1", "b:1", "c:1"});
  for (const char* address : {"a:1", "b:1", "c:1"}) net_.at(address).records.erase(2);
  ASSERT_OK(Run());
  EXPECT_EQ(report_.decided, 1u);
  EXPECT_EQ(ReadFile(At("f")), "a123456789");
}

TEST_F(RecoveryTest, AGapBelowADurableMarkRefusesAndForceReportsIt) {  // R46
  NoteState();
  s_.Write(50, 0, "a");
  s_.Write(50, 1, "b");
  s_.durable = 2;
  s_.Write(50, 2, "c");
  Replicate({"a:1", "b:1", "c:1"});
  for (const char* address : {"a:1", "b:1", "c:1"}) net_.at(address).records.erase(2);
  EXPECT_TRUE(absl::IsDataLoss(Run()));
  EXPECT_EQ(report_.outcome, RecoveryOutcome::kDataLoss);
  EXPECT_TRUE(ReadState().open);
  EXPECT_EQ(ReadFile(At("f")), "0123456789");
  options_.force = true;
  ASSERT_OK(Run());
  EXPECT_EQ(report_.decided, 1u);
  EXPECT_EQ(report_.unaccounted, (std::vector<std::pair<Seq, Seq>>{{2, 2}}));
}

TEST_F(RecoveryTest, TooFewMembersRefuseAndNameTheMissing) {  // R27
  NoteState();
  s_.Write(50, 0, "abc");
  Replicate({"a:1", "b:1", "c:1"});
  net_.at("b:1").unreachable = true;
  net_.at("c:1").incarnation = 99;  // lost its memory
  const absl::Status status = Run();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_EQ(report_.outcome, RecoveryOutcome::kNotEnough);
  EXPECT_NE(status.message().find("b:1"), absl::string_view::npos);
  EXPECT_NE(status.message().find("lost its memory"), absl::string_view::npos);
  EXPECT_EQ(ReadFile(At("f")), "0123456789");
  EXPECT_TRUE(ReadState().open);

  options_.force = true;
  ASSERT_OK(Run());
  EXPECT_EQ(ReadFile(At("f")), "abc3456789");
  EXPECT_NE(report_.explanation.find("forced"), std::string::npos);
}

TEST_F(RecoveryTest, AllReplicasGoneRefuseInModeReplicated) {
  NoteState();
  for (const char* address : {"a:1", "b:1", "c:1"}) net_.at(address).unreachable = true;
  EXPECT_TRUE(absl::IsUnavailable(Run()));
  EXPECT_EQ(report_.outcome, RecoveryOutcome::kNotEnough);
}

TEST_F(RecoveryTest, AReplicaThatAnswersUnknownDoesNotCount) {  // R24
  NoteState();
  net_.at("a:1").known = false;
  net_.at("b:1").known = false;
  EXPECT_TRUE(absl::IsUnavailable(Run()));
  EXPECT_EQ(report_.quorum_counted, 1u);
}

TEST_F(RecoveryTest, AReplicaThatComesBackWithinTheTimeIsAskedAgain) {  // R28
  NoteState();
  s_.Write(50, 0, "abc");
  Replicate({"a:1", "b:1"});
  net_.at("a:1").unreachable_times = 2;
  net_.at("c:1").unreachable = true;
  options_.fence_timeout_ms = 10000;
  ASSERT_OK(Run());
  EXPECT_GE(net_.at("a:1").fences, 3);
}

TEST_F(RecoveryTest, AHangingReplicaDoesNotHoldUpAQuorum) {  // R28
  NoteState();
  s_.Write(50, 0, "abc");
  Replicate({"a:1", "b:1"});
  net_.at("c:1").hangs = true;
  options_.rpc_timeout_ms = 600'000;
  options_.fence_timeout_ms = 600'000;
  ASSERT_OK(Run());
}

TEST_F(RecoveryTest, ModeLocalNeedsNoReplica) {  // R29
  state_.mode = Mode::kLocal;
  NoteState();
  AppendStable({s_.Write(50, 0, "abc")});
  for (const char* address : {"a:1", "b:1", "c:1"}) net_.at(address).unreachable = true;
  ASSERT_OK(Run());
  EXPECT_EQ(ReadFile(At("f")), "abc3456789");
}

TEST_F(RecoveryTest, ModeLocalFencesAnsweringReplicasAndFetchesNothing) {  // R41
  state_.mode = Mode::kLocal;
  NoteState();
  AppendStable({s_.Write(50, 0, "abc")});
  s_.Write(50, 5, "ZZZ");
  Replicate({"a:1"});
  ASSERT_OK(Run());
  EXPECT_EQ(report_.decided, 1u);
  EXPECT_EQ(net_.at("a:1").promised, kEpoch + 1);
  EXPECT_EQ(net_.at("a:1").fetches, 0);
}

TEST_F(RecoveryTest, AnotherRecoverysPromiseIsRefusedUntilForced) {  // R30
  NoteState();
  net_.at("a:1").promised = kEpoch + 1;
  net_.at("a:1").token = 0x1234;
  const absl::Status status = Run();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_EQ(report_.outcome, RecoveryOutcome::kFenced);
  options_.force = true;
  ASSERT_OK(Run());
  EXPECT_EQ(ReadState().epoch, kEpoch + 2);
  EXPECT_EQ(net_.at("b:1").promised, kEpoch + 2);
}

TEST_F(RecoveryTest, ANewerSessionAtAReplicaIsDataLoss) {  // R31
  NoteState();
  net_.at("c:1").epoch = kEpoch + 3;
  EXPECT_TRUE(absl::IsDataLoss(Run()));
  options_.force = true;
  ASSERT_OK(Run());
  EXPECT_GT(ReadState().epoch, kEpoch + 3);
}

// An epoch beyond kMaxCount cannot be noted, and above kMaxCount there is none for the next session.
TEST_F(RecoveryTest, AnEpochThatNoVolumeComesToIsNoAnswerEvenWhenForced) {  // R32
  NoteState();
  s_.Write(50, 0, "abc");
  Replicate({"a:1", "b:1", "c:1"});
  net_.at("c:1").epoch = kMaxCount;
  options_.force = true;
  ASSERT_OK(Run());
  EXPECT_EQ(ReadState().epoch, kEpoch + 1);
  EXPECT_EQ(report_.quorum_counted, 2u);
  EXPECT_NE(report_.replicas[2].detail.find("epoch"), std::string::npos);
}

TEST_F(RecoveryTest, APromiseThatNoVolumeComesToIsNoAnswerEvenWhenForced) {  // R32
  NoteState();
  net_.at("b:1").promised = kMaxCount - 1;
  net_.at("c:1").promised = kEpoch + 1'000'000;  // the token is another's
  options_.force = true;
  ASSERT_OK(Run());
  EXPECT_EQ(ReadState().epoch, kEpoch + 1'000'001);
}

TEST_F(RecoveryTest, ATrimBeyondTheCheckpointIsDataLoss) {  // R47
  state_.checkpoint = 4;
  NoteState();
  net_.at("b:1").trimmed = 5;
  EXPECT_TRUE(absl::IsDataLoss(Run()));
}

TEST_F(RecoveryTest, BrokenStreamContinuesWhereItStopped) {  // R35
  NoteState();
  for (int i = 0; i < 20; ++i) s_.Write(50, static_cast<uint64_t>(i), "x");
  Replicate({"a:1", "b:1", "c:1"});
  for (const char* address : {"a:1", "b:1", "c:1"}) net_.at(address).break_after_chunks = 2;
  ASSERT_OK(Run());
  EXPECT_EQ(report_.decided, 20u);
  // There are 20 records in chunks of 3, two to a stream: nothing is sent twice.
  EXPECT_EQ(net_.at("a:1").chunks_sent + net_.at("b:1").chunks_sent + net_.at("c:1").chunks_sent,
            7u);
}

TEST_F(RecoveryTest, AStreamThatEndsShortOfItsCountIsNotBelieved) {  // R35
  NoteState();
  for (int i = 0; i < 9; ++i) s_.Write(50, static_cast<uint64_t>(i), "x");
  Replicate({"a:1", "b:1", "c:1"});
  for (const char* address : {"a:1", "b:1", "c:1"}) net_.at(address).short_stream = true;
  ASSERT_OK(Run());
  EXPECT_EQ(report_.decided, 9u);
}

TEST_F(RecoveryTest, ReplicaWithUnfetchableRecordsDoesNotCount) {  // R39
  NoteState();
  s_.Write(50, 0, "abc");
  Replicate({"a:1", "b:1"});
  net_.at("c:1").unreachable = true;
  s_.Write(50, 3, "def");
  Replicate({"b:1"});  // only b has the second
  net_.at("b:1").fetch_fails = true;
  options_.fetch_attempts = 2;
  EXPECT_TRUE(absl::IsUnavailable(Run()));
  EXPECT_EQ(report_.outcome, RecoveryOutcome::kNotEnough);
}

TEST_F(RecoveryTest, AReplicaThatCannotBeFetchedFromCountsWhenOthersHaveItsRecords) {  // R39
  NoteState();
  s_.Write(50, 0, "abc");
  Replicate({"a:1", "b:1"});
  net_.at("c:1").unreachable = true;
  net_.at("a:1").fetch_fails = true;
  options_.fetch_attempts = 1;
  ASSERT_OK(Run());
  EXPECT_EQ(ReadFile(At("f")), "abc3456789");
}

TEST_F(RecoveryTest, DamagedChunksAreNotUsed) {  // R37
  NoteState();
  s_.Write(50, 0, "abc");
  Replicate({"a:1", "b:1", "c:1"});
  for (const char* address : {"a:1", "b:1", "c:1"}) net_.at(address).damage_chunks = true;
  EXPECT_TRUE(absl::IsUnavailable(Run()));
  EXPECT_EQ(ReadFile(At("f")), "0123456789");
}

constexpr char kNoLife[] = "needs ext4 and Linux 6.8";

TEST_F(RecoveryTest, SameLifeKeepsAppliedRecordsAndReplaysTheRest) {  // R13
  if (!NoteSameLife(kEpoch, 1, 0)) GTEST_SKIP() << kNoLife;
  s_.Write(50, 0, "abc");
  s_.Write(50, 5, "XY");
  Replicate({"a:1", "b:1", "c:1"});
  WriteFile(At("f"), "edited....");  // meanwhile, in the plain directory
  ASSERT_OK(Run());
  EXPECT_TRUE(report_.same_life);
  EXPECT_EQ(report_.checkpoint, 1u);
  EXPECT_EQ(ReadFile(At("f")), "editeXY...");
}

// Another process may have received an error of write-back: this one's sync succeeds.
TEST_F(RecoveryTest, ReplaysEverythingWhenTheKernelHasComplainedSinceTheSessionBegan) {  // R16
  if (!NoteSameLife(kEpoch, 1, 1)) GTEST_SKIP() << kNoLife;
  s_.Write(50, 0, "abc");
  s_.Write(50, 5, "XY");
  Replicate({"a:1", "b:1", "c:1"});
  WriteFile(At("f"), "012.......");  // the part that the disk has
  ASSERT_OK(Run());
  EXPECT_EQ(report_.checkpoint, 0u);
  EXPECT_EQ(ReadFile(At("f")), "abc..XY...");
}

TEST_F(RecoveryTest, AnAppliedMarkOfAnotherEpochOrBootIsIgnored) {  // R18
  if (!NoteSameLife(kEpoch - 2, 1, 0)) GTEST_SKIP() << kNoLife;
  s_.Write(50, 0, "abc");
  Replicate({"a:1", "b:1", "c:1"});
  ASSERT_OK(Run());
  EXPECT_EQ(report_.checkpoint, 0u);
  EXPECT_EQ(ReadFile(At("f")), "abc3456789");
}

TEST_F(RecoveryTest, DryRunNamesPathsAndCountsChanges) {
  NoteState();
  std::filesystem::create_directory(At("dir"));
  SetId("dir", 51);
  s_.Write(50, 0, "abc");
  s_.CreateFile(60, 51, "new");
  s_.Write(60, 0, "hello");
  Replicate({"a:1", "b:1", "c:1"});
  options_.dry_run = true;
  ASSERT_OK(Run());
  EXPECT_EQ(report_.files_changed, 2u);
  EXPECT_EQ(report_.bytes_written, 8u);
  const std::string text = RecoveryReportText(report_);
  for (const char* const part : {"2 would be changed, 8 bytes", "file \"f\": ", "file \"dir/new\": "}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

TEST_F(RecoveryTest, ADryRunChangesNothingHereOrThere) {
  NoteState();
  s_.Write(50, 0, "abc");
  s_.Unlink(50, kRoot, "f");
  Replicate({"a:1", "b:1", "c:1"});
  const std::string state_before = ReadFile(At(".salius/state"));
  const std::string log_before = ReadFile(At(".salius/stable.log"));
  options_.dry_run = true;
  ASSERT_OK(Run());
  EXPECT_EQ(report_.outcome, RecoveryOutcome::kDryRun);
  EXPECT_EQ(report_.decided, 2u);
  ASSERT_EQ(report_.plan.size(), 2u);
  EXPECT_EQ(report_.plan[1], "name \"f\": removed");
  EXPECT_EQ(ReadFile(At(".salius/state")), state_before);
  EXPECT_EQ(ReadFile(At(".salius/stable.log")), log_before);
  EXPECT_FALSE(Exists(At(".salius/recovery")));
  EXPECT_EQ(ReadFile(At("f")), "0123456789");
  EXPECT_EQ(net_.at("a:1").promised, 0u);
  EXPECT_EQ(net_.at("a:1").fences, 0);
  EXPECT_EQ(net_.at("a:1").drops, 0);
}

TEST_F(RecoveryTest, DryRunNamesMissingRecords) {
  NoteState();
  s_.Write(51, 0, "abc");
  Replicate({"a:1", "b:1", "c:1"});
  options_.dry_run = true;
  EXPECT_TRUE(absl::IsDataLoss(Run()));
  EXPECT_EQ(report_.outcome, RecoveryOutcome::kDataLoss);
  options_.force = true;
  ASSERT_OK(Run());
  EXPECT_EQ(report_.missing.size(), 1u);
}

TEST_F(RecoveryTest, ADryRunGivesNoIds) {
  NoteState();
  WriteFile(At("plain"), "x");
  s_.Adopt(51, "plain", *HandleOf(AT_FDCWD, At("plain"), 0));
  s_.Write(51, 0, "abc");
  Replicate({"a:1", "b:1", "c:1"});
  options_.dry_run = true;
  ASSERT_OK(Run());
  const UniqueFd fd = MustOpen(At("plain"), O_PATH);
  EXPECT_EQ(*ReadFileId(fd.get()), kNoFileId);
  options_.dry_run = false;
  ASSERT_OK(Run());
  EXPECT_EQ(*ReadFileId(fd.get()), 51u);
}

TEST_F(RecoveryTest, MissingPartsOfTheVolumeAreDataLoss) {  // R6, R8
  NoteState();
  const std::string log = At(".salius/stable.log"), state = At(".salius/state");
  rename(log.c_str(), At("aside").c_str());
  EXPECT_TRUE(absl::IsDataLoss(Run()));
  rename(At("aside").c_str(), log.c_str());
  rename(state.c_str(), At("aside").c_str());
  EXPECT_TRUE(absl::IsDataLoss(Run()));
  rename(At("aside").c_str(), state.c_str());
  ASSERT_OK(Run());
}

TEST_F(RecoveryTest, AStateOfAnotherVolumeIsDataLoss) {  // R7
  state_.volume.bytes[0] ^= 1;
  unlink(At(".salius/state").c_str());
  const UniqueFd fd = SaliusFd();
  ASSERT_OK(StateFile::Create(LinuxBacking(), fd.get(), kStateFileName, state_).status());
  EXPECT_TRUE(absl::IsDataLoss(Run()));
}

// The note was put back from a copy, or the latest of the two can no longer be read.
TEST_F(RecoveryTest, ACleanNoteThatIsOlderThanTheStableLogIsDataLoss) {  // R2
  AppendStable({s_.Write(50, 0, "acknowledged")});
  state_.open = false;
  state_.epoch = kEpoch - 1;
  NoteState();
  const absl::Status refused = Run();
  EXPECT_TRUE(absl::IsDataLoss(refused)) << refused;
  state_.epoch = kEpoch;
  NoteState();
  ASSERT_OK(Run());
  EXPECT_EQ(report_.outcome, RecoveryOutcome::kClean);
}

TEST_F(RecoveryTest, AStableLogOfAnotherVolumeIsDataLossAlsoWithForce) {  // R7
  NoteState();
  VolumeId other = config_.volume;
  other.bytes[0] ^= 1;
  unlink(At(".salius/stable.log").c_str());
  const UniqueFd fd = SaliusFd();
  ASSERT_OK(StableLog::Create(LinuxBacking(), fd.get(), kStableLogFileName, other,
                              config_.stable_log_bytes)
                .status());
  for (const bool force : {false, true}) {
    options_.force = force;
    EXPECT_TRUE(absl::IsDataLoss(Run()));
    EXPECT_EQ(report_.outcome, RecoveryOutcome::kDataLoss);
  }
}

TEST_F(RecoveryTest, AFailedDropDoesNotFailTheRecovery) {  // R82
  NoteState();
  s_.Write(50, 0, "a");
  Replicate({"a:1", "b:1", "c:1"});
  for (const char* address : {"a:1", "b:1", "c:1"}) net_.at(address).drop_fails = true;
  ASSERT_OK(Run());
  EXPECT_FALSE(ReadState().open);
}

TEST_F(RecoveryTest, TheBallastIsMadeWholeAgain) {  // R82
  ASSERT_EQ(truncate(At(".salius/ballast").c_str(), 0), 0);
  ASSERT_OK(Run());
  struct stat st;
  ASSERT_EQ(stat(At(".salius/ballast").c_str(), &st), 0);
  EXPECT_EQ(static_cast<uint64_t>(st.st_size), kBallast);
  EXPECT_GE(static_cast<uint64_t>(st.st_blocks) * 512, kBallast);
  EXPECT_TRUE(report_.ballast_restored);
}

TEST_F(RecoveryTest, TwoRecoveriesAtOnceAreRefused) {  // R3
  NoteState();
  auto first = VolumeDir::Open(dir_.path(), true);
  ASSERT_OK(first.status());
  EXPECT_TRUE(absl::IsUnavailable(VolumeDir::Open(dir_.path(), true).status()));
}

}  // namespace
}  // namespace salius::recovery
