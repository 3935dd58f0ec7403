// The loop alone: datagrams that arrive before it starts are one batch.
#include "replica/receive_loop.h"

#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "tests/unit/replica/replica_client.h"

namespace salius {
namespace {

class ReceiveLoopTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ReceiveLoop::Options options;
    options.listen = ResolveAddress(HostPort{"127.0.0.1", 0}).value();
    auto socket = std::make_unique<UdpSocket>(UdpSocket::Bind(options.listen, {}).value());
    auto loop = ReceiveLoop::Create(std::move(socket), options, acceptor_, metrics_, SystemClock());
    ASSERT_TRUE(loop.ok()) << loop.status();
    loop_ = *std::move(loop);
  }

  TestMemory memory_{uint64_t{8} << 20};
  Arena arena_ = memory_.FormatAndAttach();
  SharedAcceptor acceptor_{arena_, {}, 0, nullptr};
  KeyRing ring_;
  ReplicaMetrics metrics_{acceptor_, SystemClock(), arena_.incarnation(), 1, /*sealed=*/false,
                          ring_};
  std::unique_ptr<ReceiveLoop> loop_;
};

TEST_F(ReceiveLoopTest, OneAcknowledgementAnswersABatch) {
  {
    absl::MutexLock lock(&acceptor_.mutex);
    SessionParams params;
    params.volume = TestVolume();
    params.epoch = 1;
    params.session = 77;
    params.base = 1;
    params.memory_bytes = 1 << 20;
    ASSERT_TRUE(acceptor_.acceptor.OpenSession(0, params).ok());
    params.volume = TestVolume(2);
    ASSERT_TRUE(acceptor_.acceptor.OpenSession(0, params).ok());
  }
  ReplicaClient one(loop_->port()), two(loop_->port());
  for (Seq seq = 1; seq <= 10; ++seq) one.SendRecords({TestRecord(seq)}, 1, 77, 1000 + seq);
  one.SendRecords({TestRecord(1, 10, 1, TestVolume(2))}, 1, 77, 5, TestVolume(2));
  two.SendRecords({TestRecord(11)}, 1, 77, 6);
  loop_->Start();
  const auto first = one.Receive();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->header.send_time_ns, 1010u);
  EXPECT_EQ(first->ack.contiguous, 11u);
  const auto second = one.Receive();
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->header.volume, TestVolume(2));
  const auto third = two.Receive();
  ASSERT_TRUE(third.has_value());
  EXPECT_EQ(third->header.send_time_ns, 6u);
  loop_->Stop();
  EXPECT_FALSE(one.Receive(0).has_value());
  EXPECT_FALSE(two.Receive(0).has_value());
}

TEST_F(ReceiveLoopTest, DatagramsThatArrivedBeforeTheStopAreAnswered) {
  ReplicaClient client(loop_->port());
  client.SendRecords({TestRecord(1)});
  loop_->Start();
  loop_->Stop();
  EXPECT_TRUE(client.Receive().has_value());
}

}  // namespace
}  // namespace salius
