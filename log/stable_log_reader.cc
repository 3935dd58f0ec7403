#include "log/stable_log_reader.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/bytes.h"
#include "common/check.h"
#include "common/crc32c.h"
#include "common/strings.h"
#include "log/record.h"

namespace salius::stable {
namespace {

// A window on the ring, so that entries are read in large pieces. Never wraps.
class RingWindow {
 public:
  RingWindow(Files& files, int fd, uint64_t capacity)
      : files_(files), fd_(fd), capacity_(capacity) {}

  // Returns the `size` bytes at ring offset `at`, which must lie inside the ring. They are valid
  // until the next call.
  absl::StatusOr<absl::Span<const uint8_t>> Get(uint64_t at, size_t size) {
    SALIUS_CHECK(at + size <= capacity_);
    if (at < at_ || at + size > at_ + size_) SALIUS_RETURN_IF_ERROR(Fill(at, size));
    return absl::MakeConstSpan(bytes_.get() + (at - at_), size);
  }

 private:
  // Moves the window, so that it starts at `at` and holds at least `size` bytes.
  absl::Status Fill(uint64_t at, size_t size) {
    constexpr uint64_t kWindowBytes = uint64_t{256} << 10;
    const uint64_t wanted = std::min(std::max<uint64_t>(size, kWindowBytes), capacity_ - at);
    size_ = 0;  // a window that could not be read is no window
    if (room_ < wanted) {
      bytes_ = std::make_unique_for_overwrite<uint8_t[]>(wanted);
      room_ = wanted;
    }
    SALIUS_ASSIGN_OR_RETURN(const size_t got,
                            files_.Pread(fd_, bytes_.get(), wanted, kRingAt + at));
    if (got != wanted) {
      return absl::DataLossError(
          absl::StrFormat("stable log: the file ends at offset %d", kRingAt + at + got));
    }
    at_ = at;
    size_ = wanted;
    return absl::OkStatus();
  }

  Files& files_;
  const int fd_;
  const uint64_t capacity_;
  uint64_t at_ = 0;
  uint64_t size_ = 0;
  std::unique_ptr<uint8_t[]> bytes_;  // the first size_ are the ring's, from at_ on
  uint64_t room_ = 0;                 // size of bytes_
};

class Reader {
 public:
  Reader(Files& files, int fd, const FileHeader& header, StableLog::Contents* contents)
      : header_(header), ring_(files, fd, header.capacity), contents_(contents) {}

  absl::StatusOr<ReadResult> Run();

 private:
  // Takes the entry at the tail. DATA_LOSS or OUT_OF_RANGE when there is no whole one,
  // INVALID_ARGUMENT when it is whole but unknown; other errors are those of reading the file.
  absl::Status TakeEntry();
  absl::Status TakePayload(const EntryHeader& entry, KeptEntry& kept);
  // Decides whether the log ends at the tail, which cannot be read because of `why`, or is damaged.
  absl::Status JudgeTail(const absl::Status& why);
  // Looks in ring offsets [begin, end) for entries that were written behind the tail.
  absl::Status Search(uint64_t begin, uint64_t end, const absl::Status& why);
  uint64_t RingOffset(uint64_t position) const { return position % header_.capacity; }
  uint64_t FileOffset(uint64_t position) const { return kRingAt + RingOffset(position); }

  const FileHeader header_;
  RingWindow ring_;
  StableLog::Contents* const contents_;
  ReadResult result_;
  uint64_t torn_end_ = 0;  // position behind the last of `result_.remains`
};

// Whether an error means "no whole entry here". INVALID_ARGUMENT does not: a whole entry that this
// version does not understand is no torn tail, and must not be dropped as one.
bool IsBadEntry(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsOutOfRange(status);
}

absl::Status Reader::TakePayload(const EntryHeader& entry, KeptEntry& kept) {
  const uint64_t at = RingOffset(entry.position) + kEntryHeaderBytes;
  const uint64_t padded = entry.total_bytes() - kEntryHeaderBytes;
  SALIUS_ASSIGN_OR_RETURN(const absl::Span<const uint8_t> payload, ring_.Get(at, padded));
  const absl::Span<const uint8_t> padding = payload.subspan(entry.payload_bytes);
  if (std::any_of(padding.begin(), padding.end(), [](uint8_t b) { return b != 0; })) {
    return absl::DataLossError("stable log: padding is not zero");
  }
  const absl::Span<const uint8_t> bytes = payload.first(entry.payload_bytes);
  if (entry.kind == EntryKind::kDecision) {
    SALIUS_ASSIGN_OR_RETURN(const Decision decision, DecodeDecision(bytes));
    if (Crc32c(bytes) != entry.payload_check) {
      return absl::DataLossError("stable log: a decision of another entry");
    }
    kept.epoch = decision.epoch;
    if (contents_ != nullptr) contents_->decisions.push_back(decision);
    return absl::OkStatus();
  }
  SALIUS_ASSIGN_OR_RETURN(const RecordHeader record, DecodeRecord(bytes));
  if (record.total_bytes() != bytes.size() || record.volume != header_.volume ||
      LoadU32(bytes.data() + kRecordHeaderBytes - 4) != entry.payload_check) {
    return absl::DataLossError("stable log: a record of another entry");
  }
  kept.epoch = record.epoch;
  kept.seq = record.seq;
  if (contents_ != nullptr) contents_->records.emplace_back(AsText(bytes));
  return absl::OkStatus();
}

absl::Status Reader::TakeEntry() {
  const uint64_t position = result_.tail;
  const uint64_t at = RingOffset(position);
  SALIUS_ASSIGN_OR_RETURN(const absl::Span<const uint8_t> head, ring_.Get(at, kEntryHeaderBytes));
  SALIUS_ASSIGN_OR_RETURN(const EntryHeader entry, DecodeEntryHeader(head, header_.salt));
  if (entry.position != position) {
    return absl::DataLossError(absl::StrFormat("stable log: entry of position %d", entry.position));
  }
  const uint64_t end = position + entry.total_bytes();
  if (entry.total_bytes() > header_.capacity - at || end > header_.start + header_.capacity) {
    return absl::InvalidArgumentError("stable log: entry beyond the ring's end");
  }
  KeptEntry kept;
  kept.kind = entry.kind;
  kept.end = end;
  if (entry.kind != EntryKind::kPad) SALIUS_RETURN_IF_ERROR(TakePayload(entry, kept));
  result_.entries.push_back(kept);
  result_.tail = end;
  return absl::OkStatus();
}

absl::Status Reader::Search(uint64_t begin, uint64_t end, const absl::Status& why) {
  constexpr size_t kStep = 64 * 1024;  // bytes looked at per read of the window
  for (uint64_t base = begin; base < end; base += kStep) {
    // The last entry header may begin in these bytes and end behind them.
    const size_t size =
        std::min<uint64_t>(header_.capacity - base,
                           std::min<uint64_t>(kStep, end - base) + kEntryHeaderBytes - kEntryAlign);
    SALIUS_ASSIGN_OR_RETURN(const absl::Span<const uint8_t> bytes, ring_.Get(base, size));
    for (size_t i = FindEntryMagic(bytes, 0); i + kEntryHeaderBytes <= size;
         i = FindEntryMagic(bytes, i + kEntryAlign)) {
      const absl::StatusOr<EntryHeader> entry = DecodeEntryHeader(bytes.subspan(i), header_.salt);
      // Entries before the tail were read; older ones belong to an earlier lap.
      if (!entry.ok() || entry->position < result_.tail ||
          RingOffset(entry->position) != base + i) {
        continue;
      }
      if (entry->synced > result_.tail) {
        return absl::DataLossError(absl::StrFormat(
            "stable log: damaged at file offset %d (%s): the entry at offset %d proves that all "
            "before position %d was on disk",
            FileOffset(result_.tail), Sv(why.message()), kRingAt + base + i, entry->synced));
      }
      result_.remains.push_back(kRingAt + base + i);
      torn_end_ = std::max(torn_end_, entry->position + entry->total_bytes());
    }
  }
  return absl::OkStatus();
}

absl::Status Reader::JudgeTail(const absl::Status& why) {
  torn_end_ = result_.tail;
  // A whole entry beyond the reach means that the header is not the newest that was written.
  const bool known = header_.reach >= result_.tail;
  const uint64_t begin = RingOffset(result_.tail);
  const uint64_t size = known ? header_.reach - result_.tail : header_.capacity;
  const uint64_t to_end = std::min(size, header_.capacity - begin);
  SALIUS_RETURN_IF_ERROR(Search(begin, begin + to_end, why));
  SALIUS_RETURN_IF_ERROR(Search(0, size - to_end, why));
  result_.torn_bytes = torn_end_ - result_.tail;
  return absl::OkStatus();
}

absl::StatusOr<ReadResult> Reader::Run() {
  const uint64_t limit = header_.start + header_.capacity;
  result_.tail = header_.start;
  while (true) {
    const uint64_t next = SkipRingEnd(result_.tail, header_.capacity);
    if (next + kEntryHeaderBytes > limit) break;  // full
    // The skipped bytes count only when an entry follows them.
    const uint64_t tail = std::exchange(result_.tail, next);
    const absl::Status status = TakeEntry();
    if (status.ok()) continue;
    if (!IsBadEntry(status)) return status;
    SALIUS_RETURN_IF_ERROR(JudgeTail(status));
    result_.tail = tail;
    break;
  }
  if (contents_ != nullptr) contents_->torn_bytes = result_.torn_bytes;
  return std::move(result_);
}

}  // namespace

uint64_t SkipRingEnd(uint64_t position, uint64_t capacity) {
  const uint64_t to_end = capacity - position % capacity;
  return to_end < kEntryHeaderBytes ? position + to_end : position;
}

absl::StatusOr<FileHeader> ReadFileHeader(Files& files, int fd) {
  std::vector<uint8_t> bytes(kRingAt);
  SALIUS_ASSIGN_OR_RETURN(const size_t got, files.Pread(fd, bytes.data(), bytes.size(), 0));
  bytes.resize(got);
  FileHeader newest;
  std::string reasons;
  for (size_t i = 0; i < kHeaderSlots; ++i) {
    const size_t offset = std::min(i * kHeaderSlotBytes, bytes.size());
    const size_t size = std::min(bytes.size() - offset, kHeaderSlotBytes);
    absl::StatusOr<FileHeader> slot =
        DecodeFileHeader(absl::MakeConstSpan(bytes).subspan(offset, size));
    if (slot.ok() && slot->generation % kHeaderSlots != i) {
      slot = absl::InvalidArgumentError(absl::StrFormat(
          "stable log: generation %d stands in header slot %d", slot->generation, i));
    }
    if (slot.ok()) {
      if (slot->generation > newest.generation) newest = *slot;
    } else if (absl::IsInvalidArgument(slot.status())) {
      // It is whole, but of an unknown version, and perhaps the newer one.
      return slot.status();
    } else {
      reasons += absl::StrFormat("%sslot %d: %s", reasons.empty() ? "" : "; ", i,
                                 Sv(slot.status().message()));
    }
  }
  if (newest.generation == 0) {
    return absl::DataLossError("stable log: no valid header (" + reasons + ")");
  }
  if (!reasons.empty()) newest.reach = newest.start + newest.capacity;
  return newest;
}

absl::StatusOr<ReadResult> ReadEntries(Files& files, int fd, const FileHeader& header,
                                       StableLog::Contents* contents) {
  SALIUS_ASSIGN_OR_RETURN(const uint64_t size, files.SizeOf(fd));
  if (size < kRingAt + header.capacity) {
    return absl::DataLossError(
        absl::StrFormat("stable log: the file ends at offset %d, before the end of its ring at %d",
                        size, kRingAt + header.capacity));
  }
  return Reader(files, fd, header, contents).Run();
}

}  // namespace salius::stable
