// Decides which answers count, and how many are needed (docs/recovery.md).
//
// Needed are |members| - f + 1. A durable record is held by f noted members, so any such number of
// members includes at least one of those f.
//
// The incarnation and the base decide which count. A member that lost its memory, or that joined
// above the checkpoint, holds less than it would be counted for (I5). Both rules are in the model
// (`noinc`, `basecheck`): without either, acknowledged records are lost.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/ids.h"
#include "log/state_file.h"
#include "recovery/agree/inventory.h"

namespace salius::recovery {

// A replica's answer to Fence (or, in a dry run, to Inventory).
struct Answer {
  std::string address;
  Incarnation incarnation = 0;
  Inventory inventory;
};

enum class Standing {
  kCounts,
  kNotMember,      // its data may be merged
  kOtherLife,      // incarnation differs from the noted one
  kUnknownVolume,  // holds nothing of the epoch
  kBaseTooHigh,    // does not hold the first record above the checkpoint
};

// Returns the member whose memory answered, under whatever address (two hosts may have exchanged
// their addresses). Else returns the member of that address; null when there is neither.
const Member* MemberOf(const VolumeState& state, const Answer& answer);
// Returns the standing of `answer` against the noted state.
Standing StandingOf(const VolumeState& state, const Answer& answer);
// Explains to the user why it does not count.
std::string StandingText(const VolumeState& state, const Answer& answer, Standing standing);

// Returns how many members must answer: 0 in mode local, |members| - f + 1 in mode replicated,
// there at least 1.
uint64_t QuorumNeeded(const VolumeState& state);

struct QuorumCount {
  uint64_t needed = 0;
  uint64_t counted = 0;
  std::vector<std::string> missing;  // addresses of members that do not count
  bool enough() const { return counted >= needed; }
};
// Counts each member once, however often it answered.
QuorumCount CountQuorum(const VolumeState& state, absl::Span<const Answer> answers);

}  // namespace salius::recovery
