#include "client/session/disk_writers.h"

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/strings.h"

namespace salius {
namespace {

// One append to the stable log takes at most this much: group commit without long pauses.
constexpr uint64_t kStableBatchBytes = 2u << 20;

absl::Span<const uint8_t> AsBytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace

absl::Status StableWriter::Begin(Epoch epoch) {
  absl::MutexLock lock(&mu_);
  epoch_ = epoch;
  SALIUS_RETURN_IF_ERROR(log_.Cut(epoch_, 0));
  used_ = log_.used_bytes();
  capacity_ = log_.capacity();
  return absl::OkStatus();
}

absl::Status StableWriter::Write(std::optional<Seq> cut, absl::Span<const RecordRef> records) {
  absl::MutexLock lock(&mu_);
  absl::Status status;
  if (cut) status = log_.Cut(epoch_, *cut);
  if (status.ok() && !records.empty()) {
    std::vector<StableLog::Item> items;
    items.reserve(records.size());
    for (const RecordRef& record : records) {
      items.push_back({{record->encoded_header(), kRecordHeaderBytes}, AsBytes(record->body())});
    }
    status = log_.Append(items);
    if (status.ok()) status = dir_.CheckSynced();
  }
  used_ = log_.used_bytes();
  return status;
}

void StableWriter::Loop() {
  while (true) {
    std::vector<RecordRef> records;
    std::optional<Seq> cut;
    {
      absl::MutexLock lock(&shared_.mu);
      while (!shared_.core.stopping() && !shared_.stable_wanted && !shared_.cut_wanted) {
        shared_.stable_cv.Wait(&shared_.mu);
      }
      if (shared_.core.stopping()) return;
      cut = std::exchange(shared_.cut_wanted, std::nullopt);
      records = shared_.core.TakeStableBatch(kStableBatchBytes);
      if (records.empty()) shared_.stable_wanted = false;
    }
    const absl::Status status = Write(cut, records);
    if (records.empty() && status.ok()) continue;
    SharedCore::Turn turn(shared_);
    turn.Feed(input::Stable{records, status});
    if (absl::IsResourceExhausted(status)) {
      // Full until a checkpoint is noted and the log is cut; NoteWriter then wakes this thread.
      turn.work().stable_wanted = shared_.stable_wanted = false;
    }
    const Replicator& policy = shared_.core.policy();
    if (policy.applied() < policy.durable() && !shared_.core.waiters().HasFollowers()) {
      shared_.applier_cv.Signal();
    }
  }
}

absl::Status NoteWriter::Begin(const StateNotes::Place& place, uint64_t session) {
  absl::MutexLock note_lock(&mu_);
  const VolumeState first = StateNotes::First(state_.state(), place, shared_.options.config.acks,
                                              SessionTuning().file_id_block);
  SALIUS_RETURN_IF_ERROR(state_.Write(first));
  absl::MutexLock lock(&shared_.mu);
  shared_.core.Begin(first, session);
  shared_.NoteMode();
  return absl::OkStatus();
}

absl::Status NoteWriter::Close() {
  absl::MutexLock note_lock(&mu_);
  absl::MutexLock lock(&shared_.mu);
  return state_.Write(shared_.core.ClosedNote());
}

void NoteWriter::Loop() {
  while (true) {
    VolumeState next;
    {
      absl::MutexLock lock(&shared_.mu);
      while (!shared_.core.stopping() && !shared_.note_wanted) {
        shared_.note_cv.Wait(&shared_.mu);
      }
      if (shared_.core.stopping()) return;
      next = *std::exchange(shared_.note_wanted, std::nullopt);
    }
    absl::Status status;
    {
      absl::MutexLock lock(&mu_);
      status = state_.Write(next);
    }
    bool cut = false;
    {
      SharedCore::Turn turn(shared_);
      turn.Feed(input::NoteWritten{status});
      shared_.checkpoint_cv.SignalAll();
      cut = turn.work().cut.has_value();
      if (cut) {
        shared_.stable_wanted = true;
        shared_.stable_cv.Signal();
      }
      const Replicator& policy = shared_.core.policy();
      if (policy.applied() < policy.durable()) shared_.applier_cv.Signal();
    }
    if (cut && checkpointed_) checkpointed_();
  }
}

}  // namespace salius
