// The stream's sink: decides when a durable record is applied (docs/non-blocking-writes.md).
//
// Nearly all records are applied at once, in their turn. A write that changes a part of a page which
// is not in memory would wait for the disk, and all records with it. It goes into a lane (Lanes): a
// worker fetches the page, then applies the write. So do the records that depend on it. While no
// lane is in use, a record costs one load more.
//
// Records in lanes are applied in another order than their seqs. That is safe: all of them are
// durable, so every recovery replays all that are not in the applied prefix, in order.
//
// An error in a lane is final. Its records stay unapplied, readers still see them, and the log keeps
// them (I8).
//
// Threads: as ApplySink, and the workers'. Under the lock no other is taken.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "client/session/record_stream.h"
#include "client/volume/backing_applier.h"
#include "client/volume/fetch_policy.h"
#include "client/volume/lanes.h"
#include "client/volume/node.h"
#include "client/volume/node_fds.h"
#include "client/volume/lane_workers.h"
#include "client/volume/patch_memory.h"
#include "common/ids.h"
#include "storage/backing.h"

namespace salius {

class LaneSink final : public ApplySink {
 public:
  // Puts off at most half of what `memory` may hold, and nothing while a writer waits for room.
  // `most_wait_ns`: how old a record may become in a lane (BeforeWrite). All references outlive this.
  LaneSink(Backing& backing, NodeTable& table, NodeFds& fds, BackingApplier& applier,
           FetchPolicy& policy, LaneWorkers& workers, const PatchMemory& memory,
           int64_t most_wait_ns);

  absl::StatusOr<size_t> Apply(absl::Span<const RecordRef> records) override;
  Seq FirstUnapplied() override;
  absl::Status LateError() override;
  void OnLateChange(std::function<void()> changed) override { changed_ = std::move(changed); }
  void Hurry(Seq seq) override;
  absl::Status SyncApplied() override { return applier_.SyncApplied(); }
  void Checkpointed() override { applier_.Checkpointed(); }

  // Does the writer's part before a write of a part of a page is stamped, as FetchPolicy::BeforeWrite.
  // If the oldest record would become older than `most_wait_ns` until the disk has done what is in
  // lanes, the writer fetches the page itself, whatever the policy: no record of the volume may be
  // issued while one is too old (I6), so all writers would wait.
  absl::Status BeforeWrite(const RecordStream& stream, int fd, uint64_t offset, uint64_t length);
  // Begins what was put off in a range that was read: its pages are in memory now.
  void NoteRead(const Node& node, uint64_t offset, uint64_t length);

  struct Figures {
    uint64_t put_off_bytes = 0;  // data of writes whose pages are not fetched yet (lazy)
    uint64_t elided_pages = 0;   // pages that need not be fetched any more
    uint64_t fetched_pages = 0;  // by workers
  };
  Figures figures();

 private:
  // The time of the disk for a task, until it is known: that of a hard disk.
  static constexpr int64_t kUnknownTaskNs = 2'000'000;

  // The reasons for which writes that follow one another in a file are not applied at once.
  struct Obstacles {
    bool depends = false;  // a record in a lane touches the same pages
    bool misses = false;   // a page that they fill in part is not in memory
    bool any() const { return depends || misses; }
  };
  absl::StatusOr<Obstacles> ObstaclesOf(absl::Span<const RecordRef> writes);
  // Applies the first of the writes, which follow one another in a file, or puts them into a lane.
  // Returns how many.
  absl::StatusOr<size_t> ApplyWrites(absl::Span<const RecordRef> writes);
  void TakeWrites(absl::Span<const RecordRef> writes, bool put_off);
  // Puts another record into lanes if one that it depends on is there.
  absl::StatusOr<bool> TakeOther(const RecordRef& record);
  // Returns the file that can never be read again once the record, its last name's removal, is
  // applied, and has no handle opened on it from now on; kNoFileId: there is none.
  FileId GiveUp(const Record& record) ABSL_LOCKS_EXCLUDED(mu_);
  // Has the tasks run, without the lock.
  void Run(const Lanes::Ready& ready) ABSL_LOCKS_EXCLUDED(mu_);
  void RunTask(Lanes::Task& task) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status ApplyTask(Lanes::Task& task);
  void NoteBusy() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    busy_.store(!lanes_.empty(), std::memory_order_release);
    behind_ns_.store(static_cast<int64_t>(lanes_.size()) * task_ns_, std::memory_order_relaxed);
  }
  // Returns whether the oldest record may become too old.
  bool IsBehind(const RecordStream& stream) const;
  // Does work that waits for the disk, and learns how long the disk needs for each beside the others.
  absl::Status Timed(absl::FunctionRef<absl::Status()> work) ABSL_LOCKS_EXCLUDED(mu_);

  Backing& backing_;
  NodeTable& table_;
  NodeFds& fds_;
  BackingApplier& applier_;
  FetchPolicy& policy_;
  LaneWorkers& workers_;
  const PatchMemory& memory_;
  const int64_t most_wait_ns_;
  std::function<void()> changed_ = [] {};
  std::atomic<bool> busy_{false};  // lanes_ is not empty
  std::atomic<int64_t> behind_ns_{0};  // for how long the tasks in lanes_ need the disk, about
  std::atomic<int> at_disk_{0};        // calls of Timed under way
  std::atomic<uint64_t> fetched_{0};
  absl::Mutex mu_;
  Lanes lanes_ ABSL_GUARDED_BY(mu_);
  int64_t task_ns_ ABSL_GUARDED_BY(mu_) = kUnknownTaskNs;
  absl::Status error_ ABSL_GUARDED_BY(mu_);  // the first one
};

}  // namespace salius
