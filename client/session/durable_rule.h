// The rule when a record is durable (docs/protocol.md, "Notes"; I1, I5), as a plain struct. So it
// can lie in memory that processes share: those of a direct volume apply it themselves.
// Configurations (configurations.h) makes it, and explains it.
//
// pure: no thread, lock, socket or clock. Needs the standard library only.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "client/session/window.h"
#include "common/id_types.h"

namespace salius {

struct DurableRule {
  // A configuration: the noted one, or that of the note that is being written.
  struct Side {
    Seq checkpoint = 0;
    ReplicaMask counted = 0;  // the members whose copies count now
    bool replicated = false;  // mode replicated: copies count

    // Returns whether the record is recoverable under it, when `acks` copies are needed.
    bool Recoverable(const Window& window, Seq seq, int acks) const {
      if (seq <= checkpoint) return true;
      const Window::Slot& slot = window.At(seq);
      if (slot.stable) return true;
      if (!replicated) return false;
      return std::popcount(static_cast<ReplicaMask>(slot.held & counted)) >= acks;
    }
  };

  int32_t acks = 1;  // f
  bool has_pending = false;
  // A note names a member that was lost: nothing becomes durable until a note without it is
  // written.
  bool awaits_note_of_loss = true;
  Side noted;
  Side pending;

  // Returns the last record that is durable, when all up to `durable` are.
  Seq Advance(const Window& window, Seq durable) const {
    if (awaits_note_of_loss) return durable;
    while (durable < window.issued()) {
      const Seq next = durable + 1;
      if (!noted.Recoverable(window, next, acks)) break;
      if (has_pending && !pending.Recoverable(window, next, acks)) break;
      ++durable;
    }
    return durable;
  }
};
static_assert(std::is_trivially_copyable_v<DurableRule> && std::is_standard_layout_v<DurableRule>);

}  // namespace salius
