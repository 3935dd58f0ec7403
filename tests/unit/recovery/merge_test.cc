#include "recovery/agree/merge.h"

#include <algorithm>

#include "common/random.h"
#include "tests/unit/recovery/test_util.h"

namespace salius::recovery {
namespace {

constexpr Epoch kEpoch = 7;

// Input and the sets it points into.
struct Case {
  MergeInput input;
  RecordSet stable;
  std::vector<std::unique_ptr<RecordSet>> sets;

  Case() {
    input.volume = TestVolume();
    input.epoch = kEpoch;
  }
  void Stable(const std::vector<std::string>& records) {
    stable = SetOf(records);
    input.stable = stable.views();
  }
  ReplicaEvidence& Replica(const std::vector<std::string>& records) {
    sets.push_back(std::make_unique<RecordSet>(SetOf(records)));
    ReplicaEvidence evidence;
    evidence.address = "replica" + std::to_string(sets.size());
    evidence.inventory.known = true;
    evidence.inventory.epoch = kEpoch;
    evidence.records = sets.back()->views();
    input.replicas.push_back(evidence);
    return input.replicas.back();
  }
};

std::vector<std::string> Writes(Stamper& stamper, int count) {
  std::vector<std::string> records;
  for (int i = 0; i < count; ++i) records.push_back(stamper.Write(5, i, "x" + std::to_string(i)));
  return records;
}

std::vector<Seq> SeqsOf(const MergeResult& result) {
  std::vector<Seq> seqs;
  for (const RecordView* record : result.records) seqs.push_back(record->seq());
  return seqs;
}

TEST(MergeTest, NothingAnywhereIsTheCheckpoint) {
  Case c;
  c.input.checkpoint = 4;
  const absl::StatusOr<MergeResult> merged = Merge(c.input);
  ASSERT_OK(merged.status());
  EXPECT_EQ(merged->last, 4u);
  EXPECT_TRUE(merged->records.empty());
}

TEST(MergeTest, PartsFromEverywhereMakeOneLogWithoutDuplicates) {  // R43
  Stamper stamper(kEpoch);
  const auto w = Writes(stamper, 5);
  Case c;
  c.Stable({w[2], w[0]});
  c.Replica({w[0], w[1], w[4]});
  c.Replica({w[3], w[2]});
  const absl::StatusOr<MergeResult> merged = Merge(c.input);
  ASSERT_OK(merged.status());
  EXPECT_EQ(merged->last, 5u);
  EXPECT_EQ(SeqsOf(*merged), (std::vector<Seq>{1, 2, 3, 4, 5}));
  EXPECT_TRUE(merged->missing.empty());
}

TEST(MergeTest, CutsAtTheFirstGapAboveEveryDurableMark) {  // R45
  Stamper stamper(kEpoch);
  stamper.durable = 2;
  const auto w = Writes(stamper, 5);
  Case c;
  c.Replica({w[0], w[1], w[3], w[4]});
  const absl::StatusOr<MergeResult> merged = Merge(c.input);
  ASSERT_OK(merged.status());
  EXPECT_EQ(merged->last, 2u);
  EXPECT_EQ(merged->records.size(), 2u);
  EXPECT_EQ(merged->missing, (std::vector<std::pair<Seq, Seq>>{{3, 3}}));
}

TEST(MergeTest, AGapAtOrBelowARecordsDurableMarkIsDataLoss) {  // R46
  Stamper stamper(kEpoch);
  stamper.durable = 3;
  const auto w = Writes(stamper, 5);
  Case c;
  c.Replica({w[0], w[1], w[3], w[4]});
  const absl::Status status = Merge(c.input).status();
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_NE(status.message().find("no copy of 3 was"), absl::string_view::npos) << status;
}

TEST(MergeTest, AGapAtOrBelowAnInventorysDurableMarkIsDataLoss) {  // R46
  Stamper stamper(kEpoch);
  const auto w = Writes(stamper, 2);
  Case c;
  c.Replica(w).inventory.durable_mark = 3;
  EXPECT_TRUE(absl::IsDataLoss(Merge(c.input).status()));
  c.input.replicas[0].inventory.durable_mark = 2;
  EXPECT_OK(Merge(c.input).status());
}

TEST(MergeTest, AnOlderEpochsInventoryMarkMeansNothing) {
  Case c;
  ReplicaEvidence& replica = c.Replica({});
  replica.inventory.epoch = kEpoch - 1;
  replica.inventory.durable_mark = 100;
  replica.inventory.trimmed = 100;
  const absl::StatusOr<MergeResult> merged = Merge(c.input);
  ASSERT_OK(merged.status());
  EXPECT_EQ(merged->durable_mark, 0u);
}

TEST(MergeTest, ForceContinuesOverAGapAndNamesIt) {
  Stamper stamper(kEpoch);
  stamper.durable = 4;
  const auto w = Writes(stamper, 5);
  Case c;
  c.input.force = true;
  c.Replica({w[0], w[3]});
  const absl::StatusOr<MergeResult> merged = Merge(c.input);
  ASSERT_OK(merged.status());
  EXPECT_EQ(merged->last, 1u);
  EXPECT_EQ(merged->missing, (std::vector<std::pair<Seq, Seq>>{{2, 3}}));
  EXPECT_EQ(merged->durable_mark, 4u);
}

TEST(MergeTest, RecordsAtOrBelowTheCheckpointAreNotReplayed) {  // R42
  Stamper stamper(kEpoch);
  const auto w = Writes(stamper, 4);
  Case c;
  c.input.checkpoint = 2;
  c.Stable(w);
  const absl::StatusOr<MergeResult> merged = Merge(c.input);
  ASSERT_OK(merged.status());
  EXPECT_EQ(SeqsOf(*merged), (std::vector<Seq>{3, 4}));
}

TEST(MergeTest, RecordsOfOlderEpochsAreIgnored) {  // R42
  Stamper old(kEpoch - 2);
  Stamper stamper(kEpoch);
  Case c;
  auto records = Writes(old, 5);
  records.push_back(stamper.Write(5, 0, "new"));
  c.Stable(records);
  const absl::StatusOr<MergeResult> merged = Merge(c.input);
  ASSERT_OK(merged.status());
  EXPECT_EQ(merged->last, 1u);
  EXPECT_EQ(merged->records[0]->body(), "new");
}

TEST(MergeTest, ALaterEpochInTheStableLogIsDataLoss) {  // R48
  Stamper later(kEpoch + 1);
  Case c;
  c.Stable({later.Write(5, 0, "x")});
  EXPECT_TRUE(absl::IsDataLoss(Merge(c.input).status()));
  c.input.force = true;
  const absl::StatusOr<MergeResult> merged = Merge(c.input);
  ASSERT_OK(merged.status());
  EXPECT_EQ(merged->highest_epoch, kEpoch + 1);
  EXPECT_TRUE(merged->records.empty());
}

TEST(MergeTest, AReplicaThatKnowsALaterEpochIsDataLoss) {  // R31
  Case c;
  c.Replica({}).inventory.epoch = kEpoch + 1;
  EXPECT_TRUE(absl::IsDataLoss(Merge(c.input).status()));
}

TEST(MergeTest, APromiseOfTheNextEpochIsNormalAndALaterOneIsDataLoss) {  // R31
  Case c;
  c.Replica({}).inventory.promised_epoch = kEpoch + 1;
  EXPECT_OK(Merge(c.input).status());
  c.input.replicas[0].inventory.promised_epoch = kEpoch + 2;
  EXPECT_TRUE(absl::IsDataLoss(Merge(c.input).status()));
}

TEST(MergeTest, ATrimBeyondTheCheckpointIsDataLoss) {  // R47
  Case c;
  c.input.checkpoint = 5;
  c.Replica({}).inventory.trimmed = 6;
  EXPECT_TRUE(absl::IsDataLoss(Merge(c.input).status()));
  c.input.replicas[0].inventory.trimmed = 5;
  EXPECT_OK(Merge(c.input).status());
  c.input.replicas[0].inventory.checkpoint_mark = 6;
  EXPECT_TRUE(absl::IsDataLoss(Merge(c.input).status()));
}

TEST(MergeTest, ARecordSentAfterALaterCheckpointIsDataLoss) {  // R47
  Stamper stamper(kEpoch);
  stamper.checkpoint = 3;
  Case c;
  c.input.checkpoint = 2;
  c.Stable({stamper.Write(5, 0, "x")});
  EXPECT_TRUE(absl::IsDataLoss(Merge(c.input).status()));
}

TEST(MergeTest, TwoBodiesForOneSeqAreDataLossEvenWithForce) {  // R44
  Stamper one(kEpoch), two(kEpoch);
  Case c;
  c.input.force = true;
  c.Stable({one.Write(5, 0, "one")});
  c.Replica({two.Write(5, 0, "two")});
  EXPECT_TRUE(absl::IsDataLoss(Merge(c.input).status()));
}

TEST(MergeTest, AnotherVolumesRecordIsDataLoss) {  // R48
  VolumeId other = TestVolume();
  other.bytes[0] ^= 1;
  Stamper stamper(kEpoch, other);
  Case c;
  c.Replica({stamper.Write(5, 0, "x")});
  EXPECT_TRUE(absl::IsDataLoss(Merge(c.input).status()));
}

TEST(MergeTest, InModeLocalOnlyTheStableLogCounts) {
  Stamper stamper(kEpoch);
  const auto w = Writes(stamper, 3);
  Case c;
  c.input.mode = Mode::kLocal;
  c.Stable({w[0]});
  c.Replica({w[1], w[2]});
  const absl::StatusOr<MergeResult> merged = Merge(c.input);
  ASSERT_OK(merged.status());
  EXPECT_EQ(merged->last, 1u);
  c.input.replicas[0].inventory.durable_mark = 2;
  EXPECT_TRUE(absl::IsDataLoss(Merge(c.input).status()));
}

TEST(MergeTest, UntilCutsEarlierAndNeverBelowTheCheckpoint) {
  Stamper stamper(kEpoch);
  const auto w = Writes(stamper, 5);
  Case c;
  c.input.checkpoint = 1;
  c.Stable(w);
  c.input.until = 3;
  ASSERT_OK(Merge(c.input).status());
  EXPECT_EQ(Merge(c.input)->last, 3u);
  EXPECT_EQ(Merge(c.input)->records.size(), 2u);
  c.input.until = 99;
  EXPECT_EQ(Merge(c.input)->last, 5u);
  c.input.until = 0;
  EXPECT_TRUE(absl::IsInvalidArgument(Merge(c.input).status()));
}

// Compares random holdings: T is the longest run above the checkpoint, unless a mark shows that a
// record is lost.
TEST(MergeTest, RandomHoldingsGiveTheLongestPrefix) {
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    Random random(seed);
    const int count = static_cast<int>(1 + random.Below(30));
    Stamper stamper(kEpoch);
    const auto w = Writes(stamper, count);
    Case c;
    c.input.checkpoint = random.Below(static_cast<uint64_t>(count) + 1);
    std::vector<bool> held(static_cast<size_t>(count) + 2);
    const auto some = [&] {
      std::vector<std::string> records;
      for (int i = 0; i < count; ++i) {
        if (random.Chance(0.6)) {
          records.push_back(w[static_cast<size_t>(i)]);
          held[static_cast<size_t>(i) + 1] = true;
        }
      }
      std::shuffle(records.begin(), records.end(), random);
      return records;
    };
    c.Stable(some());
    c.Replica(some());
    c.Replica(some()).inventory.durable_mark = random.Below(static_cast<uint64_t>(count) + 2);
    Seq expected = c.input.checkpoint;
    while (expected < static_cast<Seq>(count) && held[expected + 1]) ++expected;
    const Seq mark = c.input.replicas[1].inventory.durable_mark;
    const absl::StatusOr<MergeResult> merged = Merge(c.input);
    if (mark > expected) {
      EXPECT_TRUE(absl::IsDataLoss(merged.status())) << "seed " << seed;
    } else {
      ASSERT_OK(merged.status());
      EXPECT_EQ(merged->last, expected) << "seed " << seed;
      EXPECT_EQ(merged->records.size(), expected - c.input.checkpoint);
    }
  }
}

TEST(DecisionTest, TheDecidedRecordsAreVerified) {  // R11
  Stamper stamper(kEpoch);
  const auto w = Writes(stamper, 5);
  const RecordSet set = SetOf({w[4], w[1], w[2], w[2], w[3]});
  const RecordSet exact = SetOf({w[1], w[2]});
  Decision decision;
  decision.epoch = kEpoch;
  decision.checkpoint = 1;
  decision.last = 3;
  decision.count = 2;
  decision.digest = DigestOf(PointersTo(exact));
  const auto records = RecordsOfDecision(decision, set.views());
  ASSERT_OK(records.status());
  EXPECT_EQ(records->size(), 2u);
  EXPECT_EQ((*records)[0]->seq(), 2u);

  Decision wrong = decision;
  wrong.digest ^= 1;
  EXPECT_TRUE(absl::IsDataLoss(RecordsOfDecision(wrong, set.views()).status()));
  wrong = decision;
  wrong.count = 3;
  EXPECT_TRUE(absl::IsDataLoss(RecordsOfDecision(wrong, set.views()).status()));
  const RecordSet short_set = SetOf({w[1]});
  EXPECT_TRUE(absl::IsDataLoss(RecordsOfDecision(decision, short_set.views()).status()));
}

TEST(DecisionTest, OnlyTheStatesEpochCountsAndContradictionsAreDataLoss) {  // R12
  Decision old;
  old.epoch = kEpoch - 1;
  Decision mine;
  mine.epoch = kEpoch;
  mine.last = 9;
  EXPECT_FALSE(FindDecision(kEpoch, {})->has_value());
  EXPECT_FALSE(FindDecision(kEpoch, std::vector<Decision>{old})->has_value());
  EXPECT_EQ(FindDecision(kEpoch, std::vector<Decision>{old, mine, mine})->value(), mine);
  Decision other = mine;
  other.last = 8;
  EXPECT_TRUE(absl::IsDataLoss(FindDecision(kEpoch, std::vector<Decision>{mine, other}).status()));
  EXPECT_TRUE(absl::IsDataLoss(FindDecision(kEpoch - 1, std::vector<Decision>{mine}).status()));
}

TEST(RangesTest, LongListsAreCutShort) {
  EXPECT_EQ(RangesText(std::vector<std::pair<Seq, Seq>>{{5, 5}, {7, 9}}), "5, 7-9");
  std::vector<std::pair<Seq, Seq>> many;
  for (Seq i = 0; i < 20; ++i) many.emplace_back(i * 2, i * 2);
  EXPECT_NE(RangesText(many).find("and 4 more ranges"), std::string::npos);
}

}  // namespace
}  // namespace salius::recovery
