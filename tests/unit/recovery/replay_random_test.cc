// Replays random histories onto disks that hold any part of them, cut off and out of room at
// random. The end is always the same.
#include <set>

#include "tests/unit/recovery/replay_model.h"
#include "tests/unit/recovery/replay_testing.h"

namespace salius::recovery {
namespace {

// Makes the disk perform a random part of the records, as a session's applier and the kernel would.
void PerformSome(const RecordSet& set, const std::string& path, Model* model) {
  std::set<Seq> cancelled;
  for (const RecordView& record : set.views()) {
    if (record.header.op == Op::kCancel) cancelled.insert(record.header.arg0);
  }
  Disk disk(path, *model);
  const double chance = static_cast<double>(model->random().Below(5)) / 4;
  for (const RecordView& record : set.views()) {
    if (model->random().Chance(chance) && !cancelled.contains(record.seq())) disk.Perform(record);
  }
}

// Runs random histories, random subsets of them on the disk, and runs cut off at random steps. The
// end is always the model.
void RunSeed(uint64_t seed, const std::string& path) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  Tree tree(path);
  Model model(seed);
  model.MakeOldTree(path);
  model.Run(static_cast<int>(5 + model.random().Below(40)));
  const RecordSet set = SetOf(model.stamper().all());
  const auto plan = PlanReplay(PointersTo(set));
  ASSERT_OK(plan.status());
  PerformSome(set, path, &model);
  const int cuts = static_cast<int>(model.random().Below(4));
  for (int i = 0; i < cuts; ++i) {
    tree.crash_at = static_cast<int>(1 + model.random().Below(20));
    tree.full_at = static_cast<int>(model.random().Below(20));
    const absl::Status status = tree.RunPlan(*plan);
    ASSERT_TRUE(status.ok() || absl::IsAborted(status) || absl::IsResourceExhausted(status))
        << status;
  }
  tree.crash_at = 0;
  tree.full_at = 0;
  for (int round = 0; round < 2; ++round) {
    ASSERT_OK(tree.RunPlan(*plan));
    ASSERT_EQ(ListDisk(path), model.List()) << "round " << round;
    ASSERT_TRUE(tree.report.lost_and_found.empty());
  }
  ASSERT_OK(tree.Clean());
  ASSERT_EQ(ListDisk(path), model.List());
  ASSERT_FALSE(Exists(path + "/.salius/lost"));
}

TEST(ReplayRandomTest, AnyDiskStateConvergesToT) {  // R73, R80
  const uint64_t from = FromEnvironment("SALIUS_REPLAY_FIRST_SEED", 1);
  const uint64_t seeds = FromEnvironment("SALIUS_REPLAY_SEEDS", 400);
  for (uint64_t seed = from; seed < from + seeds; ++seed) {
    TempDir dir;
    RunSeed(seed, dir.path());
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// Does the same on a real ext4 whose power is cut: in the session, and in the middle of every
// recovery.
void RunPowerCutSeed(uint64_t seed, LoopExt4* disk) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (const auto& entry : std::filesystem::directory_iterator(disk->path())) {
    std::filesystem::remove_all(entry.path());
  }
  Model model(seed);
  { Tree tree(disk->path()); }
  model.MakeOldTree(disk->path());
  model.Run(static_cast<int>(5 + model.random().Below(40)));
  const RecordSet set = SetOf(model.stamper().all());
  const auto plan = PlanReplay(PointersTo(set));
  ASSERT_OK(plan.status());
  sync();  // the checkpoint
  PerformSome(set, disk->path(), &model);
  disk->PowerCut();
  const int cuts = static_cast<int>(1 + model.random().Below(3));
  for (int i = 0; i < cuts; ++i) {
    {
      Tree tree(disk->path());
      tree.crash_at = static_cast<int>(1 + model.random().Below(30));
      tree.full_at = static_cast<int>(model.random().Below(30));
      const absl::Status status = tree.RunPlan(*plan);
      ASSERT_TRUE(status.ok() || absl::IsAborted(status) || absl::IsResourceExhausted(status))
          << status;
      // Sometimes the journal commits just before.
      if (model.random().Chance(0.5)) sync();
    }
    disk->PowerCut();
  }
  {
    Tree tree(disk->path());
    ASSERT_OK(tree.RunPlan(*plan));
    const UniqueFd root = MustOpen(disk->path());
    ASSERT_OK(SyncFs(root.get()));
  }
  disk->PowerCut();
  Listing listing = ListDisk(disk->path());
  listing.erase("lost+found");
  ASSERT_EQ(listing, model.List());
}

TEST(ReplayPowerCutTest, RecoveriesCutOffByPowerConvergeToT) {
  // The old tree, the new one and leftovers of recoveries that were cut off fit together.
  LoopExt4 disk(64);
  if (!disk.mounted()) GTEST_SKIP() << "needs root and a loop device";
  const uint64_t from = FromEnvironment("SALIUS_REPLAY_FIRST_SEED", 1);
  const uint64_t seeds = FromEnvironment("SALIUS_POWER_CUT_SEEDS", 15);
  for (uint64_t seed = from; seed < from + seeds; ++seed) {
    RunPowerCutSeed(seed, &disk);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace salius::recovery
