// Whose answer counts, and how many are needed (docs/recovery.md).
//
// Why |members| - f + 1: a durable record is held by f noted members, so any such number of members
// has at least one of those f among it. Why the incarnation and the base: a member that lost its
// memory, or that joined above the checkpoint, holds less than it would be counted for (I5). Both
// rules are in the model (`noinc`, `basecheck`): each, taken out, loses acknowledged records.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/ids.h"
#include "log/state_file.h"
#include "recovery/inventory.h"

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

// The member whose memory answered, by whatever name it is called now (two hosts may have exchanged
// their addresses); else the one of that name; null when there is neither.
const Member* MemberOf(const VolumeState& state, const Answer& answer);
// How `answer` stands towards the noted state.
Standing StandingOf(const VolumeState& state, const Answer& answer);
// For people: why it does not count.
std::string StandingText(const VolumeState& state, const Answer& answer, Standing standing);

// How many members must answer: |members| - f + 1 in mode replicated, 0 in mode local. In mode
// replicated it is at least 1.
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
