#include "tests/unit/volume/fake_stream.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/check.h"
#include "common/limits.h"

namespace salius {
namespace {

uint64_t NowNs() {
  using std::chrono::nanoseconds;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<nanoseconds>(now).count());
}

}  // namespace

absl::StatusOr<std::unique_ptr<RecordStream>> FakeStream::Start(const VolumeDir&, StateFile state,
                                                                StableLog, ApplySink& sink,
                                                                StreamOptions) {
  return std::make_unique<FakeStream>(sink, state.state().file_id_limit);
}

FakeStream::FakeStream(ApplySink& sink, FileId next_id) : sink_(sink), next_id_(next_id) {
  sink_.OnLateChange([this] {
    static_cast<void>(Look());
    absl::MutexLock lock(&mu);
    ++late_changes_;
  });
}

absl::Status FakeStream::Look() {
  const absl::Status error = sink_.LateError();
  absl::MutexLock lock(&mu);
  const Seq first = sink_.FirstUnapplied();
  applied = first == 0 ? taken : first - 1;
  if (!error.ok() && failure.ok()) failure = error;
  return failure;
}

absl::Status FakeStream::ApplyTo(Seq seq) {
  absl::MutexLock one_at_a_time(&apply_mu_);
  SALIUS_RETURN_IF_ERROR(GiveTo(seq));
  while (true) {
    sink_.Hurry(seq);
    uint64_t changes = 0;
    {
      absl::MutexLock lock(&mu);
      changes = late_changes_;
    }
    SALIUS_RETURN_IF_ERROR(Look());
    {
      absl::MutexLock lock(&mu);
      if (applied >= std::min<Seq>(seq, records.size())) return absl::OkStatus();
    }
    if (do_work && do_work()) continue;
    absl::MutexLock lock(&mu);
    const auto changed = [&] {
      mu.AssertHeld();
      return late_changes_ != changes;
    };
    mu.Await(absl::Condition(&changed));
  }
}

void FakeStream::Give(size_t count) {
  Seq to = 0;
  {
    absl::MutexLock lock(&mu);
    to = taken + std::min<Seq>(count, records.size() - taken);
  }
  absl::MutexLock one_at_a_time(&apply_mu_);
  SALIUS_CHECK_OK(GiveTo(to));
  SALIUS_CHECK_OK(Look());
}

absl::Status FakeStream::GiveTo(Seq seq) {
  while (true) {
    std::vector<RecordRef> next;
    {
      absl::MutexLock lock(&mu);
      if (!failure.ok()) return failure;
      if (taken >= seq || taken >= records.size()) return absl::OkStatus();
      const Seq last = before_apply ? taken + 1 : std::min<Seq>(seq, records.size());
      next.assign(records.begin() + taken, records.begin() + last);
    }
    if (before_apply) before_apply(next[0]);
    const absl::StatusOr<size_t> together = sink_.Apply(next);
    absl::MutexLock lock(&mu);
    if (!together.ok()) return failure = together.status();
    ++applies;
    taken += *together;
    durable = std::max(durable, taken);
  }
}

void FakeStream::NotifyDurable(Seq seq, DurableCallback done) {
  absl::MutexLock lock(&mu);
  notified.emplace_back(seq, std::move(done));
}

std::vector<RecordRef> FakeStream::Issued() {
  absl::MutexLock lock(&mu);
  return records;
}

std::vector<RecordRef> FakeStream::Issued(Op op) {
  std::vector<RecordRef> found;
  for (const RecordRef& record : Issued()) {
    if (record->header().op == op) found.push_back(record);
  }
  return found;
}

void FakeStream::ApplySome(size_t count) {
  Seq to = 0;
  {
    absl::MutexLock lock(&mu);
    to = applied + std::min<Seq>(count, records.size() - applied);
  }
  SALIUS_CHECK_OK(ApplyTo(to));
}

void FakeStream::Fail(const absl::Status& status) {
  absl::MutexLock lock(&mu);
  failure = status;
}

absl::StatusOr<RecordRef> FakeStream::Issue(RecordDraft draft) {
  SALIUS_CHECK(draft.body.size() <= kMaxRecordBody);
  if (before_issue) before_issue(draft.op);
  SALIUS_RETURN_IF_ERROR(health());
  const SendWhen when = draft.when;
  auto record = std::make_shared<Record>(std::move(draft));
  RecordHeader& header = record->stamp();
  bool apply = false;
  {
    absl::MutexLock lock(&mu);
    header.seq = records.size() + 1;
    // Later than the record before, and than each time of a MemoryBacking.
    last_time_ns_ = std::max(last_time_ns_ + 1, NowNs());
    header.timestamp_ns = last_time_ns_;
    records.push_back(record);
    sent_when.push_back(when);
    apply = apply_at_once;
  }
  if (apply) SALIUS_RETURN_IF_ERROR(ApplyTo(header.seq));
  return RecordRef(std::move(record));
}

absl::Status FakeStream::WaitDurable(Seq seq) {
  if (on_wait_durable) on_wait_durable(seq);
  absl::MutexLock lock(&mu);
  if (durable >= seq) return absl::OkStatus();
  if (!failure.ok()) return failure;
  durable = seq;
  return absl::OkStatus();
}

void FakeStream::WhenDurable(Seq seq, DurableCallback done) {
  {
    absl::MutexLock lock(&mu);
    if (hold_callbacks) {
      held_.emplace_back(seq, std::move(done));
      return;
    }
  }
  std::move(done)(WaitDurable(seq));
}

void FakeStream::CallHeld() {
  std::vector<std::pair<Seq, DurableCallback>> held;
  {
    absl::MutexLock lock(&mu);
    held.swap(held_);
    for (auto& one : notified) held.push_back(std::move(one));
    notified.clear();
  }
  for (auto& [seq, done] : held) std::move(done)(WaitDurable(seq));
}

absl::Status FakeStream::WaitApplied(Seq seq) {
  SALIUS_RETURN_IF_ERROR(WaitDurable(seq));
  return ApplyTo(seq);
}

absl::Status FakeStream::WaitAppliedFor(Seq seq, int64_t) {
  {
    absl::MutexLock lock(&mu);
    if (disk_hangs && applied < seq) return absl::DeadlineExceededError("test");
  }
  return WaitApplied(seq);
}

absl::Status FakeStream::Checkpoint() {
  const Seq target = watermarks().issued;
  SALIUS_RETURN_IF_ERROR(WaitApplied(target));
  const absl::Status synced = sink_.SyncApplied();
  {
    absl::MutexLock lock(&mu);
    ++syncs;
    if (!synced.ok()) return failure = synced;
    checkpoint = target;
  }
  if (reports_checkpoints) sink_.Checkpointed();
  return absl::OkStatus();
}

absl::Status FakeStream::SyncNow() {
  const absl::Status synced = sink_.SyncApplied();
  absl::MutexLock lock(&mu);
  ++syncs;
  if (!synced.ok()) failure = synced;
  return synced;
}

absl::StatusOr<FileId> FakeStream::NewFileId() {
  SALIUS_RETURN_IF_ERROR(health());
  absl::MutexLock lock(&mu);
  return next_id_++;
}

Watermarks FakeStream::watermarks() const {
  absl::MutexLock lock(&mu);
  if (std::this_thread::get_id() != maker_) ++looks_of_others;
  return {checkpoint, applied, durable, records.size()};
}

int64_t FakeStream::oldest_uncheckpointed_ns() const {
  absl::MutexLock lock(&mu);
  return oldest_ns;
}

absl::Status FakeStream::health() const {
  absl::MutexLock lock(&mu);
  return failure;
}

SessionStatus FakeStream::status() const {
  SessionStatus status;
  status.marks = watermarks();
  return status;
}

}  // namespace salius
