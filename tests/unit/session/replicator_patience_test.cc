// The replicator's pauses after failures, and that it forgets failures.
#include <gtest/gtest.h>

#include <limits>

#include "client/session/setbacks.h"
#include "tests/unit/session/replicator_testing.h"

namespace salius {
namespace {

constexpr int64_t kNoTime = 0;

TEST(SetbacksTest, ThePauseDoublesUpToTheMost) {
  Setbacks setbacks(kMs, 3);
  EXPECT_EQ(setbacks.pause_ns(), 0);
  for (const int64_t pause : {2, 4, 8, 8, 8}) {
    setbacks.Add(kNoTime);
    EXPECT_EQ(setbacks.pause_ns(), pause * kMs);
  }
}

TEST(SetbacksTest, TimeThatGoesWellMakesItShorter) {
  Setbacks setbacks(kMs, 6);
  for (int i = 0; i < 6; ++i) setbacks.Add(kNoTime);
  ASSERT_EQ(setbacks.pause_ns(), 64 * kMs);
  setbacks.Add(4 * 64 * kMs);
  EXPECT_EQ(setbacks.pause_ns(), 64 * kMs) << "one forgotten, one more";
  setbacks.Add(4 * (64 + 32 + 16) * kMs);
  EXPECT_EQ(setbacks.pause_ns(), 16 * kMs);
  setbacks.Add(std::numeric_limits<int64_t>::max());
  EXPECT_EQ(setbacks.pause_ns(), 2 * kMs);
}

class PatienceTest : public ReplicatorTest {
 protected:
  void Settle() {
    Ack(0, core_->issued());
    WriteStable();
    if (out_.note) {
      out_.note.reset();
      core_->OnNoteWritten(now_, absl::OkStatus());
      Take();
    }
    if (core_->applied() < core_->durable()) core_->OnApplied(core_->durable());
    if (out_.start_sync) {
      out_.start_sync = false;
      core_->OnSynced(now_, core_->applied(), absl::OkStatus());
      Take();
    }
    for (const auto& open : out_.opens) {
      core_->OnOpened(now_, open.replica, 100, 7000 + open.replica, open.base, 64 << 20);
    }
    out_.opens.clear();
    Take();
  }
  void Spend(int64_t ms, int64_t step_ms) {
    for (int64_t spent = 0; spent < ms; spent += step_ms) {
      Tick(step_ms);
      Settle();
    }
  }
  // Makes an outage of a second. Returns how long after it the mode is replicated again, in ms.
  int64_t Outage() {
    Issue();
    for (int i = 0; i < 100; ++i) {
      Tick(10);
      WriteStable();
      if (!out_.note) continue;
      out_.note.reset();
      core_->OnNoteWritten(now_, absl::OkStatus());
      Take();
    }
    EXPECT_FALSE(core_->counting_acks());
    const int64_t end = now_;
    while (!core_->counting_acks() && now_ < end + 100'000 * kMs) Spend(10, 10);
    EXPECT_TRUE(core_->counting_acks());
    return (now_ - end) / kMs;
  }
};

TEST_F(PatienceTest, SevenOutagesInADayHealAsFastAsTheFirst) {
  Make(1, 1);
  Heal(1);
  const int64_t first = Outage();
  for (int i = 0; i < 6; ++i) {
    Spend(3 * 3600 * 1000, 100);
    EXPECT_LE(Outage(), first + 50) << "outage " << i + 2;
  }
}

TEST_F(PatienceTest, OutagesOneRightAfterTheOtherHealLaterAndLater) {
  Make(1, 1);
  Heal(1);
  int64_t last = 0;
  for (int i = 0; i < 4; ++i) last = Outage();
  EXPECT_GT(last, 500) << "2 * delta << 4, less the outage itself";
}

// The process is only paused from time to time, and nothing is written between.
TEST_F(PatienceTest, PausesFarFromEachOtherLoseNoMember) {
  Make(1, 1);
  Heal(1);
  for (int i = 0; i < 8; ++i) {
    Spend(20'000, 100);
    for (int idle = 0; idle < 11; ++idle) Tick(100);  // the last one has sent a probe
    now_ += 5000 * kMs;                               // stopped
    core_->Tick(now_);
    Take();
    EXPECT_TRUE(core_->replica(0, now_).member) << "pause " << i + 1;
    Settle();
  }
}

}  // namespace
}  // namespace salius
