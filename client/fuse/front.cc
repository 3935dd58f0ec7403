#include "client/fuse/front.h"

#include <algorithm>
#include <cerrno>
#include <memory>

#include "client/fuse/groups.h"
#include "client/fuse/kernel_order.h"
#include "common/check.h"
#include "common/file.h"
#include "common/log.h"

namespace salius {

static_assert(NodeIds::kRoot == FUSE_ROOT_ID);

Front::Front(Volume& volume) : volume_(volume), nodes_(volume.root()) {}

Front::~Front() {
  SALIUS_CHECK(files_.size() == 0 && directories_.size() == 0, "open handles left behind");
}

const fuse_lowlevel_ops& Front::Ops() {
  static const fuse_lowlevel_ops ops = [] {
    fuse_lowlevel_ops table{};
    AddNameOps(&table);
    AddFileOps(&table);
    AddAttrOps(&table);
    AddDirOps(&table);
    return table;
  }();
  return ops;
}

void Front::SetNegotiated(uint64_t init_flags) {
  map_direct_.store((init_flags & kInitDirectIoAllowMmap) != 0);
  setxattr_ext_.store((init_flags & FUSE_SETXATTR_EXT) != 0);
  idmap_.store((init_flags & kInitAllowIdmap) != 0);
  if (external_ != nullptr && !map_direct_.load()) {
    SLOG_WARN("commit=external: this kernel (before Linux 6.6) refuses shared maps of direct files: "
              "mmap(MAP_SHARED) fails with ENODEV");
  }
}

Node* Front::FindNode(uint64_t nodeid) const {
  Node* const node = nodes_.Find(nodeid);
  if (node == nullptr) SLOG_WARN("the kernel names node {:#x}, which it does not have", nodeid);
  KernelOrder::Use(nodeid);
  return node;
}

Handle* Front::FindFile(uint64_t fh) const {
  Handle* const file = files_.Find(fh);
  if (file == nullptr) SLOG_WARN("the kernel names open file {:#x}, which is not open", fh);
  return file;
}

OpenDirectory* Front::FindDirectory(uint64_t fh) const {
  OpenDirectory* const directory = directories_.Find(fh);
  if (directory == nullptr) {
    SLOG_WARN("the kernel names open directory {:#x}, which is not open", fh);
  }
  return directory;
}

uint64_t Front::GiveLookup(Node& node) {
  const uint64_t nodeid = nodes_.AddLookup(node);
  KernelOrder::Pass(nodeid);
  return nodeid;
}

void Front::Forget(uint64_t nodeid, uint64_t lookups) {
  if (nodeid == FUSE_ROOT_ID || FindNode(nodeid) == nullptr) return;
  const NodeIds::Forgotten forgotten = nodes_.Forget(nodeid, lookups);
  if (forgotten.lookups > 0) volume_.names().Forget(*forgotten.node, forgotten.lookups);
}

void Front::SetSession(fuse_session* session) {
  session_ = session;
  invalidator_.SetNotify([session](uint64_t nodeid, uint64_t offset, uint64_t length) {
    fuse_lowlevel_notify_inval_inode(session, nodeid, static_cast<off_t>(offset),
                                     static_cast<off_t>(length));
  });
}

double Front::CacheSeconds() const { return external_ != nullptr ? 0 : kCacheSeconds; }

Front::KernelAttr Front::ToKernelAttr(const Node& node, struct stat attr, bool provisional) const {
  const double seconds = provisional ? 0 : CacheSeconds();
  constexpr int64_t kBlock = 512;  // of st_blocks
  constexpr int64_t kPageBytes = 4096;
  if (!S_ISREG(attr.st_mode) || attr.st_blocks * kBlock >= attr.st_size) {
    return {attr, seconds};
  }
  OpenState state = StateOf(node);
  state.NoteSparse();
  if (!state.MayHaveDirtyPages()) return {attr, seconds};
  if (state.stored()) {
    attr.st_blocks = (attr.st_size + kBlock - 1) / kBlock;
  } else if (state.has_new_mode()) {
    attr.st_blocks = std::max<blkcnt_t>(attr.st_blocks, kPageBytes / kBlock);
  }
  return {attr, 0};
}

fuse_entry_param Front::ToEntry(const Entry& entry) {
  fuse_entry_param param{};
  param.ino = GiveLookup(*entry.node);
  param.generation = entry.node->generation;
  const KernelAttr sent = ToKernelAttr(*entry.node, entry.attr, entry.provisional);
  param.attr = sent.attr;
  param.attr_timeout = sent.seconds;
  param.entry_timeout = CacheSeconds();
  return param;
}

fuse_entry_out Front::ToEntryOut(const Entry& entry, uint64_t nodeid) const {
  fuse_entry_out out{};
  out.nodeid = nodeid;
  out.generation = entry.node->generation;
  out.entry_valid = static_cast<uint64_t>(CacheSeconds());
  const KernelAttr sent = ToKernelAttr(*entry.node, entry.attr, entry.provisional);
  out.attr_valid = static_cast<uint64_t>(sent.seconds);
  out.attr = ToFuseAttr(sent.attr);
  return out;
}

void Front::ForgetAttr(uint64_t nodeid) {
  if (session_ == nullptr) return;
  KernelOrder::Pass(nodeid);
  fuse_lowlevel_notify_inval_inode(session_, nodeid, -1, 0);
}

uint64_t Front::KeepDirectory(Handle& handle) {
  return directories_.Insert(*new OpenDirectory(handle));
}

void Front::DropFile(uint64_t fh) {
  if (Handle* const file = files_.Erase(fh); file != nullptr) volume_.open_files().Release(file);
}

void Front::DropDirectory(uint64_t fh) {
  const std::unique_ptr<OpenDirectory> directory(directories_.Erase(fh));
  if (directory != nullptr) volume_.open_files().Release(&directory->handle);
}

void Front::AwaitAnswers() {
  {
    absl::MutexLock lock(&waiting_mutex_);
    waiting_mutex_.Await(absl::Condition(
        +[](uint64_t* waiting) { return *waiting == 0; }, &waiting_));
  }
  timed_waits_.AwaitIdle();
  if (external_ != nullptr) external_->held.AwaitAll();
  // Answers whose records have become durable may still wait for pages, never the other way round.
  invalidator_.AwaitIdle();
}

void Front::ReleaseAll() {
  for (Handle* const file : files_.Clear()) volume_.open_files().Release(file);
  for (OpenDirectory* const left : directories_.Clear()) {
    const std::unique_ptr<OpenDirectory> directory(left);
    volume_.open_files().Release(&directory->handle);
  }
}

int Front::Errno(const absl::Status& status) {
  const int err = StatusErrno(status);
  if (err == EIO) {
    FrontMetrics::Count(metrics_->errors);
    SLOG_ERROR("request failed: {}", status.ToString());
  }
  return err;
}

Seq Front::LastChange(uint64_t nodeid) const {
  Node* const node = FindNode(nodeid);
  return node == nullptr ? 0 : FileOps::LastChange(*node);
}

uid_t Front::OpenerOf(const fuse_in_header& header) const {
  if (!volume_.open_files().Many()) return 0;
  return header.uid == kNoId ? IdsOf(header.pid).uid : header.uid;
}

Node* NodeOf(fuse_req_t req, fuse_ino_t ino) {
  Node* const node = FrontOf(req).FindNode(ino);
  if (node == nullptr) fuse_reply_err(req, ESTALE);
  return node;
}

Node* Front::NodeOf(const RawRequest& request) const {
  Node* const node = FindNode(request.header().nodeid);
  if (node == nullptr) request.ReplyError(ESTALE);
  return node;
}

Handle* FileOf(fuse_req_t req, const fuse_file_info* fi) {
  Handle* const file = FrontOf(req).FindFile(fi->fh);
  if (file == nullptr) fuse_reply_err(req, EBADF);
  return file;
}

OpenDirectory* DirectoryOf(fuse_req_t req, const fuse_file_info* fi) {
  OpenDirectory* const directory = FrontOf(req).FindDirectory(fi->fh);
  if (directory == nullptr) fuse_reply_err(req, EBADF);
  return directory;
}

fuse_in_header CallerHeader(fuse_req_t req) {
  const fuse_ctx* const context = fuse_req_ctx(req);
  fuse_in_header header{};
  header.uid = context->uid;
  header.gid = context->gid;
  header.pid = static_cast<uint32_t>(context->pid);
  return header;
}

bool CallerIsRoot(const fuse_in_header& header) {
  return header.uid == kNoId ? IdsOf(header.pid).uid == 0 : header.uid == 0;
}

Caller Front::CallerOf(const fuse_in_header& header, mode_t umask, mode_t mode) const {
  Caller caller{.uid = header.uid, .gid = header.gid, .umask = umask};
  constexpr mode_t kBoth = S_ISGID | S_IXGRP;  // the groups matter for nothing else
  if ((mode & kBoth) != kBoth) return caller;
  if (idmap_.load(std::memory_order_relaxed)) {
    // A kernel that maps ids has checked the groups through the mapping, which /proc does not show.
    caller.sgid_checked = true;
  } else {
    caller.groups = SupplementaryGroups(header.pid);
  }
  return caller;
}

}  // namespace salius
