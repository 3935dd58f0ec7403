// The order in which records that were put into lanes may be applied (docs/non-blocking-writes.md).
//
// A write whose page is not in memory waits for the disk. Records that do not depend on it need not
// wait with it. So such a record becomes a task, and tasks run beside each other unless they touch
// the same:
//
// - A write waits for the last task on each of its pages. If the latest of these has not begun, the
//   write joins it: both are applied with one call. So are writes that follow one another in their
//   file and are added together.
// - A barrier is a task with one record of another kind: attributes, a new size, a name. It waits
//   for all earlier tasks of the files that it touches, and all later ones of these wait for it.
//   Barriers of names also keep the order of their records.
// - A truncation takes over the writes of its file that have not begun and lie behind the new end:
//   their pages need not be fetched. They count as applied when the truncation is. So does the
//   removal of a file that cannot be read any more, with all its writes that have not begun.
// - A task may be put off: it runs when a caller hurries it, when a task that is not put off waits for
//   it, or when its writes fill all their pages, so that nothing need be fetched.
//
// The caller adds records in the order of their seqs.
//
// pure: no thread, lock, socket or clock. The owner (LaneSink) locks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "client/session/record_stream.h"
#include "client/volume/extents.h"
#include "common/ids.h"

namespace salius {

class Lanes {
 public:
  static constexpr uint64_t kPageBytes = 4096;

  struct Task;
  struct Earlier {
    bool operator()(const Task* a, const Task* b) const;
  };
  using Tasks = std::set<Task*, Earlier>;

  struct Task {
    std::vector<FileId> files;  // of a write: one
    bool barrier = false;
    // A write's records, in the order of their seqs, and what of them is to be written. A barrier's
    // record is the last one; those before it are the ones that it took over.
    std::vector<RecordRef> records;
    Extents extents;

   private:
    friend class Lanes;
    enum class State { kWaiting, kPutOff, kBegun };
    uint64_t number = 0;  // later tasks have larger ones
    State state = State::kWaiting;
    bool put_off = false;  // it is to be put off when it waits for no task
    Tasks before;              // tasks for which it waits
    std::vector<Task*> after;  // tasks that wait for it
    std::set<uint64_t> pages;  // of a write
  };

  Lanes();
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  bool empty() const { return tasks_.empty(); }
  // Returns the number of tasks.
  size_t size() const { return tasks_.size(); }
  // Returns whether a task touches the file, or these pages of it.
  bool Has(FileId file) const { return files_.contains(file); }
  bool Touches(FileId file, uint64_t offset, uint64_t length) const;
  bool has_names() const { return last_name_ != nullptr; }
  // Returns the first record that is not applied; 0: there is none.
  Seq first_unapplied() const { return unapplied_.empty() ? 0 : *unapplied_.begin(); }
  // Returns the bytes of data of the tasks that are put off.
  uint64_t put_off_bytes() const { return put_off_bytes_; }
  // Returns how many fetches became unnecessary.
  uint64_t elided_pages() const { return elided_pages_; }

  // Each of these adds the tasks that may run now to `ready`. A task in `ready` has begun: it is to
  // be run, and ended with Finish if that succeeded. A task that waits for a failed one never runs.
  using Ready = std::vector<Task*>;
  // Adds writes of a file, each of which begins where the one before ends: all become part of one
  // task. `put_off`: it runs when it is hurried.
  void AddWrites(absl::Span<const RecordRef> writes, bool put_off, Ready& ready);
  // Adds any other record. `files`: those that it touches; `name`: it changes names; `removed`: the
  // file whose data it makes useless, or kNoFileId.
  void AddBarrier(RecordRef record, std::vector<FileId> files, bool name, FileId removed,
                  Ready& ready);
  // Ends a task whose records were applied.
  void Finish(Task& task, Ready& ready);
  // Begins what was put off and has a record up to `seq`, now and later.
  void Hurry(Seq seq, Ready& ready);
  // Begins what was put off, or would be, and touches the range.
  void HurryRange(FileId file, uint64_t offset, uint64_t length, Ready& ready);
  // Begins the tasks that were put off longest until at most `bytes` are put off.
  void Shrink(uint64_t bytes, Ready& ready);

  // Returns the pages of a write's task that its extents fill only in part: those to be fetched.
  static std::vector<uint64_t> PartialPages(const Task& task);
  // Returns the first page of a write's task.
  static uint64_t FirstPage(const Task& task) { return *task.pages.begin(); }

 private:
  struct File {
    absl::flat_hash_map<uint64_t, Task*> last;  // the last write on each page, after `barrier`
    Task* barrier = nullptr;                    // the last one
    Tasks tasks;
  };

  Task* NewTask();
  void WaitFor(Task& task, Task& earlier);
  // Begins the task, or puts it off, if it waits for no other one.
  void Settle(Task& task, Ready& ready);
  void Begin(Task& task, Ready& ready);
  // Has a task begin as soon as it can, and all for which it waits.
  void HurryTask(Task& task, Ready& ready);
  // Takes a task out of the order. Tasks that waited for it may run.
  void Unlink(Task& task, Ready& ready);
  // Has a barrier take over the writes of a file that have not begun and lie behind `size`.
  void TakeOver(Task& barrier, FileId file, uint64_t size, Ready& ready);
  static bool IsPartial(const Task& task, uint64_t page);

  std::map<const Task*, std::unique_ptr<Task>> tasks_;
  absl::flat_hash_map<FileId, File> files_;
  std::set<Seq> unapplied_;
  std::map<uint64_t, Task*> put_off_;  // by number
  Task* last_name_ = nullptr;
  Seq hurried_ = 0;
  uint64_t next_number_ = 1;
  uint64_t put_off_bytes_ = 0;
  uint64_t elided_pages_ = 0;
};

inline bool Lanes::Earlier::operator()(const Task* a, const Task* b) const {
  return a->number < b->number;
}

}  // namespace salius
