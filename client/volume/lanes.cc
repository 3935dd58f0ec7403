#include "client/volume/lanes.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace salius {
namespace {

struct Pages {
  uint64_t first = 0, end = 0;
};

Pages PagesOf(uint64_t offset, uint64_t length) {
  return {offset / Lanes::kPageBytes, (offset + length + Lanes::kPageBytes - 1) / Lanes::kPageBytes};
}

// Returns the pages of writes that follow one another.
Pages PagesOf(absl::Span<const RecordRef> writes) {
  const RecordHeader& last = writes.back()->header();
  const uint64_t begin = writes[0]->header().arg0;
  return PagesOf(begin, last.arg0 + last.body_bytes - begin);
}

}  // namespace

Lanes::Lanes() = default;
Lanes::~Lanes() = default;

bool Lanes::Touches(FileId file, uint64_t offset, uint64_t length) const {
  const auto found = files_.find(file);
  if (found == files_.end()) return false;
  if (found->second.barrier != nullptr) return true;
  const Pages pages = PagesOf(offset, length);
  for (uint64_t page = pages.first; page < pages.end; ++page) {
    if (found->second.last.contains(page)) return true;
  }
  return false;
}

bool Lanes::IsPartial(const Task& task, uint64_t page) {
  const std::vector<Extent> extents = task.extents.In(page * kPageBytes, kPageBytes);
  return !extents.empty() && !AreWhole(extents, page * kPageBytes, kPageBytes);
}

std::vector<uint64_t> Lanes::PartialPages(const Task& task) {
  std::vector<uint64_t> partial;
  for (const uint64_t page : task.pages) {
    if (IsPartial(task, page)) partial.push_back(page);
  }
  return partial;
}

Lanes::Task* Lanes::NewTask() {
  auto made = std::make_unique<Task>();
  made->number = next_number_++;
  Task* const task = made.get();
  tasks_.emplace(task, std::move(made));
  return task;
}

void Lanes::WaitFor(Task& task, Task& earlier) {
  if (&task == &earlier) return;
  SALIUS_CHECK(earlier.number < task.number);
  if (task.before.insert(&earlier).second) earlier.after.push_back(&task);
}

void Lanes::Begin(Task& task, Ready& ready) {
  if (task.state == Task::State::kPutOff) {
    put_off_.erase(task.number);
    put_off_bytes_ -= task.extents.bytes();
  }
  task.state = Task::State::kBegun;
  ready.push_back(&task);
}

void Lanes::Settle(Task& task, Ready& ready) {
  if (task.state != Task::State::kWaiting || !task.before.empty()) return;
  if (!task.put_off || task.records.front()->seq() <= hurried_) return Begin(task, ready);
  task.state = Task::State::kPutOff;
  put_off_.emplace(task.number, &task);
  put_off_bytes_ += task.extents.bytes();
}

void Lanes::HurryTask(Task& task, Ready& ready) {
  if (!task.put_off || task.state == Task::State::kBegun) return;
  task.put_off = false;
  if (task.state == Task::State::kPutOff) return Begin(task, ready);
  for (Task* const earlier : task.before) HurryTask(*earlier, ready);
}

void Lanes::AddWrites(absl::Span<const RecordRef> writes, bool put_off, Ready& ready) {
  const FileId id = writes[0]->header().file_id;
  File& file = files_[id];
  const Pages pages = PagesOf(writes);
  Tasks conflicts;
  if (file.barrier != nullptr) conflicts.insert(file.barrier);
  for (uint64_t page = pages.first; page < pages.end; ++page) {
    const auto last = file.last.find(page);
    if (last != file.last.end()) conflicts.insert(last->second);
  }
  Task* task = conflicts.empty() ? nullptr : *conflicts.rbegin();
  const bool joins = task != nullptr && !task->barrier && task->state != Task::State::kBegun;
  if (!joins) {
    task = NewTask();
    task->files = {id};
    task->put_off = put_off;
    file.tasks.insert(task);
  }
  for (Task* const conflict : conflicts) WaitFor(*task, *conflict);
  const bool counted = task->state == Task::State::kPutOff;
  if (counted) put_off_bytes_ -= task->extents.bytes();
  std::vector<uint64_t> partial;  // pages that had to be fetched
  for (uint64_t page = pages.first; page < pages.end; ++page) {
    file.last[page] = task;
    if (task->put_off && IsPartial(*task, page)) partial.push_back(page);
    task->pages.insert(page);
  }
  for (const RecordRef& write : writes) {
    unapplied_.insert(write->seq());
    task->extents.Add(write);
    task->records.push_back(write);
  }
  if (counted) put_off_bytes_ += task->extents.bytes();
  bool filled = false;
  for (const uint64_t page : partial) {
    if (IsPartial(*task, page)) continue;
    ++elided_pages_;
    filled = true;
  }
  if (task->state == Task::State::kPutOff && !task->before.empty()) {
    // It waits for a task that the new records touch.
    put_off_.erase(task->number);
    put_off_bytes_ -= task->extents.bytes();
    task->state = Task::State::kWaiting;
  }
  if (!put_off || (filled && PartialPages(*task).empty())) HurryTask(*task, ready);
  if (!task->put_off) {
    // The task may have been hurried before, when it did not wait for these.
    for (Task* const conflict : conflicts) HurryTask(*conflict, ready);
  }
  Settle(*task, ready);
}

void Lanes::TakeOver(Task& barrier, FileId file, uint64_t size, Ready& ready) {
  std::vector<Task*> dropped;
  for (Task* const task : files_[file].tasks) {
    if (task->barrier || task->state == Task::State::kBegun) continue;
    const bool behind = std::all_of(
        task->records.begin(), task->records.end(),
        [&](const RecordRef& record) { return record->header().arg0 >= size; });
    if (behind) dropped.push_back(task);
  }
  for (Task* const task : dropped) {
    elided_pages_ += PartialPages(*task).size();
    if (task->state == Task::State::kPutOff) {
      put_off_.erase(task->number);
      put_off_bytes_ -= task->extents.bytes();
    }
    // One that waits only for others of these must not begin when they leave.
    task->state = Task::State::kBegun;
  }
  for (Task* const task : dropped) {
    barrier.records.insert(barrier.records.end(), task->records.begin(), task->records.end());
    Unlink(*task, ready);
  }
  std::sort(barrier.records.begin(), barrier.records.end(),
            [](const RecordRef& a, const RecordRef& b) { return a->seq() < b->seq(); });
}

void Lanes::AddBarrier(RecordRef record, std::vector<FileId> files, bool name, FileId removed,
                       Ready& ready) {
  Task& task = *NewTask();
  task.barrier = true;
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  unapplied_.insert(record->seq());
  const RecordHeader& header = record->header();
  if (header.op == Op::kTruncate && Has(header.file_id)) {
    TakeOver(task, header.file_id, header.arg0, ready);
  }
  if (removed != kNoFileId && Has(removed)) TakeOver(task, removed, 0, ready);
  if (name) {
    if (last_name_ != nullptr) WaitFor(task, *last_name_);
    last_name_ = &task;
  }
  for (const FileId id : files) {
    File& file = files_[id];
    for (Task* const earlier : file.tasks) {
      WaitFor(task, *earlier);
      HurryTask(*earlier, ready);
    }
    file.last.clear();
    file.barrier = &task;
    file.tasks.insert(&task);
  }
  task.files = std::move(files);
  task.records.push_back(std::move(record));
  Settle(task, ready);
}

void Lanes::Unlink(Task& task, Ready& ready) {
  for (const FileId id : task.files) {
    const auto found = files_.find(id);
    File& file = found->second;
    file.tasks.erase(&task);
    if (file.barrier == &task) file.barrier = nullptr;
    for (const uint64_t page : task.pages) {
      const auto last = file.last.find(page);
      if (last != file.last.end() && last->second == &task) file.last.erase(last);
    }
    if (file.tasks.empty()) files_.erase(found);
  }
  if (last_name_ == &task) last_name_ = nullptr;
  for (Task* const earlier : task.before) std::erase(earlier->after, &task);
  for (Task* const later : task.after) {
    later->before.erase(&task);
    // The tasks that it waited for still come before those that waited for it.
    for (Task* const earlier : task.before) WaitFor(*later, *earlier);
    Settle(*later, ready);
  }
  tasks_.erase(&task);
}

void Lanes::Finish(Task& task, Ready& ready) {
  for (const RecordRef& record : task.records) unapplied_.erase(record->seq());
  Unlink(task, ready);
}

void Lanes::Hurry(Seq seq, Ready& ready) {
  hurried_ = std::max(hurried_, seq);
  // Later tasks begin with later records.
  while (!put_off_.empty() && put_off_.begin()->second->records.front()->seq() <= seq) {
    HurryTask(*put_off_.begin()->second, ready);
  }
}

void Lanes::HurryRange(FileId id, uint64_t offset, uint64_t length, Ready& ready) {
  const auto found = files_.find(id);
  if (found == files_.end()) return;
  const Pages pages = PagesOf(offset, length);
  for (uint64_t page = pages.first; page < pages.end; ++page) {
    const auto last = found->second.last.find(page);
    if (last != found->second.last.end()) HurryTask(*last->second, ready);
  }
}

void Lanes::Shrink(uint64_t bytes, Ready& ready) {
  while (put_off_bytes_ > bytes && !put_off_.empty()) HurryTask(*put_off_.begin()->second, ready);
}

}  // namespace salius
