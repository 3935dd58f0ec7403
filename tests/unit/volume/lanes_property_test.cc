// Lanes against a simple model (RapidCheck: a failure prints the smallest case that it finds).
// Writes over several pages, truncations, names and other barriers of two files are added, put off
// or not. Tasks that have begun are applied in random order. The model is the list of the records:
// - No record may be applied before an earlier one that it depends on.
// - Each record is applied once, by one task.
// - When all tasks that have begun are applied, no record is left that is to be applied by then.
#include "client/volume/lanes.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "log/record.h"
// After gtest, which it needs.
#include <rapidcheck/gtest.h>

namespace salius {
namespace {

constexpr uint64_t kPage = Lanes::kPageBytes;
constexpr uint64_t kFilePages = 5;
constexpr FileId kFiles[] = {7, 8};
constexpr FileId kDir = 9;

size_t Below(size_t bound) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<size_t>(0, bound));
}

RecordRef Make(Seq seq, Op op, FileId file, uint64_t arg0, std::string body = "") {
  RecordDraft draft;
  draft.op = op;
  draft.file_id = file;
  draft.arg0 = arg0;
  draft.body = std::move(body);
  auto record = std::make_shared<Record>(std::move(draft));
  record->stamp().seq = seq;
  return record;
}

struct Entry {
  RecordRef record;
  std::vector<FileId> files;
  bool name = false;
  bool write = false;
  bool wanted = false;  // it is to be applied as soon as what it depends on is
  bool begun = false;   // a task with it was to be run
  bool applied = false;
  bool cut_off = false;  // a truncation or removal that follows may take it over
};

uint64_t Begin(const Entry& write) { return write.record->header().arg0; }
uint64_t End(const Entry& write) { return Begin(write) + write.record->body().size(); }

bool ShareAPage(const Entry& write, uint64_t begin, uint64_t end) {
  return Begin(write) / kPage * kPage < end && begin < (End(write) + kPage - 1) / kPage * kPage;
}

bool Depends(const Entry& later, const Entry& earlier) {
  if (later.name && earlier.name) return true;
  const bool same = std::any_of(later.files.begin(), later.files.end(), [&](FileId file) {
    return std::count(earlier.files.begin(), earlier.files.end(), file) > 0;
  });
  if (!same) return false;
  return !later.write || !earlier.write ||
         ShareAPage(earlier, Begin(later) / kPage * kPage, (End(later) + kPage - 1) / kPage * kPage);
}

class Model {
 public:
  // Adds a write over some pages, or several that follow one another.
  void AddWrites() {
    const FileId file = kFiles[Below(2)];
    const bool put_off = Below(3) != 0;
    uint64_t at = Below(kFilePages) * kPage + (Below(2) == 0 ? 0 : Below(kPage));
    std::vector<RecordRef> writes;
    for (size_t count = 1 + Below(2); count > 0; --count) {
      constexpr uint64_t kLengths[] = {10, kPage / 2, kPage, kPage + 10, 2 * kPage};
      const uint64_t length = kLengths[Below(std::size(kLengths))];
      writes.push_back(Make(++seq_, Op::kWrite, file, at, std::string(length, 'w')));
      at += length;
      entries_[seq_] = {writes.back(), {file}, false, true, !put_off};
    }
    Lanes::Ready ready;
    lanes_.AddWrites(writes, put_off, ready);
    Take(ready);
  }

  // Adds a truncation, the removal of a file, a link, or a change of attributes.
  void AddBarrier() {
    const FileId file = kFiles[Below(2)];
    FileId removed = kNoFileId;
    Entry entry;
    entry.wanted = true;
    entry.files = {file};
    switch (Below(4)) {
      case 0:
        entry.record = Make(++seq_, Op::kTruncate, file, Below(kFilePages * 2) * (kPage / 2));
        break;
      case 1:
        removed = file;
        [[fallthrough]];
      case 2:
        entry.record = Make(++seq_, Op::kUnlink, file, 0);
        entry.files = {file, kDir};
        entry.name = true;
        break;
      default:
        entry.record = Make(++seq_, Op::kSetAttr, file, 0);
    }
    const bool truncates = entry.record->header().op == Op::kTruncate;
    if (truncates || removed != kNoFileId) {
      for (auto& [seq, earlier] : entries_) {
        if (!earlier.write || earlier.files[0] != file) continue;
        earlier.cut_off |= Begin(earlier) >= entry.record->header().arg0;
      }
    }
    Lanes::Ready ready;
    lanes_.AddBarrier(entry.record, entry.files, entry.name, removed, ready);
    entries_[seq_] = std::move(entry);
    Take(ready);
  }

  void Hurry() {
    const Seq upto = Below(seq_ + 3);
    for (auto& [seq, entry] : entries_) entry.wanted |= seq <= upto;
    Lanes::Ready ready;
    lanes_.Hurry(upto, ready);
    Take(ready);
  }

  void HurryRange() {
    const FileId file = kFiles[Below(2)];
    const uint64_t at = Below(kFilePages * kPage), length = 1 + Below(2 * kPage);
    for (auto& [seq, entry] : entries_) {
      entry.wanted |= entry.write && entry.files[0] == file && ShareAPage(entry, at, at + length);
    }
    Lanes::Ready ready;
    lanes_.HurryRange(file, at, length, ready);
    Take(ready);
  }

  void Shrink() {
    const uint64_t most = Below(3 * kPage);
    Lanes::Ready ready;
    lanes_.Shrink(most, ready);
    RC_ASSERT(lanes_.put_off_bytes() <= most);
    Take(ready);
  }

  // Applies a task that has begun. Returns false if there is none.
  bool ApplyOne() {
    if (begun_.empty()) return false;
    const size_t which = Below(begun_.size());
    const auto [task, seqs] = begun_[which];
    begun_.erase(begun_.begin() + static_cast<ptrdiff_t>(which));
    RC_ASSERT(SeqsOf(*task) == seqs);  // a task that has begun changes no more
    for (const Seq seq : seqs) {
      Entry& entry = entries_.at(seq);
      // A truncation or removal only drops the writes that it took over.
      if (!task->barrier || seq == seqs.back()) CheckTurn(entry, seqs);
      entry.applied = true;
    }
    Lanes::Ready ready;
    lanes_.Finish(*task, ready);
    for (const Seq seq : seqs) entries_.erase(seq);
    Take(ready);
    return true;
  }

  void ApplyAll() {
    while (ApplyOne()) {
    }
    for (const auto& [seq, entry] : entries_) {
      RC_ASSERT(!entry.wanted);
      RC_ASSERT(!entry.begun);
    }
  }

  void Check() {
    RC_ASSERT(lanes_.first_unapplied() == (entries_.empty() ? 0 : entries_.begin()->first));
    RC_ASSERT(lanes_.empty() == entries_.empty());
    for (const FileId file : kFiles) {
      const bool has = std::any_of(entries_.begin(), entries_.end(), [&](const auto& entry) {
        return std::count(entry.second.files.begin(), entry.second.files.end(), file) > 0;
      });
      RC_ASSERT(lanes_.Has(file) == has);
    }
    if (entries_.empty()) RC_ASSERT(lanes_.put_off_bytes() == 0u);
  }

  void HurryAll() {
    for (auto& [seq, entry] : entries_) entry.wanted = true;
    Lanes::Ready ready;
    lanes_.Hurry(seq_, ready);
    Take(ready);
    ApplyAll();
    RC_ASSERT(entries_.empty());
    Check();
  }

 private:
  static std::vector<Seq> SeqsOf(const Lanes::Task& task) {
    std::vector<Seq> seqs;
    for (const RecordRef& record : task.records) seqs.push_back(record->seq());
    return seqs;
  }

  void Take(const Lanes::Ready& ready) {
    for (Lanes::Task* const task : ready) {
      std::vector<Seq> seqs = SeqsOf(*task);
      RC_ASSERT(!seqs.empty());
      RC_ASSERT(std::is_sorted(seqs.begin(), seqs.end()));
      for (const Seq seq : seqs) {
        RC_ASSERT(entries_.contains(seq));
        RC_ASSERT(!std::exchange(entries_.at(seq).begun, true));
      }
      begun_.emplace_back(task, std::move(seqs));
    }
  }

  // Every earlier record on which this one depends is applied, or is in the same task.
  void CheckTurn(const Entry& entry, const std::vector<Seq>& together) {
    for (const auto& [seq, earlier] : entries_) {
      if (seq >= entry.record->seq()) break;
      if (!Depends(entry, earlier) || (earlier.cut_off && !earlier.begun)) continue;
      RC_ASSERT(earlier.applied || std::count(together.begin(), together.end(), seq) > 0);
    }
  }

  std::map<Seq, Entry> entries_;  // those that are not applied
  std::vector<std::pair<Lanes::Task*, std::vector<Seq>>> begun_;
  Lanes lanes_;
  Seq seq_ = 0;
};

RC_GTEST_PROP(LanesPropertyTest, RecordsAreAppliedOnceAndInTheirOrder, ()) {
  Model model;
  for (size_t steps = Below(40); steps > 0; --steps) {
    switch (Below(12)) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4:
        model.AddWrites();
        break;
      case 5:
        model.AddBarrier();
        break;
      case 6:
        model.Hurry();
        break;
      case 7:
        model.HurryRange();
        break;
      case 8:
        model.Shrink();
        break;
      case 9:
        model.ApplyAll();
        break;
      default:
        model.ApplyOne();
    }
    model.Check();
  }
  model.HurryAll();
}

}  // namespace
}  // namespace salius
