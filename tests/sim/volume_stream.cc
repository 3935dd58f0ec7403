#include "tests/sim/volume_stream.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/file.h"
#include "common/limits.h"

namespace salius::sim {
namespace {

constexpr uint64_t kStartNs = 1'700'000'000'000'000'000;
constexpr size_t kMostAtOnce = 8;  // records that the sink gets in one call

absl::Status Dead() { return absl::InternalError("the simulated process is dead"); }

}  // namespace

absl::Status VolumeStream::Usable() const { return doom_.dead() ? Dead() : failure_; }

void VolumeStream::SomeBecomeDurable() {
  log_.durable += random_.Below(issued() - log_.durable + 1);
  Publish();
}

void VolumeStream::Step() {
  if (!Usable().ok()) return;
  if (random_.Chance(chances_.durable)) SomeBecomeDurable();
  if (random_.Chance(chances_.apply)) TryApply();
  while (lanes_.waiting() > 0 && lanes_random_.Chance(0.3)) WorkInLanes();
  if (random_.Chance(chances_.checkpoint)) {
    static_cast<void>(random_.Chance(0.5) ? Checkpoint() : SyncNow());
  }
}

absl::StatusOr<RecordRef> VolumeStream::Issue(RecordDraft draft) {
  SALIUS_RETURN_IF_ERROR(Usable());
  SALIUS_CHECK(draft.body.size() <= kMaxRecordBody);
  if (!doom_.Passes("before a record is stamped")) return Dead();
  auto record = std::make_shared<Record>(std::move(draft));
  RecordHeader& header = record->stamp();
  header.epoch = epoch_;
  header.seq = issued() + 1;
  header.timestamp_ns = kStartNs + (epoch_ * 1'000'000 + header.seq) * 1'000'000;
  header.durable_mark = log_.durable;
  header.checkpoint_mark = log_.checkpoint;
  log_.records.push_back(record);
  issued_.store(header.seq);
  Publish();
  if (!doom_.Passes("after a record is stamped")) return Dead();
  // Another thread may see it become durable, and apply it, before this returns.
  if (random_.Chance(chances_.durable)) SomeBecomeDurable();
  if (random_.Chance(chances_.apply)) TryApply();
  // An error would say that there is no record, but the sink may have this one.
  if (doom_.dead() && taken_by_volume_ < header.seq) return Dead();
  return RecordRef(std::move(record));
}

absl::Status VolumeStream::WaitDurable(Seq seq) {
  SALIUS_RETURN_IF_ERROR(Usable());
  SALIUS_CHECK(seq <= issued());
  if (log_.durable >= seq) return absl::OkStatus();
  if (!doom_.Passes("before a record is durable")) return Dead();
  log_.durable = seq;
  Publish();
  if (random_.Chance(chances_.durable)) SomeBecomeDurable();
  return absl::OkStatus();
}

absl::Status VolumeStream::GiveTo(Seq seq) {
  SALIUS_CHECK(seq <= log_.durable && !applying_);
  while (taken_ < seq) {
    SALIUS_RETURN_IF_ERROR(Usable());
    if (!doom_.Passes("before a record is applied")) return Dead();
    const size_t count = std::min<size_t>(seq - taken_, 1 + random_.Below(kMostAtOnce));
    const auto next = absl::MakeConstSpan(log_.records).subspan(taken_, count);
    applying_ = true;
    const absl::StatusOr<size_t> together = sink_.Apply(next);
    applying_ = false;
    if (together.ok()) taken_by_volume_ = taken_ + *together;
    if (doom_.dead()) return Dead();
    if (!together.ok()) return failure_ = together.status();
    taken_ += *together;
    Advance();
  }
  return absl::OkStatus();
}

void VolumeStream::Advance() {
  const Seq first = sink_.FirstUnapplied();
  const Seq prefix = first == 0 ? taken_ : first - 1;
  while (log_.applied < prefix) {
    const Seq mark = order_.Applied(*log_.records[log_.applied++]);
    if (mark != 0) log_.mark = mark;
  }
}

bool VolumeStream::WorkInLanes() {
  if (lanes_.waiting() == 0) return false;
  if (!doom_.Passes("before a record in a lane is applied")) return true;
  applying_ = true;
  lanes_.Do(lanes_random_.Below(lanes_.waiting()));
  applying_ = false;
  if (doom_.dead()) return true;
  Advance();
  if (const absl::Status error = sink_.LateError(); !error.ok() && failure_.ok()) failure_ = error;
  return true;
}

absl::Status VolumeStream::ApplyTo(Seq seq) {
  SALIUS_RETURN_IF_ERROR(GiveTo(seq));
  while (log_.applied < seq) {
    SALIUS_RETURN_IF_ERROR(Usable());
    sink_.Hurry(seq);
    SALIUS_CHECK(WorkInLanes() || !Usable().ok()) << "record " << seq << " is never applied";
  }
  return absl::OkStatus();
}

absl::Status VolumeStream::WaitApplied(Seq seq) {
  SALIUS_RETURN_IF_ERROR(WaitDurable(seq));
  return ApplyTo(seq);
}

absl::Status VolumeStream::WaitAppliedFor(Seq seq, int64_t) {
  if (log_.applied < seq && random_.Chance(chances_.brief)) {
    return absl::DeadlineExceededError("the simulated disk is slow");
  }
  return WaitApplied(seq);
}

void VolumeStream::TryApply() {
  if (!Usable().ok() || applying_ || syncing_) return;
  static_cast<void>(GiveTo(taken_ + random_.Below(log_.durable - taken_ + 1)));
}

absl::Status VolumeStream::SyncNow() {
  SALIUS_RETURN_IF_ERROR(Usable());
  const Seq covered = log_.applied;
  syncing_ = true;
  const absl::Status synced = sink_.SyncApplied();
  syncing_ = false;
  if (doom_.dead()) return Dead();
  if (!synced.ok()) return failure_ = synced;
  if (!doom_.Passes("before a checkpoint is noted")) return Dead();
  log_.checkpoint = covered;
  return absl::OkStatus();
}

absl::Status VolumeStream::Checkpoint() {
  SALIUS_RETURN_IF_ERROR(WaitApplied(issued()));
  return SyncNow();
}

absl::StatusOr<FileId> VolumeStream::NewFileId() {
  SALIUS_RETURN_IF_ERROR(Usable());
  return next_id_++;
}

Watermarks VolumeStream::watermarks() const {
  if (std::this_thread::get_id() != user_) return {.issued = issued_.load()};
  return {log_.checkpoint, log_.applied, log_.durable, issued()};
}

SessionStatus VolumeStream::status() const {
  SessionStatus status;
  status.marks = watermarks();
  return status;
}

}  // namespace salius::sim
