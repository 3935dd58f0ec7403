#include "transport/lossy_channel.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "gtest/gtest.h"

namespace salius {
namespace {

// A channel without a network: it keeps the datagrams that are sent.
class FakeChannel final : public DatagramChannel {
 public:
  explicit FakeChannel(std::vector<std::string>& sent) : sent_(sent) {}

  size_t Send(absl::Span<const OutDatagram> batch) override {
    for (const OutDatagram& datagram : batch) {
      std::string& text = sent_.emplace_back();
      for (const iovec& part : datagram.parts) {
        text.append(static_cast<const char*>(part.iov_base), part.iov_len);
      }
    }
    return batch.size();
  }
  absl::StatusOr<size_t> Receive(InBatch&, bool) override { return size_t{0}; }
  absl::Status SetReceiveTimeout(int64_t) override { return absl::OkStatus(); }
  int fd() const override { return -1; }
  absl::StatusOr<SocketAddress> local() const override { return SocketAddress(); }
  uint64_t send_errors() const override { return 0; }

 private:
  std::vector<std::string>& sent_;
};

class LossyChannelTest : public ::testing::Test {
 protected:
  void Make(const LossyChannel::Faults& faults, uint64_t seed = 1) {
    arrived_.clear();
    channel_ = std::make_unique<LossyChannel>(std::make_unique<FakeChannel>(arrived_), faults, seed,
                                              clock_);
  }
  // Sends the numbers [0, count), each in two parts, in batches of ten.
  void SendNumbers(size_t count) {
    std::vector<std::string> texts;
    for (size_t i = 0; i < count; ++i) texts.push_back(absl::StrCat(i));
    const SocketAddress to;
    std::string head = "n";
    for (size_t first = 0; first < count; first += 10) {
      const size_t last = std::min(first + 10, count);
      std::vector<std::vector<iovec>> parts;
      std::vector<OutDatagram> batch;
      for (size_t i = first; i < last; ++i) {
        parts.push_back({{head.data(), head.size()}, {texts[i].data(), texts[i].size()}});
      }
      for (const auto& two : parts) batch.push_back({&to, two});
      EXPECT_EQ(channel_->Send(batch), batch.size());
    }
  }
  std::set<std::string> Distinct() const { return {arrived_.begin(), arrived_.end()}; }

  ManualClock clock_;
  std::vector<std::string> arrived_;
  std::unique_ptr<LossyChannel> channel_;
};

TEST_F(LossyChannelTest, WithoutFaultsEverythingArrivesInOrder) {
  Make({});
  SendNumbers(25);
  ASSERT_EQ(arrived_.size(), 25u);
  for (size_t i = 0; i < 25; ++i) EXPECT_EQ(arrived_[i], absl::StrCat("n", i));
}

TEST_F(LossyChannelTest, DroppedDatagramsDoNotArrive) {
  Make({.drop = 0.3});
  SendNumbers(1000);
  const LossyChannel::Counts counts = channel_->counts();
  EXPECT_EQ(counts.sent, 1000u);
  EXPECT_EQ(arrived_.size(), 1000 - counts.dropped);
  EXPECT_GT(counts.dropped, 200u);
  EXPECT_LT(counts.dropped, 400u);
}

TEST_F(LossyChannelTest, DuplicatesArriveTwice) {
  Make({.duplicate = 0.2});
  SendNumbers(100);
  EXPECT_GT(channel_->counts().duplicated, 0u);
  EXPECT_EQ(arrived_.size(), 100 + channel_->counts().duplicated);
  EXPECT_EQ(Distinct().size(), 100u);
}

TEST_F(LossyChannelTest, ReorderedDatagramsAllArrive) {
  Make({.reorder = 0.5});
  SendNumbers(100);
  EXPECT_GT(channel_->counts().reordered, 0u);
  EXPECT_EQ(arrived_.size(), 100u);
  EXPECT_EQ(Distinct().size(), 100u);
  std::vector<std::string> in_order;
  for (size_t i = 0; i < 100; ++i) in_order.push_back(absl::StrCat("n", i));
  EXPECT_NE(arrived_, in_order);
}

TEST_F(LossyChannelTest, DelayedDatagramsLeaveWithACallAfterTheirTime) {
  Make({.delay = 1, .max_delay_ns = 1000});
  SendNumbers(10);
  EXPECT_TRUE(arrived_.empty());
  clock_.Advance(1000);
  EXPECT_TRUE(arrived_.empty());
  InBatch in(1, 16);
  EXPECT_EQ(channel_->Receive(in, false).value(), 0u);
  EXPECT_EQ(Distinct().size(), 10u);
  EXPECT_EQ(channel_->counts().delayed, 10u);
}

TEST_F(LossyChannelTest, SameSeedGivesTheSameFaults) {
  const LossyChannel::Faults faults{.drop = 0.2, .duplicate = 0.2, .reorder = 0.2};
  Make(faults, 5);
  SendNumbers(100);
  const std::vector<std::string> first = arrived_;
  Make(faults, 5);
  SendNumbers(100);
  EXPECT_EQ(arrived_, first);
  Make(faults, 6);
  SendNumbers(100);
  EXPECT_NE(arrived_, first);
}

}  // namespace
}  // namespace salius
