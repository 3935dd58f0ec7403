#include "recovery/agree/merge.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"

namespace salius::recovery {
namespace {

constexpr char kSnapshotHint[] =
    "; the disk may have been restored from an older snapshot, or its newest state note is damaged";

// Collects the views of the epoch above the checkpoint and the marks of every record of the epoch.
class Collector {
 public:
  Collector(const MergeInput& input, MergeResult* result) : input_(input), result_(result) {}

  absl::Status Take(absl::Span<const RecordView> records, const std::string& source, bool use) {
    for (const RecordView& record : records) {
      const RecordHeader& header = record.header;
      if (header.volume != input_.volume) {  // R48
        return absl::DataLossError(absl::StrFormat("%s holds a record of another volume (%s)",
                                                   source, header.volume.ToString()));
      }
      if (header.epoch > input_.epoch) {  // R48, or R31 for a replica's record
        result_->highest_epoch = std::max(result_->highest_epoch, header.epoch);
        if (input_.force) continue;
        return absl::DataLossError(
            absl::StrFormat("%s holds a record of epoch %d, but the state's epoch is %d%s", source,
                            header.epoch, input_.epoch, kSnapshotHint));
      }
      if (header.epoch < input_.epoch) continue;                          // R42
      if (header.checkpoint_mark > input_.checkpoint && !input_.force) {  // R47
        return absl::DataLossError(absl::StrFormat(
            "%s: record %d was sent when the checkpoint was %d, but the state's checkpoint is %d%s",
            source, header.seq, header.checkpoint_mark, input_.checkpoint, kSnapshotHint));
      }
      result_->durable_mark = std::max(result_->durable_mark, header.durable_mark);
      result_->highest = std::max(result_->highest, header.seq);
      if (use && header.seq > input_.checkpoint) found_.push_back(&record);  // R42
    }
    return absl::OkStatus();
  }

  // Sorts and drops duplicates. DATA_LOSS when two records of one seq differ.
  absl::Status Unique() {
    const auto by_seq = [](const RecordView* a, const RecordView* b) {
      return a->seq() < b->seq();
    };
    if (!std::is_sorted(found_.begin(), found_.end(), by_seq)) {
      std::stable_sort(found_.begin(), found_.end(), by_seq);
    }
    std::vector<const RecordView*>& out = result_->records;
    out.reserve(found_.size());
    for (const RecordView* record : found_) {
      if (out.empty() || out.back()->seq() != record->seq()) {
        out.push_back(record);  // R43: another one with this seq is dropped
      } else if (out.back()->encoded() != record->encoded()) {  // R44
        return absl::DataLossError(absl::StrFormat(
            "two different records carry seq %d of epoch %d; one of their holders does not belong "
            "to this volume's history",
            record->seq(), input_.epoch));
      }
    }
    return absl::OkStatus();
  }

 private:
  const MergeInput& input_;
  MergeResult* result_;
  std::vector<const RecordView*> found_;
};

// Returns the gaps of `records` (unique, ascending) in (checkpoint, end].
std::vector<std::pair<Seq, Seq>> GapsOf(const std::vector<const RecordView*>& records,
                                        Seq checkpoint, Seq end) {
  std::vector<std::pair<Seq, Seq>> gaps;
  Seq next = checkpoint + 1;
  for (const RecordView* record : records) {
    if (record->seq() > next) gaps.emplace_back(next, record->seq() - 1);
    next = record->seq() + 1;
  }
  if (next <= end) gaps.emplace_back(next, end);
  return gaps;
}

}  // namespace

absl::Status CheckInventory(Epoch epoch, Seq checkpoint, const std::string& address,
                            const Inventory& inventory) {
  if (!inventory.known) return absl::OkStatus();
  if (inventory.epoch > epoch || inventory.promised_epoch > epoch + 1) {  // R31
    return absl::DataLossError(
        absl::StrFormat("replica %s knows epoch %d, but the state's epoch is %d%s", address,
                        std::max(inventory.epoch, inventory.promised_epoch), epoch, kSnapshotHint));
  }
  if (inventory.epoch < epoch) return absl::OkStatus();
  const Seq trimmed = std::max(inventory.trimmed, inventory.checkpoint_mark);
  if (trimmed > checkpoint) {  // R47
    return absl::DataLossError(
        absl::StrFormat("replica %s was notified that all records up to %d are on this disk, but "
                        "the state's checkpoint is %d%s",
                        address, trimmed, checkpoint, kSnapshotHint));
  }
  return absl::OkStatus();
}

absl::StatusOr<MergeResult> Merge(const MergeInput& input) {
  MergeResult result;
  result.highest_epoch = input.epoch;
  result.highest = input.checkpoint;
  Collector collector(input, &result);
  SALIUS_RETURN_IF_ERROR(collector.Take(input.stable, "the stable log", true));
  for (const ReplicaEvidence& replica : input.replicas) {
    const Inventory& inventory = replica.inventory;
    if (!input.force) {
      SALIUS_RETURN_IF_ERROR(
          CheckInventory(input.epoch, input.checkpoint, replica.address, inventory));
    }
    if (inventory.known) {
      result.highest_epoch =
          std::max({result.highest_epoch, inventory.epoch, inventory.promised_epoch});
      if (inventory.epoch == input.epoch) {
        result.durable_mark = std::max(result.durable_mark, inventory.durable_mark);
      }
    }
    SALIUS_RETURN_IF_ERROR(collector.Take(replica.records, "replica " + replica.address,
                                          input.mode == Mode::kReplicated));
  }
  SALIUS_RETURN_IF_ERROR(collector.Unique());

  result.missing =
      GapsOf(result.records, input.checkpoint, std::max(result.durable_mark, result.highest));
  // R45: records above the first gap were not acknowledged, unless a durable mark lies above it.
  result.last = result.missing.empty()
                    ? (result.records.empty() ? input.checkpoint : result.records.back()->seq())
                    : result.missing.front().first - 1;
  if (result.last < result.durable_mark && !input.force) {  // R46
    std::vector<std::pair<Seq, Seq>> lost;
    for (const auto& [first, last] : result.missing) {
      if (first <= result.durable_mark)
        lost.emplace_back(first, std::min(last, result.durable_mark));
    }
    return absl::DataLossError(absl::StrFormat(
        "all records up to %d were durable, but no copy of %s was found (checkpoint %d)",
        result.durable_mark, RangesText(lost), input.checkpoint));
  }
  result.last_there = result.last;
  if (input.until.has_value()) {
    if (*input.until < input.checkpoint) {
      return absl::InvalidArgumentError(
          absl::StrFormat("--until %d lies below the checkpoint %d, which is on the disk",
                          *input.until, input.checkpoint));
    }
    result.last = std::min(result.last, *input.until);  // R49
  }
  result.records.resize(result.last - input.checkpoint);
  return result;
}

absl::StatusOr<std::vector<const RecordView*>> RecordsOfDecision(
    const Decision& decision, absl::Span<const RecordView> stable) {
  std::vector<const RecordView*> records;
  for (const RecordView& record : stable) {
    if (record.header.epoch == decision.epoch && record.seq() > decision.checkpoint &&
        record.seq() <= decision.last) {
      records.push_back(&record);
    }
  }
  std::stable_sort(records.begin(), records.end(),
                   [](const RecordView* a, const RecordView* b) { return a->seq() < b->seq(); });
  records.erase(std::unique(records.begin(), records.end(),
                            [](const RecordView* a, const RecordView* b) {
                              return a->seq() == b->seq() && a->encoded() == b->encoded();
                            }),
                records.end());
  // R11
  if (records.size() != decision.count || decision.count != decision.last - decision.checkpoint ||
      DigestOf(records) != decision.digest) {
    return absl::DataLossError(absl::StrFormat(
        "the decision record of epoch %d says %d records above %d up to %d, but the stable log has "
        "%d of them or others",
        decision.epoch, decision.count, decision.checkpoint, decision.last, records.size()));
  }
  return records;
}

absl::StatusOr<std::optional<Decision>> FindDecision(Epoch epoch,
                                                     absl::Span<const Decision> decisions) {
  std::optional<Decision> found;
  for (const Decision& decision : decisions) {
    if (decision.epoch > epoch) {  // R12
      return absl::DataLossError(absl::StrFormat(
          "the stable log holds a decision for epoch %d, but the state's epoch is %d%s",
          decision.epoch, epoch, kSnapshotHint));
    }
    if (decision.epoch < epoch) continue;
    if (found.has_value() && !(*found == decision)) {  // R12
      return absl::DataLossError(
          absl::StrFormat("the stable log holds two different decisions for epoch %d", epoch));
    }
    found = decision;
  }
  return found;
}

}  // namespace salius::recovery
