// Which replicas are members and count: single rules of the replicator, step by step.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "tests/unit/session/replicator_testing.h"

namespace salius {
namespace {

TEST_F(ReplicatorTest, AnotherIncarnationNeverCounts) {
  Make(1, 1);
  Heal(1);
  Issue();
  Ack(0, 1, 0, 999);
  EXPECT_EQ(core_->durable(), 0u);
  EXPECT_FALSE(core_->counting_acks());
}

TEST_F(ReplicatorTest, LossOfAMemberSecuresItsRecordsBeforeTheNote) {
  Make(3, 2);
  Heal(3);
  Issue();
  Ack(0, 1);
  Ack(1, 1);
  ASSERT_EQ(core_->durable(), 1u);
  out_.note.reset();
  Ack(1, 0, 0, 777);  // reborn
  EXPECT_FALSE(out_.note.has_value()) << "seq 1 leans on one member only";
  EXPECT_TRUE(out_.stable_wanted);
  WriteStable();
  ASSERT_TRUE(out_.note.has_value());
  EXPECT_EQ(out_.note->members, 0b101);
}

// A recovery would use the note that names the lost member.
TEST_F(ReplicatorTest, NothingIsDurableUntilTheNoteWithoutALostMemberReturns) {
  Make(2, 1);
  Heal(2);
  Ack(1, 0, 0, 777);  // reborn
  ASSERT_TRUE(out_.note.has_value());
  Issue();
  Ack(0, 1);
  WriteStable();
  EXPECT_EQ(core_->durable(), 0u);
  EXPECT_NE(core_->ModeDetail(now_), "");
  core_->OnNoteWritten(now_, absl::OkStatus());
  EXPECT_EQ(core_->durable(), 1u);
}

TEST_F(ReplicatorTest, NothingIsDurableBetweenTheLossOfTooManyAndTheNoteOfModeLocal) {
  Make(1, 1);
  Heal(1);
  Ack(0, 0, 0, 777);
  ASSERT_TRUE(out_.note.has_value());
  EXPECT_EQ(out_.note->mode, Mode::kLocal);
  Issue();
  WriteStable();
  EXPECT_EQ(core_->durable(), 0u);
  core_->OnNoteWritten(now_, absl::OkStatus());
  EXPECT_EQ(core_->durable(), 1u);
}

TEST_F(ReplicatorTest, SilenceOfAReplicaIsReportedAsOfNow) {
  Make(1, 1);
  Heal(1);
  while (core_->replica(0, now_).member) {
    ASSERT_LT(now_, 60'000 * kMs) << "it is never lost";
    Tick(100);
  }
  Tick(60'000);
  const std::string problem = core_->replica(0, now_).problem;
  ASSERT_EQ(problem.rfind("silent for ", 0), 0u) << problem;
  EXPECT_GE(std::stoll(problem.substr(11)), 60'000) << problem;
}

TEST_F(ReplicatorTest, ALostStoreIsNoWitnessAndCountsWhenAnotherMemberIsOne) {
  Make(2, 1);
  Heal(2);
  Reborn(1, 777, 8001);  // another store: it may have been fenced
  EXPECT_TRUE(InDoubt(1));
  for (int i = 0; i < 20; ++i) {
    Ack(1, 0, 0, 777);
    Tick(20);
    Settle();
  }
  EXPECT_EQ(core_->noted().members & 0b10, 0);
  Ack(0, 0);  // it remembers, and knows of no fence
  EXPECT_FALSE(InDoubt(1));
  for (int i = 0; i < 40 && core_->noted().members != 0b11; ++i) {
    Ack(0, 0);
    Ack(1, 0, 0, 777);
    Tick(20);
    Settle();
  }
  EXPECT_EQ(core_->noted().members, 0b11);
}

TEST_F(ReplicatorTest, AnswerToAFrameSentBeforeTheDoubtIsNoWitness) {
  Make(2, 1);
  Heal(2);
  Reborn(1, 777, 8001);
  AckPayload ack;
  ack.incarnation = 100;
  ack.base = 1;
  ack.free_bytes = 64 << 20;
  core_->OnAck(now_, 0, 5 * kMs, ack);
  EXPECT_TRUE(InDoubt(1));
  core_->OnAck(now_ + 10 * kMs, 0, 5 * kMs, ack);
  EXPECT_FALSE(InDoubt(1));
}

TEST_F(ReplicatorTest, WhenAllForgotTheVolumeStaysLocalAndSaysWhy) {
  Make(3, 2);
  Heal(3);
  for (int i = 0; i < 3; ++i) Reborn(i, 777 + i, 8000 + i);
  for (int round = 0; round < 200; ++round) {
    WriteStable();
    for (int i = 0; i < 3; ++i) Ack(i, 0, 0, 777 + i);
    Tick(50);
    Settle();
  }
  EXPECT_EQ(core_->noted().mode, Mode::kLocal);
  EXPECT_FALSE(core_->counting_acks());
  EXPECT_TRUE(core_->failure().ok());
  EXPECT_NE(core_->ModeDetail(now_).find("promises"), std::string::npos);
}

TEST_F(ReplicatorTest, RebootedReplicasThatKeptTheirPromisesAreTakenBack) {
  Make(3, 2);
  Heal(3);
  for (int i = 0; i < 3; ++i) {
    Reborn(i, 777 + i, 7000 + i);
    EXPECT_FALSE(InDoubt(i));
  }
  for (int round = 0; round < 200 && !core_->counting_acks(); ++round) {
    WriteStable();
    for (int i = 0; i < 3; ++i) Ack(i, 0, 0, 777 + i);
    Tick(50);
    Settle();
  }
  EXPECT_TRUE(core_->counting_acks());
}

TEST_F(ReplicatorTest, AMemberComesBackOnlyWithABaseAtTheCheckpoint) {
  Make(2, 1);
  Heal(2);
  Issue();
  Ack(0, 1);
  Ack(1, 0, 0, 777);
  while (out_.note) {
    out_.note.reset();
    core_->OnNoteWritten(now_, absl::OkStatus());
    Take();
  }
  EXPECT_EQ(core_->noted().members, 0b01);
  Tick(1);
  core_->OnOpened(now_, 1, 777, 7000 + 1, 2, 64 << 20);
  Take();
  for (int i = 0; i < 20; ++i) {
    Ack(1, 1, 0, 777);
    Tick(10);
  }
  EXPECT_EQ(core_->noted().members, 0b01);
  EXPECT_FALSE(out_.note.has_value());
  core_->OnApplied(1);
  Tick(10);
  ASSERT_TRUE(out_.start_sync);
  core_->OnSynced(now_, 1, absl::OkStatus());
  Take();
  ASSERT_TRUE(out_.note.has_value());
  EXPECT_EQ(out_.note->members, 0b11);
  EXPECT_EQ(out_.note->checkpoint, 1u);
}

TEST_F(ReplicatorTest, AReplicaOutOfMemoryIsTreatedAsLost) {
  Make(2, 1);
  Heal(2);
  Issue();
  Ack(0, 1);
  Ack(1, 0, kAckMemoryFull);
  while (out_.note) {
    out_.note.reset();
    core_->OnNoteWritten(now_, absl::OkStatus());
    Take();
  }
  EXPECT_EQ(core_->noted().members, 0b01);
}

TEST_F(ReplicatorTest, TheSameMemoryUnderTwoAddressesCountsOnce) {
  Make(2, 2);
  Tick(1);
  for (int i = 0; i < 2; ++i) core_->OnOpened(now_, i, 100, 7000 + i, 1, 64 << 20);
  Take();
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 2; ++i) Ack(i, 0, 0, 100);
    Tick(10);
    EXPECT_FALSE(out_.note.has_value() && out_.note->mode == Mode::kReplicated);
  }
  EXPECT_EQ(core_->replica(0, now_).problem, "");
  EXPECT_NE(core_->replica(1, now_).problem.find("replica 0"), std::string::npos);
}

TEST_F(ReplicatorTest, ReplicaWithoutAnAddressGivesItsMemoryToTheReachableOne) {
  Make(2, 1);
  Tick(1);
  core_->OnOpened(now_, 0, 100, 7000 + 0, 1, 64 << 20);
  core_->OnOpened(now_, 1, 100, 7000 + 1, 1, 64 << 20);
  Take();
  EXPECT_NE(core_->replica(1, now_).problem, "") << "it is replica 0";
  core_->OnAddressTaken(now_, 0);
  Take();
  EXPECT_EQ(core_->replica(1, now_).problem, "");
  EXPECT_FALSE(core_->replica(0, now_).connected);
  EXPECT_EQ(core_->replica(0, now_).problem, "another replica has its address");
}

TEST_F(ReplicatorTest, TheSameMemoryUnderALowerNumberThatComesLaterDoesNotCountToo) {
  Make(3, 2);
  Tick(1);
  for (int i = 1; i < 3; ++i) core_->OnOpened(now_, i, 100 + i, 7000 + i, 1, 64 << 20);
  Take();
  const auto settle = [&](int first) {
    for (int round = 0; round < 20; ++round) {
      for (int i = first; i < 3; ++i) Ack(i, 0, 0, i == 0 ? 101 : 100 + i);
      Tick(10);
      if (!out_.note.has_value()) continue;
      out_.note.reset();
      core_->OnNoteWritten(now_, absl::OkStatus());
      Take();
    }
  };
  settle(1);
  EXPECT_EQ(core_->noted().members, 0b110);
  core_->OnOpened(now_, 0, 101, 7000 + 0, 1, 64 << 20);  // replica 1's
  settle(0);
  EXPECT_EQ(core_->noted().members, 0b110);
  EXPECT_NE(core_->replica(0, now_).problem.find("replica 1"), std::string::npos);
  EXPECT_EQ(core_->replica(1, now_).problem, "");
}

TEST_F(ReplicatorTest, RecordsBelowTheBaseAreNotAwaited) {
  Make(1, 1);
  for (int i = 0; i < 10; ++i) core_->Issue(now_, 100);
  Tick(1);
  ASSERT_EQ(out_.opens.back().base, 11u);
  core_->OnOpened(now_, 0, 100, 7000 + 0, 11, 64 << 20);
  for (int i = 0; i < 10; ++i) core_->Issue(now_, 100);
  AckPayload ack;
  ack.incarnation = 100;
  ack.base = 1;
  ack.contiguous = 0;
  ack.ranges = {{11, 20}};
  ack.free_bytes = 64 << 20;
  core_->OnAck(now_, 0, kMs / 10, ack);
  EXPECT_EQ(core_->replica(0, now_).contiguous, 20u);
}

TEST_F(ReplicatorTest, AReplicaThatIsLostAsSoonAsItIsOpenIsOpenedLessAndLessOften) {
  Make(1, 1);
  int opens = 0;
  for (int ms = 0; ms < 10'000; ++ms) {
    out_.opens.clear();
    Tick(1);
    if (out_.opens.empty()) continue;
    ++opens;
    core_->OnOpened(now_, 0, 100, 7000 + 0, out_.opens.back().base, 64 << 20);
    Ack(0, 0, 0, 999);  // another incarnation
  }
  EXPECT_GE(opens, 4);
  EXPECT_LE(opens, 10);
}

TEST_F(ReplicatorTest, ASilentReplicaGetsNothingAgainUntilItAnswers) {
  Make(2, 1);
  Heal(2);
  Issue();
  Ack(0, 1);
  const auto sent_again = [&](int ms) {
    out_.sends.clear();
    for (int i = 0; i < ms / 10; ++i) Tick(10);
    return std::count_if(out_.sends.begin(), out_.sends.end(),
                         [](const auto& send) { return send.again && send.replica == 1; });
  };
  EXPECT_GT(sent_again(400), 0);
  sent_again(200);
  EXPECT_EQ(sent_again(5000), 0);
  Ack(1, 0);  // of a probe
  EXPECT_GT(sent_again(100), 0);
}

TEST_F(ReplicatorTest, ASilentReplicaIsNotLookedAtAllTheTime) {
  Make(2, 1);
  Heal(2);
  Issue();
  Ack(0, 1);
  for (int i = 0; i < 500; ++i) Tick(10);  // counts as silence
  const int64_t end = now_ + 2000 * kMs;
  int ticks = 0;
  for (; now_ < end; ++ticks) {
    now_ = core_->NextTick(now_);
    core_->Tick(now_);
    Take();
  }
  EXPECT_LT(ticks, 200);
}

TEST_F(ReplicatorTest, ASlowLinkIsNotSentEverythingTwice) {
  Make(2, 1);
  Heal(2);
  int again = 0;
  for (int i = 0; i < 50; ++i) {
    const Seq seq = Issue();
    Ack(0, seq);
    for (int j = 0; j < 18; ++j) Tick(5);
    AckPayload ack;
    ack.incarnation = 101;
    ack.base = 1;
    ack.contiguous = seq;
    ack.free_bytes = 64 << 20;
    core_->OnAck(now_, 1, 90 * kMs, ack);
    Take();
    if (i < 10) out_.sends.clear();  // the round trip must be learnt first
    again +=
        static_cast<int>(std::count_if(out_.sends.begin(), out_.sends.end(), [](const auto& send) {
          return send.again && send.replica == 1;
        }));
    out_.sends.clear();
  }
  EXPECT_EQ(again, 0);
}

// delta bounds one direction, half of the round trip.
TEST_F(ReplicatorTest, ALinkThatTakesNearlyDeltaEachWayIsGoodEnough) {
  Make(1, 1);
  Tick(1);
  core_->OnOpened(now_, 0, 100, 7000 + 0, 1, 64 << 20);
  Take();
  std::deque<std::pair<int64_t, Seq>> under_way;
  for (int i = 0; i < 400 && !core_->counting_acks(); ++i) {
    under_way.emplace_back(now_ + 90 * kMs, Issue());
    WriteStable();
    Tick(5);
    for (; !under_way.empty() && under_way.front().first <= now_; under_way.pop_front()) {
      AckPayload ack;
      ack.incarnation = 100;
      ack.base = 1;
      ack.contiguous = under_way.front().second;
      ack.free_bytes = 64 << 20;
      core_->OnAck(now_, 0, 90 * kMs, ack);
      Take();
    }
    if (out_.note) {
      out_.note.reset();
      core_->OnNoteWritten(now_, absl::OkStatus());
      Take();
    }
  }
  EXPECT_TRUE(core_->counting_acks());
}

TEST_F(ReplicatorTest, OneLostProbeLosesNoMemberHoweverSmallDeltaIs) {
  ReplicatorOptions options;
  options.replicas = options.acks = 1;
  options.delta_ns = 5 * kMs;
  options.tau_ns = 1000 * kMs;
  options.log_max_bytes = 1 << 20;
  core_.reset();
  window_ = NewWindow(Replicator::WindowSlots(options.log_max_bytes));
  core_.emplace(options, *window_, now_);
  out_ = {};
  Heal(1);
  const auto until_a_probe = [&] {
    for (int i = 0; i < 1000; ++i) {
      now_ = core_->NextTick(now_);
      core_->Tick(now_);
      if (core_->TakeOutputs().probes != 0) return true;
    }
    return false;
  };
  ASSERT_TRUE(until_a_probe());  // it is lost
  ASSERT_TRUE(until_a_probe());
  EXPECT_TRUE(core_->replica(0, now_).member);
  Ack(0, 0);
  EXPECT_TRUE(core_->replica(0, now_).member);
}

// Returns the events as log lines, "W0 text" for a warning about replica 0.
std::vector<std::string> LogLines(const Replicator::Outputs& out) {
  std::vector<std::string> lines;
  for (const ReplicatorEvent& event : out.events) {
    lines.push_back(std::string(1, "IWE"[static_cast<int>(event.level)]) +
                    (event.replica >= 0 ? std::to_string(event.replica) : "-") + " " + event.text);
  }
  return lines;
}

TEST_F(ReplicatorTest, LossesAndModeLocalAreWarningsAndFailureIsAnError) {
  Make(2, 2);
  Heal(2);
  const std::vector<std::string> healed = LogLines(out_);
  EXPECT_EQ(healed.front(), "I0 opened: incarnation 0000000000000064, base 1");
  EXPECT_EQ(healed.back(), "I- mode replicated, with 2 members of 2 replicas");
  for (const std::string& line : healed) EXPECT_EQ(line[0], 'I') << line;
  out_ = {};
  Ack(1, 0, kAckUnknownSession);
  core_->OnOpenFailed(now_, 1, "unused", /*fenced=*/true);
  Take();
  const std::vector<std::string> lines = LogLines(out_);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0].rfind("W1 member lost: ", 0), 0u) << lines[0];
  EXPECT_EQ(lines[1].rfind("W- going to mode local: ", 0), 0u) << lines[1];
  EXPECT_EQ(lines[2].rfind("E- volume failed: fenced", 0), 0u) << lines[2];
}

TEST_F(ReplicatorTest, RefusalReasonIsLoggedOnceUntilItChanges) {
  Make(1, 1);
  const auto refuse = [&](const std::string& why) {
    Tick(10'000);
    core_->OnOpenFailed(now_, 0, why, /*fenced=*/false);
    Take();
  };
  refuse("no answer within 2000 ms");
  refuse("no answer within 1999 ms");
  refuse("no memory: 5 of 6 segments are granted to others");
  refuse("no memory: 6 of 6 segments are granted to others");
  refuse("no answer within 2000 ms");
  const std::vector<std::string> lines = LogLines(out_);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0], "W0 of no use now: no answer within 2000 ms");
  EXPECT_EQ(lines[1], "W0 of no use now: no memory: 5 of 6 segments are granted to others");
  EXPECT_EQ(lines[2], lines[0]);
  Tick(10'000);
  core_->OnOpened(now_, 0, 100, 7000, 1, 64 << 20);
  Take();
  EXPECT_EQ(core_->replica(0, now_).problem, "");
}

}  // namespace
}  // namespace salius
