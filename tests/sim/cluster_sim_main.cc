// Runs simulated lifetimes of a cluster (tests/sim/cluster_sim.h).
#include "absl/strings/str_format.h"
#include "tests/sim/cluster_sim.h"
#include "tests/sim/seed_runner.h"

namespace salius::sim {
namespace {

Outcome Live(uint64_t seed, std::function<void(std::string)> trace,
             const std::set<uint64_t>* without) {
  return ClusterSim(seed, ClusterOptions(), std::move(trace), without).Run();
}

std::string Totals(const Outcome& sum, uint64_t refused) {
  return absl::StrFormat(
      "%d mode changes, %d memories lost, %d records met a full one, %d disks failed, "
      "%d operations cancelled, %d recoveries in the same life, %d records by frozen primaries, "
      "%d refused",
      sum.mode_changes, sum.losses, sum.memories_full, sum.disk_failures, sum.cancels,
      sum.same_lives, sum.late, refused);
}

}  // namespace
}  // namespace salius::sim

int main(int argc, char** argv) {
  return salius::sim::RunSeeds(
      {.program = "cluster_sim_run", .live = salius::sim::Live, .totals = salius::sim::Totals},
      argc, argv);
}
