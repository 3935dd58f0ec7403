// Properties of Merge over random logs that are scattered over random holders (RapidCheck: a
// failure prints the smallest case that it finds, and RC_PARAMS="reproduce=..." runs it again).
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
// After gtest, which it needs.
#include <rapidcheck/gtest.h>

#include "recovery/agree/merge.h"
#include "tests/unit/recovery/test_util.h"

namespace salius::recovery {
namespace {

constexpr Epoch kEpoch = 7;

// A log of `records`, of which each holder has some: numbers of records, in any order and number.
struct Scattered {
  std::vector<std::string> records;
  Seq durable = 0;  // every record up to it has a holder
  std::vector<std::vector<size_t>> holders;
};

Scattered AnyScattered(size_t least_durable = 0, size_t least_after = 0) {
  Scattered out;
  const auto count = *rc::gen::inRange<size_t>(least_durable + least_after, 12);
  out.durable = *rc::gen::inRange<Seq>(least_durable, count - least_after + 1);
  Stamper stamper(kEpoch);
  for (size_t i = 0; i < count; ++i) {
    stamper.durable = std::min<Seq>(out.durable, i);
    out.records.push_back(stamper.Write(5, i, "x" + std::to_string(i)));
  }
  out.holders.resize(*rc::gen::inRange<size_t>(1, 5));
  for (std::vector<size_t>& holder : out.holders) {
    if (count > 0)
      holder = *rc::gen::container<std::vector<size_t>>(rc::gen::inRange(size_t{0}, count));
  }
  for (size_t i = 0; i < out.durable; ++i) {
    out.holders[*rc::gen::inRange<size_t>(0, out.holders.size())].push_back(i);
  }
  return out;
}

// Returns the merged records, joined. The first holder is the stable log, the others replicas.
std::string Merged(const Scattered& from) {
  MergeInput input;
  input.volume = TestVolume();
  input.epoch = kEpoch;
  std::vector<std::unique_ptr<RecordSet>> sets;
  for (const std::vector<size_t>& holder : from.holders) {
    std::vector<std::string> records;
    for (const size_t i : holder) records.push_back(from.records[i]);
    sets.push_back(std::make_unique<RecordSet>(SetOf(records)));
    if (sets.size() == 1) {
      input.stable = sets.back()->views();
      continue;
    }
    ReplicaEvidence evidence;
    evidence.address = "replica" + std::to_string(sets.size());
    evidence.inventory.known = true;
    evidence.inventory.epoch = kEpoch;
    evidence.records = sets.back()->views();
    input.replicas.push_back(evidence);
  }
  const absl::StatusOr<MergeResult> merged = Merge(input);
  RC_ASSERT(merged.ok());
  RC_ASSERT(merged->last == merged->records.size());
  std::string joined;
  for (const RecordView* record : merged->records) joined += record->encoded();
  return joined;
}

// Returns the records before the first that no holder has, joined.
std::string HeldWithoutGap(const Scattered& from) {
  std::string joined;
  for (size_t i = 0; i < from.records.size(); ++i) {
    const bool held =
        std::any_of(from.holders.begin(), from.holders.end(), [i](const auto& holder) {
          return std::find(holder.begin(), holder.end(), i) != holder.end();
        });
    if (!held) break;
    joined += from.records[i];
  }
  return joined;
}

RC_GTEST_PROP(MergePropertyTest, TakesTheLongestPrefixThatTheHoldersCover, ()) {
  const Scattered log = AnyScattered();
  RC_ASSERT(Merged(log) == HeldWithoutGap(log));
}

RC_GTEST_PROP(MergePropertyTest, DurableRecordsAreAllThere, ()) {
  const Scattered log = AnyScattered();
  std::string durable;
  for (size_t i = 0; i < log.durable; ++i) durable += log.records[i];
  RC_ASSERT(Merged(log).starts_with(durable));
}

RC_GTEST_PROP(MergePropertyTest, OrderOfHoldersAndRecordsIsIrrelevant, ()) {
  const Scattered log = AnyScattered();
  Scattered shuffled = log;
  std::reverse(shuffled.holders.begin(), shuffled.holders.end());
  for (std::vector<size_t>& holder : shuffled.holders) std::reverse(holder.begin(), holder.end());
  RC_ASSERT(Merged(shuffled) == Merged(log));
}

RC_GTEST_PROP(MergePropertyTest, LossOfADurableRecordIsDataLoss, ()) {
  Scattered log = AnyScattered(/*least_durable=*/1, /*least_after=*/1);
  const auto lost = *rc::gen::inRange<size_t>(0, log.durable);
  for (std::vector<size_t>& holder : log.holders) std::erase(holder, lost);
  // The record after the durable ones carries their mark.
  log.holders[0].push_back(log.durable);
  RecordSet everything = SetOf([&] {
    std::vector<std::string> records;
    for (const auto& holder : log.holders) {
      for (const size_t i : holder) records.push_back(log.records[i]);
    }
    return records;
  }());
  MergeInput input;
  input.volume = TestVolume();
  input.epoch = kEpoch;
  input.stable = everything.views();
  RC_ASSERT(absl::IsDataLoss(Merge(input).status()));
}

}  // namespace
}  // namespace salius::recovery
