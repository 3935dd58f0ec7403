// Answers that wait because they show something that is not durable (commit=external; I9).
//
// A request that reads is answered from memory as always. If the answer may show more than is
// durable, and the asking process is not one whose outputs are gated, then the answer itself is
// kept until all that was issued when it was made is durable. So it never shows anything later
// than what it waited for, however much is written meanwhile, and no worker waits.
//
//   answer to                                     | waits
//   ----------------------------------------------+---------------------------------------------
//   a process outside: LOOKUP, GETATTR, STATX,    | until everything issued is durable
//   READ, READLINK, GETXATTR, LISTXATTR, READDIR, |
//   READDIRPLUS, LSEEK                            |
//   a gated process: READ that fills the page     | until the last change of this file is durable:
//   cache (maps, programs), GETXATTR of an ACL    | the kernel answers others from its cache
//   a gated process, else                         | no
//
// The kernel keeps names and attributes of such a mount for no time at all (front.cc), so that
// every look comes here. A request that the volume's failure overtakes is answered EIO.
//
// Threads: Begin and Take may be called by any worker.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "client/fuse/raw_request.h"
#include "client/gate/insiders.h"
#include "client/gate/page.h"
#include "client/session/record_stream.h"

namespace salius {

class HeldAnswers final : public AnswerFilter {
 public:
  // Returns the last record of the node's own data and attributes; 0: none.
  using LastChange = std::function<Seq(uint64_t nodeid)>;

  // All outlive it, and `page` has the marks of `stream`.
  HeldAnswers(RecordStream& stream, const gate::Page& page, gate::Insiders& insiders,
              LastChange last_change)
      : stream_(stream),
        page_(page),
        insiders_(insiders),
        last_change_(std::move(last_change)) {}
  // AwaitAll must have returned.
  ~HeldAnswers() override;

  // Remembers a request whose answer may have to wait; called before anything is read for it.
  void Begin(const RawRequest& request);
  // Keeps the answer back if it must wait.
  bool Take(int fd, const iovec* parts, int count) override;
  // Returns when every answer that waited was sent; no request may come any more.
  void AwaitAll();

  struct Counts {
    uint64_t waiting = 0;  // answers that wait now
    uint64_t waited = 0;   // answers that had to wait, with those that still do
  };
  Counts counts() const;

 private:
  struct Asked {
    uint32_t tid = 0;
    uint64_t nodeid = 0;
    bool fills = false;  // the answer goes into a cache of the kernel that answers others
  };

  void Send(int fd, const std::string& answer, uint64_t nodeid, const absl::Status& durable);

  RecordStream& stream_;
  const gate::Page& page_;
  gate::Insiders& insiders_;
  const LastChange last_change_;
  mutable absl::Mutex mu_;
  absl::flat_hash_map<uint64_t, Asked> asked_ ABSL_GUARDED_BY(mu_);  // by the request's number
  Counts counts_ ABSL_GUARDED_BY(mu_);
};

// Returns whether the answer to a request of this kind shows names, attributes or data. Pure.
bool Shows(uint32_t opcode);
// Returns whether the answer to the request goes into a cache from which the kernel answers other
// processes, whatever its time-outs. Pure.
bool FillsCache(const RawRequest& request);

}  // namespace salius
