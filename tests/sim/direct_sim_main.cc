// Runs simulated lifetimes of a direct volume (tests/sim/direct_sim.h).
#include "absl/strings/str_format.h"
#include "tests/sim/direct_sim.h"
#include "tests/sim/seed_runner.h"

namespace salius::sim {
namespace {

Outcome Live(uint64_t seed, std::function<void(std::string)> trace,
             const std::set<uint64_t>* without) {
  return DirectSim(seed, DirectOptions(), std::move(trace), without).Run();
}

std::string Totals(const Outcome& sum, uint64_t refused) {
  return absl::StrFormat("%d mode changes, %d memories lost, %d volumes failed, %d refused",
                         sum.mode_changes, sum.losses, sum.disk_failures, refused);
}

}  // namespace
}  // namespace salius::sim

int main(int argc, char** argv) {
  return salius::sim::RunSeeds(
      {.program = "direct_sim_run", .live = salius::sim::Live, .totals = salius::sim::Totals}, argc,
      argv);
}
