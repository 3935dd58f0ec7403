// The pipeline and its replicas over channels that lose, repeat, reorder and delay datagrams.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "replica/server.h"
#include "tests/unit/session/pipeline_testing.h"
#include "transport/lossy_channel.h"

namespace salius {
namespace {

class LossyTest : public PipelineTest {
 protected:
  // Returns a layer of faults, and keeps a pointer to the channel for its counts.
  ChannelLayer Faults(uint64_t seed, LossyChannel** made) {
    return [seed, made](std::unique_ptr<DatagramChannel> inner) {
      const LossyChannel::Faults faults{.drop = 0.05,
                                        .duplicate = 0.05,
                                        .reorder = 0.1,
                                        .delay = 0.1,
                                        .max_delay_ns = 1'000'000};
      auto lossy = std::make_unique<LossyChannel>(std::move(inner), faults, seed, SystemClock());
      *made = lossy.get();
      return lossy;
    };
  }
  void StartReplicated() {
    for (int i = 0; i < 2; ++i) {
      ReplicaOptions options;
      options.listen = HostPort{"127.0.0.1", 0};
      options.insecure = true;  // control calls come by TCP
      options.memory_bytes = 64 << 20;
      options.no_mlock = true;
      options.log_level = "off";
      options.shm_dir = absl::StrCat(path_, "/replica", i);
      options.state_dir = absl::StrCat(path_, "/state", i);
      ASSERT_EQ(mkdir(options.shm_dir.c_str(), 0700), 0);
      auto server = ReplicaServer::Start(options, SystemClock(), Faults(10 + i, &of_replica_[i]));
      ASSERT_TRUE(server.ok()) << server.status();
      config_.replicas.push_back(absl::StrCat("127.0.0.1:", (*server)->port()));
      servers_.push_back(*std::move(server));
    }
    config_.acks = 2;
    channel_layer_ = Faults(1, &of_primary_);
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
  LossyChannel* of_primary_ = nullptr;
  LossyChannel* of_replica_[2] = {nullptr, nullptr};
};

TEST_F(LossyTest, EveryRecordBecomesDurableAndIsAppliedOnceInOrder) {
  constexpr Seq kRecords = 200;
  StartReplicated();
  for (Seq i = 1; i <= kRecords; ++i) {
    // Every tenth record is in several datagrams.
    const auto seq = IssueOne(std::string(i % 10 == 0 ? 100'000 : 100, 'x'));
    ASSERT_TRUE(seq.ok()) << seq.status();
    if (i % 4 == 0) {
      const absl::Status durable = pipeline_->WaitDurable(*seq);
      ASSERT_TRUE(durable.ok()) << durable;
    }
  }
  const LossyChannel::Counts sent = of_primary_->counts();
  EXPECT_GT(sent.dropped, 0u);
  EXPECT_GT(sent.duplicated, 0u);
  EXPECT_GT(sent.delayed, 0u);
  for (const LossyChannel* const replica : of_replica_) EXPECT_GT(replica->counts().sent, 0u);
  const absl::Status stopped = pipeline_->Stop();
  ASSERT_TRUE(stopped.ok()) << stopped;
  std::vector<Seq> all(kRecords);
  std::iota(all.begin(), all.end(), Seq{1});
  EXPECT_EQ(sink_.seqs(), all);
}

}  // namespace
}  // namespace salius
