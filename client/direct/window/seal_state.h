// The keys of a sealed session's datagrams in the shared memory (docs/protocol.md, "Keys"). The
// processes of the command seal and open with them (sealing.h); the coordinator publishes them.
//
// - All processes are one sender, kProcessSender, with one counter in this memory. It counts under
//   each key of the session, and never goes back. So no nonce is used twice: a process that is
//   killed after it took a number leaves a gap.
// - The replay windows of acknowledgements are here too. Otherwise each process would take one.
// - A process that is killed while it takes a counter may forget others of the window. A replica's
//   acknowledgement that is then replayed is true, and names nothing that a replica did not hold.
//
// Needs the standard library only.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "common/limits.h"
#include "proto/sealed_frame.h"
#include "transport/replay_window.h"
#include "transport/seal_key.h"
#include "transport/seal_refusal.h"

namespace salius::direct {

// The sender id of the processes. The coordinator's own datagrams have 1.
inline constexpr uint32_t kProcessSender = 2;
// Keys of one replica's acknowledgements: of the present record key, the next and the one before.
inline constexpr size_t kAckKeys = 3;

struct RecordKey {
  uint32_t id = 0;  // 0: none, so nothing can be sent
  SealKey key{};
};

struct AckKey {
  uint32_t id = 0;  // of its record key; 0: none
  SealKey key{};
  ReplayWindow seen;
};

struct SealState {
  // 1: every datagram of the session is sealed, and plain ones are refused. Constant before the
  // first process attaches.
  std::atomic<uint32_t> sealed;
  // Under the window lock. Published by the coordinator.
  RecordKey record_key;
  // The counter of the next datagram.
  std::atomic<uint64_t> next_counter;
  // Under the window lock. The keys are published by the coordinator.
  AckKey ack_keys[kMaxReplicas][kAckKeys];
  // The last notice "no key" of each replica, for the coordinator, which clears it (key_id 0). Under
  // the window lock.
  SealPrefix notices[kMaxReplicas];
  // Datagrams that processes refused, by reason. Relaxed.
  std::atomic<uint64_t> refused[kSealRefusals];
};

}  // namespace salius::direct
