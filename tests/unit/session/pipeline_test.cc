// The pipeline with its real threads, stable log and state file: without replicas (mode local), and
// with replicas that do not run. Through the mount it is tested in tests/fault.
#include "client/session/pipeline.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"
#include "client/volume/patch_memory.h"
#include "log/applied_mark.h"
#include "storage/backing.h"
#include "tests/unit/session/pipeline_testing.h"

namespace salius {
namespace {

TEST_F(PipelineTest, TheFirstNoteIsOnDiskBeforeAnythingIsIssued) {
  ASSERT_TRUE(Start().ok());
  const VolumeState state = StateOnDisk();
  EXPECT_TRUE(state.open);
  EXPECT_EQ(state.epoch, 1u);
  EXPECT_EQ(state.mode, Mode::kLocal);
  EXPECT_TRUE(state.members.empty());
}

TEST_F(PipelineTest, DurableWithoutReplicasMeansInTheStableLog) {
  ASSERT_TRUE(Start().ok());
  Seq last = 0;
  for (int i = 0; i < 50; ++i) {
    auto seq = IssueOne(absl::StrCat("record ", i));
    ASSERT_TRUE(seq.ok()) << seq.status();
    last = *seq;
    ASSERT_TRUE(pipeline_->WaitDurable(last).ok());
  }
  pipeline_.reset();  // like a crash of the process
  EXPECT_TRUE(StateOnDisk().open);
  StableLog::Contents contents;
  ASSERT_TRUE(
      StableLog::Open(LinuxBacking(), dir_.salius_fd, kStableLogFileName, config_.volume, &contents)
          .ok());
  EXPECT_EQ(contents.records.size(), 50u);
}

TEST_F(PipelineTest, WaiterIsNotifiedOnceWhenTheRecordIsDurable) {
  ASSERT_TRUE(Start().ok());
  std::atomic<uint64_t> notified = 0, early = 0, issued = 0;
  std::atomic<Seq> latest = 0;  // the last record with a callback
  std::atomic<int> apart = 0;  // records that became durable alone while a later one was waited for
  std::vector<std::thread> writers;
  for (int w = 0; w < 4; ++w) {
    writers.emplace_back([&] {
      for (int i = 0; i < 10000 && apart < 200; ++i) {
        const auto seq = IssueOne("x");
        ASSERT_TRUE(seq.ok()) << seq.status();
        ++issued;
        pipeline_->WhenDurable(*seq, [&, seq = *seq](const absl::Status& status) {
          const Seq durable = pipeline_->status().marks.durable;
          if (!status.ok() || durable < seq) ++early;
          if (durable == seq && latest > seq) ++apart;
          ++notified;
        });
        for (Seq before = latest; before < *seq && !latest.compare_exchange_weak(before, *seq);) {
        }
        if (i % 10 == 0) {
          ASSERT_TRUE(pipeline_->WaitDurable(*seq).ok());
        }
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  Outcomes last;
  pipeline_->WhenDurable(issued, last.Next());
  ASSERT_EQ(last.WaitFor(1).size(), 1u);
  ASSERT_TRUE(pipeline_->Stop().ok());
  EXPECT_EQ(notified, issued);
  EXPECT_EQ(early, 0u);
  EXPECT_GE(apart, 200) << "too few chances of an early notification";
}

TEST_F(PipelineTest, WaiterIsNotifiedOfAFailure) {
  ASSERT_TRUE(Start().ok());
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit none{0, before.rlim_max};
  Outcomes outcomes;
  size_t wanted = 0;
  while (wanted < 100000) {
    const auto seq = IssueOne(std::string(1000, 'x'));
    if (!seq.ok()) break;
    pipeline_->WhenDurable(*seq, outcomes.Next());
    // No write to the stable log succeeds any more, while other callers wait.
    if (++wanted == 100) {
      ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
    }
  }
  const std::vector<absl::Status> all = outcomes.WaitFor(wanted);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_FALSE(pipeline_->health().ok());
  EXPECT_EQ(all.size(), wanted);
  EXPECT_FALSE(all.back().ok());
  pipeline_->WhenDurable(wanted, outcomes.Next());  // at once
  EXPECT_FALSE(outcomes.WaitFor(wanted + 1).back().ok());
}

TEST_F(PipelineTest, WaiterIsNotifiedBeforeThePipelineIsDestroyed) {
  std::filesystem::remove_all(path_ + "/.salius");  // no volume may lie in another
  for (int round = 0; round < 5; ++round) {
    config_.volume = VolumeId::Random();
    const std::string path = absl::StrCat(path_, "/", round);
    ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
    ASSERT_TRUE(CreateVolume(path, config_).ok());
    auto dir = VolumeDir::Open(path, true);
    ASSERT_TRUE(dir.ok()) << dir.status();
    dir_ = *std::move(dir);
    ASSERT_TRUE(Start().ok());
    Outcomes outcomes;
    for (int i = 0; i < 100; ++i) {
      const auto seq = IssueOne(std::string(10000, 'x'));
      ASSERT_TRUE(seq.ok()) << seq.status();
      pipeline_->WhenDurable(*seq, outcomes.Next());
    }
    pipeline_.reset();
    EXPECT_EQ(outcomes.WaitFor(100).size(), 100u);
  }
}

TEST_F(PipelineTest, RecordsAreAppliedOnceAndInOrderFromManyThreads) {
  sink_.together = 3;
  ASSERT_TRUE(Start().ok());
  std::vector<std::thread> writers;
  for (int w = 0; w < 4; ++w) {
    writers.emplace_back([this] {
      for (int i = 0; i < 100; ++i) {
        auto seq = IssueOne("x");
        ASSERT_TRUE(seq.ok()) << seq.status();
        if (i % 10 == 0) {
          ASSERT_TRUE(pipeline_->WaitApplied(*seq).ok());
        }
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  ASSERT_TRUE(pipeline_->WaitApplied(400).ok());
  const std::vector<Seq> seqs = sink_.seqs();
  ASSERT_EQ(seqs.size(), 400u);
  for (size_t i = 0; i < seqs.size(); ++i) EXPECT_EQ(seqs[i], i + 1);
}

TEST_F(PipelineTest, QueuedRecordsAreGivenToTheSinkTogether) {
  ASSERT_TRUE(Start().ok());
  sink_.together = 5;
  {
    const auto busy = sink_.Busy();
    for (int i = 0; i < 40; ++i) ASSERT_TRUE(IssueOne("x").ok());
    ASSERT_TRUE(pipeline_->WaitDurable(40).ok());
  }
  ASSERT_TRUE(pipeline_->WaitApplied(40).ok());
  EXPECT_EQ(sink_.seqs().size(), 40u);
  EXPECT_GT(sink_.largest, 5u);
}

TEST_F(PipelineTest, RecordsAppliedBeforeAFailureCountAsApplied) {
  MoveToExt4();  // there is no mark elsewhere
  ASSERT_TRUE(Start().ok());
  const auto mark = AppliedMark::Open(dir_.salius_fd);
  ASSERT_TRUE(mark.ok());
  sink_.together = 2;
  sink_.fail_apply_at = 4;
  {
    const auto busy = sink_.Busy();
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(IssueOne("x").ok());
    ASSERT_TRUE(pipeline_->WaitDurable(10).ok());
  }
  const absl::Status failed = pipeline_->WaitApplied(10);
  EXPECT_NE(failed.message().find("seq 4 "), std::string::npos) << failed;
  EXPECT_EQ(pipeline_->watermarks().applied, 3u);
  EXPECT_EQ(mark->applied(), 3u);
  EXPECT_EQ(sink_.seqs(), (std::vector<Seq>{1, 2, 3}));
}

TEST_F(PipelineTest, AwaitedApplyDoesNotWaitForLaterRecords) {
  ASSERT_TRUE(Start().ok());
  sink_.block_at = 1;
  ASSERT_TRUE(IssueOne("x").ok());
  ASSERT_TRUE(IssueOne("awaited", std::make_shared<ApplyResult>()).ok());
  for (int i = 2; i < 10; ++i) ASSERT_TRUE(IssueOne("x").ok());
  ASSERT_TRUE(pipeline_->WaitDurable(10).ok());
  std::thread all([&] { EXPECT_TRUE(pipeline_->WaitApplied(10).ok()); });
  while (!sink_.blocked) std::this_thread::yield();
  sink_.block_at = 5;
  EXPECT_TRUE(pipeline_->WaitApplied(2).ok());
  EXPECT_LT(pipeline_->watermarks().applied, 5u);
  sink_.block_at = 0;
  all.join();
}

TEST_F(PipelineTest, NothingMoreIsAppliedOnceTheVolumeHasFailed) {
  ASSERT_TRUE(Start().ok());
  sink_.block_at = 3;
  {
    const auto busy = sink_.Busy();
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(IssueOne("x").ok());
    ASSERT_TRUE(pipeline_->WaitDurable(10).ok());
  }
  while (!sink_.blocked) std::this_thread::yield();
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
  const auto lost = IssueOne("the stable log takes no more");
  EXPECT_FALSE(lost.ok() && pipeline_->WaitDurable(*lost).ok());
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  sink_.block_at = 0;
  pipeline_.reset();
  EXPECT_EQ(sink_.seqs(), (std::vector<Seq>{1, 2, 3}));
}

TEST_F(PipelineTest, StopLeavesACleanStateThatTheNextSessionContinues) {
  ASSERT_TRUE(Start().ok());
  ASSERT_TRUE(IssueOne("a").ok());
  auto first_id = pipeline_->NewFileId();
  ASSERT_TRUE(first_id.ok());
  ASSERT_TRUE(pipeline_->Stop().ok());
  pipeline_.reset();
  EXPECT_FALSE(StateOnDisk().open);
  EXPECT_EQ(StateOnDisk().checkpoint, 1u);
  ASSERT_TRUE(Start().ok());
  EXPECT_EQ(StateOnDisk().epoch, 2u);
  auto next_id = pipeline_->NewFileId();
  ASSERT_TRUE(next_id.ok());
  EXPECT_GT(*next_id, *first_id);
}

TEST_F(PipelineTest, AnOpenStateIsNeverStartedWithoutRecovery) {
  ASSERT_TRUE(Start().ok());
  pipeline_.reset();
  EXPECT_TRUE(absl::IsFailedPrecondition(Start()));
}

TEST_F(PipelineTest, FileIdsAreNotedBeforeTheyAreHandedOut) {
  ASSERT_TRUE(Start().ok());
  FileId last = 0;
  for (int i = 0; i < 70000; ++i) {
    auto id = pipeline_->NewFileId();
    ASSERT_TRUE(id.ok());
    ASSERT_GT(*id, last);
    last = *id;
  }
  EXPECT_GT(StateOnDisk().file_id_limit, last);
}

TEST_F(PipelineTest, CheckpointSyncsNotesAndFreesTheStableLog) {
  ASSERT_TRUE(Start().ok());
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(IssueOne(std::string(60000, 'x')).ok());
  ASSERT_TRUE(pipeline_->Checkpoint().ok());
  EXPECT_EQ(StateOnDisk().checkpoint, 100u);
  EXPECT_GE(sink_.syncs.load(), 1);
  // Many times the ring's size is written: it is cut after every checkpoint.
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(IssueOne(std::string(60000, 'y')).ok());
  ASSERT_TRUE(pipeline_->Checkpoint().ok());
}

TEST_F(PipelineTest, AFailedSyncMakesEveryFurtherCallFail) {
  ASSERT_TRUE(Start().ok());
  ASSERT_TRUE(IssueOne("a").ok());
  sink_.fail_sync = true;
  EXPECT_FALSE(pipeline_->Checkpoint().ok());
  sink_.fail_sync = false;
  EXPECT_FALSE(pipeline_->health().ok());
  EXPECT_FALSE(IssueOne("b").ok());
  EXPECT_FALSE(pipeline_->Checkpoint().ok()) << "a failed sync must never be retried";
  EXPECT_FALSE(pipeline_->Stop().ok());
  EXPECT_EQ(pipeline_->status().mode, "failed");
  pipeline_.reset();
  EXPECT_TRUE(StateOnDisk().open);
}

TEST_F(PipelineTest, DuringASyncTheAppliedMarkSaysNothing) {
  MoveToExt4();  // there is no mark elsewhere
  ASSERT_TRUE(Start().ok());
  const auto mark = AppliedMark::Open(dir_.salius_fd);
  ASSERT_TRUE(mark.ok());
  const auto seq = IssueOne("a");
  ASSERT_TRUE(seq.ok() && pipeline_->WaitApplied(*seq).ok());
  std::atomic<Epoch> said = 99;
  sink_.in_sync = [&] { said = mark->epoch(); };
  ASSERT_TRUE(pipeline_->Checkpoint().ok());
  EXPECT_EQ(said, 0u) << "a kill now would hide whether it failed";
  EXPECT_EQ(mark->applied(), *seq);
}

TEST_F(PipelineTest, AfterAFailedSyncTheAppliedMarkSaysNothing) {
  MoveToExt4();  // there is no mark elsewhere
  ASSERT_TRUE(Start().ok());
  const auto mark = AppliedMark::Open(dir_.salius_fd);
  ASSERT_TRUE(mark.ok());
  const auto seq = IssueOne("a");
  ASSERT_TRUE(seq.ok() && pipeline_->WaitApplied(*seq).ok());
  EXPECT_EQ(mark->applied(), *seq);
  sink_.fail_sync = true;
  EXPECT_FALSE(pipeline_->Checkpoint().ok());
  EXPECT_EQ(mark->epoch(), 0u) << "recovery in the same life would take it for synced";
}

TEST_F(PipelineTest, SyncNowSyncsAlsoWhenThereIsNothingToCheckpoint) {
  ASSERT_TRUE(Start().ok());
  const int before = sink_.syncs;
  EXPECT_TRUE(pipeline_->SyncNow().ok());
  EXPECT_EQ(sink_.syncs, before + 1);
}

// Like a checkpoint's failed sync, with the same effects: the kernel reports an error once.
TEST_F(PipelineTest, AFailedSyncNowIsFinal) {
  MoveToExt4();  // there is no mark elsewhere
  ASSERT_TRUE(Start().ok());
  const auto mark = AppliedMark::Open(dir_.salius_fd);
  ASSERT_TRUE(mark.ok());
  const auto seq = IssueOne("a");
  ASSERT_TRUE(seq.ok() && pipeline_->WaitApplied(*seq).ok());
  sink_.fail_sync = true;
  EXPECT_FALSE(pipeline_->SyncNow().ok());
  EXPECT_EQ(mark->epoch(), 0u);
  sink_.fail_sync = false;
  EXPECT_FALSE(pipeline_->SyncNow().ok());
  EXPECT_FALSE(pipeline_->Checkpoint().ok());
  EXPECT_FALSE(pipeline_->Stop().ok());
  pipeline_.reset();
  EXPECT_TRUE(StateOnDisk().open);
  EXPECT_EQ(StateOnDisk().checkpoint, 0u);
  EXPECT_EQ(mark->epoch(), 0u);
}

TEST_F(PipelineTest, AFailedApplyMakesEveryFurtherCallFailAndKeepsTheLog) {
  ASSERT_TRUE(Start().ok());
  sink_.fail_apply_at = 2;
  ASSERT_TRUE(IssueOne("a").ok());
  auto second = IssueOne("b");
  ASSERT_TRUE(second.ok());
  EXPECT_FALSE(pipeline_->WaitApplied(*second).ok());
  EXPECT_FALSE(IssueOne("c").ok());
  pipeline_.reset();
  StableLog::Contents contents;
  ASSERT_TRUE(
      StableLog::Open(LinuxBacking(), dir_.salius_fd, kStableLogFileName, config_.volume, &contents)
          .ok());
  EXPECT_GE(contents.records.size(), 2u);
}

// A caller takes DEADLINE_EXCEEDED for a slow disk, and waits on or answers without it.
TEST_F(PipelineTest, DiskThatFailsWithATimeOutIsNotASlowOne) {
  ASSERT_TRUE(Start().ok());
  sink_.fail_apply_at = 1;
  sink_.fail_apply_error = ETIMEDOUT;
  const auto seq = IssueOne("a");
  ASSERT_TRUE(seq.ok());
  EXPECT_FALSE(pipeline_->WaitApplied(*seq).ok());
  constexpr int64_t kBoundNs = 60'000'000'000;
  const absl::Status failed = pipeline_->WaitAppliedFor(*seq, kBoundNs);
  EXPECT_FALSE(failed.ok());
  ASSERT_FALSE(absl::IsDeadlineExceeded(failed)) << failed;  // else the next wait is endless
  PatchMemory memory(1);
  memory.Changed(0, 1);
  EXPECT_FALSE(memory.AwaitRoom(*pipeline_).ok());
}

TEST_F(PipelineTest, AFullLogHoldsAnIssuerUpUntilThereIsACheckpoint) {
  ASSERT_TRUE(Start().ok());
  const std::string body(100'000, 'x');
  for (int round = 0; round < 5; ++round) {
    ASSERT_TRUE(pipeline_->Checkpoint().ok());
    const Seq before = pipeline_->watermarks().issued;
    sink_.block_at = before + 1;
    const auto full = [&] {
      return pipeline_->status().uncheckpointed_bytes + body.size() > config_.log_max_bytes;
    };
    while (!full()) ASSERT_TRUE(IssueOne(body).ok());
    std::atomic<bool> about_to{false};
    std::thread issuer([&] {
      about_to = true;
      EXPECT_TRUE(IssueOne(body).ok());
      EXPECT_GT(pipeline_->watermarks().checkpoint, before) << "issued into a full log";
    });
    while (!about_to) std::this_thread::yield();
    sink_.block_at = 0;
    issuer.join();
  }
  ASSERT_TRUE(pipeline_->Stop().ok());
}

TEST_F(PipelineTest, UnreachableReplicasLeaveItLocalWithAReason) {
  config_.replicas = {"127.0.0.1:9", "127.0.0.1:19"};
  config_.acks = 2;
  ASSERT_TRUE(Start().ok());
  auto seq = IssueOne("a");
  ASSERT_TRUE(seq.ok());
  ASSERT_TRUE(pipeline_->WaitDurable(*seq).ok());
  const SessionStatus status = pipeline_->status();
  EXPECT_EQ(status.mode, "local");
  EXPECT_NE(status.mode_detail, "");
  ASSERT_EQ(status.replicas.size(), 2u);
  EXPECT_FALSE(status.replicas[0].connected);
  ASSERT_TRUE(pipeline_->Stop().ok());
}

}  // namespace
}  // namespace salius
