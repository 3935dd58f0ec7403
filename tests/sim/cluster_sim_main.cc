// Runs simulated lifetimes (tests/sim/cluster_sim.h).
//
//   cluster_sim [--first N] [--count N] [--seconds S]   seeds from N on; stops at the first broken
//   one cluster_sim --seed N [--trace]                      one, with what happened in it
#include <time.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tests/sim/cluster_sim.h"

namespace salius::sim {
namespace {

struct Arguments {
  uint64_t first = 1, count = 1000, seed = 0;
  double seconds = 0;
  bool trace = false;
};

int Usage() {
  std::fprintf(stderr,
               "usage: cluster_sim [--first N] [--count N] [--seconds S] | --seed N [--trace]\n");
  return 2;
}

int Main(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--trace") {
      arguments.trace = true;
      continue;
    }
    if (i + 1 == argc) return Usage();
    const char* const value = argv[++i];
    if (word == "--first") {
      arguments.first = std::strtoull(value, nullptr, 10);
    } else if (word == "--count") {
      arguments.count = std::strtoull(value, nullptr, 10);
    } else if (word == "--seconds") {
      arguments.seconds = std::strtod(value, nullptr);
    } else if (word == "--seed") {
      arguments.seed = std::strtoull(value, nullptr, 10);
    } else {
      return Usage();
    }
  }
  const bool one = arguments.seed != 0;
  if (one) arguments.first = arguments.seed, arguments.count = 1;
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const auto cpu_seconds = [] {
    timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
  };
  Outcome sum;
  uint64_t done = 0, refused = 0;
  for (uint64_t seed = arguments.first; done < arguments.count; ++seed) {
    std::function<void(std::string)> trace;
    if (arguments.trace) trace = [](const std::string& line) { std::printf("%s\n", line.c_str()); };
    const Outcome outcome = ClusterSim(seed, ClusterOptions(), trace).Run();
    ++done;
    sum.digest = sum.digest * 31 + outcome.digest;
    sum.records += outcome.records;
    sum.recoveries += outcome.recoveries;
    sum.recovery_runs += outcome.recovery_runs;
    sum.mode_changes += outcome.mode_changes;
    sum.losses += outcome.losses;
    refused += outcome.refused ? 1 : 0;
    if (!outcome.broken.empty()) {
      std::printf("seed %lu BROKEN: %s\n", seed, outcome.broken.c_str());
      return 1;
    }
    if (arguments.seconds > 0 && seconds() >= arguments.seconds) break;
  }
  std::printf(
      "seeds %lu to %lu: %lu lifetimes, %lu records, %lu recoveries in %lu runs, %lu mode changes, "
      "%lu memories lost, %lu refused; digest %016lx; %.0f lifetimes per CPU second\n",
      arguments.first, arguments.first + done - 1, done, sum.records, sum.recoveries,
      sum.recovery_runs, sum.mode_changes, sum.losses, refused, sum.digest,
      static_cast<double>(done) / cpu_seconds());
  return 0;
}

}  // namespace
}  // namespace salius::sim

int main(int argc, char** argv) { return salius::sim::Main(argc, argv); }
