// The acceptor's side of datagrams: storing and answering (rules A, B, E, G, H, K).
#include <algorithm>

#include "replica/acceptor.h"
#include "transport/unpacker.h"

namespace salius {

std::string_view DropName(Drop reason) {
  static constexpr std::array<std::string_view, kDropReasons> kNames = {
      "corrupt_frame",  "truncated",   "not_for_replica", "unknown_volume",
      "foreign_epoch",  "bad_session", "fenced",          "corrupt_record",
      "foreign_record", "trimmed",     "below_base",      "duplicate",
      "conflict",       "memory_full", "out_of_window",   "rate_limited",
      "unsealed"};
  return kNames[static_cast<size_t>(reason)];
}

Acceptor::Standing Acceptor::StandingOf(const Volume* volume, const VolumeId& id, Epoch epoch,
                                        uint64_t session) const {
  if (volume == nullptr) {
    return epoch < promises_.Of(id).fence_epoch() ? Standing::kFenced
                                                  : Standing::kUnknownVolume;  // B
  }
  if (epoch < volume->slot.fence_epoch()) return Standing::kFenced;  // B
  if (volume->log == nullptr) return Standing::kUnknownVolume;
  if (epoch != volume->slot.epoch) return Standing::kForeignEpoch;  // A
  if (session != volume->slot.session) return Standing::kBadSession;
  return Standing::kCurrent;
}

Acceptor::FrameResult Acceptor::OnFrame(int64_t now_ns, const FrameHeader& header,
                                        absl::Span<const uint8_t> payload, bool sealed) {
  ++counters_.frames;
  if (header.type == FrameType::kAck) {
    CountDrop(Drop::kNotForReplica);
    return {};
  }
  Volume* const volume = Find(header.volume);
  FrameResult result;
  result.reply = true;
  result.standing = StandingOf(volume, header.volume, header.epoch, header.session);
  switch (result.standing) {
    case Standing::kFenced:
      CountDrop(Drop::kFenced);
      return result;
    case Standing::kUnknownVolume:
      CountDrop(Drop::kUnknownVolume);
      return result;
    case Standing::kForeignEpoch:
      CountDrop(Drop::kForeignEpoch);
      return result;
    case Standing::kBadSession:
      CountDrop(Drop::kBadSession);
      return result;
    case Standing::kCurrent:
      break;
  }
  if (volume->slot.sealed && !sealed) {  // K
    CountDrop(Drop::kUnsealed);
    return {};
  }
  volume->last_life_ns = now_ns;
  TakeMarks(*volume, header);
  // Write the marks before the records: afterwards this would wait until the stores of the records
  // have left the CPU.
  WriteMarks(*volume);
  if (HasRecords(header.type)) result.flags = TakeRecords(*volume, header, payload);
  if (header.type == FrameType::kFragment) result.flags = TakePiece(*volume, payload);
  WriteMarks(*volume);  // with the marks in the records' own headers
  volume->age.Note(now_ns, volume->log->held().highest());
  return result;
}

void Acceptor::TakeMarks(Volume& volume, const FrameHeader& header) {
  VolumeSlot& slot = volume.slot;
  slot.durable_mark = std::max(slot.durable_mark, header.durable_mark);
  slot.checkpoint_mark = std::max(slot.checkpoint_mark, header.trim_mark);
  if (header.trim_mark <= slot.trimmed) return;
  // E. Write the slot first: a process killed in between must not find the log shorter than its
  // trim mark.
  slot.trimmed = header.trim_mark;
  arena_.WriteSlot(volume.slot_index, slot);
  volume.log->TrimTo(slot.trimmed);
  volume.age.TrimTo(slot.trimmed);
  ++counters_.trims;
}

void Acceptor::WriteMarks(const Volume& volume) {
  const VolumeSlot& written = *arena_.slot(volume.slot_index);
  const VolumeSlot& slot = volume.slot;
  if (slot.durable_mark != written.durable_mark ||
      slot.checkpoint_mark != written.checkpoint_mark) {
    arena_.WriteSlot(volume.slot_index, slot);
  }
}

uint16_t Acceptor::TakeRecords(Volume& volume, const FrameHeader& header,
                               absl::Span<const uint8_t> payload) {
  uint16_t flags = 0;
  const auto take = [&](const RecordHeader& record, absl::Span<const uint8_t> bytes) {
    if (record.volume != header.volume || record.epoch != header.epoch) {  // A
      return CountDrop(Drop::kForeignRecord);
    }
    flags |= CountResult(volume, volume.log->Append(record, bytes), record);
  };
  const Unpacked unpacked = UnpackRecords(header, payload, take);
  if (unpacked == Unpacked::kCorruptRecord) CountDrop(Drop::kCorruptRecord);
  if (unpacked == Unpacked::kTrailingBytes) CountDrop(Drop::kCorruptFrame);
  return flags;
}

uint16_t Acceptor::TakePiece(Volume& volume, absl::Span<const uint8_t> payload) {
  const absl::StatusOr<FragmentHeader> fragment = DecodeFragmentHeader(payload);
  if (!fragment.ok()) {
    CountDrop(Drop::kCorruptFrame);
    return 0;
  }
  RecordHeader record;
  const VolumeLog::Result result =
      volume.log->AddPiece(*fragment, payload.subspan(kFragmentHeaderBytes), &record);
  return CountResult(volume, result, record);
}

uint16_t Acceptor::CountResult(Volume& volume, VolumeLog::Result result,
                               const RecordHeader& record) {
  using Result = VolumeLog::Result;
  switch (result) {
    case Result::kStored: {
      ++counters_.records;
      counters_.bytes += record.total_bytes();
      VolumeSlot& slot = volume.slot;
      slot.durable_mark = std::max(slot.durable_mark, record.durable_mark);
      slot.checkpoint_mark = std::max(slot.checkpoint_mark, record.checkpoint_mark);
      return 0;
    }
    case Result::kPending:
      return 0;
    case Result::kDuplicate:
      CountDrop(Drop::kDuplicate);
      return 0;
    case Result::kConflict:
      CountDrop(Drop::kConflict);
      return 0;
    case Result::kTrimmed:
      CountDrop(Drop::kTrimmed);
      return 0;
    case Result::kBelowBase:
      CountDrop(Drop::kBelowBase);
      return 0;
    case Result::kMemoryFull:
      CountDrop(Drop::kMemoryFull);
      return kAckMemoryFull;
    case Result::kOutOfWindow:
      CountDrop(Drop::kOutOfWindow);
      return 0;
    case Result::kCorrupt:
      CountDrop(Drop::kCorruptRecord);
      return 0;
    case Result::kForeign:
      CountDrop(Drop::kForeignRecord);
      return 0;
  }
  return 0;
}

AckPayload Acceptor::MakeAck(int64_t now_ns, const VolumeId& volume_id, Epoch epoch,
                             uint64_t session, uint16_t flags) const {
  AckPayload ack;
  ack.incarnation = arena_.incarnation();
  const Volume* const volume = Find(volume_id);
  ack.promise_epoch =
      volume != nullptr ? volume->slot.promise_epoch : promises_.Of(volume_id).promised;
  switch (StandingOf(volume, volume_id, epoch, session)) {
    case Standing::kFenced:
      // B: no record is named as held, not even one that was stored before the fence.
      ack.flags = kAckFenced;
      ack.promise_epoch =
          volume != nullptr ? volume->slot.fence_epoch() : promises_.Of(volume_id).fence_epoch();
      return ack;
    case Standing::kUnknownVolume:
    case Standing::kForeignEpoch:
    case Standing::kBadSession:
      ack.flags = kAckUnknownSession;  // G
      return ack;
    case Standing::kCurrent:
      break;
  }
  ack.flags = flags;
  ack.trimmed = volume->slot.trimmed;
  ack.free_bytes = volume->log->free_bytes();
  volume->log->held().FillAck(ack);
  if (Overdue(*volume, now_ns)) ack.flags |= kAckOverdue;  // H
  return ack;
}

}  // namespace salius
