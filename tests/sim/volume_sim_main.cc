// Runs simulated lifetimes of a volume (tests/sim/volume_sim.h).
#include "absl/strings/str_format.h"
#include "tests/sim/seed_runner.h"
#include "tests/sim/volume_sim.h"

namespace salius::sim {
namespace {

Outcome Live(uint64_t seed, std::function<void(std::string)> trace,
             const std::set<uint64_t>* without) {
  return VolumeSim(seed, std::move(trace), without).Run();
}

std::string Totals(const Outcome& sum, uint64_t) {
  return absl::StrFormat("%d disks failed, %d operations cancelled, %d recoveries in the same life",
                         sum.disk_failures, sum.cancels, sum.same_lives);
}

}  // namespace
}  // namespace salius::sim

int main(int argc, char** argv) {
  return salius::sim::RunSeeds(
      {.program = "volume_sim_run", .live = salius::sim::Live, .totals = salius::sim::Totals}, argc,
      argv);
}
