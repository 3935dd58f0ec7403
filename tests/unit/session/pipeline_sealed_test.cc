// The pipeline and its replicas with sealed datagrams: keys are given, changed, and given again
// after a replica's process has ended. The same on loopback without keys, where the control calls
// go by the replicas' unix sockets.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/net.h"
#include "proto/frame_format.h"
#include "proto/sealed_frame.h"
#include "replica/server.h"
#include "tests/unit/session/old_replica.h"
#include "tests/unit/session/pipeline_testing.h"
#include "transport/lossy_channel.h"
#include "transport/sealer.h"

namespace salius {
namespace {

class SealedTest : public PipelineTest {
 protected:
  void SetUp() override {
    PipelineTest::SetUp();
    config_.delta_us = 10'000'000;  // a busy machine partitions nothing
  }
  void StartReplica(size_t i, bool sealed = true, const ChannelLayer& layer = {}) {
    ReplicaOptions options;
    options.listen = HostPort{"127.0.0.1", i < ports_.size() ? ports_[i] : uint16_t{0}};
    options.insecure = !local_;  // control calls come by TCP, or else by the unix socket
    options.memory_bytes = 64 << 20;
    options.no_mlock = true;
    options.sealed = sealed && !local_;
    options.log_level = "off";
    options.shm_dir = absl::StrCat(path_, "/replica", i);
    options.state_dir = absl::StrCat(path_, "/state", i);
    mkdir(options.shm_dir.c_str(), 0700);
    auto server = ReplicaServer::Start(options, SystemClock(), layer);
    ASSERT_TRUE(server.ok()) << server.status();
    if (i == ports_.size()) {
      ports_.push_back((*server)->port());
      config_.replicas.push_back(absl::StrCat("127.0.0.1:", ports_[i]));
      servers_.emplace_back();
    }
    servers_[i] = *std::move(server);
  }
  void Await(const std::function<bool(const SessionStatus&)>& wanted) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!wanted(pipeline_->status())) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << pipeline_->status().mode_detail;
      std::this_thread::yield();
    }
  }
  void StartReplicated() {
    config_.acks = 2;
    sealed_ = true;
    ASSERT_TRUE(Start().ok());
    Await([](const SessionStatus& status) { return status.mode == "replicated"; });
  }
  void WriteOne(size_t bytes) {
    const auto seq = IssueOne(std::string(bytes, 'x'));
    ASSERT_TRUE(seq.ok()) << seq.status();
    const absl::Status durable = pipeline_->WaitDurable(*seq);
    ASSERT_TRUE(durable.ok()) << durable;
  }
  void TearDown() override {
    pipeline_.reset();
    servers_.clear();
    PipelineTest::TearDown();
  }
  double Metric(size_t replica, const std::string& name, const std::string& reason = "") {
    const std::vector<prometheus::MetricFamily> families = servers_[replica]->metrics().Collect();
    for (const prometheus::MetricFamily& family : families) {
      if (family.name != name) continue;
      for (const prometheus::ClientMetric& metric : family.metric) {
        if (reason.empty()) return metric.gauge.value;
        if (!metric.label.empty() && metric.label.front().value == reason) {
          return metric.counter.value;
        }
      }
    }
    ADD_FAILURE() << "no " << name << " " << reason;
    return 0;
  }

  // Without keys and without --insecure at both ends.
  void UseLocalSockets() {
    local_ = true;
    insecure_ = false;
    config_.acks = 2;
  }
  void AwaitReplicated() {
    Await([](const SessionStatus& status) { return status.mode == "replicated"; });
  }

  bool local_ = false;
  std::vector<std::unique_ptr<ReplicaServer>> servers_;
  std::vector<uint16_t> ports_;
};

TEST_F(SealedTest, RecordsOfAllSizesBecomeDurable) {
  StartReplica(0);
  StartReplica(1);
  StartReplicated();
  for (const size_t bytes : {1, 100, 1384, 4096, 65000, 100'000}) WriteOne(bytes);
  const SessionStatus status = pipeline_->status();
  ASSERT_TRUE(status.sealing.has_value());
  for (const SealingUse::Refusal& refusal : status.sealing->refusals) {
    EXPECT_EQ(refusal.datagrams, 0u) << refusal.reason;
  }
  EXPECT_EQ(Metric(0, "salius_replica_refused_datagrams_total", "unsealed"), 0);
  ASSERT_TRUE(pipeline_->Stop().ok());
}

TEST_F(SealedTest, KeyChangesOftenUnderLoadWithoutLossOfAMember) {
  StartReplica(0);
  StartReplica(1);
  key_rotation_ns_ = 200'000'000;  // a fifth of the least that the option allows
  StartReplicated();
  const uint64_t before = pipeline_->status().mode_since_unix_ms;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (pipeline_->status().sealing->key_changes < 10) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    WriteOne(3000);
  }
  // It never left its mode.
  EXPECT_EQ(pipeline_->status().mode_since_unix_ms, before);
  ASSERT_TRUE(pipeline_->Stop().ok());
}

TEST_F(SealedTest, LossAndReorderingCostNoRecordWhileKeysChange) {
  const auto faults = [](uint64_t seed) -> ChannelLayer {
    return [seed](std::unique_ptr<DatagramChannel> inner) {
      const LossyChannel::Faults faults{
          .drop = 0.05, .duplicate = 0.05, .reorder = 0.1, .delay = 0.1, .max_delay_ns = 1'000'000};
      return std::make_unique<LossyChannel>(std::move(inner), faults, seed, SystemClock());
    };
  };
  StartReplica(0, true, faults(10));
  StartReplica(1, true, faults(11));
  channel_layer_ = faults(1);
  key_rotation_ns_ = 50'000'000;
  StartReplicated();
  for (int i = 0; i < 100; ++i) WriteOne(i % 10 == 0 ? 100'000 : 100);
  ASSERT_TRUE(pipeline_->Stop().ok());
  EXPECT_EQ(sink_.seqs().size(), 100u);
  // Each datagram that came twice was refused once.
  EXPECT_GT(Metric(0, "salius_replica_refused_datagrams_total", "replayed"), 0);
}

TEST_F(SealedTest, RestartedReplicaGetsItsKeyAgain) {
  StartReplica(0);
  StartReplica(1);
  StartReplicated();
  WriteOne(100);
  servers_[1].reset();
  StartReplica(1);
  // Its memory was kept, so the session at it goes on.
  for (int i = 0; i < 20; ++i) WriteOne(100);
  Await([](const SessionStatus& status) {
    return status.mode == "replicated" && status.replicas[1].connected &&
           status.replicas[1].contiguous == status.marks.issued;
  });
  EXPECT_GT(Metric(1, "salius_replica_refused_datagrams_total", "no_key"), 0);
  ASSERT_TRUE(pipeline_->Stop().ok());
}

TEST_F(SealedTest, ReplicaThatSealsNothingIsRefusedAndBothVersionsAreNamed) {
  StartReplica(0, /*sealed=*/false);
  sealed_ = true;
  config_.acks = 1;
  ASSERT_TRUE(Start().ok());
  Await([](const SessionStatus& status) {
    return absl::StrContains(status.replicas[0].problem, "does not seal datagrams");
  });
  EXPECT_EQ(pipeline_->status().mode, "local");
}

TEST_F(SealedTest, PrimaryThatSealsNothingIsRefusedAndBothVersionsAreNamed) {
  StartReplica(0, /*sealed=*/true);
  config_.acks = 1;
  ASSERT_TRUE(Start().ok());
  Await([](const SessionStatus& status) {
    return absl::StrContains(status.replicas[0].problem, "offers no key");
  });
  EXPECT_EQ(pipeline_->status().mode, "local");
}

TEST_F(SealedTest, LocalReplicasWithoutKeysGetThemByTheirSockets) {
  UseLocalSockets();
  StartReplica(0);
  StartReplica(1);
  EXPECT_EQ(Metric(0, "salius_replica_sealed"), 1);
  key_rotation_ns_ = 100'000'000;
  ASSERT_TRUE(Start().ok());
  AwaitReplicated();
  Await([this](const SessionStatus& status) {
    WriteOne(3000);
    return status.sealing.has_value() && status.sealing->key_changes >= 3;
  });
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(Metric(i, "salius_replica_sealed"), 1);
    EXPECT_EQ(Metric(i, "salius_replica_plain_sessions"), 0);
    EXPECT_EQ(Metric(i, "salius_replica_drops_total", "unsealed"), 0);
  }
  ASSERT_TRUE(pipeline_->Stop().ok());
}

TEST_F(SealedTest, RestartedLocalReplicaGetsItsKeyAgain) {
  UseLocalSockets();
  StartReplica(0);
  StartReplica(1);
  ASSERT_TRUE(Start().ok());
  AwaitReplicated();
  WriteOne(100);
  servers_[1].reset();
  StartReplica(1);
  EXPECT_EQ(Metric(1, "salius_replica_plain_sessions"), 0);  // it remembers that the session is sealed
  for (int i = 0; i < 20; ++i) WriteOne(100);
  Await([](const SessionStatus& status) {
    return status.mode == "replicated" && status.replicas[1].connected &&
           status.replicas[1].contiguous == status.marks.issued;
  });
  EXPECT_GT(Metric(1, "salius_replica_refused_datagrams_total", "no_key"), 0);
  ASSERT_TRUE(pipeline_->Stop().ok());
}

TEST_F(SealedTest, LocalSessionWithoutAKeyStaysPlainOverARestart) {
  UseLocalSockets();
  insecure_ = true;  // as primaries of older versions, it offers no key
  StartReplica(0);
  StartReplica(1);
  ASSERT_TRUE(Start().ok());
  AwaitReplicated();
  WriteOne(3000);
  EXPECT_FALSE(pipeline_->status().sealing.has_value());
  EXPECT_EQ(Metric(1, "salius_replica_sealed"), 0);
  EXPECT_EQ(Metric(1, "salius_replica_plain_sessions"), 1);
  const uint64_t since = pipeline_->status().mode_since_unix_ms;
  servers_[1].reset();
  StartReplica(1);
  for (int i = 0; i < 20; ++i) WriteOne(100);
  Await([](const SessionStatus& status) {
    return status.replicas[1].connected && status.replicas[1].contiguous == status.marks.issued;
  });
  EXPECT_EQ(pipeline_->status().mode_since_unix_ms, since);
  ASSERT_TRUE(pipeline_->Stop().ok());
}

TEST_F(SealedTest, LocalReplicaThatSealsNothingIsServedPlain) {
  UseLocalSockets();
  StartReplica(0);
  local_ = false;
  StartReplica(1, /*sealed=*/false);
  auto old = StartOldReplica(ports_[1]);
  ASSERT_TRUE(old.ok()) << old.status();
  key_rotation_ns_ = 100'000'000;
  ASSERT_TRUE(Start().ok());
  AwaitReplicated();
  // Records of one and of many datagrams, while the key of the other replica changes.
  const uint64_t before = pipeline_->status().marks.issued;
  for (const size_t bytes : {1, 100, 4096, 100'000}) WriteOne(bytes);
  Await([before](const SessionStatus& status) {
    return status.replicas[0].contiguous >= before + 4 && status.replicas[1].contiguous >= before + 4;
  });
  // The status says that not all is sealed; the replica that took a key takes sealed frames only.
  EXPECT_FALSE(pipeline_->status().sealing.has_value());
  EXPECT_EQ(Metric(0, "salius_replica_sealed"), 1);
  EXPECT_EQ(Metric(0, "salius_replica_drops_total", "unsealed"), 0);
  EXPECT_EQ(Metric(1, "salius_replica_sealed"), 0);
  EXPECT_EQ(Metric(1, "salius_replica_drops_total", "corrupt_frame"), 0);
  ASSERT_TRUE(pipeline_->Stop().ok());
}

// Counts the compact frames that a session sends to each port, under one record key.
class CompactFrames {
 public:
  void SetKey(const std::string& record_key) {
    absl::MutexLock lock(&mutex_);
    std::copy_n(record_key.begin(), std::min(record_key.size(), key_.size()), key_.begin());
  }
  // Returns the frames to `port` since the last call.
  size_t Take(uint16_t port) {
    absl::MutexLock lock(&mutex_);
    return std::exchange(count_[port], 0);
  }
  void Count(const OutDatagram& datagram) {
    std::vector<uint8_t> bytes;
    for (const iovec& part : datagram.parts) {
      const auto* const begin = static_cast<const uint8_t*>(part.iov_base);
      bytes.insert(bytes.end(), begin, begin + part.iov_len);
    }
    SealPrefix prefix;
    if (DecodeSealPrefix(bytes.data(), bytes.size(), &prefix) != SealFault::kNone) return;
    absl::MutexLock lock(&mutex_);
    const absl::StatusOr<FrameHeader> frame =
        DecodeFrameHeader(Opener(key_).Open(prefix, absl::MakeSpan(bytes)));
    if (frame.ok() && frame->type == FrameType::kCompact) ++count_[datagram.to->port()];
  }
  ChannelLayer Layer() {
    class Channel final : public DatagramChannel {
     public:
      Channel(CompactFrames& frames, std::unique_ptr<DatagramChannel> inner)
          : frames_(frames), inner_(std::move(inner)) {}
      size_t Send(absl::Span<const OutDatagram> batch) override {
        for (const OutDatagram& datagram : batch) frames_.Count(datagram);
        return inner_->Send(batch);
      }
      absl::StatusOr<size_t> Receive(InBatch& batch, bool wait) override {
        return inner_->Receive(batch, wait);
      }
      absl::Status SetReceiveTimeout(int64_t micros) override {
        return inner_->SetReceiveTimeout(micros);
      }
      int fd() const override { return inner_->fd(); }
      absl::StatusOr<SocketAddress> local() const override { return inner_->local(); }
      uint64_t send_errors() const override { return inner_->send_errors(); }

     private:
      CompactFrames& frames_;
      const std::unique_ptr<DatagramChannel> inner_;
    };
    return [this](std::unique_ptr<DatagramChannel> inner) {
      return std::make_unique<Channel>(*this, std::move(inner));
    };
  }

 private:
  absl::Mutex mutex_;
  SealKey key_ ABSL_GUARDED_BY(mutex_){};
  std::map<uint16_t, size_t> count_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(SealedTest, ReplicaTakenBackToAnOlderVersionGetsNoCompactFrames) {
  CompactFrames frames;
  std::atomic<bool> older{false};
  UseLocalSockets();
  StartReplica(0);
  local_ = false;
  StartReplica(1);
  auto socket = StartOldReplica(ports_[1], [&](const control::OpenSessionRequest& request,
                                               control::OpenSessionResponse& response) {
    frames.SetKey(request.key().record_key());
    if (older) response.set_compact_records(false);
  });
  ASSERT_TRUE(socket.ok()) << socket.status();
  channel_layer_ = frames.Layer();
  ASSERT_TRUE(Start().ok());
  AwaitReplicated();
  // Issues records until some that went to the first replica together were in a compact frame.
  const auto write_together = [&] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    frames.Take(ports_[0]);
    frames.Take(ports_[1]);
    do {
      ASSERT_LT(std::chrono::steady_clock::now(), end);
      Seq last = 0;
      for (int i = 0; i < 20; ++i) {
        RecordDraft draft;
        draft.file_id = 7;
        draft.body = "record";
        draft.when = i < 19 ? SendWhen::kLater : SendWhen::kNow;
        last = pipeline_->Issue(std::move(draft)).value()->seq();
      }
      ASSERT_TRUE(pipeline_->WaitDurable(last).ok());
    } while (frames.Take(ports_[0]) == 0);
  };
  write_together();
  EXPECT_GT(frames.Take(ports_[1]), 0u);
  older = true;
  servers_[1].reset();
  StartReplica(1);
  WriteOne(100);
  Await([](const SessionStatus& status) {
    return status.replicas[1].connected && status.replicas[1].contiguous == status.marks.issued;
  });
  write_together();
  EXPECT_EQ(frames.Take(ports_[1]), 0u);
  ASSERT_TRUE(pipeline_->Stop().ok());
}

}  // namespace
}  // namespace salius
