#include "client/fuse/front.h"

#include <cerrno>
#include <vector>

#include "client/fuse/groups.h"
#include "client/fuse/kernel_order.h"
#include "common/check.h"
#include "common/file.h"
#include "common/log.h"

namespace salius {

Front::FrontMetrics::FrontMetrics()
    : read_bytes(GetCounter("salius_fuse_read_bytes_total", "Bytes read through the mount.")),
      written_bytes(
          GetCounter("salius_fuse_written_bytes_total", "Bytes written through the mount.")),
      sync_writes(GetCounter("salius_fuse_sync_writes_total", "Writes that waited to be durable.")),
      errors(GetCounter("salius_fuse_io_errors_total",
                        "Requests answered with an input/output error.")),
      sync_write_seconds(GetHistogram("salius_fuse_sync_write_seconds",
                                      "Time in the daemon of a write that waited to be durable.",
                                      LatencyBounds())),
      fsync_seconds(GetHistogram("salius_fuse_fsync_seconds", "Time in the daemon of an fsync.",
                                 LatencyBounds())) {}

Front::Front(Volume& volume) : volume_(volume) {}

Front::~Front() {
  absl::MutexLock lock(&mutex_);
  SALIUS_CHECK(handles_.empty(), "open handles left behind");
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
}

Node& Front::node(uint64_t nodeid) {
  KernelOrder::Use(nodeid);
  return nodeid == FUSE_ROOT_ID ? *volume_.root() : *reinterpret_cast<Node*>(nodeid);
}

uint64_t Front::NodeId(const Node& node) const {
  const uint64_t nodeid =
      &node == volume_.root() ? uint64_t{FUSE_ROOT_ID} : reinterpret_cast<uint64_t>(&node);
  KernelOrder::Pass(nodeid);
  return nodeid;
}

void Front::SetSession(fuse_session* session) {
  session_ = session;
  invalidator_.SetNotify([session](uint64_t nodeid, uint64_t offset, uint64_t length) {
    fuse_lowlevel_notify_inval_inode(session, nodeid, static_cast<off_t>(offset),
                                     static_cast<off_t>(length));
  });
}

Front::ToldAttr Front::Told(const Node& node, struct stat attr, bool provisional) const {
  const double seconds = provisional ? 0 : kCacheSeconds;
  constexpr int64_t kBlock = 512;  // of st_blocks
  if (!S_ISREG(attr.st_mode) || attr.st_blocks * kBlock >= attr.st_size) {
    return {attr, seconds};
  }
  OpenState state = StateOf(node);
  state.NoteSparse();
  if (!state.MayHaveDirtyPages()) return {attr, seconds};
  if (state.stored()) attr.st_blocks = (attr.st_size + kBlock - 1) / kBlock;
  return {attr, 0};
}

fuse_entry_param Front::ToEntry(const Entry& entry) const {
  fuse_entry_param param{};
  param.ino = NodeId(*entry.node);
  param.generation = Volume::Generation(*entry.node);
  const ToldAttr told = Told(*entry.node, entry.attr, entry.provisional);
  param.attr = told.attr;
  param.attr_timeout = told.seconds;
  param.entry_timeout = kCacheSeconds;
  return param;
}

fuse_entry_out Front::ToEntryOut(const Entry& entry) const {
  fuse_entry_out out{};
  out.nodeid = NodeId(*entry.node);
  out.generation = Volume::Generation(*entry.node);
  out.entry_valid = static_cast<uint64_t>(kCacheSeconds);
  const ToldAttr told = Told(*entry.node, entry.attr, entry.provisional);
  out.attr_valid = static_cast<uint64_t>(told.seconds);
  out.attr = ToFuseAttr(told.attr);
  return out;
}

uint64_t Front::KeepHandle(Handle* handle) {
  const uint64_t fh = reinterpret_cast<uint64_t>(handle);
  absl::MutexLock lock(&mutex_);
  handles_.insert(fh);
  return fh;
}

void Front::DropHandle(uint64_t fh) {
  {
    absl::MutexLock lock(&mutex_);
    SALIUS_CHECK(handles_.erase(fh) == 1, "released twice");
    listings_.erase(fh);
  }
  volume_.Release(&handle(fh));
}

std::shared_ptr<Front::DirListing> Front::ListingOf(uint64_t fh) {
  absl::MutexLock lock(&mutex_);
  std::shared_ptr<DirListing>& listing = listings_[fh];
  if (listing == nullptr) listing = std::make_shared<DirListing>();
  return listing;
}

void Front::AwaitAnswers() {
  {
    absl::MutexLock lock(&waiting_mutex_);
    waiting_mutex_.Await(absl::Condition(
        +[](uint64_t* waiting) { return *waiting == 0; }, &waiting_));
  }
  // Answers whose records have become durable may still wait for pages, never the other way round.
  invalidator_.AwaitIdle();
}

void Front::ReleaseAll() {
  std::vector<uint64_t> left;
  {
    absl::MutexLock lock(&mutex_);
    left.assign(handles_.begin(), handles_.end());
    handles_.clear();
    listings_.clear();
  }
  for (const uint64_t fh : left) volume_.Release(&handle(fh));
}

int Front::Errno(const absl::Status& status) {
  const int err = StatusErrno(status);
  if (err == EIO) {
    metrics_.errors.Increment();
    SLOG_ERROR("request failed: {}", status.ToString());
  }
  return err;
}

uid_t Front::OpenerOf(const fuse_in_header& who) const {
  if (!volume_.ManyOpen()) return 0;
  return who.uid == kNoId ? IdsOf(who.pid).uid : who.uid;
}

fuse_in_header WhoAsks(fuse_req_t req) {
  const fuse_ctx* const context = fuse_req_ctx(req);
  fuse_in_header who{};
  who.uid = context->uid;
  who.gid = context->gid;
  who.pid = static_cast<uint32_t>(context->pid);
  return who;
}

bool RootAsks(const fuse_in_header& who) {
  return who.uid == kNoId ? IdsOf(who.pid).uid == 0 : who.uid == 0;
}

Caller Front::CallerOf(const fuse_in_header& who, mode_t umask, mode_t mode) const {
  Caller caller{.uid = who.uid, .gid = who.gid, .umask = umask};
  constexpr mode_t kBoth = S_ISGID | S_IXGRP;  // the groups matter for nothing else
  if ((mode & kBoth) != kBoth) return caller;
  if (idmap_.load(std::memory_order_relaxed)) {
    // A kernel that maps ids has checked the groups through the mapping, which /proc does not show.
    caller.sgid_checked = true;
  } else {
    caller.groups = SupplementaryGroups(who.pid);
  }
  return caller;
}

}  // namespace salius
