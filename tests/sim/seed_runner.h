// The program around a simulator:
//
//   PROGRAM [--first N] [--count N] [--seconds S]
//       seeds from N on; stops at the first broken one
//   PROGRAM --seed N [--trace]
//       one seed, with its events
//   PROGRAM --shrink N
//       a broken seed, without the faults that it does not need
//   PROGRAM --seeds FILE
//       the seeds of a file, one a line; an error if there is none
//
// The last line says how a seed broke; the line before it has the seed's digest. A seed is also
// broken if it ends the process (a failed check, a bad pointer, a sanitizer), or takes a minute of
// CPU time. Then it has no digest.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "tests/sim/outcome.h"

namespace salius::sim {

struct Simulator {
  const char* program = "";
  // Runs the lifetime of `seed`. `trace` (may be null) gets one line per event; the faults with the
  // numbers in `without` (may be null) do not happen.
  Outcome (*live)(uint64_t seed, std::function<void(std::string)> trace,
                  const std::set<uint64_t>* without) = nullptr;
  // Returns the totals that only this simulator has, "%lu of one, %lu of another".
  std::string (*totals)(const Outcome& sum, uint64_t refused) = nullptr;
};

// Runs the program. Returns its exit code: 1 after a broken seed, 2 for bad arguments.
int RunSeeds(const Simulator& simulator, int argc, char** argv);

}  // namespace salius::sim
