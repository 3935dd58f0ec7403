#include "recovery/agree/quorum.h"

#include "absl/strings/str_format.h"

namespace salius::recovery {
namespace {

template <typename Predicate>
const Member* FindMember(const VolumeState& state, Predicate predicate) {
  for (const Member& member : state.members) {
    if (predicate(member)) return &member;
  }
  return nullptr;
}

}  // namespace

const Member* MemberOf(const VolumeState& state, const Answer& answer) {
  const Member* const same = FindMember(
      state, [&](const Member& member) { return member.incarnation == answer.incarnation; });
  if (same != nullptr) return same;  // R23
  return FindMember(state, [&](const Member& member) { return member.address == answer.address; });
}

Standing StandingOf(const VolumeState& state, const Answer& answer) {
  const Member* const member = MemberOf(state, answer);
  if (member == nullptr) return Standing::kNotMember;                          // R26
  if (member->incarnation != answer.incarnation) return Standing::kOtherLife;  // R21
  if (!answer.inventory.known || answer.inventory.epoch != state.epoch) {      // R24
    return Standing::kUnknownVolume;
  }
  // R25: check base <= checkpoint + 1, without overflow, for the note and for the answer.
  if (member->base > 0 && member->base - 1 > state.checkpoint) return Standing::kBaseTooHigh;
  if (answer.inventory.base > 0 && answer.inventory.base - 1 > state.checkpoint) {
    return Standing::kBaseTooHigh;
  }
  // R22: it counts too when its memory went back to an earlier moment, which nothing shows here.
  return Standing::kCounts;
}

std::string StandingText(const VolumeState& state, const Answer& answer, Standing standing) {
  switch (standing) {
    case Standing::kCounts:
      return "counts";
    case Standing::kNotMember:
      return "not a member: does not count, its records may be used";
    case Standing::kOtherLife:
      return absl::StrFormat("lost its memory since (incarnation %016x)", answer.incarnation);
    case Standing::kUnknownVolume:
      return absl::StrFormat("holds nothing of epoch %d", state.epoch);
    case Standing::kBaseTooHigh:
      return absl::StrFormat("holds records from seq %d on only, the checkpoint is %d",
                             answer.inventory.base, state.checkpoint);
  }
  return "";
}

uint64_t QuorumNeeded(const VolumeState& state) {
  if (state.mode != Mode::kReplicated) return 0;  // R29
  const uint64_t members = state.members.size();  // R20
  return members >= state.acks ? members - state.acks + 1 : 1;
}

QuorumCount CountQuorum(const VolumeState& state, absl::Span<const Answer> answers) {
  QuorumCount count;
  count.needed = QuorumNeeded(state);
  for (const Member& member : state.members) {
    bool counts = false;  // R23: once, however many answers its memory gives
    for (const Answer& answer : answers) {
      counts = counts || (MemberOf(state, answer) == &member &&
                          StandingOf(state, answer) == Standing::kCounts);
    }
    if (counts) {
      ++count.counted;
    } else {
      count.missing.push_back(member.address);
    }
  }
  return count;
}

}  // namespace salius::recovery
