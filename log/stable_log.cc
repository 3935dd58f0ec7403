#include "log/stable_log.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/bytes.h"
#include "common/check.h"
#include "common/crc32c.h"
#include "common/file.h"
#include "common/limits.h"
#include "common/random.h"
#include "common/strings.h"
#include "log/stable_log_format.h"
#include "log/stable_log_reader.h"

namespace salius {

using stable::EntryHeader;
using stable::EntryKind;
using stable::FileHeader;
using stable::KeptEntry;

namespace {

// One entry that is about to be written.
struct Pending {
  EntryHeader header;
  absl::Span<const uint8_t> head;
  absl::Span<const uint8_t> body;
  KeptEntry kept;
};

// Least size of a batch that goes past the page cache: recovery's pin.
constexpr uint64_t kBulkBytes = uint64_t{1} << 20;

absl::Status WriteFileHeader(Files& files, int fd, const FileHeader& header) {
  std::string slot = stable::EncodeFileHeader(header);
  const iovec part = {slot.data(), slot.size()};
  const uint64_t at = (header.generation % stable::kHeaderSlots) * stable::kHeaderSlotBytes;
  return files.PwritevSynced(fd, {&part, 1}, at);
}

// Writes both header slots and a ring of zeros; they are on disk afterwards.
absl::Status FillNewFile(Files& files, int fd, const Files::LongWrite& bulk,
                         const FileHeader& header) {
  std::vector<uint8_t> zeros(size_t{4} << 20);
  for (uint64_t at = 0; at < header.capacity; at += zeros.size()) {
    const iovec part = {zeros.data(), std::min<uint64_t>(zeros.size(), header.capacity - at)};
    SALIUS_RETURN_IF_ERROR(bulk({&part, 1}, stable::kRingAt + at));
  }
  FileHeader older = header;
  older.generation = header.generation - 1;
  SALIUS_RETURN_IF_ERROR(WriteFileHeader(files, fd, older));
  SALIUS_RETURN_IF_ERROR(WriteFileHeader(files, fd, header));
  return files.Fsync(fd);
}

}  // namespace

struct StableLog::Impl {
  Impl(Files& all, BackingFd file)
      : files(all), fd(std::move(file)), bulk(files.LongWrites(fd.get())) {}

  Files& files;
  const BackingFd fd;
  const Files::LongWrite bulk;    // to `fd`
  FileHeader header;              // as on disk; `reach` perhaps larger, when a slot was damaged
  uint64_t start = 0;             // >= header.start, which follows when the space is needed
  uint64_t tail = 0;              // position of the next entry
  std::deque<KeptEntry> entries;  // in [start, tail)
  std::vector<uint64_t> remains;  // torn headers behind the tail, to wipe before the next append
  bool failed = false;

  uint64_t RingOffset(uint64_t position) const { return position % header.capacity; }

  // Gives every entry its position, with pads where the ring ends. RESOURCE_EXHAUSTED when the
  // entries do not fit between `tail` and the start one lap later.
  absl::StatusOr<std::vector<Pending>> Place(std::vector<Pending> entries) const;
  absl::Status WriteEntries(const std::vector<Pending>& entries);
  absl::Status AppendEntries(std::vector<Pending> entries);
  // Performs the part of Append that may leave the file in an unknown state.
  absl::Status WriteAll(const std::vector<Pending>& placed);
};

absl::StatusOr<std::vector<Pending>> StableLog::Impl::Place(std::vector<Pending> entries) const {
  std::vector<Pending> placed;
  placed.reserve(entries.size() + 1);
  uint64_t position = tail;
  const auto place = [&](Pending pending) {
    pending.header.position = position;
    pending.header.synced = tail;
    position += pending.header.total_bytes();
    pending.kept.kind = pending.header.kind;
    pending.kept.end = position;
    placed.push_back(std::move(pending));
  };
  for (Pending& pending : entries) {
    position = stable::SkipRingEnd(position, header.capacity);
    const uint64_t to_end = header.capacity - RingOffset(position);
    if (pending.header.total_bytes() > to_end) {
      Pending pad;
      pad.header.kind = EntryKind::kPad;
      pad.header.payload_bytes = static_cast<uint32_t>(to_end - stable::kEntryHeaderBytes);
      place(std::move(pad));
    }
    place(std::move(pending));
  }
  if (position - start > header.capacity) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("stable log: %d bytes do not fit, %d of %d are used", position - tail,
                        tail - start, header.capacity));
  }
  return placed;
}

absl::Status StableLog::Impl::WriteEntries(const std::vector<Pending>& entries) {
  static constexpr uint8_t kPadding[stable::kEntryAlign] = {};
  std::vector<std::array<uint8_t, stable::kEntryHeaderBytes>> heads(entries.size());
  std::vector<iovec> parts;
  parts.reserve(entries.size() * 4);
  const auto add = [&parts](const void* data, size_t size) {
    if (size > 0) parts.push_back({const_cast<void*>(data), size});
  };
  // The entries are one run of bytes, or two when the ring ends in between.
  const uint64_t first = RingOffset(entries.front().header.position);
  size_t first_run_parts = std::numeric_limits<size_t>::max();
  for (size_t i = 0; i < entries.size(); ++i) {
    const Pending& entry = entries[i];
    if (i > 0 && RingOffset(entry.header.position) == 0) first_run_parts = parts.size();
    stable::EncodeEntryHeader(entry.header, header.salt, heads[i].data());
    add(heads[i].data(), heads[i].size());
    if (entry.header.kind == EntryKind::kPad) continue;  // its payload says nothing
    add(entry.head.data(), entry.head.size());
    add(entry.body.data(), entry.body.size());
    add(kPadding,
        entry.header.total_bytes() - stable::kEntryHeaderBytes - entry.header.payload_bytes);
  }
  const auto all = absl::MakeConstSpan(parts);
  const uint64_t bytes = entries.back().kept.end - entries.front().header.position;
  if (first_run_parts >= parts.size() && parts.size() <= IOV_MAX && bytes < kBulkBytes) {
    return files.PwritevSynced(fd.get(), all, stable::kRingAt + first);
  }
  // The bytes take more than one system call: one sync covers all of them.
  SALIUS_RETURN_IF_ERROR(bulk(all.subspan(0, first_run_parts), stable::kRingAt + first));
  if (first_run_parts < parts.size()) {
    SALIUS_RETURN_IF_ERROR(bulk(all.subspan(first_run_parts), stable::kRingAt));
  }
  return files.Fdatasync(fd.get());
}

absl::Status StableLog::Impl::WriteAll(const std::vector<Pending>& placed) {
  if (!remains.empty()) {
    static constexpr std::array<char, stable::kEntryHeaderBytes> kZeros = {};
    for (const uint64_t at : remains) {
      SALIUS_RETURN_IF_ERROR(files.Pwrite(fd.get(), {kZeros.data(), kZeros.size()}, at));
    }
    SALIUS_RETURN_IF_ERROR(files.Fdatasync(fd.get()));
    remains.clear();
  }
  const uint64_t end = placed.back().kept.end;
  if (end - header.start > header.capacity || end > header.reach) {
    // The entries overwrite bytes that were cut, or go where nothing was written yet. The header
    // has to say so on disk before.
    FileHeader next = header;
    next.start = start;
    next.reach = std::min(end + stable::ReachStep(header.capacity), start + header.capacity);
    ++next.generation;
    SALIUS_RETURN_IF_ERROR(WriteFileHeader(files, fd.get(), next));
    header = next;
  }
  return WriteEntries(placed);
}

absl::Status StableLog::Impl::AppendEntries(std::vector<Pending> pending) {
  if (failed) {
    return absl::FailedPreconditionError(
        "stable log: an earlier append failed, so what is on disk is not known");
  }
  if (pending.empty()) return absl::OkStatus();
  SALIUS_ASSIGN_OR_RETURN(const std::vector<Pending> placed, Place(std::move(pending)));
  if (absl::Status status = WriteAll(placed); !status.ok()) {
    failed = true;
    return status;
  }
  for (const Pending& entry : placed) entries.push_back(entry.kept);
  tail = placed.back().kept.end;
  return absl::OkStatus();
}

absl::StatusOr<StableLog> StableLog::Create(Files& files, int dirfd, const std::string& name,
                                            const VolumeId& volume, uint64_t capacity) {
  if (capacity < stable::kMinCapacity || capacity > stable::kMaxCapacity ||
      capacity % stable::kCapacityUnit != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "stable log: capacity %d must be a multiple of %d between %d and %d", capacity,
        stable::kCapacityUnit, stable::kMinCapacity, stable::kMaxCapacity));
  }
  SALIUS_ASSIGN_OR_RETURN(BackingFd fd, files.CreateAt(dirfd, name, O_RDWR | O_EXCL, 0600));
  auto impl = std::make_unique<Impl>(files, std::move(fd));
  impl->header.volume = volume;
  impl->header.capacity = capacity;
  impl->header.generation = 2;
  impl->header.reach = stable::ReachStep(capacity);
  impl->header.salt = SecureRandom64();
  absl::Status status = FillNewFile(files, impl->fd.get(), impl->bulk, impl->header);
  if (status.ok()) {
    SALIUS_ASSIGN_OR_RETURN(const BackingFd dir, files.OpenAt(dirfd, ".", O_RDONLY | O_DIRECTORY));
    status = files.Fsync(dir.get());
  }
  if (!status.ok()) {
    // Half a log is of no use; the first error is the one to report.
    files.Unlink(dirfd, name, 0).IgnoreError();
    return status;
  }
  return StableLog(std::move(impl));
}

absl::StatusOr<StableLog> StableLog::Open(Files& files, int dirfd, const std::string& name,
                                          const VolumeId& volume, Contents* contents) {
  absl::StatusOr<StableLog> log = OpenWhole(files, dirfd, name, volume, contents);
  if (!log.ok()) return AtPath(log.status(), PathAt(dirfd, name));
  return log;
}

absl::StatusOr<StableLog> StableLog::OpenWhole(Files& files, int dirfd, const std::string& name,
                                               const VolumeId& volume, Contents* contents) {
  SALIUS_ASSIGN_OR_RETURN(BackingFd fd, files.OpenAt(dirfd, name, O_RDWR | O_NOFOLLOW));
  auto impl = std::make_unique<Impl>(files, std::move(fd));
  // A process that died inside an append may have left entries in the page cache only. Recovery
  // relies on the entries read here. So they go to the disk first, and are read from there: after a
  // failed write the cache holds pages that look clean and are on no disk.
  SALIUS_RETURN_IF_ERROR(files.Fdatasync(impl->fd.get()));
  files.DropCache(impl->fd.get());
  SALIUS_ASSIGN_OR_RETURN(impl->header, stable::ReadFileHeader(files, impl->fd.get()));
  if (impl->header.volume != volume) {
    return absl::DataLossError(absl::StrFormat("%s belongs to volume %s, not %s", name,
                                               impl->header.volume.ToString(), volume.ToString()));
  }
  if (contents != nullptr) *contents = Contents();
  SALIUS_ASSIGN_OR_RETURN(stable::ReadResult read,
                          stable::ReadEntries(files, impl->fd.get(), impl->header, contents));
  impl->start = impl->header.start;
  impl->tail = read.tail;
  impl->entries = std::move(read.entries);
  impl->remains = std::move(read.remains);
  return StableLog(std::move(impl));
}

absl::Status StableLog::Append(absl::Span<const Item> items) {
  std::vector<Pending> entries;
  entries.reserve(items.size());
  for (const Item& item : items) {
    SALIUS_ASSIGN_OR_RETURN(const RecordHeader record, DecodeRecordHeader(item.head));
    if (record.total_bytes() != item.head.size() + item.body.size()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("stable log: record of %d bytes given as %d and %d", record.total_bytes(),
                          item.head.size(), item.body.size()));
    }
    if (record.volume != impl_->header.volume) {
      return absl::InvalidArgumentError("stable log: record of volume " + record.volume.ToString());
    }
    Pending pending;
    pending.header.kind = EntryKind::kRecord;
    pending.header.payload_bytes = static_cast<uint32_t>(record.total_bytes());
    pending.header.payload_check = LoadU32(item.head.data() + kRecordHeaderBytes - 4);
    pending.head = item.head;
    pending.body = item.body;
    pending.kept.epoch = record.epoch;
    pending.kept.seq = record.seq;
    entries.push_back(pending);
  }
  return impl_->AppendEntries(std::move(entries));
}

absl::Status StableLog::AppendDecision(const Decision& decision) {
  const std::string bytes = stable::EncodeDecision(decision);
  Pending pending;
  pending.header.kind = EntryKind::kDecision;
  pending.header.payload_bytes = static_cast<uint32_t>(bytes.size());
  pending.header.payload_check = Crc32c(AsBytes(bytes));
  pending.head = AsBytes(bytes);
  pending.kept.epoch = decision.epoch;
  return impl_->AppendEntries({pending});
}

absl::Status StableLog::Cut(Epoch epoch, Seq checkpoint) {
  if (impl_->failed) {
    return absl::FailedPreconditionError("stable log: an earlier append failed");
  }
  const auto may_go = [&](const KeptEntry& entry) {
    switch (entry.kind) {
      case EntryKind::kRecord:
        return entry.epoch < epoch || (entry.epoch == epoch && entry.seq <= checkpoint);
      case EntryKind::kDecision:
        return entry.epoch < epoch;
      case EntryKind::kPad:
        break;
    }
    return true;
  };
  std::deque<KeptEntry>& entries = impl_->entries;
  while (!entries.empty() && may_go(entries.front())) {
    impl_->start = entries.front().end;
    entries.pop_front();
  }
  return absl::OkStatus();
}

Epoch StableLog::newest_epoch() const {
  Epoch newest = 0;
  for (const KeptEntry& entry : impl_->entries) newest = std::max(newest, entry.epoch);
  return newest;
}

uint64_t StableLog::capacity() const { return impl_->header.capacity; }

uint64_t StableLog::used_bytes() const { return impl_->tail - impl_->start; }

uint64_t StableLog::free_bytes() const {
  if (impl_->failed) return 0;
  const uint64_t free = capacity() - used_bytes();
  const uint64_t to_end = capacity() - impl_->RingOffset(impl_->tail);
  if (free <= to_end) return free;
  // An entry that does not fit before the ring's end leaves less than its own size there.
  const uint64_t lost = std::min(to_end, EntryBytes(kRecordHeaderBytes + kMaxRecordBody));
  return free > lost ? free - lost : 0;
}

uint64_t StableLog::EntryBytes(uint64_t record_bytes) {
  EntryHeader header;
  header.payload_bytes = static_cast<uint32_t>(record_bytes);
  return header.total_bytes();
}

StableLog::StableLog(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StableLog::StableLog(StableLog&&) noexcept = default;
StableLog& StableLog::operator=(StableLog&&) noexcept = default;
StableLog::~StableLog() = default;

}  // namespace salius
