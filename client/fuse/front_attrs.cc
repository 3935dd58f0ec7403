// Attributes, extended attributes, and the file system's own.
#include <sys/xattr.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "client/fuse/front.h"
#include "client/fuse/groups.h"
#include "client/fuse/kernel_order.h"
#include "common/check.h"
#include "common/file.h"
#include "storage/apply.h"
#include "storage/posix_acl.h"

namespace salius {
namespace {

void GetAttr(fuse_req_t req, fuse_ino_t ino, fuse_file_info*) noexcept {
  Front& front = FrontOf(req);
  Node* const node = NodeOf(req, ino);
  if (node == nullptr) return;
  front.WithAttr(*node, ino,
                 [req, &front, node](const absl::StatusOr<struct stat>& attr, bool provisional) {
                   if (!attr.ok()) {
                     fuse_reply_err(req, front.Errno(attr.status()));
                     return;
                   }
                   const Front::KernelAttr sent = front.ToKernelAttr(*node, *attr, provisional);
                   fuse_reply_attr(req, &sent.attr, sent.seconds);
                 });
}

// Answers a request for `value` into `size` bytes; size 0 asks how long it is.
void ReplyXattr(fuse_req_t req, std::string_view value, size_t size) {
  if (size == 0) {
    fuse_reply_xattr(req, value.size());
  } else if (value.size() > size) {
    fuse_reply_err(req, ERANGE);
  } else {
    fuse_reply_buf(req, value.data(), value.size());
  }
}

void GetXattr(fuse_req_t req, fuse_ino_t ino, const char* name, size_t size) noexcept {
  Front& front = FrontOf(req);
  Node* const node = NodeOf(req, ino);
  if (node == nullptr) return;
  const absl::StatusOr<std::string> value = front.volume().attrs().GetXattr(*node, name);
  if (value.ok()) {
    ReplyXattr(req, *value, size);
  } else {
    fuse_reply_err(req, front.Errno(value.status()));
  }
}

void ListXattr(fuse_req_t req, fuse_ino_t ino, size_t size) noexcept {
  Front& front = FrontOf(req);
  Node* const node = NodeOf(req, ino);
  if (node == nullptr) return;
  const absl::StatusOr<std::vector<std::string>> names = front.volume().attrs().ListXattr(*node);
  if (!names.ok()) {
    fuse_reply_err(req, front.Errno(names.status()));
    return;
  }
  // As xattr(7) says. The kernel does not say which caller has CAP_SYS_ADMIN; root nearly always
  // has it, and others hardly ever.
  const bool privileged = CallerIsRoot(CallerHeader(req));
  std::string list;
  for (const std::string& name : *names) {
    if (privileged || !absl::StartsWith(name, "trusted.")) {
      list.append(name.c_str(), name.size() + 1);
    }
  }
  ReplyXattr(req, list, size);
}

void RemoveXattr(fuse_req_t req, fuse_ino_t ino, const char* name) noexcept {
  Front& front = FrontOf(req);
  Node* const node = NodeOf(req, ino);
  if (node == nullptr) return;
  const absl::Status status = front.volume().attrs().RemoveXattr(*node, name);
  fuse_reply_err(req, status.ok() ? 0 : front.Errno(status));
}

void StatFs(fuse_req_t req, fuse_ino_t) noexcept {
  Front& front = FrontOf(req);
  const absl::StatusOr<struct statvfs> fs = front.volume().StatFs();
  if (fs.ok()) {
    fuse_reply_statfs(req, &*fs);
  } else {
    fuse_reply_err(req, front.Errno(fs.status()));
  }
}

// Returns the fields of a SETATTR request in the volume's terms.
uint32_t WantedAttrs(const fuse_setattr_in& in, struct stat* want) {
  uint32_t mask = 0;
  if ((in.valid & FATTR_MODE) != 0) {
    mask |= kSetMode;
    want->st_mode = in.mode;
  }
  if ((in.valid & FATTR_UID) != 0) {
    mask |= kSetUid;
    want->st_uid = in.uid;
  }
  if ((in.valid & FATTR_GID) != 0) {
    mask |= kSetGid;
    want->st_gid = in.gid;
  }
  if ((in.valid & FATTR_SIZE) != 0) {
    mask |= kSetSize;
    want->st_size = static_cast<off_t>(in.size);
  }
  if ((in.valid & FATTR_ATIME) != 0) {
    mask |= (in.valid & FATTR_ATIME_NOW) != 0 ? kSetAtimeNow : kSetAtime;
    want->st_atim = {static_cast<time_t>(in.atime), static_cast<long>(in.atimensec)};
  }
  if ((in.valid & FATTR_MTIME) != 0) {
    mask |= (in.valid & FATTR_MTIME_NOW) != 0 ? kSetMtimeNow : kSetMtime;
    want->st_mtim = {static_cast<time_t>(in.mtime), static_cast<long>(in.mtimensec)};
  }
  return mask;
}

// Returns whether the caller may keep sgid on a file of this group that is not group executable:
// root may, and members of the group by their main group or by the groups in /proc. Through an
// idmapped mount these are not the file system's ids: sgid is then removed where the numbers
// differ.
bool InGroup(const fuse_in_header& header, gid_t group) {
  if (header.uid == 0 || header.gid == group) return true;
  const ProcessIds ids = IdsOf(header.pid);
  if (header.uid == kNoId && (ids.uid == 0 || ids.gid == group)) return true;
  return std::find(ids.groups.begin(), ids.groups.end(), group) != ids.groups.end();
}

}  // namespace

absl::Status Front::KillPrivileges(Node& node, uint64_t nodeid, const fuse_in_header& header,
                                   bool mode_bits) {
  OpenState state = StateOf(node);
  if (state.known_unprivileged()) return absl::OkStatus();
  const absl::StatusOr<struct stat> attr = volume_.attrs().GetAttr(node);
  if (!attr.ok()) return attr.status();
  // Directories keep sgid, and symbolic links have no mode. Others are given away as files are.
  if (S_ISDIR(attr->st_mode) || S_ISLNK(attr->st_mode)) return absl::OkStatus();

  mode_t lost = attr->st_mode & S_ISUID;
  if ((attr->st_mode & S_ISGID) != 0 &&
      ((attr->st_mode & S_IXGRP) != 0 || !InGroup(header, attr->st_gid))) {
    lost |= S_ISGID;
  }
  bool changed = false;
  if (lost != 0 && mode_bits) {
    struct stat want {};
    want.st_mode = attr->st_mode & 07777 & ~lost;
    SALIUS_RETURN_IF_ERROR(volume_.attrs().SetAttr(node, kSetMode, want).status());
    changed = true;
  }
  const absl::StatusOr<std::string> capability = volume_.attrs().GetXattr(node, kCapabilityXattr);
  if (capability.ok()) {
    SALIUS_RETURN_IF_ERROR(volume_.attrs().RemoveXattr(node, kCapabilityXattr));
    changed = true;
  } else if (const int err = StatusErrno(capability.status());
             err != ENODATA && err != EOPNOTSUPP) {
    return capability.status();
  }
  // After a write the kernel asks again for times and size only. It must not use a remembered mode
  // to run a file as its owner.
  if (changed) ForgetAttr(nodeid);
  // A bit that this caller may keep is removed by another caller's write.
  const mode_t left = attr->st_mode & ~(mode_bits ? lost : mode_t{0});
  if ((left & (S_ISUID | S_ISGID)) == 0) state.NoteUnprivileged();
  return absl::OkStatus();
}

void Front::WithAttr(
    Node& node, uint64_t nodeid,
    const std::function<void(const absl::StatusOr<struct stat>&, bool provisional)>& reply) {
  bool provisional = false;
  const absl::StatusOr<struct stat> attr = volume_.attrs().GetAttr(node, &provisional);
  const OpenState state = StateOf(node);
  // The kernel ignores attributes that it asked for before a notification, and then checks
  // permissions by those that it had.
  if (!attr.ok() || !S_ISREG(attr->st_mode) || attr->st_blocks > 0 || attr->st_size == 0 ||
      state.stored() || !state.MayHaveDirtyPages() || state.has_new_mode()) {
    reply(attr, provisional);
    return;
  }
  // Programs that copy take a file without any block for empty (tar -S). The kernel's pages of it
  // are zeros, or dirty: dropping them costs nothing, and shows which.
  AfterPages(nodeid, 0, 0, [this, &node, reply] {
    bool provisional = false;
    const absl::StatusOr<struct stat> attr = volume_.attrs().GetAttr(node, &provisional);
    reply(attr, provisional);
  });
}

// Answers STATX, which the kernel sends instead of GETATTR when the caller wants the birth time.
void Front::RawStatx(const RawRequest& request) {
  if (request.args<FuseStatxIn>() == nullptr) {
    request.ReplyError(EIO);
    return;
  }
  Node* const node = NodeOf(request);
  if (node == nullptr) return;
  WithAttr(*node, request.header().nodeid,
           [this, node, answer = request.answer()](const absl::StatusOr<struct stat>& attr,
                                                   bool provisional) {
             absl::Status status = attr.status();
             std::optional<timespec> birth;
             if (status.ok()) {
               absl::StatusOr<std::optional<timespec>> known = volume_.attrs().BirthTime(*node);
               status = known.status();
               if (known.ok()) birth = *known;
             }
             if (!status.ok()) {
               answer.Error(Errno(status));
               return;
             }
             const KernelAttr sent = ToKernelAttr(*node, *attr, provisional);
             FuseStatxOut out{};
             out.attr_valid = static_cast<uint64_t>(sent.seconds);
             out.stat = ToFuseStatx(sent.attr, birth);
             answer.Struct(out);
           });
}

void Front::RawSetAttr(const RawRequest& request) {
  const auto* in = request.args<fuse_setattr_in>();
  if (in == nullptr) {
    request.ReplyError(EIO);
    return;
  }
  Node* const node = NodeOf(request);
  if (node == nullptr) return;
  const fuse_in_header& header = request.header();
  // The write-back of bytes that were stored through a map before must not change the time that is
  // set. (Not with a size: the kernel holds writes back until a truncation is answered.)
  if ((in->valid & FATTR_MTIME) != 0 && (in->valid & FATTR_SIZE) == 0 &&
      StateOf(*node).MayHaveDirtyPages()) {
    AfterPages(header.nodeid, 0, 0, [this, node, in = *in, header, answer = request.answer()] {
      DoSetAttr(*node, in, header, answer);
    });
    return;
  }
  DoSetAttr(*node, *in, header, request.answer());
}

void Front::DoSetAttr(Node& target, const fuse_setattr_in& in, const fuse_in_header& header,
                      const RawAnswer& answer) {
  struct stat want {};
  // 0: before a write by root that takes a capability away, and for chown(-1, -1). The two cannot be
  // told apart, and the write must leave suid.
  const uint32_t mask = WantedAttrs(in, &want);
  OpenState state = StateOf(target);
  if ((mask & kSetMode) != 0) state.ForgetPrivileges();
  if ((mask & kSetGid) != 0 && !CallerIsRoot(header)) {
    const absl::Status allowed = volume_.attrs().CheckNewGroup(target, want.st_gid);
    if (!allowed.ok()) {
      answer.Error(Errno(allowed));
      return;
    }
  }
  if ((mask & (kSetUid | kSetGid | kSetSize)) != 0) {
    const absl::Status killed =
        KillPrivileges(target, header.nodeid, header, (in.valid & FATTR_KILL_SUIDGID) != 0);
    if (!killed.ok()) {
      answer.Error(Errno(killed));
      return;
    }
  }
  bool provisional = false;
  const absl::StatusOr<struct stat> attr =
      mask == 0 ? volume_.attrs().GetAttr(target, &provisional)
                : volume_.attrs().SetAttr(target, mask, want, &provisional);
  if ((mask & kSetMode) != 0) state.ForgetPrivileges();
  if (!attr.ok()) {
    answer.Error(Errno(attr.status()));
    return;
  }
  state.NoteKnownMode();
  const KernelAttr sent = ToKernelAttr(target, *attr, provisional);
  fuse_attr_out out{};
  out.attr_valid = static_cast<uint64_t>(sent.seconds);
  out.attr = ToFuseAttr(sent.attr);
  answer.Struct(out);
}

void Front::RawSetXattr(const RawRequest& request) {
  const bool ext = setxattr_ext_.load(std::memory_order_relaxed);
  const size_t fixed = ext ? sizeof(fuse_setxattr_in) : size_t{FUSE_COMPAT_SETXATTR_IN_SIZE};
  const std::optional<std::string_view> name = request.name(fixed);
  if (!name.has_value()) {
    request.ReplyError(EIO);
    return;
  }
  fuse_setxattr_in in{};
  std::memcpy(&in, request.rest(0).data(), fixed);
  const absl::Span<const uint8_t> value = request.rest(fixed + name->size() + 1);
  if (value.size() < in.size) {
    request.ReplyError(EIO);
    return;
  }
  Node* const target = NodeOf(request);
  if (target == nullptr) return;
  const std::string key(*name);
  // The kernel asks for it also with a default ACL, which says nothing about this directory.
  const bool kill_sgid =
      (in.setxattr_flags & FUSE_SETXATTR_ACL_KILL_SGID) != 0 && key == kAccessAclXattr;
  const absl::Status status =
      volume_.attrs().SetXattr(*target, key, {reinterpret_cast<const char*>(value.data()), in.size},
                               static_cast<int>(in.flags), kill_sgid);
  if (key == kCapabilityXattr || key == kAccessAclXattr) {
    StateOf(*target).ForgetPrivileges();
  }
  if (status.ok() && key == kAccessAclXattr) {
    // The ACL has changed the mode. The kernel asks for it later, and before that takes an older
    // one from an answer to another caller that is under way.
    StateOf(*target).NoteNewMode();
    ForgetAttr(request.header().nodeid);
  }
  request.ReplyError(status.ok() ? 0 : Errno(status));
}

void AddAttrOps(fuse_lowlevel_ops* ops) {
  ops->getattr = GetAttr;
  ops->getxattr = GetXattr;
  ops->listxattr = ListXattr;
  ops->removexattr = RemoveXattr;
  ops->statfs = StatFs;
}

}  // namespace salius
