// A fence that comes while frames arrive: its inventory has all that was ever acknowledged.
#include <atomic>
#include <memory>
#include <thread>

#include "gtest/gtest.h"
#include "replica/server.h"
#include "tests/unit/replica/replica_client.h"

namespace salius {
namespace {

// A primary that sends until it learns that it was fenced.
class Sender {
 public:
  Sender(uint16_t port, Epoch epoch, uint64_t session)
      : client_(port), epoch_(epoch), session_(session), thread_([this] { Send(); }) {}

  // Returns true when records are held; false when none was held after ten seconds.
  bool AwaitAcked(Seq seq) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (acked_.load() < seq && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return acked_.load() >= seq;
  }
  // Waits for the answer "fenced". Returns the last seq that was acknowledged, or 0 when no such
  // answer came. Call it once.
  Seq Finish() {
    thread_.join();
    return fenced_ ? acked_.load() : 0;
  }

 private:
  void Send() {
    for (Seq seq = 1; seq <= 100000 && !fenced_; ++seq) {
      client_.SendRecords({TestRecord(seq, 20, epoch_)}, epoch_, session_);
      const std::optional<Acked> acked = client_.Receive();
      if (!acked.has_value()) return;
      if (acked->ack.flags & kAckFenced) {
        fenced_ = true;
      } else {
        acked_ = acked->ack.contiguous;
      }
    }
  }

  ReplicaClient client_;
  const Epoch epoch_;
  const uint64_t session_;
  std::atomic<Seq> acked_{0};
  bool fenced_ = false;
  std::thread thread_;
};

TEST(FenceRaceTest, NothingIsAcknowledgedThatTheFenceDoesNotName) {
  ShmDir shm, state;
  ReplicaOptions options;
  options.listen = HostPort{"127.0.0.1", 0};
  options.insecure = true;  // control calls come by TCP
  options.memory_bytes = uint64_t{32} << 20;
  options.shm_dir = shm.path();
  options.state_dir = state.path();
  options.no_mlock = true;
  options.log_level = "off";
  auto server = ReplicaServer::Start(options, SystemClock());
  ASSERT_TRUE(server.ok()) << server.status();
  ReplicaClient recovery((*server)->port());
  for (Epoch epoch = 1; epoch < 40; epoch += 2) {
    const uint64_t session = 100 + epoch;
    ASSERT_TRUE(recovery.Open(ReplicaClient::SessionRequest(epoch, session)).ok());
    Sender primary((*server)->port(), epoch, session);
    EXPECT_TRUE(primary.AwaitAcked(50));
    control::FenceRequest request;
    request.set_volume(ReplicaClient::Bytes(TestVolume()));
    request.set_epoch(epoch + 1);
    request.set_token(5);
    control::FenceResponse response;
    grpc::ClientContext context;
    EXPECT_TRUE(recovery.stub().Fence(&context, request, &response).ok());
    EXPECT_TRUE(response.accepted());
    const ReplicaClient::Fetched fetched = recovery.Fetch(epoch);
    const Seq acked = primary.Finish();
    EXPECT_GE(acked, 50u) << "never fenced";
    EXPECT_LE(acked, response.inventory().contiguous());
    EXPECT_EQ(fetched.count, response.inventory().records());
    EXPECT_EQ(recovery.Inventory().inventory().records(), response.inventory().records());
  }
}

}  // namespace
}  // namespace salius
