#include "client/volume/lane_sink.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/clock.h"
#include "log/record.h"
#include "storage/apply.h"

namespace salius {
namespace {

// Returns the files that a record touches.
std::vector<FileId> FilesOf(const Record& record) {
  const RecordHeader& header = record.header();
  std::vector<FileId> files = {header.file_id};
  if (header.op == Op::kCreate) {
    const absl::StatusOr<CreateBody> create = CreateBody::Decode(record.body());
    SALIUS_CHECK_OK(create) << "our own record";
    files.push_back(create->dir);
  } else if (header.op == Op::kLink || header.op == Op::kUnlink) {
    const absl::StatusOr<NameBody> name = NameBody::Decode(record.body());
    SALIUS_CHECK_OK(name) << "our own record";
    files.push_back(name->dir);
  } else if (header.op == Op::kRename) {
    const absl::StatusOr<RenameBody> rename = RenameBody::Decode(record.body());
    SALIUS_CHECK_OK(rename) << "our own record";
    files.insert(files.end(), {rename->from_dir, rename->to_dir, rename->other, rename->whiteout});
  }
  std::erase(files, kNoFileId);
  return files;
}

uint64_t EndOf(const Record& write) { return write.header().arg0 + write.header().body_bytes; }

// Returns how many of the first writes, which follow one another in a file, are a piece of their own:
// those up to the end of the page inside which they begin, or all that end with whole pages, or all.
size_t FirstPiece(absl::Span<const RecordRef> writes) {
  const auto ends_page = [](const RecordRef& write) { return EndOf(*write) % Lanes::kPageBytes == 0; };
  if (writes[0]->header().arg0 % Lanes::kPageBytes != 0) {
    const auto end = std::find_if(writes.begin(), writes.end(), ends_page);
    if (end != writes.end()) return static_cast<size_t>(end - writes.begin()) + 1;
  } else {
    const auto end = std::find_if(writes.rbegin(), writes.rend(), ends_page);
    if (end != writes.rend()) return static_cast<size_t>(writes.rend() - end);
  }
  return writes.size();
}

// Returns the file from which a name record takes a name.
FileId LosesAName(const Record& record) {
  const RecordHeader& header = record.header();
  if (header.op == Op::kUnlink) return header.file_id;
  if (header.op != Op::kRename) return kNoFileId;
  const absl::StatusOr<RenameBody> rename = RenameBody::Decode(record.body());
  SALIUS_CHECK_OK(rename) << "our own record";
  return rename->other;
}

}  // namespace

LaneSink::LaneSink(Backing& backing, NodeTable& table, NodeFds& fds, BackingApplier& applier,
                   FetchPolicy& policy, LaneWorkers& workers, const PatchMemory& memory,
                   int64_t most_wait_ns)
    : backing_(backing),
      table_(table),
      fds_(fds),
      applier_(applier),
      policy_(policy),
      workers_(workers),
      memory_(memory),
      most_wait_ns_(most_wait_ns) {}

bool LaneSink::IsBehind(const RecordStream& stream) const {
  const int64_t behind = behind_ns_.load(std::memory_order_relaxed);
  // Tasks that are done soon make no record too old.
  return behind > most_wait_ns_ / 16 &&
         behind + stream.oldest_uncheckpointed_ns() > most_wait_ns_;
}

absl::Status LaneSink::BeforeWrite(const RecordStream& stream, int fd, uint64_t offset,
                                   uint64_t length) {
  if (!IsBehind(stream)) return policy_.BeforeWrite(fd, offset, length);
  SALIUS_ASSIGN_OR_RETURN(const std::vector<uint64_t> missing,
                          MissingPages(backing_, fd, offset, length));
  if (missing.empty()) return absl::OkStatus();
  return Timed([&] { return FetchPages(backing_, fd, missing); });
}

absl::Status LaneSink::Timed(absl::FunctionRef<absl::Status()> work) {
  // New times count for 1 in 64: about twice as many are under way at once.
  constexpr int64_t kWeight = 64;
  const int64_t begun = SystemClock().MonotonicNanos();
  const int before = at_disk_.fetch_add(1) + 1;
  const absl::Status status = work();
  const int beside = std::max(before, at_disk_.fetch_sub(1));
  const int64_t each = (SystemClock().MonotonicNanos() - begun) / beside;
  absl::MutexLock lock(&mu_);
  task_ns_ += (each - task_ns_) / kWeight;
  NoteBusy();
  return status;
}

absl::StatusOr<size_t> LaneSink::Apply(absl::Span<const RecordRef> records) {
  if (records[0]->header().op == Op::kWrite) {
    return ApplyWrites(records.first(BackingApplier::Together(records)));
  }
  if (busy_.load(std::memory_order_acquire)) {
    SALIUS_ASSIGN_OR_RETURN(const bool taken, TakeOther(records[0]));
    if (taken) return 1;
  }
  return applier_.Apply(records.first(1));
}

absl::StatusOr<LaneSink::Obstacles> LaneSink::ObstaclesOf(absl::Span<const RecordRef> writes) {
  const RecordHeader& first = writes[0]->header();
  const uint64_t length = EndOf(*writes.back()) - first.arg0;
  Obstacles found;
  if (busy_.load(std::memory_order_acquire)) {
    absl::MutexLock lock(&mu_);
    found.depends = lanes_.Touches(first.file_id, first.arg0, length);
  }
  if (!IsPartialWrite(first.arg0, length)) return found;
  const PinnedNode node = table_.Find(first.file_id);
  if (!node) return found;  // applying says what is wrong
  // Behind the file's end there is no page to fetch. Most files that are written were just made, and
  // are closed already: a look at the size needs no descriptor.
  SALIUS_ASSIGN_OR_RETURN(const struct stat st, backing_.Stat(node->path_fd.get()));
  if (first.arg0 / Lanes::kPageBytes * Lanes::kPageBytes >= static_cast<uint64_t>(st.st_size)) {
    return found;
  }
  SALIUS_ASSIGN_OR_RETURN(const SharedFd fd, fds_.ForApply(*node));
  SALIUS_ASSIGN_OR_RETURN(const std::vector<uint64_t> missing,
                          MissingPages(backing_, fd->get(), first.arg0, length));
  found.misses = !missing.empty();
  return found;
}

absl::StatusOr<size_t> LaneSink::ApplyWrites(absl::Span<const RecordRef> writes) {
  SALIUS_ASSIGN_OR_RETURN(Obstacles found, ObstaclesOf(writes));
  if (found.any()) {
    // Only the pages at the ends can be missing. Those between them need not wait for them.
    const size_t piece = FirstPiece(writes);
    if (piece < writes.size()) {
      writes = writes.first(piece);
      SALIUS_ASSIGN_OR_RETURN(found, ObstaclesOf(writes));
    }
  }
  if (!found.any()) return applier_.Apply(writes);
  TakeWrites(writes, found.misses && policy_.PutsOff());
  return writes.size();
}

void LaneSink::TakeWrites(absl::Span<const RecordRef> writes, bool put_off) {
  Lanes::Ready ready;
  {
    absl::MutexLock lock(&mu_);
    lanes_.AddWrites(writes, put_off, ready);
    lanes_.Shrink(memory_.awaited() ? 0 : memory_.limit() / 2, ready);
    NoteBusy();
  }
  Run(ready);
}

absl::StatusOr<bool> LaneSink::TakeOther(const RecordRef& record) {
  const Op op = record->header().op;
  if (op == Op::kCancel) return false;  // it changes no file
  const std::vector<FileId> files = FilesOf(*record);
  const bool name = IsNameOp(op);
  {
    absl::MutexLock lock(&mu_);
    bool depends = name && lanes_.has_names();
    for (const FileId file : files) depends |= lanes_.Has(file);
    if (!depends) return false;
  }
  const FileId removed = GiveUp(*record);
  Lanes::Ready ready;
  {
    absl::MutexLock lock(&mu_);
    lanes_.AddBarrier(record, files, name, removed, ready);
    NoteBusy();
  }
  Run(ready);
  return true;
}

FileId LaneSink::GiveUp(const Record& record) {
  // A removal that a caller waits for may be refused.
  const FileId file = record.result() == nullptr ? LosesAName(record) : kNoFileId;
  if (file == kNoFileId) return kNoFileId;
  {
    absl::MutexLock lock(&mu_);
    if (!lanes_.Has(file)) return kNoFileId;
  }
  const PinnedNode node = table_.Find(file);
  if (!node || !node->is_regular()) return kNoFileId;
  absl::MutexLock lock(&node->state);
  if (node->seen_records().removal_seq != record.seq() || node->handles > 0) return kNoFileId;
  node->given_up = true;
  return file;
}

void LaneSink::Run(const Lanes::Ready& ready) {
  for (Lanes::Task* const task : ready) {
    const uint64_t page = task->barrier ? 0 : Lanes::FirstPage(*task);
    workers_.Run({task->files[0], page * Lanes::kPageBytes}, [this, task] { RunTask(*task); });
  }
}

absl::Status LaneSink::ApplyTask(Lanes::Task& task) {
  // A task that has begun changes no more.
  if (task.barrier) {
    const auto records = absl::MakeConstSpan(task.records);
    SALIUS_RETURN_IF_ERROR(
        applier_.NoteCutOff(records.first(records.size() - 1), records.back()->header()));
    return applier_.Apply(records.last(1)).status();
  }
  const PinnedNode node = table_.Find(task.files[0]);
  if (node) {
    const std::vector<uint64_t> pages = Lanes::PartialPages(task);
    std::vector<uint64_t> offsets;
    for (const uint64_t page : pages) offsets.push_back(page * Lanes::kPageBytes);
    SALIUS_RETURN_IF_ERROR(FetchPages(backing_, node->path_fd.get(), offsets));
    fetched_.fetch_add(offsets.size(), std::memory_order_relaxed);
  }
  return applier_.ApplyMerged(task.records, task.extents);
}

void LaneSink::RunTask(Lanes::Task& task) {
  const absl::Status applied = Timed([&] { return ApplyTask(task); });
  Lanes::Ready ready;
  {
    absl::MutexLock lock(&mu_);
    if (applied.ok()) {
      lanes_.Finish(task, ready);
    } else if (error_.ok()) {
      error_ = NotApplied(*task.records.back(), applied);
    }
    NoteBusy();
  }
  changed_();
  Run(ready);
}

Seq LaneSink::FirstUnapplied() {
  if (!busy_.load(std::memory_order_acquire)) return 0;
  absl::MutexLock lock(&mu_);
  return lanes_.first_unapplied();
}

absl::Status LaneSink::LateError() {
  absl::MutexLock lock(&mu_);
  return error_;
}

void LaneSink::Hurry(Seq seq) {
  Lanes::Ready ready;
  {
    absl::MutexLock lock(&mu_);
    lanes_.Hurry(seq, ready);
  }
  Run(ready);
}

void LaneSink::NoteRead(const Node& node, uint64_t offset, uint64_t length) {
  if (!busy_.load(std::memory_order_acquire)) return;
  Lanes::Ready ready;
  {
    absl::MutexLock lock(&mu_);
    lanes_.HurryRange(node.id.load(), offset, length, ready);
  }
  Run(ready);
}

LaneSink::Figures LaneSink::figures() {
  absl::MutexLock lock(&mu_);
  return {lanes_.put_off_bytes(), lanes_.elided_pages(), fetched_.load()};
}

}  // namespace salius
