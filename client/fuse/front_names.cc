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
  if (fuse_reply_entry(req, &param) != 0) front.volume().Forget(*entry->node, 1);
}

void ReplyStatus(fuse_req_t req, const absl::Status& status) {
  fuse_reply_err(req, status.ok() ? 0 : FrontOf(req).Errno(status));
}

void Lookup(fuse_req_t req, fuse_ino_t parent, const char* name) noexcept {
  Front& front = FrontOf(req);
  const absl::StatusOr<Entry> entry = front.volume().Lookup(front.node(parent), name);
  if (!entry.ok() && StatusErrno(entry.status()) == ENOENT) {
    // The kernel remembers a missing name too.
    fuse_entry_param nothing{};
    nothing.entry_timeout = kCacheSeconds;
    fuse_reply_entry(req, &nothing);
    return;
  }
  ReplyEntry(req, entry);
}

void ForgetOne(Front& front, fuse_ino_t ino, uint64_t lookups) {
  if (ino != FUSE_ROOT_ID) front.volume().Forget(front.node(ino), lookups);
}

void Forget(fuse_req_t req, fuse_ino_t ino, uint64_t lookups) noexcept {
  ForgetOne(FrontOf(req), ino, lookups);
  fuse_reply_none(req);
}

void ForgetMulti(fuse_req_t req, size_t count, fuse_forget_data* forgets) noexcept {
  Front& front = FrontOf(req);
  for (size_t i = 0; i < count; ++i) ForgetOne(front, forgets[i].ino, forgets[i].nlookup);
  fuse_reply_none(req);
}

Caller CallerOf(fuse_req_t req, mode_t mode) {
  return FrontOf(req).CallerOf(WhoAsks(req), fuse_req_ctx(req)->umask, mode);
}

void MakeNode(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode,
              dev_t rdev) noexcept {
  Front& front = FrontOf(req);
  ReplyEntry(req,
             front.volume().MakeNode(front.node(parent), name, mode, rdev, CallerOf(req, mode)));
}

void MakeDir(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode) noexcept {
  Front& front = FrontOf(req);
  ReplyEntry(req, front.volume().MakeDir(front.node(parent), name, mode, CallerOf(req, mode)));
}

void Symlink(fuse_req_t req, const char* target, fuse_ino_t parent, const char* name) noexcept {
  Front& front = FrontOf(req);
  ReplyEntry(req, front.volume().Symlink(front.node(parent), name, target, CallerOf(req, 0)));
}

void Link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char* name) noexcept {
  Front& front = FrontOf(req);
  ReplyEntry(req, front.volume().Link(front.node(ino), front.node(parent), name));
}

void Unlink(fuse_req_t req, fuse_ino_t parent, const char* name) noexcept {
  Front& front = FrontOf(req);
  ReplyStatus(req, front.volume().Unlink(front.node(parent), name));
}

void RemoveDir(fuse_req_t req, fuse_ino_t parent, const char* name) noexcept {
  Front& front = FrontOf(req);
  ReplyStatus(req, front.volume().RemoveDir(front.node(parent), name));
}

void Rename(fuse_req_t req, fuse_ino_t parent, const char* name, fuse_ino_t newparent,
            const char* newname, unsigned int flags) noexcept {
  Front& front = FrontOf(req);
  const Caller caller = (flags & RENAME_WHITEOUT) != 0 ? CallerOf(req, S_IFCHR) : Caller();
  ReplyStatus(req, front.volume().Rename(front.node(parent), name, front.node(newparent), newname,
                                         flags, caller));
}

void ReadLink(fuse_req_t req, fuse_ino_t ino) noexcept {
  Front& front = FrontOf(req);
  const absl::StatusOr<std::string> target = front.volume().ReadLink(front.node(ino));
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
