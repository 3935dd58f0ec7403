// Claiming: which process sends which records. A synchronous caller claims all records that are
// complete and were not claimed, and sends them itself. A process that is killed between the two
// leaves records unsent; the coordinator sends them again when no acknowledgement comes.
//
// Records of many writers go together, as in a session of one process (client/session/gathering.h):
// while sent records are not durable, the next ones are gathered, and the leader sends them when the
// others are durable.
//
// Frames are packed straight from the ring. The ring may be reused meanwhile, when the process was
// stopped for long and a checkpoint passed its records. The frame's bytes are then those of another
// record, whole or torn: the checksums of records make a replica ignore the torn ones.
//
// Needs the standard library and POSIX only.
#pragma once

#include <cstdint>

#include "client/direct/window/layout.h"
#include "proto/frame_format.h"

namespace salius::direct {

// Records to send, and a copy of the addresses.
struct Claimed {
  Seq first = 0, last = 0;  // inclusive; nothing when first > last
  uint32_t replicas = 0;
  uint64_t durable = 0, checkpoint = 0;
  Peer peers[kMaxReplicas];
  RecordKey key;  // set when the session is sealed
  bool any() const { return first <= last && last > 0; }
};

// Claims the records that are complete and not claimed, as far as Header::in_flight_bytes allows;
// one record at least if nothing is in flight. Claims nothing while they are gathered. `now`:
// monotonic ns. Under the window lock.
Claimed Claim(const SharedWindow& window, int64_t now);

// Sends the records to each replica that has an address, from `socket`: sealed in a sealed session.
// `now` becomes the frames' send time. A datagram that the kernel refuses is lost like any other. No
// lock.
void SendClaimed(const SharedWindow& window, int socket, const Claimed& claimed, int64_t now);

}  // namespace salius::direct
