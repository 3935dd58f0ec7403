// The pipeline with its real threads, stable log and state file: without replicas (mode local),
// with replicas that nobody runs, and with replicas in this process. Through the mount it is tested
// in tests/fault.
#include "client/engine/pipeline.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/limits.h"
#include "log/applied_mark.h"
#include "log/stable_log.h"
#include "replica/server.h"

namespace salius {
namespace {

class FakeSink : public ApplySink {
 public:
  absl::Status Apply(const RecordRef& record) override {
    std::lock_guard<std::mutex> lock(mu_);
    if (fail_apply_at != 0 && record->seq() == fail_apply_at) return ErrnoStatus(EIO, "disk");
    seqs_.push_back(record->seq());
    return absl::OkStatus();
  }
  absl::Status SyncApplied() override {
    ++syncs;
    return fail_sync ? ErrnoStatus(EIO, "disk") : absl::OkStatus();
  }
  std::vector<Seq> seqs() {
    std::lock_guard<std::mutex> lock(mu_);
    return seqs_;
  }
  std::atomic<Seq> fail_apply_at{0};
  std::atomic<bool> fail_sync{false};
  std::atomic<int> syncs{0};

 private:
  std::mutex mu_;
  std::vector<Seq> seqs_;
};

class PipelineTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/pipeline_test.XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    path_ = name;
    config_ = DefaultVolumeConfig();
    config_.log_max_bytes = 8u << 20;
    config_.stable_log_bytes = 16u << 20;
    config_.ballast_bytes = 0;
    ASSERT_TRUE(CreateVolume(path_, config_).ok()) << CreateVolume(path_, config_);
    auto dir = VolumeDir::Open(path_, true);
    ASSERT_TRUE(dir.ok()) << dir.status();
    dir_ = *std::move(dir);
  }
  void TearDown() override {
    pipeline_.reset();
    std::filesystem::remove_all(path_);
  }

  absl::Status Start() {
    SALIUS_ASSIGN_OR_RETURN(StateFile state, StateFile::Open(dir_.salius_fd, kStateFileName));
    SALIUS_ASSIGN_OR_RETURN(StableLog stable, StableLog::Open(dir_.salius_fd, kStableLogFileName,
                                                              config_.volume, nullptr));
    PipelineOptions options;
    options.config = config_;
    options.session_name = "test";
    options.spin_ns = spin_ns_;
    SALIUS_ASSIGN_OR_RETURN(pipeline_, Pipeline::Start(dir_, std::move(state), std::move(stable),
                                                       sink_, std::move(options)));
    return absl::OkStatus();
  }
  absl::StatusOr<Seq> IssueOne(std::string body) {
    SALIUS_ASSIGN_OR_RETURN(Ticket ticket, pipeline_->Admit(1, body.size()));
    RecordDraft draft;
    draft.file_id = 7;
    draft.body = std::move(body);
    SALIUS_ASSIGN_OR_RETURN(RecordRef record, pipeline_->Issue(ticket, std::move(draft)));
    return record->seq();
  }
  VolumeState StateOnDisk() {
    auto state = StateFile::Open(dir_.salius_fd, kStateFileName);
    SALIUS_CHECK_OK(state.status());
    return state->state();
  }

  std::string path_;
  VolumeConfig config_;
  int64_t spin_ns_ = 0;
  VolumeDir dir_;
  FakeSink sink_;
  std::unique_ptr<Pipeline> pipeline_;
};

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
  ASSERT_TRUE(StableLog::Open(dir_.salius_fd, kStableLogFileName, config_.volume, &contents).ok());
  EXPECT_EQ(contents.records.size(), 50u);
}

// Outcomes of WhenDurable, and a wait for them.
class Outcomes {
 public:
  DurableCallback Next() {
    return [this](const absl::Status& status) {
      absl::MutexLock lock(&mu_);
      outcomes_.push_back(status);
    };
  }
  std::vector<absl::Status> WaitFor(size_t count) {
    absl::MutexLock lock(&mu_);
    const auto there = [&] { return outcomes_.size() >= count; };
    mu_.AwaitWithTimeout(absl::Condition(&there), absl::Seconds(20));
    return outcomes_;
  }

 private:
  absl::Mutex mu_;
  std::vector<absl::Status> outcomes_;
};

TEST_F(PipelineTest, WhoeverWantsToBeToldIsToldOnceAndNotBeforeItIsDurable) {
  ASSERT_TRUE(Start().ok());
  std::atomic<int> told = 0, early = 0;
  std::vector<std::thread> writers;
  for (int w = 0; w < 4; ++w) {
    writers.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        const auto seq = IssueOne("x");
        ASSERT_TRUE(seq.ok()) << seq.status();
        pipeline_->WhenDurable(*seq, [&, seq = *seq](const absl::Status& status) {
          if (!status.ok() || pipeline_->status().marks.durable < seq) ++early;
          ++told;
        });
        if (i % 10 == 0) {
          ASSERT_TRUE(pipeline_->WaitDurable(*seq).ok());
        }
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  Outcomes last;
  pipeline_->WhenDurable(400, last.Next());
  ASSERT_EQ(last.WaitFor(1).size(), 1u);
  ASSERT_TRUE(pipeline_->Stop().ok());
  EXPECT_EQ(told, 400);
  EXPECT_EQ(early, 0);
}

TEST_F(PipelineTest, WhoeverWantsToBeToldIsToldOfAFailure) {
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
    // No write to the stable log succeeds any more, while others wait for theirs.
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

TEST_F(PipelineTest, WhoeverWantsToBeToldIsToldBeforeThePipelineIsGone) {
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
  // Many times the ring's size goes through: it is cut behind every checkpoint.
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

TEST_F(PipelineTest, AfterAFailedSyncTheAppliedMarkSaysNothing) {
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
  ASSERT_TRUE(StableLog::Open(dir_.salius_fd, kStableLogFileName, config_.volume, &contents).ok());
  EXPECT_GE(contents.records.size(), 2u);
}

TEST_F(PipelineTest, ReplicasThatNobodyRunsLeaveItLocalAndSayWhy) {
  config_.replicas = {"127.0.0.1:9", "127.0.0.1:19"};
  config_.acks = 2;
  ASSERT_TRUE(Start().ok());
  auto seq = IssueOne("a");
  ASSERT_TRUE(seq.ok());
  ASSERT_TRUE(pipeline_->WaitDurable(*seq).ok());
  const PipelineStatus status = pipeline_->status();
  EXPECT_EQ(status.mode, "local");
  EXPECT_NE(status.mode_detail, "");
  ASSERT_EQ(status.replicas.size(), 2u);
  EXPECT_FALSE(status.replicas[0].connected);
  ASSERT_TRUE(pipeline_->Stop().ok());
}

// With two replicas in this process, so that acknowledgements are what makes durable.
class ReplicatedTest : public PipelineTest, public testing::WithParamInterface<int64_t> {
 protected:
  void StartReplicated() {
    spin_ns_ = GetParam();
    for (int i = 0; i < 2; ++i) {
      ReplicaOptions options;
      options.listen = HostPort{"127.0.0.1", 0};
      options.memory_bytes = 64 << 20;
      options.no_mlock = true;
      options.log_level = "off";
      options.shm_dir = absl::StrCat(path_, "/replica", i);
      ASSERT_EQ(mkdir(options.shm_dir.c_str(), 0700), 0);
      auto server = ReplicaServer::Start(options, SystemClock());
      ASSERT_TRUE(server.ok()) << server.status();
      config_.replicas.push_back(absl::StrCat("127.0.0.1:", (*server)->port()));
      servers_.push_back(*std::move(server));
    }
    config_.acks = 2;
    ASSERT_TRUE(Start().ok());
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (pipeline_->status().mode != "replicated") {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << pipeline_->status().mode_detail;
      std::this_thread::yield();
    }
  }
  void TearDown() override {
    pipeline_.reset();
    servers_.clear();
    PipelineTest::TearDown();
  }

  std::vector<std::unique_ptr<ReplicaServer>> servers_;
};

INSTANTIATE_TEST_SUITE_P(SleepingAndLooking, ReplicatedTest, testing::Values(0, 1'000'000));

TEST_P(ReplicatedTest, WaitersWithAndWithoutAThreadAllHear) {
  StartReplicated();
  Outcomes outcomes;
  std::vector<std::thread> writers;
  for (int w = 0; w < 4; ++w) {
    writers.emplace_back([&, w] {
      for (int i = 0; i < 200; ++i) {
        const auto seq = IssueOne(std::string(100, 'x'));
        ASSERT_TRUE(seq.ok()) << seq.status();
        pipeline_->WhenDurable(*seq, outcomes.Next());
        if (w < 2) {
          ASSERT_TRUE(pipeline_->WaitDurable(*seq).ok());
        }
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  const std::vector<absl::Status> all = outcomes.WaitFor(800);
  EXPECT_EQ(all.size(), 800u);
  for (const absl::Status& status : all) EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(pipeline_->WaitApplied(800).ok());
  EXPECT_TRUE(pipeline_->Stop().ok());
}

TEST_P(ReplicatedTest, RecordsOfManyDatagramsAreHeldByAll) {
  config_.datagram_bytes = 1472;
  StartReplicated();
  for (int i = 0; i < 20; ++i) {
    const auto seq = IssueOne(std::string(kMaxRecordBody, static_cast<char>('a' + i)));
    ASSERT_TRUE(seq.ok()) << seq.status();
    ASSERT_TRUE(pipeline_->WaitDurable(*seq).ok());
  }
  const PipelineStatus status = pipeline_->status();
  EXPECT_EQ(status.mode, "replicated") << status.mode_detail;
  for (const ReplicaReport& replica : status.replicas) {
    EXPECT_EQ(replica.contiguous, 20u) << replica.address;
  }
}

TEST_P(ReplicatedTest, ManyWaitIsSaidWhileManyDoAndNotOfOne) {
  StartReplicated();
  EXPECT_FALSE(pipeline_->ManyWait());
  servers_.clear();  // nobody answers: all wait until the stable log has what they wait for
  Outcomes outcomes;
  const size_t many = 40 * std::thread::hardware_concurrency();
  std::vector<std::thread> callers;  // the first of them receives for all
  for (size_t i = 0; i < many; ++i) {
    callers.emplace_back([&] {
      const auto seq = IssueOne("a");
      ASSERT_TRUE(seq.ok()) << seq.status();
      pipeline_->WhenDurable(*seq, outcomes.Next());
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(outcomes.WaitFor(many).size(), many);
  EXPECT_TRUE(pipeline_->ManyWait());
  for (int i = 0; i < 100; ++i) {
    const auto seq = IssueOne("a");
    ASSERT_TRUE(seq.ok()) << seq.status();
    ASSERT_TRUE(pipeline_->WaitDurable(*seq).ok());
  }
  EXPECT_FALSE(pipeline_->ManyWait());
}

TEST_P(ReplicatedTest, WhoWaitsWithoutAThreadHearsWhenTheReplicasAreGone) {
  StartReplicated();
  servers_.clear();
  Outcomes outcomes;
  const auto seq = IssueOne("a");
  ASSERT_TRUE(seq.ok()) << seq.status();
  pipeline_->WhenDurable(*seq, outcomes.Next());
  const std::vector<absl::Status> all = outcomes.WaitFor(1);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_TRUE(all[0].ok()) << all[0];  // by the stable log
}

}  // namespace
}  // namespace salius
