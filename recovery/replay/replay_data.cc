#include "recovery/replay/replay_data.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/bytes.h"
#include "common/check.h"
#include "common/file.h"
#include "recovery/replay/fetch_plan.h"
#include "recovery/replay/refusal.h"
#include "recovery/replay/replay_xattrs.h"
#include "storage/apply.h"
#include "storage/volume_config.h"

namespace salius::recovery {
namespace {

// Size of one write: small enough that a full disk is noticed early.
constexpr size_t kRunBytes = size_t{8} << 20;
constexpr size_t kRunParts = 8192;

std::string Describe(const ObjectPlan& object) {
  std::string text = absl::StrFormat("%s %d", object.directory ? "directory" : "file", object.id);
  if (!object.names.empty()) {
    absl::StrAppend(&text, " (\"", object.names[0].name, "\" in directory ", object.names[0].dir,
                    ")");
  } else if (!object.adopts.empty()) {
    absl::StrAppend(&text, " (once \"", object.adopts[0].path, "\")");
  }
  return text;
}

// R54: a write to a run of bytes, gathered from records that follow each other in seq and offset.
class WriteRun {
 public:
  WriteRun(const ReplayContext& context, int fd)
      : context_(context), write_(context.backing->LongWrites(fd)) {}

  // Adds the bytes that the record writes before `end`.
  absl::Status Add(const RecordView& record, uint64_t end) {
    const uint64_t offset = record.header.arg0;
    const std::string_view body = record.body().substr(0, end - std::min(offset, end));
    if (offset > static_cast<uint64_t>(INT64_MAX) - body.size()) {
      return absl::DataLossError(absl::StrFormat("record %d writes at %d", record.seq(), offset));
    }
    if (parts_.size() >= kRunParts || bytes_ >= kRunBytes ||
        (!parts_.empty() && offset != start_ + bytes_)) {
      SALIUS_RETURN_IF_ERROR(Flush());
    }
    if (parts_.empty()) start_ = offset;
    if (body.empty()) return absl::OkStatus();
    parts_.push_back({const_cast<char*>(body.data()), body.size()});
    bytes_ += body.size();
    return absl::OkStatus();
  }

  absl::Status Flush() {
    if (parts_.empty()) return absl::OkStatus();
    SALIUS_RETURN_IF_ERROR(WithSpace(context_, [this] { return write_(parts_, start_); }));
    context_.report->bytes_written += bytes_;
    parts_.clear();
    bytes_ = 0;
    return absl::OkStatus();
  }

 private:
  const ReplayContext& context_;
  const Backing::LongWrite write_;
  std::vector<iovec> parts_;
  uint64_t start_ = 0;
  uint64_t bytes_ = 0;
};

// Has the pages fetched that a file's writes fill in part, a batch or two ahead of the writes. Only
// time depends on it.
class Fetches {
 public:
  // `fd`: the file, open for writing.
  Fetches(Backing& backing, int fd, absl::Span<const RecordView* const> ops)
      : backing_(backing), file_(fd), ops_(ops) {}

  // Is called before operation `next`, with no smaller one later.
  void Before(size_t next) {
    while (begun_ < ops_.size() && next >= before_) {
      const FetchBatch batch = NextFetch(ops_, begun_, kBatchPages);
      // A page alone is fetched as soon by its write.
      const bool together = batch.pages.size() > 1 || before_ > 0 ||
                            (batch.pages.size() == 1 && batch.pages[0].length > Backing::kPageBytes);
      if (together) Begin(batch);
      before_ = std::exchange(begun_, batch.end);
    }
  }

 private:
  // Two batches are 32 MiB of memory.
  static constexpr size_t kBatchPages = 4096;

  void Begin(const FetchBatch& batch) {
    if (!own_.ok()) {
      if (tried_) return;
      tried_ = true;
      own_ = backing_.Reopen(file_, O_RDONLY | O_NOATIME);
      if (!own_.ok()) return;  // the writes fetch the pages
    }
    for (const PageRange& range : batch.pages) {
      backing_.BeginFetch(own_->get(), range.offset, range.length);
    }
  }

  Backing& backing_;
  const int file_;
  const absl::Span<const RecordView* const> ops_;
  absl::StatusOr<BackingFd> own_ = absl::UnavailableError("not opened");
  bool tried_ = false;
  size_t before_ = 0, begun_ = 0;  // ends of the last two batches that were begun
};

// R58: sets owner and mode of a created object. Its name may have reached the disk without them.
// Correct attributes are not touched.
absl::Status ApplyCreated(Backing& backing, int fd, const CreateBody& create) {
  SALIUS_ASSIGN_OR_RETURN(const struct stat st, backing.StatAt(fd, ""));
  const bool owned = st.st_uid == create.uid && st.st_gid == create.gid;
  if (!owned) SALIUS_RETURN_IF_ERROR(backing.Chown(fd, create.uid, create.gid));
  const mode_t mode = create.mode & 07777;
  if (S_ISLNK(create.mode) || (owned && (st.st_mode & 07777) == mode)) return absl::OkStatus();
  return backing.Chmod(fd, mode);
}

absl::Status SetMtime(Backing& backing, int fd, uint64_t timestamp_ns) {
  constexpr uint64_t kSecond = 1'000'000'000;
  timespec times[2];
  times[0].tv_sec = 0;
  times[0].tv_nsec = UTIME_OMIT;
  times[1].tv_sec = static_cast<time_t>(timestamp_ns / kSecond);
  times[1].tv_nsec = static_cast<long>(timestamp_ns % kSecond);
  return backing.SetTimes(fd, times);
}

// Decides about a record of the object that failed: stop (R61), make room (R63), or leave it out
// (R60).
ReplayResult Judge(Backing& backing, const absl::Status& error, const ObjectPlan& object, Seq seq,
                   Op op, int fd) {
  const absl::Status explained = Explain(
      backing, error, absl::StrFormat("%s: record %d (%s)", Describe(object), seq, OpName(op)), fd);
  bool may_be = false;
  if (IsDataOp(op)) {
    // A data record may only be refused if it is an allocation that the file system does not know.
    may_be = op == Op::kFallocate && absl::IsUnimplemented(error);
  } else {
    may_be = RefusedForGood(backing, error, fd,
                            op == Op::kSetXattr ? Change::kXattr : Change::kAttribute);
  }
  return may_be && seq != 0 && seq == object.last_seq ? ReplayResult::LeaveOut(explained, seq)
                                                      : explained;
}

absl::Status RunAttr(Backing& backing, const ObjectPlan& object, const RecordView& record, int fd) {
  if (record.header.op != Op::kSetAttr) return absl::OkStatus();  // SetXattrs does it
  if (record.seq() > object.on_disk_upto)
    return ApplyAttr(backing, fd, record.header, record.body());
  // An fsync put it on the disk, with newer times where data went past the log. A change of owner
  // would also remove the capability that was set later.
  if (!object.create.has_value()) return absl::OkStatus();
  // ApplyCreated has just restored the attributes of the creation.
  SALIUS_ASSIGN_OR_RETURN(AttrBody attr, AttrBody::Decode(record.body()));
  attr.mask &= ~(kAttrAtime | kAttrMtime);
  return ApplyAttr(backing, fd, record.header, attr.Encode());
}

// R64: the smallest size to which a later truncate cuts the file. Bytes that an operation writes or
// allocates beyond it are not there at T, and may have no room beside the bytes that are.
struct Ends {
  uint64_t data = UINT64_MAX;
  // For an allocation that keeps the size: a truncate that makes the file longer leaves the blocks
  // behind its end.
  uint64_t reserved = UINT64_MAX;
};

// Returns the ends for each of the object's operations.
std::vector<Ends> EndsAfter(const ObjectPlan& object) {
  std::vector<Ends> ends(object.ops.size());
  std::vector<bool> takes_all(ends.size());  // whether a truncate frees all blocks behind it
  uint64_t size = 0;                         // least size of the file
  for (size_t i = 0; i < ends.size(); ++i) {
    const RecordHeader& header = object.ops[i]->header;
    if (header.op == Op::kWrite) size = std::max(size, header.arg0 + header.body_bytes);
    if (header.op == Op::kFallocate && (header.arg2 & FALLOC_FL_KEEP_SIZE) == 0) {
      size = std::max(size, header.arg0 + header.arg1);
    }
    if (header.op == Op::kTruncate) {
      takes_all[i] = header.arg0 <= size;
      size = header.arg0;
    }
  }
  Ends end;
  for (size_t i = ends.size(); i-- > 0;) {
    ends[i] = end;
    const RecordHeader& header = object.ops[i]->header;
    if (header.op != Op::kTruncate) continue;
    end.data = std::min(end.data, header.arg0);
    if (takes_all[i]) end.reserved = std::min(end.reserved, header.arg0);
  }
  return ends;
}

uint64_t EndOf(const RecordView& record, const Ends& ends) {
  const bool reserves =
      record.header.op == Op::kFallocate && (record.header.arg2 & FALLOC_FL_KEEP_SIZE) != 0;
  return reserves ? ends.reserved : ends.data;
}

// Whether such an end lies within the bytes that the record writes or allocates.
bool IsCutOff(const RecordView& record, const Ends& ends) {
  const RecordHeader& header = record.header;
  const uint64_t end = EndOf(record, ends);
  if (header.op == Op::kWrite) return header.arg0 + header.body_bytes > end;
  return header.op == Op::kFallocate && (header.arg2 & FALLOC_FL_PUNCH_HOLE) == 0 &&
         header.arg0 + header.arg1 > end;
}

// Makes the part of an allocation that lies before its end.
absl::Status RunAllocation(Backing& backing, const RecordView& record, const Ends& ends, int fd) {
  RecordHeader header = record.header;
  if (IsCutOff(record, ends)) {
    const uint64_t end = EndOf(record, ends);
    if (header.arg0 >= end) return absl::OkStatus();
    header.arg1 = end - header.arg0;
  }
  return ApplyData(backing, fd, header, record.body());
}

// Runs a truncate. `cut`: an earlier part was left out, so that the file may be too short to lose
// here the blocks that were allocated behind its end. A second truncate to the present size frees
// them. From then on the file is as long as it was in the session.
absl::Status RunTruncate(Backing& backing, const RecordView& record, bool cut, int fd) {
  SALIUS_RETURN_IF_ERROR(ApplyData(backing, fd, record.header, record.body()));
  return cut ? ApplyData(backing, fd, record.header, record.body()) : absl::OkStatus();
}

ReplayResult RunOps(const ReplayContext& context, const ObjectPlan& object, int fd) {
  Backing& backing = *context.backing;
  WriteRun run(context, fd);
  const std::vector<Ends> ends = EndsAfter(object);
  Fetches fetches(backing, fd, object.ops);
  bool cut = false;
  for (size_t i = 0; i < ends.size(); ++i) {
    const RecordView* record = object.ops[i];
    fetches.Before(i);
    cut = cut || IsCutOff(*record, ends[i]);
    absl::Status written =
        record->header.op == Op::kWrite ? run.Add(*record, ends[i].data) : run.Flush();
    if (!written.ok()) return Explain(backing, written, Describe(object), fd);
    if (record->header.op == Op::kWrite) continue;
    const absl::Status applied = WithSpace(context, [&] {
      switch (record->header.op) {
        case Op::kTruncate:
          return RunTruncate(backing, *record, cut, fd);
        case Op::kFallocate:
          return RunAllocation(backing, *record, ends[i], fd);
        default:
          return RunAttr(backing, object, *record, fd);
      }
    });
    if (!applied.ok()) return Judge(backing, applied, object, record->seq(), record->header.op, fd);
    if (record->header.op == Op::kTruncate) cut = false;
  }
  return Explain(backing, run.Flush(), Describe(object), fd);
}

ReplayResult ReplayObject(const ReplayContext& context, const ObjectPlan& object,
                          const Objects& objects) {
  Backing& backing = *context.backing;
  bool has_data = false;
  for (const RecordView* record : object.ops) {
    has_data = has_data || IsDataOp(record->header.op);
  }
  if (has_data && objects.TypeOf(object.id) != S_IFREG) {
    return absl::DataLossError(
        absl::StrFormat("%s has data records but is not a regular file", Describe(object)));
  }
  SALIUS_ASSIGN_OR_RETURN(const BackingFd fd, objects.Open(object.id, O_PATH));
  BackingFd data_fd;
  if (has_data) {
    absl::StatusOr<BackingFd> opened = objects.Open(object.id, O_RDWR | O_NONBLOCK);
    if (!opened.ok()) return Explain(backing, opened.status(), Describe(object), fd.get());
    data_fd = *std::move(opened);
  }
  absl::Status status = WithSpace(context, [&] { return RemoveXattrs(backing, object, fd.get()); });
  if (status.ok() && object.create.has_value()) {
    status = WithSpace(context, [&] { return ApplyCreated(backing, fd.get(), *object.create); });
  }
  if (!status.ok()) return Explain(backing, status, Describe(object), fd.get());
  SALIUS_RETURN_UNLESS_DONE(RunOps(context, object, has_data ? data_fd.get() : fd.get()));
  Seq refused = 0;
  status = SetXattrs(context, object, fd.get(), &refused);
  if (!status.ok()) return Judge(backing, status, object, refused, Op::kSetXattr, fd.get());
  if (object.mtime_ns != 0) {  // R57
    status = WithSpace(context, [&] { return SetMtime(backing, fd.get(), object.mtime_ns); });
    if (!status.ok()) return Explain(backing, status, Describe(object), fd.get());
  }
  if (!object.ops.empty()) ++context.report->files_changed;
  return context.step(RecoveryStep::kReplayData);
}

// Explains why `object`, needed and not there, is lost; "" when it can be rebuilt or may be gone.
std::string WhyLost(const ObjectPlan& object) {
  if (object.fate == Fate::kMaybeUnbound) return "";                                // R67
  if (!object.create.has_value()) return Describe(object) + " is not on the disk";  // R70
  if (object.on_disk) {                                                             // R69
    return Describe(object) + " is not on the disk, and part of its data never was in the log";
  }
  return "";
}

}  // namespace

bool LosesItsEnd(const ObjectPlan& object) {
  const std::vector<Ends> ends = EndsAfter(object);
  for (size_t i = 0; i < ends.size(); ++i) {
    if (IsCutOff(*object.ops[i], ends[i])) return true;
  }
  return false;
}

absl::Status CheckMissing(const ReplayContext& context, const ReplayPlan& plan,
                          const Objects& objects) {
  std::vector<std::string> lost;
  for (const auto& [id, object] : plan.objects) {
    if (!object.needed || objects.Has(id)) continue;
    std::string why = WhyLost(object);
    if (!why.empty()) lost.push_back(std::move(why));
  }
  if (!lost.empty() && !context.force) {  // R70
    constexpr size_t kShown = 10;
    const size_t count = lost.size();
    if (count > kShown) lost.resize(kShown);
    return absl::DataLossError(absl::StrFormat("%d objects cannot be recovered: %s%s", count,
                                               absl::StrJoin(lost, "; "),
                                               count > kShown ? "; ..." : ""));
  }
  for (std::string& why : lost) context.report->missing.push_back(std::move(why));
  return absl::OkStatus();
}

ReplayResult RebuildMissing(const ReplayContext& context, const ReplayPlan& plan,
                            Objects* objects) {
  Backing& backing = *context.backing;
  std::vector<const ObjectPlan*> rebuild;
  for (const auto& [id, object] : plan.objects) {
    // R68
    if (object.needed && !objects->Has(id) && object.create.has_value() &&
        WhyLost(object).empty()) {
      rebuild.push_back(&object);
    }
  }
  if (rebuild.empty()) return absl::OkStatus();
  SALIUS_ASSIGN_OR_RETURN(const BackingFd tmp,
                          OpenSaliusDir(backing, context.salius_fd, kTmpDirName));
  for (const ObjectPlan* object : rebuild) {
    const absl::Status made = WithSpace(context, [&]() -> absl::Status {
      SALIUS_ASSIGN_OR_RETURN(const BackingFd fd, MakeObject(backing, tmp.get(), IdName(object->id),
                                                             object->id, *object->create));
      return objects->Put(object->id, fd.get());
    });
    if (!made.ok()) {
      const absl::Status explained = Explain(backing, made, Describe(*object), -1);
      return RefusedForGood(backing, made, tmp.get(), Change::kObject) &&
                     plan.MayLeaveOutCreate(*object)
                 ? ReplayResult::LeaveOut(explained, object->create_seq)
                 : explained;
    }
    ++context.report->objects_rebuilt;
    SALIUS_RETURN_IF_ERROR(context.step(RecoveryStep::kReplayRebuilt));
  }
  return absl::OkStatus();
}

ReplayResult ReplayData(const ReplayContext& context, const ReplayPlan& plan,
                        const Objects& objects) {
  uint64_t reported = 0;
  for (const auto& [id, object] : plan.objects) {
    context.report->records_skipped += object.skipped;
    if (!object.needed || !objects.Has(id)) {
      context.report->records_skipped += object.ops.size();
      continue;
    }
    if (object.ops.empty() && !object.create.has_value()) continue;
    SALIUS_RETURN_UNLESS_DONE(ReplayObject(context, object, objects));
    if (context.report->bytes_written - reported >= (uint64_t{16} << 20)) {
      reported = context.report->bytes_written;
      context.progress({"replay", reported, plan.data_bytes, "bytes"});
    }
  }
  return absl::OkStatus();
}

}  // namespace salius::recovery
