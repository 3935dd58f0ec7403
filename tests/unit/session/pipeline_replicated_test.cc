// The pipeline with replicas in this process: acknowledgements make records durable.
#include <errno.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/limits.h"
#include "recovery/agree/replica_client.h"
#include "replica/server.h"
#include "tests/unit/session/pipeline_testing.h"

namespace salius {
namespace {

class ReplicatedTest : public PipelineTest, public testing::WithParamInterface<int64_t> {
 protected:
  void StartReplicated() {
    spin_ns_ = GetParam();
    for (int i = 0; i < 2; ++i) {
      ReplicaOptions options;
      options.listen = HostPort{"127.0.0.1", 0};
      options.insecure = true;  // control calls come by TCP
      options.memory_bytes = 64 << 20;
      options.no_mlock = true;
      options.log_level = "off";
      options.shm_dir = absl::StrCat(path_, "/replica", i);
      options.state_dir = absl::StrCat(path_, "/state", i);
      ASSERT_EQ(mkdir(options.shm_dir.c_str(), 0700), 0) << "errno " << errno;
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
  ASSERT_NO_FATAL_FAILURE(StartReplicated());
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

TEST_P(ReplicatedTest, NotifiedCallerDoesNotReceive) {
  ASSERT_NO_FATAL_FAILURE(StartReplicated());
  Outcomes outcomes;
  const auto seq = IssueOne("x");
  ASSERT_TRUE(seq.ok()) << seq.status();
  pipeline_->NotifyDurable(*seq, outcomes.Next());
  const std::vector<absl::Status> all = outcomes.WaitFor(1);
  EXPECT_TRUE(all[0].ok()) << all[0];
  EXPECT_EQ(gate_page_.issued, *seq);
  EXPECT_EQ(gate_page_.AwaitedByOutput(), 0u);
}

TEST_P(ReplicatedTest, OutputTriggersSending) {
  output_triggered_ = true;
  ASSERT_NO_FATAL_FAILURE(StartReplicated());
  const auto begin = std::chrono::steady_clock::now();
  Outcomes outcomes;
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(IssueOne("x").ok());
  EXPECT_EQ(gate_page_.AwaitedByOutput(), 100u);  // none was sent
  pipeline_->NotifyDurable(100, outcomes.Next());
  EXPECT_TRUE(outcomes.WaitFor(1)[0].ok());
  EXPECT_EQ(gate_page_.AwaitedByOutput(), 0u);
  // A caller that waits for a record has it sent too.
  ASSERT_TRUE(IssueOne("x").ok());
  EXPECT_TRUE(pipeline_->WaitDurable(101).ok());
  // Without a request they would have been sent after five seconds.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(4));
  EXPECT_TRUE(pipeline_->Stop().ok());
}

// A leader leaves a few records unapplied, to be applied with later ones.
TEST_P(ReplicatedTest, TheLastRecordsAreAppliedAlthoughNoMoreCome) {
  ASSERT_NO_FATAL_FAILURE(StartReplicated());
  for (const Seq last : {1, 4}) {
    Outcomes outcomes;
    for (Seq seq = pipeline_->watermarks().issued + 1; seq <= last; ++seq) {
      const auto issued = IssueOne("x");
      ASSERT_TRUE(issued.ok()) << issued.status();
      pipeline_->WhenDurable(*issued, outcomes.Next());
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (pipeline_->watermarks().applied < last) {
      ASSERT_LT(std::chrono::steady_clock::now(), end);
      std::this_thread::yield();
    }
  }
  EXPECT_EQ(sink_.seqs(), (std::vector<Seq>{1, 2, 3, 4}));
}

TEST_P(ReplicatedTest, RecordsOfManyDatagramsAreHeldByAll) {
  config_.datagram_bytes = kDatagramPayloadMin;
  config_.delta_us = 5'000'000;  // 257 datagrams a record take long on a busy machine
  ASSERT_NO_FATAL_FAILURE(StartReplicated());
  for (int i = 0; i < 20; ++i) {
    const auto seq = IssueOne(std::string(kMaxRecordBody, static_cast<char>('a' + i)));
    ASSERT_TRUE(seq.ok()) << seq.status();
    ASSERT_TRUE(pipeline_->WaitDurable(*seq).ok());
  }
  // The stable log may have been faster.
  const auto held = [this] {
    const SessionStatus status = pipeline_->status();
    EXPECT_EQ(status.mode, "replicated") << status.mode_detail;
    return std::all_of(status.replicas.begin(), status.replicas.end(),
                       [](const ReplicaReport& replica) { return replica.contiguous == 20; });
  };
  while (!held() && !HasFailure()) std::this_thread::yield();
}

TEST_P(ReplicatedTest, ManyWaitIsTrueForSeveralWaitersOnly) {
  config_.delta_us = 1'000'000;  // all callers come before the volume is in mode local
  ASSERT_NO_FATAL_FAILURE(StartReplicated());
  EXPECT_FALSE(pipeline_->ManyWait());
  servers_.clear();  // no replica answers: all wait until the stable log has their records
  Outcomes outcomes;
  const size_t many = 40 * std::thread::hardware_concurrency();
  std::vector<std::thread> callers;  // the first one receives for all
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

TEST_P(ReplicatedTest, WaiterWithoutAThreadIsNotifiedWhenReplicasAreLost) {
  ASSERT_NO_FATAL_FAILURE(StartReplicated());
  servers_.clear();
  Outcomes outcomes;
  const auto seq = IssueOne("a");
  ASSERT_TRUE(seq.ok()) << seq.status();
  pipeline_->WhenDurable(*seq, outcomes.Next());
  const std::vector<absl::Status> all = outcomes.WaitFor(1);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_TRUE(all[0].ok()) << all[0];  // by the stable log
}

TEST_P(ReplicatedTest, ClosingFreesTheLogAtTheReplicas) {
  config_.delta_us = 5'000'000;  // the stable log must not be faster
  ASSERT_NO_FATAL_FAILURE(StartReplicated());
  const auto seq = IssueOne("a");
  ASSERT_TRUE(seq.ok() && pipeline_->WaitDurable(*seq).ok());
  const auto held = [&](const ReplicaServer& server) {
    const auto client =
        recovery::MakeGrpcConnector()->Connect(absl::StrCat("127.0.0.1:", server.port()));
    const auto answer = client->Ask(config_.volume, 10'000);
    SALIUS_CHECK_OK(answer);
    return answer->inventory.contiguous;
  };
  for (const auto& server : servers_) EXPECT_EQ(held(*server), *seq);
  ASSERT_TRUE(pipeline_->Stop().ok());
  for (const auto& server : servers_) EXPECT_EQ(held(*server), 0u);
}

}  // namespace
}  // namespace salius
