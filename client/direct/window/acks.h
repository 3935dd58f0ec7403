// Acknowledgements of a direct volume: any process turns them into `durable`, under the window lock
// and by the rule that the coordinator published. The paper's rules are in
// client/session/configurations.h; docs/protocol.md has the protocol.
//
// A process counts only plain acknowledgements: of the incarnation and base that the coordinator
// published, without flags, and going up. Selective ranges and all else is left to the coordinator,
// which gets the newest of each kind in a mailbox.
//
// Needs the standard library and POSIX only.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

#include "client/direct/window/layout.h"
#include "client/direct/window/waits.h"
#include "proto/frame_format.h"

namespace salius::direct {

enum class AckVerdict : uint8_t {
  kCounted,    // taken; `durable` may have moved
  kTooOld,     // it answers a frame from before the replica was opened again: ignored
  kOdd,        // for the coordinator: flags, another incarnation, or records never issued
  kWentBack,   // the replica's memory went back: it does not count any more
  kMalformed,  // no acknowledgement of this session
  kForeign,    // of another session, or not from a replica's address
  kRefused,    // plain, forged, replayed or a notice, in a sealed session
};

// Takes one datagram that came from `from`; in a sealed session it is opened in place. `now`:
// monotonic ns. Takes the window lock. Sets `*advanced`: pass it to Wake.
AckVerdict TakeDatagram(const SharedWindow& window, uint8_t* datagram, size_t size,
                        const sockaddr* from, int64_t now, Advanced* advanced);

// Takes an acknowledgement of replica `replica`, whose frame was sent at `sent_ns`. Under the window
// lock.
AckVerdict TakeAck(const SharedWindow& window, uint32_t replica, int64_t sent_ns,
                   const AckBytes& ack, int64_t now);

// Moves `durable` as far as the published rule allows, if acknowledgements count. Under the window
// lock.
Advanced AdvanceDurable(const SharedWindow& window);

// Takes records up to `checkpoint` as on disk: a note of that checkpoint has returned. Cuts the
// window, moves `durable`. Under the window lock.
Advanced PublishCheckpoint(const SharedWindow& window, Seq checkpoint);

}  // namespace salius::direct
