// Names: lookup, create, link, rename and their opposites.
#include <cerrno>

#include "client/fuse/front.h"
#include "common/file.h"

namespace salius {
namespace {

// Answers with an entry; undoes the lookup when the request was aborted meanwhile.
void ReplyEntry(fuse_req_t req, const absl::StatusOr<Entry>& entry) {
  Front& front = FrontOf(req);
  if (!entry.ok()) {
    fuse_reply_err(req, front.Errno(entry.status()));
    return;
  }
  const fuse_entry_param param = front.ToEntry(*entry);
  if (fuse_reply_entry(req, &param) != 0) front.Forget(param.ino, 1);
}

void ReplyStatus(fuse_req_t req, const absl::Status& status) {
  fuse_reply_err(req, status.ok() ? 0 : FrontOf(req).Errno(status));
}

void Lookup(fuse_req_t req, fuse_ino_t parent, const char* name) noexcept {
  Front& front = FrontOf(req);
  Node* const dir = NodeOf(req, parent);
  if (dir == nullptr) return;
  const absl::StatusOr<Entry> entry = front.volume().names().Lookup(*dir, name);
  if (!entry.ok() && StatusErrno(entry.status()) == ENOENT) {
    // The kernel remembers a missing name too.
    fuse_entry_param nothing{};
    nothing.entry_timeout = front.CacheSeconds();
    fuse_reply_entry(req, &nothing);
    return;
  }
  ReplyEntry(req, entry);
}

void Forget(fuse_req_t req, fuse_ino_t ino, uint64_t lookups) noexcept {
  FrontOf(req).Forget(ino, lookups);
  fuse_reply_none(req);
}

void ForgetMulti(fuse_req_t req, size_t count, fuse_forget_data* forgets) noexcept {
  Front& front = FrontOf(req);
  for (size_t i = 0; i < count; ++i) front.Forget(forgets[i].ino, forgets[i].nlookup);
  fuse_reply_none(req);
}

Caller CallerOf(fuse_req_t req, mode_t mode) {
  return FrontOf(req).CallerOf(CallerHeader(req), fuse_req_ctx(req)->umask, mode);
}

void MakeNode(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode,
              dev_t rdev) noexcept {
  Node* const dir = NodeOf(req, parent);
  if (dir == nullptr) return;
  ReplyEntry(req,
             FrontOf(req).volume().names().MakeNode(*dir, name, mode, rdev, CallerOf(req, mode)));
}

void MakeDir(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode) noexcept {
  Node* const dir = NodeOf(req, parent);
  if (dir == nullptr) return;
  ReplyEntry(req, FrontOf(req).volume().names().MakeDir(*dir, name, mode, CallerOf(req, mode)));
}

void Symlink(fuse_req_t req, const char* target, fuse_ino_t parent, const char* name) noexcept {
  Node* const dir = NodeOf(req, parent);
  if (dir == nullptr) return;
  ReplyEntry(req, FrontOf(req).volume().names().Symlink(*dir, name, target, CallerOf(req, 0)));
}

void Link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char* name) noexcept {
  Node* const node = NodeOf(req, ino);
  if (node == nullptr) return;
  Node* const dir = NodeOf(req, parent);
  if (dir == nullptr) return;
  ReplyEntry(req, FrontOf(req).volume().names().Link(*node, *dir, name));
}

void Unlink(fuse_req_t req, fuse_ino_t parent, const char* name) noexcept {
  Node* const dir = NodeOf(req, parent);
  if (dir == nullptr) return;
  ReplyStatus(req, FrontOf(req).volume().names().Unlink(*dir, name));
}

void RemoveDir(fuse_req_t req, fuse_ino_t parent, const char* name) noexcept {
  Node* const dir = NodeOf(req, parent);
  if (dir == nullptr) return;
  ReplyStatus(req, FrontOf(req).volume().names().RemoveDir(*dir, name));
}

void Rename(fuse_req_t req, fuse_ino_t parent, const char* name, fuse_ino_t newparent,
            const char* newname, unsigned int flags) noexcept {
  Node* const from = NodeOf(req, parent);
  if (from == nullptr) return;
  Node* const to = NodeOf(req, newparent);
  if (to == nullptr) return;
  const Caller caller = (flags & RENAME_WHITEOUT) != 0 ? CallerOf(req, S_IFCHR) : Caller();
  ReplyStatus(req, FrontOf(req).volume().names().Rename(*from, name, *to, newname, flags, caller));
}

void ReadLink(fuse_req_t req, fuse_ino_t ino) noexcept {
  Front& front = FrontOf(req);
  Node* const node = NodeOf(req, ino);
  if (node == nullptr) return;
  const absl::StatusOr<std::string> target = front.volume().names().ReadLink(*node);
  if (target.ok()) {
    fuse_reply_readlink(req, target->c_str());
  } else {
    fuse_reply_err(req, front.Errno(target.status()));
  }
}

}  // namespace

void AddNameOps(fuse_lowlevel_ops* ops) {
  ops->lookup = Lookup;
  ops->forget = Forget;
  ops->forget_multi = ForgetMulti;
  ops->mknod = MakeNode;
  ops->mkdir = MakeDir;
  ops->symlink = Symlink;
  ops->link = Link;
  ops->unlink = Unlink;
  ops->rmdir = RemoveDir;
  ops->rename = Rename;
  ops->readlink = ReadLink;
}

}  // namespace salius
