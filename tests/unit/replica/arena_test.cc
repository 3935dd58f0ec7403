// The arena's layout: after a killed process, and after damage.
#include "replica/arena.h"

#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "common/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/replica/replica_testing.h"

namespace salius {
namespace {

using ::testing::HasSubstr;

VolumeSlot FullSlot() {
  VolumeSlot slot;
  slot.volume = TestVolume(3);
  slot.epoch = 5;
  slot.session = 6;
  slot.base = 7;
  slot.trimmed = 8;
  slot.promise_epoch = 9;
  slot.promise_token = 10;
  slot.durable_mark = 11;
  slot.checkpoint_mark = 12;
  slot.tau_ms = 13;
  slot.k = 14;
  slot.grant_segments = 5;
  slot.memory_bytes = 16;
  slot.multicast = std::string(kMaxMulticastBytes, 'm');
  slot.sealed = true;
  return slot;
}

uint8_t* SlotAt(TestMemory& memory, uint32_t index, int copy) {
  return memory.span().data() + kArenaPageBytes + index * kSlotBytes + copy * kSlotCopyBytes;
}

TEST(ArenaGeometryTest, RefusesSizesItCannotLayOut) {
  EXPECT_FALSE(ArenaGeometry::For(kMinArenaBytes - kArenaPageBytes).ok());
  EXPECT_FALSE(ArenaGeometry::For(kMinArenaBytes + 1).ok());
  EXPECT_FALSE(ArenaGeometry::For(kMaxArenaBytes + kArenaPageBytes).ok());
}

TEST(ArenaGeometryTest, PartsFollowEachOtherAndFit) {
  for (const uint64_t mib : {2, 4, 31, 32, 33, 64, 100, 1024, 100000}) {
    const ArenaGeometry g = ArenaGeometry::For(mib << 20).value();
    EXPECT_GE(g.segment_table_at, kArenaPageBytes + g.slot_count * kSlotBytes);
    EXPECT_GE(g.segments_at, g.segment_table_at + g.segment_count * kSegmentEntryBytes);
    EXPECT_LE(g.segments_at + g.segment_count * g.segment_bytes, g.total_bytes);
    EXPECT_GE(g.segment_count, 1u);
    // At most 2 % and one segment are not used for segments.
    EXPECT_GT(g.segment_count * g.segment_bytes + g.segment_bytes + g.total_bytes / 50,
              g.total_bytes);
  }
}

TEST(ArenaTest, EmptyMemoryIsNoArena) {
  TestMemory memory;
  EXPECT_EQ(Arena::Attach(memory.span(), memory.random()).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(ArenaTest, AttachingAgainKeepsTheIncarnationAndCountsStarts) {
  TestMemory memory;
  const Arena first = memory.FormatAndAttach();
  const Arena second = memory.Attach();
  EXPECT_NE(first.incarnation(), 0u);
  EXPECT_EQ(first.incarnation(), second.incarnation());
  EXPECT_EQ(second.process_starts(), 2u);
  EXPECT_EQ(second.damaged(), 0u);
}

TEST(ArenaTest, FormattingAgainIsAnotherIncarnation) {
  TestMemory memory;
  const Incarnation first = memory.FormatAndAttach().incarnation();
  EXPECT_NE(memory.FormatAndAttach().incarnation(), first);
}

TEST(ArenaTest, OtherVersionIsRefused) {
  TestMemory memory;
  memory.FormatAndAttach();
  memory.span()[8] = 2;
  const absl::Status status = Arena::Attach(memory.span(), memory.random()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("version 2"));
}

TEST(ArenaTest, OtherSizeIsRefused) {
  TestMemory memory(uint64_t{8} << 20);
  memory.FormatAndAttach();
  const auto half = memory.span().first(uint64_t{4} << 20);
  EXPECT_EQ(Arena::Attach(half, memory.random()).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(ArenaTest, DamagedHeaderIsRefused) {
  for (const size_t at : {12, 16, 24, 32, 36, 63}) {
    TestMemory memory;
    memory.FormatAndAttach();
    memory.span()[at] ^= 1;
    EXPECT_EQ(Arena::Attach(memory.span(), memory.random()).status().code(),
              absl::StatusCode::kDataLoss)
        << at;
  }
}

TEST(ArenaTest, NewIncarnationIsKept) {
  TestMemory memory;
  Arena arena = memory.FormatAndAttach();
  const Incarnation before = arena.incarnation();
  arena.NewIncarnation();
  EXPECT_NE(arena.incarnation(), before);
  EXPECT_EQ(memory.Attach().incarnation(), arena.incarnation());
}

TEST(ArenaTest, IncarnationCutOffHalfwayCountsAsDamage) {
  TestMemory memory;
  memory.FormatAndAttach();
  memory.span()[64] ^= 0xFF;  // the new one was stored, its check was not
  EXPECT_EQ(memory.Attach().damaged(), 1u);
}

TEST(ArenaSlotTest, EveryFieldSurvives) {
  TestMemory memory;
  uint32_t index = 0;
  {
    Arena arena = memory.FormatAndAttach();
    index = arena.NewSlot(FullSlot()).value();
  }
  const Arena arena = memory.Attach();
  ASSERT_NE(arena.slot(index), nullptr);
  EXPECT_EQ(*arena.slot(index), FullSlot());
}

TEST(ArenaSlotTest, FreedSlotStaysFreeAndIsUsedAgain) {
  TestMemory memory;
  uint32_t index = 0;
  {
    Arena arena = memory.FormatAndAttach();
    index = arena.NewSlot(FullSlot()).value();
    arena.FreeSlot(index);
  }
  Arena arena = memory.Attach();
  EXPECT_EQ(arena.slot(index), nullptr);
  EXPECT_EQ(arena.NewSlot(FullSlot()).value(), index);
}

TEST(ArenaSlotTest, TableCanBeFull) {
  TestMemory memory;
  Arena arena = memory.FormatAndAttach();
  for (uint32_t i = 0; i < arena.geometry().slot_count; ++i) {
    ASSERT_TRUE(arena.NewSlot(FullSlot()).ok());
  }
  EXPECT_EQ(arena.NewSlot(FullSlot()).status().code(), absl::StatusCode::kResourceExhausted);
}

// A killed process leaves any prefix of the copy that it was writing. Then the slot is the old or
// the new one, never anything else, and nothing counts as damaged.
TEST(ArenaSlotTest, UpdateCutOffAtAnyByteLeavesTheOldOrTheNewSlot) {
  for (int updates = 0; updates < 3; ++updates) {
    TestMemory memory;
    uint32_t index = 0;
    VolumeSlot slot = FullSlot();
    {
      Arena arena = memory.FormatAndAttach();
      index = arena.NewSlot(slot).value();
      for (int i = 0; i < updates; ++i) {
        ++slot.trimmed;
        arena.WriteSlot(index, slot);
      }
    }
    const std::string before(reinterpret_cast<char*>(SlotAt(memory, index, 0)), kSlotBytes);
    VolumeSlot next = slot;
    next.promise_epoch = 99;
    next.multicast = "other";
    {
      Arena arena = memory.Attach();
      arena.WriteSlot(index, next);
    }
    const std::string after(reinterpret_cast<char*>(SlotAt(memory, index, 0)), kSlotBytes);
    const int written = before.substr(0, kSlotCopyBytes) == after.substr(0, kSlotCopyBytes) ? 1 : 0;
    for (size_t cut = 0; cut <= kSlotCopyBytes; ++cut) {
      std::memcpy(SlotAt(memory, index, 0), before.data(), kSlotBytes);
      std::memcpy(SlotAt(memory, index, written), after.data() + written * kSlotCopyBytes, cut);
      const Arena arena = memory.Attach();
      EXPECT_EQ(arena.damaged(), 0u) << cut;
      ASSERT_NE(arena.slot(index), nullptr) << cut;
      EXPECT_TRUE(*arena.slot(index) == slot || *arena.slot(index) == next) << cut;
      if (cut == kSlotCopyBytes) {
        EXPECT_EQ(*arena.slot(index), next);
      }
    }
  }
}

TEST(ArenaSlotTest, FirstWriteCutOffLeavesTheSlotFreeAndIsNoDamage) {
  TestMemory memory;
  Arena arena = memory.FormatAndAttach();
  const uint32_t index = arena.NewSlot(FullSlot()).value();
  for (int copy = 0; copy < 2; ++copy) std::memset(SlotAt(memory, index, copy) + 100, 0, 156);
  const Arena again = memory.Attach();
  EXPECT_EQ(again.slot(index), nullptr);
  EXPECT_EQ(again.damaged(), 0u);
}

TEST(ArenaSlotTest, BothCopiesBadIsDamage) {
  TestMemory memory;
  Arena arena = memory.FormatAndAttach();
  const uint32_t index = arena.NewSlot(FullSlot()).value();
  arena.WriteSlot(index, FullSlot());
  SlotAt(memory, index, 0)[40] ^= 1;
  SlotAt(memory, index, 1)[40] ^= 1;
  const Arena again = memory.Attach();
  EXPECT_EQ(again.slot(index), nullptr);
  EXPECT_EQ(again.damaged(), 1u);
  EXPECT_NE(again.incarnation(), arena.incarnation());
}

// If every later process found the damage too, each would lose the memory of all volumes.
TEST(ArenaSlotTest, DamagedSlotIsFoundOnce) {
  const auto found_once = [](const std::function<void(TestMemory&, Arena&, uint32_t)>& damage) {
    TestMemory memory;
    Arena arena = memory.FormatAndAttach();
    const uint32_t index = arena.NewSlot(FullSlot()).value();
    arena.WriteSlot(index, FullSlot());
    damage(memory, arena, index);
    const Arena first = memory.Attach();
    EXPECT_EQ(first.damaged(), 1u);
    EXPECT_NE(first.incarnation(), arena.incarnation());
    const Arena second = memory.Attach();
    EXPECT_EQ(second.damaged(), 0u);
    EXPECT_EQ(second.incarnation(), first.incarnation());
    EXPECT_EQ(second.slot(index), nullptr);
  };
  found_once([](TestMemory& memory, Arena&, uint32_t index) {
    for (int copy = 0; copy < 2; ++copy) SlotAt(memory, index, copy)[40] ^= 1;
  });
  found_once([](TestMemory&, Arena& arena, uint32_t index) {
    VolumeSlot implausible = FullSlot();
    implausible.base = 0;
    arena.WriteSlot(index, implausible);
  });
}

TEST(ArenaSlotTest, ContentThatNoProcessWritesIsDamage) {
  const auto damaged = [](const std::function<void(VolumeSlot&)>& change) {
    TestMemory memory;
    Arena arena = memory.FormatAndAttach();
    VolumeSlot slot = FullSlot();
    change(slot);
    const uint32_t index = arena.NewSlot(slot).value();
    const Arena again = memory.Attach();
    EXPECT_EQ(again.slot(index) == nullptr, again.damaged() == 1);
    return again.damaged() == 1;
  };
  EXPECT_FALSE(damaged([](VolumeSlot&) {}));
  EXPECT_FALSE(damaged([](VolumeSlot& slot) { slot.epoch = slot.base = 0; }));  // a promise only
  EXPECT_TRUE(damaged([](VolumeSlot& slot) { slot.base = 0; }));
  EXPECT_TRUE(damaged([](VolumeSlot& slot) { slot.grant_segments = 1000; }));
  for (uint64_t VolumeSlot::*field :
       {&VolumeSlot::epoch, &VolumeSlot::base, &VolumeSlot::trimmed, &VolumeSlot::promise_epoch,
        &VolumeSlot::durable_mark, &VolumeSlot::checkpoint_mark}) {
    EXPECT_TRUE(damaged([&](VolumeSlot& slot) { slot.*field = kMaxCount + 1; }));
  }
}

class ArenaSegmentTest : public ::testing::Test {
 protected:
  uint8_t* Entry(uint32_t segment) {
    return memory_.span().data() + arena_.geometry().segment_table_at +
           segment * kSegmentEntryBytes;
  }
  TestMemory memory_;
  Arena arena_ = memory_.FormatAndAttach();
  uint32_t slot_ = arena_.NewSlot(FullSlot()).value();
};

TEST_F(ArenaSegmentTest, OwnerAndUsedSurvive) {
  const uint32_t segment = arena_.AllocateSegment(slot_).value();
  arena_.SetSegmentUsed(segment, 4096);
  const Arena again = memory_.Attach();
  EXPECT_EQ(again.SegmentsOf(slot_), std::vector<uint32_t>{segment});
  EXPECT_EQ(again.segment_used(segment), 4096u);
  EXPECT_EQ(again.free_segments(), again.geometry().segment_count - 1);
}

TEST_F(ArenaSegmentTest, AllOfThemCanBeTakenAndGivenBack) {
  std::set<uint32_t> taken;
  while (const auto segment = arena_.AllocateSegment(slot_)) taken.insert(*segment);
  EXPECT_EQ(taken.size(), arena_.geometry().segment_count);
  for (const uint32_t segment : taken) arena_.FreeSegment(segment);
  EXPECT_EQ(arena_.free_segments(), arena_.geometry().segment_count);
  EXPECT_TRUE(memory_.Attach().SegmentsOf(slot_).empty());
}

TEST_F(ArenaSegmentTest, TagIsNewWithEveryAllocation) {
  const uint32_t segment = arena_.AllocateSegment(slot_).value();
  const uint64_t tag = arena_.segment_tag(segment);
  arena_.FreeSegment(segment);
  ASSERT_EQ(arena_.AllocateSegment(slot_), segment);
  EXPECT_NE(arena_.segment_tag(segment), tag);
  EXPECT_EQ(arena_.segment_used(segment), 0u);
}

TEST_F(ArenaSegmentTest, SegmentsOfASlotWithoutSessionAreFreedAtAttach) {
  arena_.AllocateSegment(slot_);
  VolumeSlot promise;
  promise.volume = TestVolume(3);
  promise.promise_epoch = 1;
  arena_.WriteSlot(slot_, promise);
  const Arena again = memory_.Attach();
  EXPECT_TRUE(again.SegmentsOf(slot_).empty());
  EXPECT_EQ(again.free_segments(), again.geometry().segment_count);
  EXPECT_EQ(again.damaged(), 0u);
}

TEST_F(ArenaSegmentTest, DamagedOwnerIsDamageAndTheSegmentIsFree) {
  const uint32_t segment = arena_.AllocateSegment(slot_).value();
  Entry(segment)[8] ^= 1;
  const Arena again = memory_.Attach();
  EXPECT_EQ(again.damaged(), 1u);
  EXPECT_TRUE(again.SegmentsOf(slot_).empty());
  // A process killed now has freed it: the next one must not take the memory for complete.
  EXPECT_EQ(memory_.Attach().damaged(), 0u);
  EXPECT_NE(memory_.Attach().incarnation(), arena_.incarnation());
}

TEST_F(ArenaSegmentTest, DamagedTagIsDamage) {
  const uint32_t segment = arena_.AllocateSegment(slot_).value();
  Entry(segment)[0] ^= 1;
  EXPECT_EQ(memory_.Attach().damaged(), 1u);
}

TEST_F(ArenaSegmentTest, DamagedUsedWordIsReported) {
  const uint32_t segment = arena_.AllocateSegment(slot_).value();
  Entry(segment)[16] ^= 1;
  EXPECT_EQ(memory_.Attach().segment_used(segment), std::nullopt);
}

TEST_F(ArenaSegmentTest, ContinuationSurvivesUntilEitherSegmentIsFreed) {
  const uint32_t one = arena_.AllocateSegment(slot_).value();
  const uint32_t two = arena_.AllocateSegment(slot_).value();
  EXPECT_EQ(arena_.segment_next(one), std::nullopt);
  arena_.SetSegmentNext(one, two);
  EXPECT_EQ(arena_.segment_next(one), two);
  EXPECT_EQ(arena_.segment_next(two), std::nullopt);
  EXPECT_EQ(memory_.Attach().segment_next(one), two);
  for (const uint32_t segment : {two, one}) {
    arena_.SetSegmentNext(one, two);
    arena_.FreeSegment(segment);
    EXPECT_EQ(arena_.segment_next(one), std::nullopt);
    ASSERT_EQ(arena_.AllocateSegment(slot_), segment);
    EXPECT_EQ(arena_.segment_next(one), std::nullopt);
  }
}

TEST_F(ArenaSegmentTest, DamagedContinuationCountsAsNone) {
  const uint32_t one = arena_.AllocateSegment(slot_).value();
  arena_.SetSegmentNext(one, arena_.AllocateSegment(slot_).value());
  for (int byte = 24; byte < 32; ++byte) {
    Entry(one)[byte] ^= 1;
    EXPECT_EQ(arena_.segment_next(one), std::nullopt) << byte;
    Entry(one)[byte] ^= 1;
  }
  EXPECT_TRUE(arena_.segment_next(one).has_value());
}

}  // namespace
}  // namespace salius
