#include "recovery/agree/quorum.h"

#include "gtest/gtest.h"

namespace salius::recovery {
namespace {

VolumeState State(uint32_t acks, int members, Seq checkpoint = 10) {
  VolumeState state;
  state.open = true;
  state.epoch = 7;
  state.mode = Mode::kReplicated;
  state.acks = acks;
  state.checkpoint = checkpoint;
  for (int i = 0; i < members; ++i) {
    state.members.push_back(
        {std::string(1, static_cast<char>('a' + i)), 100 + static_cast<uint64_t>(i), 1});
  }
  return state;
}

Answer AnswerOf(const std::string& address, Incarnation incarnation) {
  Answer answer;
  answer.address = address;
  answer.incarnation = incarnation;
  answer.inventory.known = true;
  answer.inventory.epoch = 7;
  answer.inventory.base = 1;
  return answer;
}

TEST(QuorumTest, AsManyMustAnswerThatOneOfAnyFHoldersIsAmongThem) {  // R20
  EXPECT_EQ(QuorumNeeded(State(1, 1)), 1u);
  EXPECT_EQ(QuorumNeeded(State(1, 3)), 3u);
  EXPECT_EQ(QuorumNeeded(State(2, 3)), 2u);
  EXPECT_EQ(QuorumNeeded(State(3, 3)), 1u);
}

TEST(QuorumTest, ModeLocalNeedsNoReplica) {
  VolumeState state = State(2, 3);
  state.mode = Mode::kLocal;
  EXPECT_EQ(QuorumNeeded(state), 0u);
  EXPECT_TRUE(CountQuorum(state, {}).enough());
}

TEST(QuorumTest, AReplicatedStateWithoutMembersStillNeedsOne) {
  EXPECT_EQ(QuorumNeeded(State(1, 0)), 1u);
  EXPECT_FALSE(CountQuorum(State(1, 0), {}).enough());
}

TEST(QuorumTest, AMemberThatLostItsMemoryDoesNotCount) {  // R21
  const VolumeState state = State(2, 3);
  EXPECT_EQ(StandingOf(state, AnswerOf("a", 100)), Standing::kCounts);
  EXPECT_EQ(StandingOf(state, AnswerOf("a", 999)), Standing::kOtherLife);
}

TEST(QuorumTest, AStrangerDoesNotCount) {  // R26
  EXPECT_EQ(StandingOf(State(2, 3), AnswerOf("x", 999)), Standing::kNotMember);
}

// Hosts may have exchanged their addresses, or have new names: only the memory counts.
TEST(QuorumTest, AMembersMemoryCountsUnderAnyNameButOnce) {  // R23
  VolumeState state = State(2, 3);
  state.members[1].incarnation = 101;
  state.members[2].incarnation = 102;
  EXPECT_EQ(StandingOf(state, AnswerOf("x", 100)), Standing::kCounts);
  const std::vector<Answer> exchanged = {AnswerOf("a", 101), AnswerOf("b", 100)};
  EXPECT_EQ(CountQuorum(state, exchanged).counted, 2u);
  EXPECT_EQ(CountQuorum(state, exchanged).missing, (std::vector<std::string>{"c"}));
  const std::vector<Answer> twice = {AnswerOf("a", 101), AnswerOf("b", 101)};
  EXPECT_EQ(CountQuorum(state, twice).counted, 1u);
  EXPECT_EQ(CountQuorum(state, twice).missing, (std::vector<std::string>{"a", "c"}));
  // Two members with one memory are one copy.
  state.members[1].incarnation = 100;
  EXPECT_EQ(CountQuorum(state, {AnswerOf("a", 100), AnswerOf("b", 100)}).counted, 1u);
}

TEST(QuorumTest, UnknownAndOlderEpochDoNotCount) {  // R24
  Answer answer = AnswerOf("a", 100);
  answer.inventory.known = false;
  EXPECT_EQ(StandingOf(State(2, 3), answer), Standing::kUnknownVolume);
  answer = AnswerOf("a", 100);
  answer.inventory.epoch = 6;
  EXPECT_EQ(StandingOf(State(2, 3), answer), Standing::kUnknownVolume);
}

TEST(QuorumTest, AMemberThatJoinedAboveTheCheckpointDoesNotCount) {  // R25
  VolumeState state = State(2, 3, /*checkpoint=*/10);
  state.members[0].base = 11;
  EXPECT_EQ(StandingOf(state, AnswerOf("a", 100)), Standing::kCounts);
  state.members[0].base = 12;
  EXPECT_EQ(StandingOf(state, AnswerOf("a", 100)), Standing::kBaseTooHigh);
  state.members[0].base = 1;
  Answer answer = AnswerOf("a", 100);
  answer.inventory.base = 12;
  EXPECT_EQ(StandingOf(state, answer), Standing::kBaseTooHigh);
  answer.inventory.base = 11;
  EXPECT_EQ(StandingOf(state, answer), Standing::kCounts);
}

TEST(QuorumTest, EachMemberCountsOnceAndTheMissingAreNamed) {
  const VolumeState state = State(2, 3);
  const std::vector<Answer> answers = {AnswerOf("a", 100), AnswerOf("a", 100), AnswerOf("b", 5)};
  const QuorumCount count = CountQuorum(state, answers);
  EXPECT_EQ(count.needed, 2u);
  EXPECT_EQ(count.counted, 1u);
  EXPECT_FALSE(count.enough());
  EXPECT_EQ(count.missing, (std::vector<std::string>{"b", "c"}));
}

TEST(QuorumTest, EveryStandingHasAText) {
  const VolumeState state = State(2, 3);
  for (const Standing standing : {Standing::kCounts, Standing::kNotMember, Standing::kOtherLife,
                                  Standing::kUnknownVolume, Standing::kBaseTooHigh}) {
    EXPECT_FALSE(StandingText(state, AnswerOf("a", 1), standing).empty());
  }
}

}  // namespace
}  // namespace salius::recovery
