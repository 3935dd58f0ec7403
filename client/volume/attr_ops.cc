#include "client/volume/attr_ops.h"

#include <errno.h>
#include <sys/xattr.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "client/volume/changeable.h"
#include "common/check.h"
#include "common/file.h"
#include "common/limits.h"
#include "storage/apply.h"
#include "storage/posix_acl.h"

namespace salius {
namespace {

bool IsAcl(const std::string& name) { return name == kAccessAclXattr || name == kDefaultAclXattr; }

bool IsNanos(long nanos) { return nanos >= 0 && nanos < 1'000'000'000; }

// Room that an ext4 file system with the smallest blocks has, with a margin: the attributes and
// their names share one block.
constexpr size_t kFittingXattrBytes = 512;
constexpr size_t kXattrEntryBytes = 32;

// Returns whether the kernel has checked a value of this attribute as the disk's file system would.
bool IsCheckedXattr(std::string_view name) {
  return IsAcl(std::string(name)) || name == kCapabilityXattr || name.starts_with("user.") ||
         name.starts_with("trusted.");
}

// Returns the body of an attribute record. `now` replaces "the current time", because the log holds
// an operation's result, not its inputs.
AttrBody BodyFor(uint32_t mask, const struct stat& want, const timespec& now) {
  AttrBody body;
  if ((mask & kSetMode) != 0) body.mask |= kAttrMode;
  if ((mask & kSetUid) != 0) body.mask |= kAttrUid;
  if ((mask & kSetGid) != 0) body.mask |= kAttrGid;
  if ((mask & (kSetAtime | kSetAtimeNow)) != 0) body.mask |= kAttrAtime;
  if ((mask & (kSetMtime | kSetMtimeNow)) != 0) body.mask |= kAttrMtime;
  const timespec& atime = (mask & kSetAtimeNow) != 0 ? now : want.st_atim;
  const timespec& mtime = (mask & kSetMtimeNow) != 0 ? now : want.st_mtim;
  if ((body.mask & kAttrMode) != 0) body.mode = want.st_mode & 07777;
  if ((body.mask & kAttrUid) != 0) body.uid = want.st_uid;
  if ((body.mask & kAttrGid) != 0) body.gid = want.st_gid;
  if ((body.mask & kAttrAtime) != 0) {
    body.atime_sec = atime.tv_sec;
    body.atime_nsec = static_cast<uint32_t>(atime.tv_nsec);
  }
  if ((body.mask & kAttrMtime) != 0) {
    body.mtime_sec = mtime.tv_sec;
    body.mtime_nsec = static_cast<uint32_t>(mtime.tv_nsec);
  }
  return body;
}

// Returns whether every file system keeps the times as they are given. Some have 32 bits for them.
bool KeepsTimes(const AttrBody& body) {
  const auto fits = [](int64_t seconds) { return seconds >= 0 && seconds <= INT32_MAX; };
  return ((body.mask & kAttrAtime) == 0 || fits(body.atime_sec)) &&
         ((body.mask & kAttrMtime) == 0 || fits(body.mtime_sec));
}

}  // namespace

template <typename Stat>
absl::StatusOr<struct stat> AttrOps::Attributes(Node& node, const absl::Status& current,
                                                bool* provisional, const Stat& stat) {
  const bool slow = absl::IsDeadlineExceeded(current);
  while (true) {
    const uint64_t applies = Predictions::AppliesOf(node);
    SALIUS_ASSIGN_OR_RETURN(struct stat st, stat());
    if (current.ok()) return st;
    if (provisional != nullptr) *provisional = slow;
    absl::MutexLock lock(&node.state);
    const NodeChanges::Records& records = node.seen_records();
    if (records.unapplied_data == 0) {
      // The disk may have been asked before the last of the data was applied. The kernel would keep
      // the size, and put the next append there.
      if (records.applies != applies) continue;
      return st;
    }
    st.st_size = static_cast<off_t>(records.size);
    if (!slow || records.extents.empty()) return st;
    const timespec written = RecordTime(records.data_time_ns);
    if (std::pair(written.tv_sec, written.tv_nsec) >
        std::pair(st.st_mtim.tv_sec, st.st_mtim.tv_nsec)) {
      st.st_mtim = st.st_ctim = written;
    }
    return st;
  }
}

template <typename Stat>
absl::StatusOr<std::optional<struct stat>> AttrOps::Predicted(Node& node, bool* provisional,
                                                               const Stat& stat) {
  while (predictions_.on()) {
    SALIUS_ASSIGN_OR_RETURN(const std::optional<struct stat> shown,
                            predictions_.Attributes(node, provisional));
    if (shown.has_value()) return shown;
    if (!Issuer::IsApplied(node)) break;  // it is awaited
    const uint64_t applies = Predictions::AppliesOf(node);
    SALIUS_ASSIGN_OR_RETURN(struct stat st, stat());
    if (Predictions::Merge(node, applies, st)) return st;
  }
  return std::nullopt;
}

absl::StatusOr<struct stat> AttrOps::GetAttr(Node& node, bool* provisional) {
  const auto stat = [&] { return links_.StatOf(node); };
  SALIUS_ASSIGN_OR_RETURN(const std::optional<struct stat> predicted,
                          Predicted(node, provisional, stat));
  if (predicted.has_value()) return *predicted;
  return Attributes(node, issuer_.AwaitNodeBriefly(node), provisional, stat);
}

absl::StatusOr<struct stat> AttrOps::GetAttrAt(Node& node, const Node& dir, const std::string& name,
                                               bool may_wait, bool* provisional) {
  bool checked = false;  // the name leads to the node
  const auto stat = [&]() -> absl::StatusOr<struct stat> {
    SALIUS_ASSIGN_OR_RETURN(const struct stat st, backing_.StatAt(dir.path_fd.get(), name));
    // The caller's pin keeps the node's inode number from being used again.
    if (st.st_ino != node.ino || st.st_dev != node.dev()) return ErrnoStatus(ESTALE, name);
    checked = true;
    {
      absl::MutexLock lock(&node.state);
      if (!node.hidden_link) return st;
    }
    return links_.StatOf(node);
  };
  SALIUS_ASSIGN_OR_RETURN(const std::optional<struct stat> predicted,
                          Predicted(node, provisional, stat));
  if (predicted.has_value()) {
    // A prediction says nothing about the name, which may have been removed since it was listed.
    if (!checked) SALIUS_RETURN_IF_ERROR(stat().status());
    return *predicted;
  }
  absl::Status current;
  if (may_wait) {
    current = issuer_.AwaitNodeBriefly(node);
  } else if (!Issuer::IsApplied(node)) {
    current = absl::DeadlineExceededError("records that are not applied");
  }
  return Attributes(node, current, provisional, stat);
}

absl::StatusOr<struct stat> AttrOps::FactsOf(Node& node) {
  SALIUS_ASSIGN_OR_RETURN(const std::optional<struct stat> shown, predictions_.Attributes(node));
  return shown.has_value() ? *shown : backing_.Stat(node.path_fd.get());
}

absl::StatusOr<std::optional<timespec>> AttrOps::BirthTime(Node& node) {
  return backing_.BirthTimeOf(node.path_fd.get());
}

absl::StatusOr<bool> AttrOps::ReturnsEarly(Node& node) {
  if (!predictions_.on() || !space_.HasPlenty()) return false;
  if (space_.quota_binds_root()) {
    SALIUS_ASSIGN_OR_RETURN(const struct stat st, FactsOf(node));
    if (!space_.IsFarFromQuota(st.st_uid, st.st_gid)) return false;
  }
  absl::MutexLock lock(&node.state);
  return Predictions::CanBegin(node);
}

absl::Status AttrOps::Change(Node& node, RecordDraft draft, bool early, Predictions::Enter enter) {
  SALIUS_RETURN_IF_ERROR(CheckChangeable(backing_, node));
  bool orphan = false;
  {
    absl::MutexLock lock(&node.state);
    orphan = node.orphan || node.seen_records().removal_seq != 0;
  }
  if (orphan) {
    SALIUS_RETURN_IF_ERROR(issuer_.AwaitRemoval(node));
    SALIUS_RETURN_IF_ERROR(issuer_.AwaitNode(node));
    RecordHeader header;
    header.op = draft.op;
    return ApplyAttr(backing_, node.path_fd.get(), header, draft.body);
  }
  SALIUS_RETURN_IF_ERROR(issuer_.EnsureIdLocked(node));
  if (early) return issuer_.IssueEarly(node, std::move(draft), enter).status();
  draft.result = std::make_shared<ApplyResult>();
  SALIUS_ASSIGN_OR_RETURN(const RecordRef record, issuer_.IssueOn(node, std::move(draft)));
  return issuer_.AwaitResult(record);
}

absl::Status AttrOps::SetAttributes(Node& node, const AttrBody& body) {
  RecordDraft draft;
  draft.op = Op::kSetAttr;
  draft.body = body.Encode();
  SALIUS_ASSIGN_OR_RETURN(bool early, ReturnsEarly(node));
  early = early && KeepsTimes(body);
  std::string acl;
  if (early && (body.mask & kAttrMode) != 0) {
    // Not the disk's alone: a pending one may be applied before this enters the prediction.
    acl = Xattr(node, kAccessAclXattr).value_or("");
  }
  return Change(node, std::move(draft), early,
                [&](Prediction& prediction, Seq seq, const timespec& now) {
                  prediction.SetAttr(seq, body, now, acl);
                });
}

absl::StatusOr<struct stat> AttrOps::SetAttr(Node& node, uint32_t mask, const struct stat& want,
                                             bool* provisional) {
  // The kernel checks the times of its own callers, not those of its NFS server's clients.
  if (((mask & kSetAtime) != 0 && !IsNanos(want.st_atim.tv_nsec)) ||
      ((mask & kSetMtime) != 0 && !IsNanos(want.st_mtim.tv_nsec))) {
    return ErrnoStatus(EINVAL, "nanoseconds of a time");
  }
  if ((mask & kSetSize) != 0) {
    if (want.st_size < 0) return ErrnoStatus(EINVAL, "truncate");
    SALIUS_RETURN_IF_ERROR(files_.Truncate(node, static_cast<uint64_t>(want.st_size)));
  }
  timespec now{};
  if ((mask & (kSetAtimeNow | kSetMtimeNow)) != 0) now = dirs_.Now();
  const AttrBody body = BodyFor(mask, want, now);
  if (body.mask != 0) {
    SALIUS_RETURN_IF_ERROR(health_.Names());
    absl::MutexLock lock(&node.stream);
    SALIUS_RETURN_IF_ERROR(SetAttributes(node, body));
  }
  return GetAttr(node, provisional);
}

absl::Status AttrOps::CheckNewGroup(Node& node, gid_t gid) {
  if (!space_.needs_owner()) return absl::OkStatus();
  SALIUS_RETURN_IF_ERROR(issuer_.AwaitNode(node));
  SALIUS_ASSIGN_OR_RETURN(const struct stat st, backing_.Stat(node.path_fd.get()));
  if (st.st_gid == gid) return absl::OkStatus();
  return space_.CheckGroup(gid, static_cast<uint64_t>(st.st_blocks) * 512);
}

absl::StatusOr<std::string> AttrOps::Xattr(Node& node, const std::string& name) {
  SALIUS_ASSIGN_OR_RETURN(const std::optional<Prediction::Xattr> pending,
                          predictions_.FindXattr(node, name));
  if (!pending.has_value()) return backing_.XattrValue(node.path_fd.get(), name);
  if (!pending->value.has_value()) return ErrnoStatus(ENODATA, name);
  return *pending->value;
}

absl::StatusOr<std::string> AttrOps::GetXattr(Node& node, const std::string& name) {
  if (name == kFileIdXattr) return ErrnoStatus(ENODATA, name);
  absl::StatusOr<std::string> value = Xattr(node, name);
  // A file system without ACLs. The kernel asks for one before it uses the mode, and accepts only
  // ENODATA as "there is none".
  if (IsAcl(name) && StatusErrno(value.status()) == EOPNOTSUPP) return ErrnoStatus(ENODATA, name);
  return value;
}

absl::StatusOr<std::vector<std::string>> AttrOps::ListXattr(Node& node) {
  SALIUS_ASSIGN_OR_RETURN(std::vector<std::string> names, predictions_.XattrNames(node));
  names.erase(std::remove(names.begin(), names.end(), kFileIdXattr), names.end());
  return names;
}

absl::StatusOr<bool> AttrOps::XattrFits(Node& node, const std::string& name,
                                        std::string_view value) {
  if (!IsCheckedXattr(name)) return false;
  size_t bytes = kXattrEntryBytes + name.size() + value.size();
  if (bytes > kFittingXattrBytes) return false;
  SALIUS_ASSIGN_OR_RETURN(const std::vector<std::string> names, predictions_.XattrNames(node));
  for (const std::string& other : names) {
    if (other == name) continue;
    const absl::StatusOr<std::string> there = Xattr(node, other);
    bytes += kXattrEntryBytes + other.size() + (there.ok() ? there->size() : 0);
  }
  return bytes <= kFittingXattrBytes;
}

absl::Status AttrOps::SetXattr(Node& node, const std::string& name, std::string_view value,
                               int flags, bool kill_sgid) {
  if (name.empty() || name.size() > kMaxXattrNameBytes) return ErrnoStatus(ERANGE, "setxattr");
  if (value.size() > kMaxXattrValue) return ErrnoStatus(E2BIG, "setxattr");
  if ((flags & ~(XATTR_CREATE | XATTR_REPLACE)) != 0) return ErrnoStatus(EINVAL, "setxattr");
  if (name == kFileIdXattr) return ErrnoStatus(EPERM, "setxattr");
  SALIUS_RETURN_IF_ERROR(health_.Names());
  absl::MutexLock lock(&node.stream);
  const absl::StatusOr<std::string> there = Xattr(node, name);
  const int old = StatusErrno(there.status());
  if (old != 0 && old != ENODATA) return ErrnoStatus(old, "setxattr");
  if (old == 0 && (flags & XATTR_CREATE) != 0) return ErrnoStatus(EEXIST, "setxattr");
  if (old != 0 && (flags & XATTR_REPLACE) != 0) return ErrnoStatus(ENODATA, "setxattr");
  SALIUS_ASSIGN_OR_RETURN(bool early, ReturnsEarly(node));
  if (early) {
    SALIUS_ASSIGN_OR_RETURN(early, XattrFits(node, name, value));
  }
  if (early) {
    // Whether the ctime changes then depends on the file system.
    SALIUS_ASSIGN_OR_RETURN(const struct stat st, FactsOf(node));
    early =
        Prediction(st).IsChangedBy(name, value, there.ok() ? std::optional(*there) : std::nullopt);
  }
  RecordDraft draft;
  draft.op = Op::kSetXattr;
  draft.body = XattrBody{name, std::string(value)}.Encode();
  SALIUS_RETURN_IF_ERROR(Change(node, std::move(draft), early,
                                [&](Prediction& prediction, Seq seq, const timespec& now) {
                                  prediction.SetXattr(seq, name, value, now);
                                }));
  if (!kill_sgid) return absl::OkStatus();
  // An access ACL changes the mode as well, so the mode is read only now.
  SALIUS_ASSIGN_OR_RETURN(struct stat st, FactsOf(node));
  if ((st.st_mode & S_ISGID) == 0) return absl::OkStatus();
  st.st_mode &= ~static_cast<mode_t>(S_ISGID);
  return SetAttributes(node, BodyFor(kSetMode, st, {}));
}

absl::Status AttrOps::RemoveXattr(Node& node, const std::string& name) {
  if (name == kFileIdXattr) return ErrnoStatus(ENODATA, name);
  SALIUS_RETURN_IF_ERROR(health_.Names());
  absl::MutexLock lock(&node.stream);
  const absl::Status there = Xattr(node, name).status();
  // File systems allow this.
  if (IsAcl(name) && StatusErrno(there) == ENODATA) return absl::OkStatus();
  SALIUS_RETURN_IF_ERROR(there);
  RecordDraft draft;
  draft.op = Op::kRemoveXattr;
  draft.body = XattrBody{name, ""}.Encode();
  SALIUS_ASSIGN_OR_RETURN(bool early, ReturnsEarly(node));
  early = early && IsCheckedXattr(name);
  return Change(node, std::move(draft), early,
                [&](Prediction& prediction, Seq seq, const timespec& now) {
                  prediction.RemoveXattr(seq, name, now);
                });
}

}  // namespace salius
