#include "recovery/replay/replay_xattrs.h"

#include <errno.h>
#include <sys/stat.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "common/check.h"
#include "common/file.h"
#include "recovery/replay/refusal.h"
#include "storage/apply.h"
#include "storage/posix_acl.h"

namespace salius::recovery {
namespace {

// Orders to try when not all fit in the order of the records.
constexpr int kOrders = 200;

struct Wanted {
  const std::string* name;
  const std::string* value;
  Seq seq;
  bool removable = false;  // for the last change: the value that it replaces can be restored
};

absl::Status SetOne(const ReplayContext& context, const Wanted& wanted, int fd) {
  Backing& backing = *context.backing;
  const absl::StatusOr<std::string> there = backing.XattrValue(fd, *wanted.name);
  if (there.ok() && *there == *wanted.value) return absl::OkStatus();
  const auto set = [&] { return backing.SetXattr(fd, *wanted.name, *wanted.value); };
  const absl::Status status = set();
  // The ballast is for a full disk only.
  return status.ok() || RefusedForGood(backing, status, fd, Change::kXattr)
             ? status
             : WithSpace(context, set);
}

absl::Status SetAll(const ReplayContext& context, const std::vector<Wanted>& order, int fd,
                    Seq* refused) {
  for (const Wanted& wanted : order) {
    const absl::Status status = SetOne(context, wanted, fd);
    if (status.ok()) continue;
    *refused = wanted.seq;
    return status;
  }
  return absl::OkStatus();
}

// Makes the session's changes one by one, without that of record `without`. Sets no ACL where none
// stays: it would change the permission bits. The last ACL sets those, and a removal does not.
absl::Status RunRecords(Backing& backing, const ObjectPlan& object, Seq without, int fd) {
  const auto skip = [&](const std::string& name, Seq seq, bool set) {
    const auto at_t = object.xattrs.find(name);
    return seq == without || at_t == object.xattrs.end() ||
           (set && name == kAccessAclXattr && !at_t->second.value.has_value());
  };
  if (object.create.has_value()) {
    for (const auto& [name, value] : object.create->xattrs) {
      if (skip(name, object.create_seq, true)) continue;
      SALIUS_RETURN_IF_ERROR(backing.SetXattr(fd, name, value));
    }
  }
  for (const RecordView* record : object.ops) {
    const Op op = record->header.op;
    if (op != Op::kSetXattr && op != Op::kRemoveXattr) continue;
    SALIUS_ASSIGN_OR_RETURN(const XattrBody body, XattrBody::Decode(record->body()));
    if (skip(body.name, record->seq(), op == Op::kSetXattr)) continue;
    SALIUS_RETURN_IF_ERROR(op == Op::kSetXattr ? backing.SetXattr(fd, body.name, body.value)
                                               : backing.RemoveXattr(fd, body.name));
  }
  return absl::OkStatus();
}

// Sets all of `order`, and then `last`, in the first order in which they fit: the given one, the
// session's, or any. Returns the first error if none fits. Leaves out record `without`. Removes the
// value that `last` replaces first, when it can be restored.
absl::Status TryOrders(const ReplayContext& context, const ObjectPlan& object,
                       std::vector<Wanted> order, const std::optional<Wanted>& last, Seq without,
                       int fd, Seq* refused) {
  Backing& backing = *context.backing;
  const auto set_all = [&](Seq* failed) {
    const absl::Status status = SetAll(context, order, fd, failed);
    if (!status.ok() || !last.has_value()) return status;
    *failed = last->seq;
    return SetOne(context, *last, fd);
  };
  const absl::Status first = set_all(refused);
  if (first.ok() || !RefusedForGood(backing, first, fd, Change::kXattr)) return first;
  const auto clear = [&]() -> absl::Status {
    for (const Wanted& wanted : order) {
      SALIUS_RETURN_IF_ERROR(backing.RemoveXattr(fd, *wanted.name));
    }
    if (!last.has_value() || !last->removable) return absl::OkStatus();
    return backing.RemoveXattr(fd, *last->name);
  };
  SALIUS_RETURN_IF_ERROR(clear());
  const bool taken = RunRecords(backing, object, without, fd).ok();
  SALIUS_RETURN_IF_ERROR(RemoveXattrs(backing, object, fd));
  if (taken) return absl::OkStatus();
  std::stable_sort(order.begin(), order.end(), [](const Wanted& a, const Wanted& b) {
    return a.value->size() > b.value->size();
  });
  std::minstd_rand random;
  for (int i = 0; i < kOrders; ++i) {
    SALIUS_RETURN_IF_ERROR(clear());
    Seq other = 0;
    if (set_all(&other).ok()) return absl::OkStatus();
    std::shuffle(order.begin(), order.end(), random);
  }
  return first;
}

// Whether the value that `last` replaces can be restored: there is none, it is `last` itself (an
// earlier run may have been cut off after it), or the records have it. No record has the permission
// bits that an earlier ACL set.
absl::StatusOr<bool> MayBeRemoved(Backing& backing, const ObjectPlan& object, const Wanted& last,
                                  int fd) {
  if (object.create.has_value()) return true;
  if (*last.name != kAccessAclXattr) {
    const absl::StatusOr<std::string> there = backing.XattrValue(fd, *last.name);
    const bool missing = StatusErrno(there.status()) == ENODATA;
    if (!missing) SALIUS_RETURN_IF_ERROR(there.status());
    if (missing || *there == *last.value) return true;
  }
  for (const RecordView* record : object.ops) {
    const Op op = record->header.op;
    if (record->seq() == last.seq || (op != Op::kSetXattr && op != Op::kRemoveXattr)) continue;
    SALIUS_ASSIGN_OR_RETURN(const XattrBody body, XattrBody::Decode(record->body()));
    if (body.name == *last.name) return true;
  }
  return false;
}

// Returns the permission bits at T, where an access ACL had a part in them. Setting one sets them,
// removing it leaves them, and chmod changes both. No other record has them. Records from before an
// fsync count too: the fsync put their result on the disk, but here it may have been lost again.
absl::StatusOr<std::optional<mode_t>> BitsOfAclAndChmod(const ObjectPlan& object) {
  std::optional<mode_t> bits;
  bool acl = false;
  if (object.create.has_value()) {
    bits = object.create->mode;
    for (const auto& [name, value] : object.create->xattrs) acl = acl || name == kAccessAclXattr;
  }
  for (const RecordView* record : object.ops) {
    if (record->header.op == Op::kSetAttr) {
      SALIUS_ASSIGN_OR_RETURN(const AttrBody attr, AttrBody::Decode(record->body()));
      if ((attr.mask & kAttrMode) != 0) bits = attr.mode;
    } else if (record->header.op == Op::kSetXattr) {
      SALIUS_ASSIGN_OR_RETURN(const XattrBody xattr, XattrBody::Decode(record->body()));
      if (xattr.name != kAccessAclXattr) continue;
      acl = true;
      bits = ModeOfAcl(xattr.value);
    }
  }
  return acl ? bits : std::nullopt;
}

}  // namespace

absl::Status RemoveXattrs(Backing& backing, const ObjectPlan& object, int fd) {
  for (const auto& [name, xattr] : object.xattrs) {
    if (!xattr.value.has_value()) SALIUS_RETURN_IF_ERROR(backing.RemoveXattr(fd, name));
  }
  return absl::OkStatus();
}

// R59.
absl::Status SetXattrs(const ReplayContext& context, const ObjectPlan& object, int fd,
                       Seq* refused) {
  Backing& backing = *context.backing;
  std::vector<Wanted> wanted;
  std::optional<Wanted> last;  // the change that may be refused
  for (const auto& [name, xattr] : object.xattrs) {
    if (!xattr.value.has_value()) continue;
    const Wanted one{&name, &*xattr.value, xattr.seq};
    if (xattr.seq == object.last_seq) {
      last = one;
    } else {
      wanted.push_back(one);
    }
  }
  std::sort(wanted.begin(), wanted.end(),
            [](const Wanted& a, const Wanted& b) { return a.seq < b.seq; });
  bool anywhere = false;  // whether `last` may come in any order; not an ACL, which may be removed
  if (last.has_value()) {
    SALIUS_ASSIGN_OR_RETURN(last->removable, MayBeRemoved(backing, object, *last, fd));
    anywhere = last->removable && (object.create.has_value() || *last->name != kAccessAclXattr);
  }
  std::vector<Wanted> order = wanted;
  if (anywhere) order.push_back(*last);
  absl::Status status =
      TryOrders(context, object, order, anywhere ? std::nullopt : last, 0, fd, refused);
  if (last.has_value() && RefusedForGood(backing, status, fd, Change::kXattr)) {
    // The session set the others without that one.
    Seq other = 0;
    if (last->removable) SALIUS_RETURN_IF_ERROR(backing.RemoveXattr(fd, *last->name));
    const absl::Status without =
        TryOrders(context, object, wanted, std::nullopt, last->seq, fd, &other);
    *refused = without.ok() ? last->seq : other;
    if (!without.ok()) status = without;
  }
  SALIUS_RETURN_IF_ERROR(status);
  *refused = 0;
  SALIUS_ASSIGN_OR_RETURN(const std::optional<mode_t> mode, BitsOfAclAndChmod(object));
  if (!mode.has_value()) return absl::OkStatus();
  SALIUS_ASSIGN_OR_RETURN(const struct stat st, backing.StatAt(fd, ""));
  if (((st.st_mode ^ *mode) & 0777) == 0) return absl::OkStatus();
  return backing.Chmod(fd, (st.st_mode & 07000) | (*mode & 0777));
}

}  // namespace salius::recovery
