// The FUSE front: every kernel request becomes one call of client/volume/volume.h, its result one
// answer. There is no logic of files here, only the kernel's side:
//
// - Coherency. One kernel is the only user, so the kernel may cache names and attributes without
//   limit; it drops them when an operation of its own changes them. The write-back cache is never
//   used (it would lose O_SYNC and the order of writes). Whether an inode is cached at all:
//   open_state.h.
// - Appends. The kernel computes the offset under the inode's lock, for O_APPEND and RWF_APPEND
//   alike, and honours RWF_NOAPPEND, which this process cannot see. So its offset is used.
// - Pages. The kernel's cache is newer than the file while a shared map is stored into, and may be
//   older after a direct write. A request that depends on it first has the kernel write back or
//   drop its pages (AfterPages).
// - Privileges. HANDLE_KILLPRIV_V2 is negotiated, because without it the kernel asks for
//   security.capability before every single write. So suid, sgid and capabilities are removed here.
// - With commit=external (ExternalFront) the kernel caches nothing that could answer a process whose
//   outputs are not gated: every file is direct, names and attributes are good for no time.
//   Answers to such a process wait (held_answers.h).
// - Locks (flock, fcntl) and interrupts are refused on purpose: the kernel then keeps the locks,
//   and a blocked lock holds no worker.
//
// Operations that libfuse 3.14 decodes in full go through its low-level table (Ops). HandleRaw
// takes the others first: those of which libfuse drops a part (OPEN, CREATE, WRITE, SETATTR,
// SETXATTR) and those that it does not know (TMPFILE, STATX).
//
// Numbers. Nodes and open files are numbers for the kernel (id_table.h). A request that names an
// unknown node is answered ESTALE, one that names an unknown file EBADF, and the log says so. A
// known one stays until the request is answered: the kernel sends no FORGET or RELEASE before.
//
// Threads: every method may be called by any worker; the volume does the locking. Only the tables
// of numbers and the number of pending answers are kept here, each under a lock of its own, which
// is a leaf.
#pragma once

#define FUSE_USE_VERSION 314
#include <fuse3/fuse_lowlevel.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/api/ioctl.h"
#include "client/fuse/caller_events.h"
#include "client/fuse/dir_offsets.h"
#include "client/fuse/front_metrics.h"
#include "client/fuse/held_answers.h"
#include "client/fuse/id_table.h"
#include "client/fuse/node_ids.h"
#include "client/fuse/open_state.h"
#include "client/fuse/page_invalidator.h"
#include "client/fuse/raw_request.h"
#include "client/fuse/timed_waits.h"
#include "client/gate/insiders.h"
#include "client/gate/page.h"
#include "client/session/record_stream.h"
#include "client/volume/contract.h"
#include "client/volume/node.h"
#include "client/volume/volume.h"

namespace salius {

// An open directory, and the offsets of its entries.
struct OpenDirectory {
  explicit OpenDirectory(Handle& opened) : handle(opened), offsets(kept, DirOffsets::kMaxKept) {}

  Handle& handle;
  absl::Mutex mutex;
  DirOffsets offsets ABSL_GUARDED_BY(mutex);
  static inline std::atomic<uint64_t> kept{0};
};

// The parts of a front on a mount with commit=external.
struct ExternalFront {
  ExternalFront(RecordStream& stream, gate::Page& gate_page, gate::Insiders& inside,
                HeldAnswers::LastChange last_change, std::string path)
      : held(stream, gate_page, inside, std::move(last_change)),
        page(gate_page),
        insiders(inside),
        gate_path(std::move(path)) {}

  HeldAnswers held;
  gate::Page& page;
  gate::Insiders& insiders;
  const std::string gate_path;  // of the gate socket
};

class Front {
 public:
  // Makes a front on `volume`, which must outlive it.
  explicit Front(Volume& volume);
  // Checks that ReleaseAll was called, if a handle was open.
  ~Front();
  Front(const Front&) = delete;
  Front& operator=(const Front&) = delete;

  // Returns the table for fuse_session_new; its user data is a Front*.
  static const fuse_lowlevel_ops& Ops();

  // Answers the request and returns true if libfuse does not decode it in full; else returns false.
  bool HandleRaw(const RawRequest& request);

  // Sets the flags negotiated with the kernel; called once, before the first request.
  void SetNegotiated(uint64_t init_flags);
  // Sets the libfuse session to which invalidations go; called once, before the first request.
  void SetSession(fuse_session* session);

  // Makes it the front of a mount with commit=external; called once, before the first request.
  // `external` outlives it.
  void SetExternal(ExternalFront& external) { external_ = &external; }
  // Null: another contract.
  ExternalFront* external() const { return external_; }
  AnswerFilter* filter() const { return external_ != nullptr ? &external_->held : nullptr; }

  // Returns when every answer that waited for durability or for pages has been sent; no request may
  // come any more.
  void AwaitAnswers();
  // Releases the handles that the kernel did not release (it drops RELEASE messages when a
  // connection ends). After it no request may come any more.
  void ReleaseAll();

  // ---- for the operations (front_*.cc)
  Volume& volume() { return volume_; }
  // Return what the kernel names by a number. Null, and a line in the log: the number is unknown.
  Node* FindNode(uint64_t nodeid) const;
  Handle* FindFile(uint64_t fh) const;
  OpenDirectory* FindDirectory(uint64_t fh) const;
  // Give a file or directory that was opened its number (`fh`).
  uint64_t KeepFile(Handle& handle) { return files_.Insert(handle); }
  uint64_t KeepDirectory(Handle& handle);
  // Release it. The number is then unknown; if it was already, nothing happens.
  void DropFile(uint64_t fh);
  void DropDirectory(uint64_t fh);
  // Gives back lookups that the kernel owns; ignores an unknown node, and the root.
  void Forget(uint64_t nodeid, uint64_t lookups);

  // Attributes for the kernel, and for how many seconds it may keep them. While a shared map of a
  // file may be stored into, the kernel must not remember the file as sparse. Once a map has been
  // stored into, the file must not look sparse at all: a hole may hold data in the kernel's pages.
  // Where that cannot be asked (has_new_mode), the file has at least the blocks of a page.
  struct KernelAttr {
    struct stat attr {};
    double seconds = 0;
  };
  KernelAttr ToKernelAttr(const Node& node, struct stat attr, bool provisional) const;
  // Returns an entry for the kernel, which then owns the lookup (Forget).
  fuse_entry_param ToEntry(const Entry& entry);
  // Has the kernel forget the node's attributes and ACLs, and ignore answers to requests for
  // attributes that it sent before. It does not wait for pages.
  void ForgetAttr(uint64_t nodeid);
  // Returns the last record of the node's own data and attributes; 0: none.
  Seq LastChange(uint64_t nodeid) const;
  // Returns the user to whom an open counts; root while that does not matter.
  uid_t OpenerOf(const fuse_in_header& header) const;

  // Calls `reply` with the node's attributes, from this thread or another (AfterPages).
  void WithAttr(
      Node& node, uint64_t nodeid,
      const std::function<void(const absl::StatusOr<struct stat>&, bool provisional)>& reply);

  // Takes early return from a file on which a process synchronises that must wait: its outputs are
  // not gated (any more: exec), or a shared map of the file may be stored into, which others see.
  void CheckEarly(Handle& file, uint32_t tid) {
    if (file.early.load(std::memory_order_relaxed) && !MayReturnEarly(file, tid)) {
      file.early.store(false, std::memory_order_relaxed);
    }
  }
  // Tells gated processes that a file may get a shared map that is stored into. To be called before
  // the answer with which it may.
  void CountMapped() {
    if (external_ != nullptr) external_->page.CountMapped();
  }
  // Returns for how many seconds the kernel may keep a name or attributes.
  double CacheSeconds() const;

  FrontMetrics& metrics() { return *metrics_; }
  // Returns the metrics, for a server of them.
  std::shared_ptr<prometheus::Collectable> SharedMetrics() const { return metrics_; }
  // Calls `answer` with the outcome of the wait: at once when the ticket is settled, else from this
  // thread or another. Meanwhile the worker continues, unless it becomes the leader, which receives
  // acknowledgements (RecordStream::WhenDurable).
  template <typename Answer>
  void AnswerWhenDurable(const Ticket& ticket, const Answer& answer) {
    if (ticket.settled()) return answer(absl::OkStatus());
    {
      absl::MutexLock lock(&waiting_mutex_);
      ++waiting_;
    }
    volume_.files().WhenDurable(ticket, [this, answer](const absl::Status& status) {
      answer(status);
      absl::MutexLock lock(&waiting_mutex_);
      --waiting_;
    });
  }
  // Does so without hurry: this worker never becomes the leader (RecordStream::NotifyDurable).
  template <typename Answer>
  void NotifyWhenDurable(const Ticket& ticket, const Answer& answer) {
    if (ticket.settled()) return answer(absl::OkStatus());
    {
      absl::MutexLock lock(&waiting_mutex_);
      ++waiting_;
    }
    volume_.files().NotifyDurable(ticket, [this, answer](const absl::Status& status) {
      answer(status);
      absl::MutexLock lock(&waiting_mutex_);
      --waiting_;
    });
  }
  static OpenState StateOf(const Node& node) {
    return OpenState(const_cast<Node&>(node).front_word);
  }
  // Calls `then` after the kernel has written back and dropped its pages of the node from `offset`
  // on (to the end when `length` is 0). It is called from another thread, so that this worker can
  // answer the requests on which that waits.
  void AfterPages(uint64_t nodeid, uint64_t offset, uint64_t length, std::function<void()> then) {
    invalidator_.Run(nodeid, offset, length, std::move(then));
  }
  // Returns the caller for making an object of this mode.
  Caller CallerOf(const fuse_in_header& header, mode_t umask, mode_t mode) const;
  // Removes suid, sgid and file capabilities, as the VFS does when the caller of `header` writes,
  // truncates or gives away the file. `mode_bits` false: capabilities only (the kernel says that
  // the caller keeps the bits).
  absl::Status KillPrivileges(Node& node, uint64_t nodeid, const fuse_in_header& header,
                              bool mode_bits);
  // Returns the errno of `status`; counts and logs EIO, which only a failing volume gives.
  int Errno(const absl::Status& status);

 private:
  void RawOpen(const RawRequest& request);
  void RawCreate(const RawRequest& request);  // CREATE and TMPFILE
  void RawWrite(const RawRequest& request);
  // Calls `reply` when the ticket is settled and the kernel has dropped its pages of the range.
  void AnswerAfterPages(uint64_t nodeid, const fuse_write_in& in, const Ticket& ticket,
                        std::function<void(const absl::Status&)> reply);
  // Returns whether a synchronous call of that thread on the file may return early.
  bool MayReturnEarly(const Handle& file, uint32_t tid) const;
  void RawIoctl(const RawRequest& request);
  // Answer the ioctls of durability, on an open file or directory. `args`: what the kernel passes.
  void AnswerMarks(const RawAnswer& answer);
  void AnswerDsync(const RawAnswer& answer, Handle& file);
  void AnswerNotify(const RawAnswer& answer, Handle& file, uint32_t tid, std::string_view args);
  absl::Status StartNotify(Handle& file, uint32_t tid, salius_ioc_notify& args, UniqueFd* event);
  void AnswerWait(const RawAnswer& answer, std::string_view args);
  // Answers SALIUS_IOC_EARLY: grants early return, or takes it back.
  int GrantEarly(Handle& file, uint32_t tid, bool on) const;
  void RawStatx(const RawRequest& request);
  void RawSetAttr(const RawRequest& request);
  void DoSetAttr(Node& node, const fuse_setattr_in& in, const fuse_in_header& header,
                 const RawAnswer& answer);
  void RawSetXattr(const RawRequest& request);

  // Returns the node's id, and counts the lookup, which the kernel owns from now on.
  uint64_t GiveLookup(Node& node);
  fuse_entry_out ToEntryOut(const Entry& entry, uint64_t nodeid) const;
  uint32_t GrantOpen(Node& node, uint64_t nodeid, int flags);
  // Finds the node of the request. Null: it is unknown, and the request was answered.
  Node* NodeOf(const RawRequest& request) const;

  Volume& volume_;
  ExternalFront* external_ = nullptr;  // null: another contract
  fuse_session* session_ = nullptr;
  PageInvalidator invalidator_;
  EventSignals signals_;
  TimedWaits timed_waits_;
  std::atomic<bool> map_direct_{false};    // FUSE_DIRECT_IO_ALLOW_MMAP was negotiated
  std::atomic<bool> setxattr_ext_{false};  // SETXATTR has its long form
  std::atomic<bool> idmap_{false};         // FUSE_ALLOW_IDMAP was negotiated
  const std::shared_ptr<FrontMetrics> metrics_ = std::make_shared<FrontMetrics>();

  absl::Mutex waiting_mutex_;
  uint64_t waiting_ ABSL_GUARDED_BY(waiting_mutex_) = 0;  // answers that wait for durability

  NodeIds nodes_;
  IdTable<Handle> files_;
  IdTable<OpenDirectory> directories_;  // owned
};

// Time-outs of names and attributes in the kernel's cache, in seconds. A day stands for "for ever":
// only this kernel changes a volume in use.
inline constexpr double kCacheSeconds = 86400;

// Add the operations of one file each.
void AddNameOps(fuse_lowlevel_ops* ops);
void AddFileOps(fuse_lowlevel_ops* ops);
void AddAttrOps(fuse_lowlevel_ops* ops);
void AddDirOps(fuse_lowlevel_ops* ops);

// Returns the front of a request that libfuse decoded.
inline Front& FrontOf(fuse_req_t req) { return *static_cast<Front*>(fuse_req_userdata(req)); }
// Find what a request names. Null: it is unknown, and the request was answered (ESTALE, EBADF).
Node* NodeOf(fuse_req_t req, fuse_ino_t ino);
Handle* FileOf(fuse_req_t req, const fuse_file_info* fi);
OpenDirectory* DirectoryOf(fuse_req_t req, const fuse_file_info* fi);
// Returns the caller as libfuse names it: user, group and process.
fuse_in_header CallerHeader(fuse_req_t req);
// Returns whether the caller is root. Where a mount may be idmapped the kernel does not say, and
// /proc is asked.
bool CallerIsRoot(const fuse_in_header& header);

}  // namespace salius
