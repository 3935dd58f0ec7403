// Properties of PlanReplay over random records: the plan of every prefix is well-formed, and depends
// on the records alone. RapidCheck: a failure prints the smallest case that it finds;
// RC_PARAMS="reproduce=..." runs it again.
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
// After gtest, which it needs.
#include <rapidcheck/gtest.h>

#include "recovery/replay/replay_plan.h"
#include "storage/apply.h"
#include "tests/unit/recovery/test_util.h"

namespace salius::recovery {
namespace {

FileId AnyFile() { return *rc::gen::inRange<FileId>(50, 54); }
FileId AnyDir() { return *rc::gen::elementOf(std::vector<FileId>{kRootFileId, 60, 61}); }
FileId AnyObject() { return *rc::gen::inRange(0, 3) > 0 ? AnyFile() : FileId{60}; }
std::string AnyName() { return *rc::gen::elementOf(std::vector<std::string>{"a", "b", "c"}); }

// Stamps one record. The history need not be one that a file system allows.
void AnyRecord(Stamper& stamper) {
  switch (*rc::gen::inRange(0, 12)) {
    case 0:
      stamper.CreateFile(AnyFile(), AnyDir(), AnyName());
      break;
    case 1:
      stamper.MakeDir(AnyDir() == 61 ? 61 : 60, AnyDir(), AnyName());
      break;
    case 2:
      stamper.Link(AnyFile(), AnyDir(), AnyName());
      break;
    case 3:
      stamper.Unlink(AnyObject(), AnyDir(), AnyName(), false, *rc::gen::arbitrary<bool>());
      break;
    case 4:
      stamper.Rename(AnyObject(), AnyDir(), AnyName(), AnyDir(), AnyName(),
                     *rc::gen::arbitrary<bool>() ? AnyFile() : kNoFileId);
      break;
    case 5:
      stamper.Truncate(AnyFile(), *rc::gen::inRange<uint64_t>(0, 100));
      break;
    case 6:
      stamper.Chmod(AnyObject(), 0600);
      break;
    case 7:
      stamper.OnDisk(AnyFile(), *rc::gen::inRange<Seq>(0, stamper.last() + 1));
      break;
    case 8:
      stamper.Cancel(*rc::gen::inRange<Seq>(0, stamper.last() + 1));
      break;
    case 9:
      stamper.Stamp(Op::kSetXattr, AnyFile(), XattrBody{"user.x", "v"}.Encode());
      break;
    default:
      stamper.Write(AnyFile(), *rc::gen::inRange<uint64_t>(0, 100), "data");
  }
}

RecordSet AnyRecords() {
  Stamper stamper(7);
  const int count = *rc::gen::inRange(0, 25);
  for (int i = 0; i < count; ++i) AnyRecord(stamper);
  return SetOf(stamper.all());
}

std::set<Seq> CancelledIn(absl::Span<const RecordView* const> records) {
  std::set<Seq> cancelled;
  for (const RecordView* record : records) {
    if (record->header.op == Op::kCancel) cancelled.insert(record->header.arg0);
  }
  return cancelled;
}

void CheckObject(const ObjectPlan& object, const std::set<Seq>& cancelled, Seq last) {
  Seq before = 0;
  uint64_t bytes = 0;
  for (const RecordView* record : object.ops) {
    RC_ASSERT(record->seq() > before);
    RC_ASSERT(record->seq() <= last);
    RC_ASSERT(record->header.file_id == object.id);
    RC_ASSERT(!cancelled.contains(record->seq()));
    RC_ASSERT((!IsDataOp(record->header.op) || record->seq() > object.on_disk_upto));
    if (record->header.op == Op::kWrite) bytes += record->header.body_bytes;
    before = record->seq();
  }
  RC_ASSERT(object.data_bytes == bytes);
  RC_ASSERT(object.create_seq <= last);
  RC_ASSERT(object.last_seq <= last);
  RC_ASSERT(object.create.has_value() == (object.create_seq != 0));
  RC_ASSERT((object.fate != Fate::kUnbound || !object.needed));
}

void CheckPlan(const ReplayPlan& plan, absl::Span<const RecordView* const> records) {
  const std::set<Seq> cancelled = CancelledIn(records);
  const Seq last = records.empty() ? 0 : records.back()->seq();
  uint64_t bytes = 0;
  for (const auto& [id, object] : plan.objects) {
    RC_ASSERT(id == object.id);
    RC_ASSERT(id <= plan.max_file_id);
    CheckObject(object, cancelled, last);
    if (object.needed) bytes += object.data_bytes;
  }
  RC_ASSERT(plan.data_bytes == bytes);
  for (const auto& [name, binding] : plan.bindings) {
    RC_ASSERT(binding.seq > 0);
    RC_ASSERT(binding.seq <= last);
    RC_ASSERT(!cancelled.contains(binding.seq));
    RC_ASSERT((name.dir == kRootFileId || plan.objects.at(name.dir).directory));
    if (binding.target == kNoFileId) continue;
    const ObjectPlan& target = plan.objects.at(binding.target);
    RC_ASSERT(target.fate == Fate::kBound);
    RC_ASSERT(target.needed);
  }
  for (const Seq seq : plan.last_names) RC_ASSERT(seq <= last);
}

RC_GTEST_PROP(ReplayPlanPropertyTest, PlanOfEveryPrefixIsWellFormed, ()) {
  const RecordSet set = AnyRecords();
  const std::vector<const RecordView*> records = PointersTo(set);
  for (size_t count = 0; count <= records.size(); ++count) {
    const auto prefix = absl::MakeConstSpan(records).first(count);
    const absl::StatusOr<ReplayPlan> plan = PlanReplay(prefix);
    RC_ASSERT(plan.ok());
    CheckPlan(*plan, prefix);
  }
}

RC_GTEST_PROP(ReplayPlanPropertyTest, PlanDependsOnTheRecordsAlone, ()) {
  const RecordSet set = AnyRecords();
  const std::vector<const RecordView*> records = PointersTo(set);
  const absl::StatusOr<ReplayPlan> one = PlanReplay(records);
  const absl::StatusOr<ReplayPlan> two = PlanReplay(records);
  RC_ASSERT(one.ok());
  RC_ASSERT(two.ok());
  RC_ASSERT(DescribePlan(*one) == DescribePlan(*two));
}

// A record that is left out counts as cancelled: nothing of it is run.
RC_GTEST_PROP(ReplayPlanPropertyTest, RecordLeftOutIsNotRun, ()) {
  const RecordSet set = AnyRecords();
  RC_PRE(!set.empty());
  const std::vector<const RecordView*> records = PointersTo(set);
  const Seq seq = *rc::gen::inRange<Seq>(1, records.size() + 1);
  const absl::StatusOr<ReplayPlan> plan = PlanReplay(records, {seq});
  RC_ASSERT(plan.ok());
  for (const auto& [id, object] : plan->objects) {
    for (const RecordView* record : object.ops) RC_ASSERT(record->seq() != seq);
  }
}

}  // namespace
}  // namespace salius::recovery
