// Simulated lifetimes of a direct volume. None may be broken, and each case of interest must happen.
#include "tests/sim/direct_sim.h"

#include <map>
#include <string>
#include <string_view>

#include "gtest/gtest.h"

namespace salius::sim {
namespace {

// The rarest case, a kill while a process sends, comes in one of 170 lifetimes.
constexpr uint64_t kSeeds = 900;

constexpr std::string_view kCases[] = {
    // A process dies at each moment of a write and a sync.
    "killed between lock and write",
    "killed between write and record",
    "killed with a reserved record",
    "killed between record and unlock",
    "killed with a stripe",
    "killed with the window lock",
    "killed while it sends",
    "killed while it receives",
    "killed while it sleeps",
    "killed in a real fsync",
    "killed in a sync",
    // Its traces are found.
    "hole filled",
    "dead owner noticed",
    "real sync for dead_owner",
    // The coordinator dies.
    "the coordinator dies in a round",
    "sync that fails after the coordinator's death",
    // Uncovered files.
    "real fsync in mode replicated",
    "record of a real fsync",
    "real sync for new",
    "real sync for copy",
    "real sync for full",
    "waited for room",
    "real sync for bulk",
    // Modes change under waiting calls.
    "generation changed under a sync",
    "calls wait while healing",
    "calls wait while going local",
    "went local",
    "healed",
    // External synchrony.
    "sync returned early",
    "sync left to the next output",
    "output waited",
    "output waited for a real sync",
    "output refused",
    "dsync awaited a record",
    "dsync awaited the next sync",
    "early return ended",
    "cut at an output",
    // Around it.
    "amnesia",
    "memory put back",
    "inode number used again",
    "drained",
    "fork",
    "leader taken over",
    "power cut",
    "recovery crash",
};

TEST(DirectSimTest, SeedsAreWholeAndEachCaseHappens) {
  std::map<std::string_view, uint64_t> happened;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Outcome outcome = DirectSim(seed, DirectOptions(), nullptr).Run();
    ASSERT_EQ(outcome.broken, "") << "seed " << seed;
    for (const auto& [what, times] : outcome.of_each) happened[what] += times;
  }
  for (const std::string_view what : kCases) EXPECT_GT(happened[what], 0u) << what;
}

TEST(DirectSimTest, SeedRepeats) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const Outcome first = DirectSim(seed, DirectOptions(), nullptr).Run();
    const Outcome second = DirectSim(seed, DirectOptions(), nullptr).Run();
    EXPECT_EQ(first.digest, second.digest) << "seed " << seed;
  }
}

}  // namespace
}  // namespace salius::sim
