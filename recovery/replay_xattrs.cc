#include "recovery/replay_xattrs.h"

#include <sys/stat.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "common/bytes.h"
#include "common/check.h"
#include "common/strings.h"
#include "log/apply.h"
#include "log/fs_calls.h"
#include "recovery/refusal.h"

namespace salius::recovery {
namespace {

// Orders to try when not all fit in the one of the records.
constexpr int kOrders = 200;

struct Wanted {
  const std::string* name;
  const std::string* value;
  Seq seq;
};

absl::Status SetOne(const ReplayContext& context, const Wanted& wanted, int fd) {
  bool found = false;
  const absl::StatusOr<std::string> there = fs::GetXattr(fd, *wanted.name, &found);
  if (there.ok() && found && *there == *wanted.value) return absl::OkStatus();
  const auto set = [&] { return fs::SetXattr(fd, *wanted.name, *wanted.value); };
  const absl::Status status = set();
  // The ballast is for a full disk.
  return status.ok() || RefusedForGood(status, fd, Change::kXattr) ? status
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

// All of `order` in whatever order they fit, and behind them `last`. The first error if that is
// none.
absl::Status TryOrders(const ReplayContext& context, std::vector<Wanted> order,
                       const std::optional<Wanted>& last, int fd, Seq* refused) {
  const auto set_all = [&](Seq* failed) {
    const absl::Status status = SetAll(context, order, fd, failed);
    if (!status.ok() || !last.has_value()) return status;
    *failed = last->seq;
    return SetOne(context, *last, fd);
  };
  const absl::Status first = set_all(refused);
  if (first.ok() || !RefusedForGood(first, fd, Change::kXattr)) return first;
  std::stable_sort(order.begin(), order.end(), [](const Wanted& a, const Wanted& b) {
    return a.value->size() > b.value->size();
  });
  std::minstd_rand random;
  for (int i = 0; i < kOrders; ++i) {
    for (const Wanted& wanted : order) {
      SALIUS_RETURN_IF_ERROR(fs::RemoveXattr(fd, *wanted.name));
    }
    Seq other = 0;
    if (set_all(&other).ok()) return absl::OkStatus();
    std::shuffle(order.begin(), order.end(), random);
  }
  return first;
}

// Whether the value that `last` replaces can be had again: there is none, or the records say it.
// Not when `last` is there already: where it stands it fitted with all others.
absl::StatusOr<bool> MayBeRemoved(const ObjectPlan& object, const Wanted& last, int fd) {
  bool found = false;
  SALIUS_ASSIGN_OR_RETURN(const std::string there, fs::GetXattr(fd, *last.name, &found));
  if (!found) return true;
  if (there == *last.value) return false;
  if (object.create.has_value()) return true;
  for (const RecordView* record : object.ops) {
    const Op op = record->header.op;
    if (record->seq() == last.seq || (op != Op::kSetXattr && op != Op::kRemoveXattr)) continue;
    SALIUS_ASSIGN_OR_RETURN(const XattrBody body, XattrBody::Decode(record->body()));
    if (body.name == *last.name) return true;
  }
  return false;
}

// What a record said of the permission bits behind the one that set the ACL.
std::optional<mode_t> ModeBehind(const ObjectPlan& object, Seq acl) {
  for (auto at = object.ops.rbegin(); at != object.ops.rend() && (*at)->seq() > acl; ++at) {
    if ((*at)->header.op != Op::kSetAttr) continue;
    const auto body = AttrBody::Decode((*at)->body());
    if (body.ok() && (body->mask & kAttrMode) != 0) return body->mode;
  }
  if (acl == object.create_seq && object.create.has_value()) return object.create->mode;
  return std::nullopt;
}

}  // namespace

std::optional<mode_t> ModeOfAcl(std::string_view value) {
  constexpr uint32_t kVersion = 2;
  constexpr uint16_t kUser = 0x01, kGroup = 0x04, kMask = 0x10, kOther = 0x20;
  ByteReader reader(AsBytes(value));
  if (reader.U32() != kVersion) return std::nullopt;
  std::optional<mode_t> user, group, mask, other;
  while (reader.ok() && reader.remaining() > 0) {
    const uint16_t tag = reader.U16();
    const mode_t bits = reader.U16() & 7;
    reader.U32();  // of whom
    if (tag == kUser) user = bits;
    if (tag == kGroup) group = bits;
    if (tag == kMask) mask = bits;
    if (tag == kOther) other = bits;
  }
  if (!reader.ok() || !user || !group || !other) return std::nullopt;
  return *user << 6 | mask.value_or(*group) << 3 | *other;
}

absl::Status RemoveXattrs(const ObjectPlan& object, int fd) {
  for (const auto& [name, xattr] : object.xattrs) {
    if (!xattr.value.has_value()) SALIUS_RETURN_IF_ERROR(fs::RemoveXattr(fd, name));
  }
  return absl::OkStatus();
}

absl::Status SetXattrs(const ReplayContext& context, const ObjectPlan& object, int fd,
                       Seq* refused) {
  std::vector<Wanted> wanted;
  std::optional<Wanted> last;  // may be refused
  std::optional<Seq> acl;
  for (const auto& [name, xattr] : object.xattrs) {
    if (!xattr.value.has_value()) continue;
    const Wanted one{&name, &*xattr.value, xattr.seq};
    if (name == kAccessAclXattr) acl = xattr.seq;
    if (xattr.seq == object.last_seq) {
      last = one;
    } else {
      wanted.push_back(one);
    }
  }
  std::sort(wanted.begin(), wanted.end(),
            [](const Wanted& a, const Wanted& b) { return a.seq < b.seq; });
  bool removable = false;
  if (last.has_value()) {
    SALIUS_ASSIGN_OR_RETURN(removable, MayBeRemoved(object, *last, fd));
  }
  std::vector<Wanted> order = wanted;
  if (removable) order.push_back(*last);
  absl::Status status = TryOrders(context, order, removable ? std::nullopt : last, fd, refused);
  if (last.has_value() && RefusedForGood(status, fd, Change::kXattr)) {
    // The session set the others without it.
    Seq other = 0;
    if (removable) SALIUS_RETURN_IF_ERROR(fs::RemoveXattr(fd, *last->name));
    const absl::Status without = TryOrders(context, wanted, std::nullopt, fd, &other);
    *refused = without.ok() ? last->seq : other;
    if (!without.ok()) status = without;
  }
  if (!status.ok() || !acl.has_value()) return status;
  const std::optional<mode_t> mode = ModeBehind(object, *acl);
  if (!mode.has_value()) return absl::OkStatus();
  SALIUS_ASSIGN_OR_RETURN(const struct stat st, fs::StatAt(fd, ""));
  if (((st.st_mode ^ *mode) & 0777) == 0) return absl::OkStatus();
  return fs::Chmod(fd, (st.st_mode & 07000) | (*mode & 0777));
}

}  // namespace salius::recovery
