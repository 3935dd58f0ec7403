// Thousands of simulated sessions from seeds. Run one seed alone with SALIUS_SIM_SEED=n, more with
// SALIUS_SIM_RUNS=n.
#include "tests/sim/session_sim.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace salius::sim {
namespace {

uint64_t EnvOr(const char* name, uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

struct Seeds {
  uint64_t first, last;
};
Seeds SeedsToRun(uint64_t runs) {
  const uint64_t one = EnvOr("SALIUS_SIM_SEED", 0);
  if (one != 0) return {one, one};
  return {1, EnvOr("SALIUS_SIM_RUNS", runs)};
}

TEST(SessionSimTest, NothingAcknowledgedIsLostByFaultsBeforeTheCrash) {
  int changes = 0;
  const Seeds seeds = SeedsToRun(4000);
  for (uint64_t seed = seeds.first; seed <= seeds.last; ++seed) {
    SessionSim sim(seed, SessionFaults());
    const int steps = 20 + static_cast<int>(seed % 400);
    const std::string broken = sim.RunAndCrash(steps);
    ASSERT_EQ(broken, "") << "seed " << seed << " (SALIUS_SIM_SEED=" << seed << " replays it)";
    changes += sim.mode_changes();
  }
  if (seeds.first != seeds.last) {
    EXPECT_GT(changes, 1000) << "the faults hardly changed a mode";
  }
}

TEST(SessionSimTest, EveryWriterReturnsAndTheVolumeHealsOnceFaultsStop) {
  const Seeds seeds = SeedsToRun(300);
  for (uint64_t seed = seeds.first; seed <= seeds.last; ++seed) {
    SessionSim sim(seed * 7919, SessionFaults());
    ASSERT_EQ(sim.RunAndHeal(300), "") << "seed " << seed;
  }
}

TEST(SessionSimTest, TheSameSeedGivesTheSameRun) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SessionSim one(seed, SessionFaults());
    SessionSim two(seed, SessionFaults());
    EXPECT_EQ(one.RunAndCrash(300), two.RunAndCrash(300));
    EXPECT_EQ(one.digest(), two.digest());
  }
}

}  // namespace
}  // namespace salius::sim
