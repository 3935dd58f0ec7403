#include "recovery/replay/replay_plan.h"

#include <linux/fs.h>

#include "common/limits.h"
#include "storage/apply.h"
#include "tests/unit/recovery/test_util.h"

namespace salius::recovery {
namespace {

constexpr FileId kRoot = kRootFileId;

// Plans the records of `stamper`; keeps the records alive.
struct Planned {
  explicit Planned(const Stamper& stamper) : set(SetOf(stamper.all())) {
    absl::StatusOr<ReplayPlan> made = PlanReplay(PointersTo(set));
    SALIUS_CHECK_OK(made);
    plan = *std::move(made);
  }
  FileId Target(FileId dir, const std::string& name) const {
    const auto at = plan.bindings.find({dir, name});
    return at == plan.bindings.end() ? ~FileId{0} : at->second.target;
  }
  const ObjectPlan& Object(FileId id) const { return plan.objects.at(id); }

  RecordSet set;
  ReplayPlan plan;
};

absl::Status PlanStatus(const Stamper& stamper) {
  const RecordSet set = SetOf(stamper.all());
  return PlanReplay(PointersTo(set)).status();
}

TEST(ReplayPlanTest, OpsOfOneFileStayInOrder) {  // R54
  Stamper s(1);
  s.Write(50, 0, "a");
  s.Write(51, 0, "b");
  s.Truncate(50, 9);
  s.Chmod(50, 0600);
  const Planned p(s);
  ASSERT_EQ(p.Object(50).ops.size(), 3u);
  EXPECT_EQ(p.Object(50).ops[0]->seq(), 1u);
  EXPECT_EQ(p.Object(50).ops[2]->seq(), 4u);
  EXPECT_EQ(p.Object(50).fate, Fate::kBound);
  EXPECT_TRUE(p.Object(50).needed);
}

TEST(ReplayPlanTest, OnDiskSkipsDataUpToItsSeqAndNoAttributes) {  // R55
  Stamper s(1);
  s.Write(50, 0, "a");      // 1
  s.Chmod(50, 0600);        // 2
  s.Write(50, 1, "b");      // 3
  s.Write(50, 2, "c");      // 4
  s.Write(51, 0, "other");  // 5
  s.OnDisk(50, 3);          // 6
  s.OnDisk(50, 1);          // 7: an older mark changes nothing
  const Planned p(s);
  ASSERT_EQ(p.Object(50).ops.size(), 2u);
  EXPECT_EQ(p.Object(50).ops[0]->seq(), 2u);
  EXPECT_EQ(p.Object(50).ops[1]->seq(), 4u);
  EXPECT_EQ(p.Object(50).skipped, 2u);
  EXPECT_TRUE(p.Object(50).on_disk);
  EXPECT_EQ(p.Object(51).ops.size(), 1u);
}

TEST(ReplayPlanTest, CancelledOperationsAreNotPerformed) {  // R56
  Stamper s(1);
  s.CreateFile(60, kRoot, "a");          // 1
  s.Rename(60, kRoot, "a", kRoot, "b");  // 2
  s.Cancel(2);                           // 3
  const Planned p(s);
  EXPECT_EQ(p.Target(kRoot, "a"), 60u);
  EXPECT_EQ(p.Target(kRoot, "b"), ~FileId{0});
  EXPECT_EQ(p.plan.cancelled, 1u);
}

TEST(ReplayPlanTest, ACancelOfSomethingLaterIsDataLoss) {
  Stamper s(1);
  s.Cancel(1);
  EXPECT_TRUE(absl::IsDataLoss(PlanStatus(s)));
}

TEST(ReplayPlanTest, OnlyTheFinalBindingCounts) {
  Stamper s(1);
  s.CreateFile(60, kRoot, "a");
  s.Rename(60, kRoot, "a", kRoot, "b");
  s.CreateFile(61, kRoot, "a");
  s.Rename(61, kRoot, "a", kRoot, "b", 60);
  const Planned p(s);
  EXPECT_EQ(p.Target(kRoot, "a"), kNoFileId);
  EXPECT_EQ(p.Target(kRoot, "b"), 61u);
  EXPECT_EQ(p.Object(60).fate, Fate::kUnbound);
  EXPECT_EQ(p.Object(61).fate, Fate::kBound);
}

TEST(ReplayPlanTest, ExchangeSwapsBoth) {
  Stamper s(1);
  s.Rename(60, kRoot, "a", 9, "b", 61, RENAME_EXCHANGE);
  const Planned p(s);
  EXPECT_EQ(p.Target(kRoot, "a"), 61u);
  EXPECT_EQ(p.Target(9, "b"), 60u);
  EXPECT_EQ(p.Object(61).fate, Fate::kBound);
  EXPECT_TRUE(p.Object(9).directory);
}

TEST(ReplayPlanTest, ExchangeWithNothingIsDataLoss) {
  Stamper s(1);
  s.Rename(60, kRoot, "a", kRoot, "b", kNoFileId, RENAME_EXCHANGE);
  EXPECT_TRUE(absl::IsDataLoss(PlanStatus(s)));
}

TEST(ReplayPlanTest, RenameBetweenTwoNamesOfOneFileDoesNothing) {
  Stamper s(1);
  s.Rename(60, kRoot, "a", kRoot, "b", 60);
  const Planned p(s);
  EXPECT_EQ(p.Target(kRoot, "a"), 60u);
  EXPECT_EQ(p.Target(kRoot, "b"), 60u);
}

TEST(ReplayPlanTest, FatesOfFilesThatWereThereBefore) {  // R66
  Stamper s(1);
  s.Write(50, 0, "only data");
  s.Unlink(51, kRoot, "gone");
  s.Unlink(52, kRoot, "one of two");
  s.Link(52, kRoot, "again");
  s.Unlink(53, kRoot, "dir", /*directory=*/true);
  s.Rename(54, kRoot, "x", kRoot, "y", /*other=*/55);
  s.Write(56, 0, "gone");
  s.Unlink(56, kRoot, "only", /*directory=*/false, /*only=*/true);
  s.Write(58, 0, "gone");
  s.Rename(57, kRoot, "z", kRoot, "only", /*other=*/58, /*flags=*/0, /*only=*/true);
  const Planned p(s);
  for (const FileId gone : {56, 58}) {
    EXPECT_EQ(p.Object(gone).fate, Fate::kUnbound) << gone;
    EXPECT_FALSE(p.Object(gone).needed) << gone;
  }
  EXPECT_EQ(p.Object(50).fate, Fate::kBound);
  EXPECT_EQ(p.Object(51).fate, Fate::kMaybeUnbound);
  EXPECT_EQ(p.Object(52).fate, Fate::kBound);
  EXPECT_EQ(p.Object(53).fate, Fate::kUnbound);
  EXPECT_EQ(p.Object(54).fate, Fate::kBound);
  EXPECT_EQ(p.Object(55).fate, Fate::kMaybeUnbound);
  EXPECT_FALSE(p.Object(51).needed);
  EXPECT_FALSE(p.Object(55).needed);
}

TEST(ReplayPlanTest, UnlinkWithoutIdUsesTheBindingOfTheLog) {  // R65
  Stamper s(1);
  s.CreateFile(60, kRoot, "a");
  s.Unlink(kNoFileId, kRoot, "a");
  s.Unlink(kNoFileId, kRoot, "old");
  s.CreateFile(61, kRoot, "old");
  const Planned p(s);
  EXPECT_EQ(p.Object(60).fate, Fate::kUnbound);
  EXPECT_FALSE(p.plan.bindings.at({kRoot, "a"}).remove_unknown);
  // The old one may still be on the disk, under the new one's name.
  EXPECT_TRUE(p.plan.bindings.at({kRoot, "old"}).remove_unknown);
  EXPECT_EQ(p.Target(kRoot, "old"), 61u);
}

TEST(ReplayPlanTest, ANamelessFileIsGoneUnlessLinked) {  // R72
  Stamper s(1);
  s.CreateFile(60, kNoFileId, "");
  s.Write(60, 0, "x");
  s.CreateFile(61, kNoFileId, "");
  s.Link(61, kRoot, "kept");
  const Planned p(s);
  EXPECT_EQ(p.Object(60).fate, Fate::kUnbound);
  EXPECT_FALSE(p.Object(60).needed);
  EXPECT_EQ(p.Object(61).fate, Fate::kBound);
  EXPECT_EQ(p.plan.bindings.size(), 1u);
}

TEST(ReplayPlanTest, MtimeIsTheLastDataRecordsUnlessSetLater) {  // R57
  Stamper s(1);
  s.Write(50, 0, "a");
  s.Write(51, 0, "a");
  s.SetMtime(51, 5);
  s.Write(52, 0, "a");
  s.SetMtime(52, 5);
  s.Truncate(52, 0);
  s.Chmod(52, 0600);
  const Planned p(s);
  EXPECT_EQ(p.Object(50).mtime_ns, 1'600'000'000'001'000'000u);
  EXPECT_EQ(p.Object(51).mtime_ns, 0u);
  EXPECT_EQ(p.Object(52).mtime_ns, 1'600'000'000'006'000'000u);
}

TEST(ReplayPlanTest, ACreatedFileWithoutDataHasTheTimeOfItsCreation) {  // R57
  Stamper s(1);
  s.Create(50, kRootFileId, "empty", S_IFREG | 0644);
  s.Create(51, kRootFileId, "dir", S_IFDIR | 0755);
  s.Create(52, kRootFileId, "bulk", S_IFREG | 0644);
  s.OnDisk(52, 3);
  const Planned p(s);
  EXPECT_EQ(p.Object(50).mtime_ns, 1'600'000'000'001'000'000u);
  EXPECT_EQ(p.Object(51).mtime_ns, 0u) << "its time changes with every name in it";
  EXPECT_EQ(p.Object(52).mtime_ns, 0u) << "its data went past the log";
}

TEST(ReplayPlanTest, AdoptedAloneNeedsNothing) {
  Stamper s(1);
  s.Adopt(50, "a/b", FileHandle{1, "h"});
  const Planned p(s);
  EXPECT_FALSE(p.Object(50).needed);
  ASSERT_EQ(p.Object(50).adopts.size(), 1u);
  EXPECT_EQ(p.Object(50).adopts[0].path, "a/b");
}

TEST(ReplayPlanTest, AChangeOfOwnerTakesAFilesCapabilityAway) {
  Stamper s(1);
  s.Stamp(Op::kSetXattr, 50, XattrBody{kCapabilityXattr, "cap"}.Encode());
  AttrBody owner;
  owner.mask = kAttrGid;
  s.Stamp(Op::kSetAttr, 50, owner.Encode());
  EXPECT_EQ(Planned(s).Object(50).xattrs.at(kCapabilityXattr).value, std::nullopt);
}

TEST(ReplayPlanTest, DataTakeAFilesCapabilityAway) {
  const auto stamp = [](Stamper& s) {
    s.Stamp(Op::kSetXattr, 50, XattrBody{kCapabilityXattr, "cap"}.Encode());
  };
  Stamper before(1);
  stamp(before);
  before.Write(50, 0, "a");
  EXPECT_EQ(Planned(before).Object(50).xattrs.at(kCapabilityXattr).value, std::nullopt);
  Stamper behind(1);
  behind.Write(50, 0, "a");
  stamp(behind);
  EXPECT_EQ(Planned(behind).Object(50).xattrs.at(kCapabilityXattr).value, "cap");
  // Data went past the log; the disk has the result.
  Stamper past(1);
  stamp(past);
  past.OnDisk(50, 1);
  EXPECT_FALSE(Planned(past).Object(50).xattrs.contains(kCapabilityXattr));
}

TEST(ReplayPlanTest, LargestIdAndTimeAreKept) {
  Stamper s(1);
  s.Write(50, 0, "a");
  s.Link(51, 99, "in a directory");
  const Planned p(s);
  EXPECT_EQ(p.plan.max_file_id, 99u);
  EXPECT_EQ(p.plan.last_timestamp_ns, 1'600'000'000'002'000'000u);
}

TEST(ReplayPlanTest, BodiesThatNoWriterWritesAreDataLoss) {
  for (const Op op : {Op::kSetAttr, Op::kSetXattr, Op::kCreate, Op::kLink, Op::kUnlink, Op::kRename,
                      Op::kAdopt}) {
    Stamper s(1);
    s.Stamp(op, 50, "?");
    EXPECT_TRUE(absl::IsDataLoss(PlanStatus(s))) << OpName(op);
  }
  for (const Op op : {Op::kWrite, Op::kSetAttr, Op::kOnDisk}) {
    Stamper s(1);
    s.Stamp(op, kNoFileId, "");
    EXPECT_TRUE(absl::IsDataLoss(PlanStatus(s))) << OpName(op);
  }
  Stamper adopts(1);
  adopts.Adopt(kNoFileId, "x", FileHandle{1, "h"});
  EXPECT_TRUE(absl::IsDataLoss(PlanStatus(adopts)));
  Stamper counts(1);
  counts.Write(kMaxCount + 1, 0, "x");
  EXPECT_TRUE(absl::IsDataLoss(PlanStatus(counts)));
}

TEST(ReplayPlanTest, ADryRunNamesFilesAndNames) {
  Stamper s(1);
  s.CreateFile(60, kRoot, "new");
  s.Unlink(61, kRoot, "gone");
  s.Adopt(62, "x/y", FileHandle{1, "h"});
  s.Write(62, 0, "abc");
  const std::vector<std::string> lines = DescribePlan(Planned(s).plan);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_NE(lines[0].find("\"new\""), std::string::npos);
  EXPECT_NE(lines[1].find("x/y"), std::string::npos);
  EXPECT_NE(lines[2].find("\"gone\" in directory 1: removed"), std::string::npos);
}

}  // namespace
}  // namespace salius::recovery
