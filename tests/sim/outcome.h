// The events of a simulated lifetime, for people and for the digest that shows that a seed repeats.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace salius::sim {

struct Outcome {
  std::string broken;    // empty: every guarantee held
  bool refused = false;  // more was lost than f allows, and recovery reported that
  uint64_t digest = 0;
  uint64_t faults = 0, records = 0, recoveries = 0, recovery_runs = 0, mode_changes = 0, losses = 0;
  uint64_t cancels = 0, same_lives = 0, disk_failures = 0, memories_full = 0;
  uint64_t late = 0;  // records issued by a frozen primary beside its recovery
  // Number of faults and of other drawn events, by name.
  std::map<std::string_view, uint64_t> of_each;
};

}  // namespace salius::sim
