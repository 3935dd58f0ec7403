#include "client/volume/predictions.h"

#include <errno.h>
#include <fcntl.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "common/check.h"
#include "common/file.h"
#include "storage/apply.h"
#include "storage/posix_acl.h"

namespace salius {
namespace {

// How often a file gets its mtime for the disk to have no ctime before the predicted one. A second
// time is needed only if the kernel's clock for files moved since the first, so rarely.
constexpr int kCtimeTries = 4;

// Returns whether any record of the node is unapplied, or is not entered yet.
bool HasPending(const NodeChanges::Records& records) {
  return records.unapplied > 0 || records.unapplied_names > 0 || records.entering > 0;
}

// Returns the predicted attributes as callers see them.
struct stat WithoutHiddenLink(const Node& node) ABSL_SHARED_LOCKS_REQUIRED(node.state) {
  struct stat st = node.seen_records().prediction->attributes();
  if (node.hidden_link && st.st_nlink > 0) --st.st_nlink;
  return st;
}

}  // namespace

timespec RecordTime(uint64_t timestamp_ns) {
  constexpr uint64_t kSecond = 1'000'000'000;
  return {static_cast<time_t>(timestamp_ns / kSecond), static_cast<long>(timestamp_ns % kSecond)};
}

absl::Status Predictions::Begin(Node& node) {
  while (true) {
    uint64_t applies = 0;
    {
      absl::MutexLock lock(&node.state);
      if (node.seen_records().prediction != nullptr) return absl::OkStatus();
      applies = node.seen_records().applies;
    }
    SALIUS_ASSIGN_OR_RETURN(struct stat st, backing_.Stat(node.path_fd.get()));
    absl::MutexLock lock(&node.state);
    NodeChanges::Records& records = node.records();
    if (records.prediction != nullptr) return absl::OkStatus();
    // The disk may have been asked before an apply whose extents are gone by now. (It does not
    // matter if a record is on the disk already.)
    if (records.applies != applies) continue;
    records.kept_ctime.Merge(st);
    records.prediction = std::make_unique<Prediction>(st);
    // Later data may have been applied while a write waited for its page. Its time is the last one:
    // no attributes are applied before earlier data.
    const timespec written = RecordTime(records.data_time_ns);
    records.extents.ForEachRecord([&](const RecordRef& record) {
      if (record->result() != nullptr) return;  // it may be refused
      records.prediction->Data(record->header(), written);
    });
    return absl::OkStatus();
  }
}

absl::StatusOr<std::optional<struct stat>> Predictions::Attributes(Node& node,
                                                                        bool* unsure) {
  if (unsure != nullptr) *unsure = false;
  if (!on_) return std::nullopt;
  const auto shown = [&]() ABSL_SHARED_LOCKS_REQUIRED(node.state) {
    if (unsure != nullptr) *unsure = node.seen_records().prediction->blocks_unsure();
    return WithoutHiddenLink(node);
  };
  bool begun = false;
  while (true) {
    {
      absl::MutexLock lock(&node.state);
      if (node.seen_records().prediction != nullptr) return shown();
      if (!HasPending(node.seen_records()) || !CanBegin(node) || begun) return std::nullopt;
      ++node.records().entering;
    }
    const absl::Status status = Begin(node);
    Seq applied = 0;
    {
      absl::MutexLock lock(&node.state);
      --node.records().entering;
      applied = node.seen_records().applied_seq;
      if (status.ok()) {
        if (HasPending(node.seen_records())) return shown();
      }
    }
    // All was applied meanwhile.
    SALIUS_RETURN_IF_ERROR(status);
    SALIUS_RETURN_IF_ERROR(Settle(node, applied));
    begun = true;
  }
}

bool Predictions::Merge(Node& node, uint64_t applies, struct stat& attributes) {
  absl::MutexLock lock(&node.state);
  const NodeChanges::Records& records = node.seen_records();
  if (records.prediction != nullptr || records.applies != applies) return false;
  records.kept_ctime.Merge(attributes);
  return true;
}

uint64_t Predictions::AppliesOf(Node& node) {
  absl::MutexLock lock(&node.state);
  return node.seen_records().applies;
}

absl::StatusOr<std::optional<Prediction::Xattr>> Predictions::FindXattr(Node& node,
                                                                        const std::string& name) {
  if (!on_ || !node.was_changed()) return std::nullopt;
  // Data takes the capability.
  if (name == kCapabilityXattr) SALIUS_RETURN_IF_ERROR(Attributes(node).status());
  absl::MutexLock lock(&node.state);
  const NodeChanges::Records& records = node.seen_records();
  if (records.prediction == nullptr) return std::nullopt;
  return records.prediction->FindXattr(name);
}

absl::StatusOr<std::vector<std::string>> Predictions::XattrNames(Node& node) {
  // Pending records are asked before the disk: if they are applied meanwhile, nothing changes.
  std::optional<Prediction> pending;
  if (on_ && node.was_changed()) {
    absl::MutexLock lock(&node.state);
    const NodeChanges::Records& records = node.seen_records();
    if (records.prediction != nullptr) pending = *records.prediction;
  }
  SALIUS_ASSIGN_OR_RETURN(std::vector<std::string> names, backing_.XattrNames(node.path_fd.get()));
  if (pending.has_value()) pending->MergeXattrNames(names);
  return names;
}

absl::Status Predictions::EnterApplied(Node& node, const RecordHeader& header,
                                       std::string_view body) {
  if (!on_) return absl::OkStatus();
  {
    absl::MutexLock lock(&node.state);
    if (node.seen_records().prediction == nullptr) return absl::OkStatus();
  }
  if (IsDataOp(header.op)) {
    absl::MutexLock lock(&node.state);
    if (Prediction* const prediction = node.records().prediction.get()) {
      prediction->Data(header, RecordTime(header));
    }
    return absl::OkStatus();
  }
  // The file system decides whether such a change sets the ctime.
  SALIUS_ASSIGN_OR_RETURN(const struct stat st, backing_.Stat(node.path_fd.get()));
  const auto now = [&](const Prediction& prediction) {
    const timespec& predicted = prediction.attributes().st_ctim;
    return IsBefore(st.st_ctim, predicted) ? predicted : st.st_ctim;
  };
  if (header.op == Op::kSetAttr) {
    SALIUS_ASSIGN_OR_RETURN(const AttrBody attr, AttrBody::Decode(body));
    const absl::StatusOr<std::string> acl =
        backing_.XattrValue(node.path_fd.get(), kAccessAclXattr);
    absl::MutexLock lock(&node.state);
    if (Prediction* const prediction = node.records().prediction.get()) {
      prediction->SetAttr(header.seq, attr, now(*prediction), acl.value_or(""));
    }
    return absl::OkStatus();
  }
  SALIUS_ASSIGN_OR_RETURN(const XattrBody xattr, XattrBody::Decode(body));
  absl::MutexLock lock(&node.state);
  Prediction* const prediction = node.records().prediction.get();
  if (prediction == nullptr) return absl::OkStatus();
  if (header.op == Op::kSetXattr) {
    prediction->SetXattr(header.seq, xattr.name, xattr.value, now(*prediction));
  } else {
    prediction->RemoveXattr(header.seq, xattr.name, now(*prediction));
  }
  return absl::OkStatus();
}

absl::Status Predictions::Settle(Node& node, Seq seq) {
  if (!on_) return absl::OkStatus();
  while (true) {
    struct stat shown {};
    bool gives_mtime = false;
    std::optional<timespec> ctime;
    Seq last = 0;
    {
      absl::MutexLock lock(&node.state);
      if (node.seen_records().prediction == nullptr) return absl::OkStatus();
      NodeChanges::Records& records = node.records();
      records.prediction->NoteApplied(seq);
      // Another thread that is here looks again before it ends the prediction.
      if (HasPending(records) || records.settling) return absl::OkStatus();
      records.settling = true;
      shown = records.prediction->attributes();
      gives_mtime = records.prediction->ImpliedMtime().has_value();
      ctime = records.prediction->ImpliedCtime();
      last = records.prediction->last_seq();
    }
    const absl::StatusOr<KeptCtime> kept = SetTimes(node, shown.st_mtim, ctime, gives_mtime);
    std::unique_ptr<Prediction> ended;  // destroyed without the lock
    absl::MutexLock lock(&node.state);
    NodeChanges::Records& records = node.records();
    records.settling = false;
    SALIUS_RETURN_IF_ERROR(kept.status());
    const bool pending = HasPending(records);
    if (pending || records.prediction->last_seq() != last) {
      if (gives_mtime) records.prediction->NoteMtimeGiven();
      if (pending) return absl::OkStatus();  // a later record goes on with it
      continue;
    }
    if (ctime.has_value()) records.kept_ctime = *kept;
    ++records.applies;
    ended = std::move(records.prediction);
    return absl::OkStatus();
  }
}

absl::StatusOr<KeptCtime> Predictions::SetTimes(Node& node, const timespec& mtime,
                                                std::optional<timespec> ctime, bool& gives_mtime) {
  const auto fd = node.path_fd.get();  // a share: it stays open meanwhile
  if (gives_mtime) SALIUS_RETURN_IF_ERROR(GiveMtime(fd, mtime));
  if (!ctime.has_value()) return KeptCtime();
  SALIUS_ASSIGN_OR_RETURN(struct stat st, backing_.Stat(fd));
  // The kernel's clock for files goes in steps. But Linux 6.13 and later take the exact time for a
  // change after a look at the ctime, if that is of the same step. A step that comes late, on a
  // busy machine, is a new one and may still be before the record.
  for (int i = 0; i < kCtimeTries && IsBefore(st.st_ctim, *ctime); ++i) {
    const timespec before = st.st_ctim;
    gives_mtime = true;
    SALIUS_RETURN_IF_ERROR(GiveMtime(fd, mtime));
    SALIUS_ASSIGN_OR_RETURN(st, backing_.Stat(fd));
    if (!IsBefore(before, st.st_ctim)) break;  // an older kernel gives the same step again
  }
  return KeptCtime{*ctime, st.st_ctim};
}

absl::Status Predictions::GiveMtime(int fd, const timespec& mtime) {
  const timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, mtime};
  const absl::Status given = backing_.SetTimes(fd, times);
  return StatusErrno(given) == EPERM ? absl::OkStatus() : given;
}

absl::Status Predictions::SetDataTime(Node& node, int fd, const RecordHeader& last,
                                      uint64_t records) {
  if (!on_) return absl::OkStatus();
  uint64_t time_ns = last.timestamp_ns;
  {
    absl::MutexLock lock(&node.state);
    const NodeChanges::Records& all = node.seen_records();
    if (all.prediction != nullptr || all.unapplied_data != records) return absl::OkStatus();
    // A later record may have been applied before, or `last` before its issuer noted its time.
    time_ns = std::max(time_ns, all.data_time_ns);
  }
  const timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, RecordTime(time_ns)};
  return backing_.SetTimes(fd, times);
}

}  // namespace salius
