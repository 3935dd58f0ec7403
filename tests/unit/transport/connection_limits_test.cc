#include "transport/connection_limits.h"

#include <cstdint>
#include <map>
#include <string>

#include "common/random.h"
#include "gtest/gtest.h"

namespace salius {
namespace {

using Verdict = ConnectionLimits::Verdict;

// The sockets of a process: which cookie each descriptor has.
class ConnectionLimitsTest : public ::testing::Test {
 protected:
  ConnectionLimits Make(size_t total, size_t per_host) {
    return ConnectionLimits({total, per_host}, [this](int fd, uint64_t cookie) {
      ++looks_;
      const auto found = open_.find(fd);
      return found != open_.end() && found->second == cookie;
    });
  }
  // Accepts a connection of `host`, which gets the lowest free descriptor as in the kernel. It is closed
  // again when it is not admitted.
  Verdict Accept(ConnectionLimits& limits, const std::string& host) {
    int fd = 3;
    while (open_.contains(fd)) ++fd;
    open_[fd] = ++cookies_;
    const Verdict verdict = limits.Admit(now_ns_, fd, cookies_, host);
    if (verdict != Verdict::kAdmitted) open_.erase(fd);
    last_ = fd;
    return verdict;
  }
  void Pass() { now_ns_ += ConnectionLimits::kLookNs; }

  std::map<int, uint64_t> open_;
  uint64_t cookies_ = 0;
  int64_t now_ns_ = 1'000'000'000;
  int last_ = -1;
  int looks_ = 0;
};

TEST_F(ConnectionLimitsTest, BoundsLeaveDescriptorsForOtherWork) {
  EXPECT_EQ(ConnectionLimits::BoundsFor(1'000'000).total, 65'536u);
  EXPECT_EQ(ConnectionLimits::BoundsFor(1'000'000).per_host, 16'384u);
  EXPECT_EQ(ConnectionLimits::BoundsFor(4096).total, 3840u);
  EXPECT_EQ(ConnectionLimits::BoundsFor(4096).per_host, 960u);
  EXPECT_EQ(ConnectionLimits::BoundsFor(256).total, 128u);
  EXPECT_EQ(ConnectionLimits::BoundsFor(256).per_host, 32u);
  EXPECT_EQ(ConnectionLimits::BoundsFor(0).per_host, 1u);
  EXPECT_EQ(ConnectionLimits::BoundsFor(UINT64_MAX).total, 65'536u) << "RLIM_INFINITY";
}

TEST_F(ConnectionLimitsTest, HostGetsItsShareAndOthersTheRest) {
  ConnectionLimits limits = Make(8, 3);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Accept(limits, "a"), Verdict::kAdmitted);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(Accept(limits, "a"), Verdict::kHostHasItsShare);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Accept(limits, "b"), Verdict::kAdmitted);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Accept(limits, "c"), Verdict::kAdmitted);
  EXPECT_EQ(Accept(limits, "c"), Verdict::kAllAreTaken);
  EXPECT_EQ(Accept(limits, "d"), Verdict::kAllAreTaken);
  EXPECT_EQ(limits.size(), 8u);
}

TEST_F(ConnectionLimitsTest, EndedConnectionMakesRoom) {
  ConnectionLimits limits = Make(8, 1);
  EXPECT_EQ(Accept(limits, "a"), Verdict::kAdmitted);
  EXPECT_EQ(Accept(limits, "a"), Verdict::kHostHasItsShare);
  open_.erase(3);
  // The descriptor is the same one, so the end is known at once.
  EXPECT_EQ(Accept(limits, "a"), Verdict::kAdmitted);
  EXPECT_EQ(limits.size(), 1u);
}

TEST_F(ConnectionLimitsTest, DescriptorThatIsSomethingElseNowDoesNotCount) {
  ConnectionLimits limits = Make(8, 1);
  EXPECT_EQ(Accept(limits, "a"), Verdict::kAdmitted);
  open_[last_] = 0;  // A file has it.
  EXPECT_EQ(Accept(limits, "a"), Verdict::kAdmitted);
  open_[last_] = ++cookies_;  // A socket of another kind has it.
  Pass();
  EXPECT_EQ(Accept(limits, "a"), Verdict::kAdmitted);
  EXPECT_EQ(limits.size(), 1u);
}

TEST_F(ConnectionLimitsTest, FloodDoesNotLookEachTime) {
  ConnectionLimits limits = Make(100, 100);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(Accept(limits, "a"), Verdict::kAdmitted);
  EXPECT_EQ(looks_, 0);
  for (int i = 0; i < 1000; ++i) EXPECT_NE(Accept(limits, "a"), Verdict::kAdmitted);
  EXPECT_EQ(looks_, 100);
  Pass();
  for (int i = 0; i < 1000; ++i) EXPECT_NE(Accept(limits, "a"), Verdict::kAdmitted);
  EXPECT_EQ(looks_, 200);
}

// Compares with a count of all that is open, over random openings and ends.
TEST_F(ConnectionLimitsTest, BoundsHoldForAnyOrder) {
  Random random(7);
  ConnectionLimits limits = Make(12, 4);
  std::map<int, std::string> hosts;
  for (int step = 0; step < 20'000; ++step) {
    Pass();
    std::erase_if(hosts, [&](const auto& one) {
      if (random.Below(8) != 0) return false;
      open_.erase(one.first);
      return true;
    });
    const std::string host(1, static_cast<char>('a' + random.Below(5)));
    size_t of_host = 0;
    for (const auto& one : hosts) of_host += one.second == host ? 1 : 0;
    const Verdict expected = of_host >= 4          ? Verdict::kHostHasItsShare
                             : hosts.size() >= 12 ? Verdict::kAllAreTaken
                                                  : Verdict::kAdmitted;
    ASSERT_EQ(Accept(limits, host), expected) << "step " << step;
    if (expected == Verdict::kAdmitted) hosts[last_] = host;
  }
}

}  // namespace
}  // namespace salius
