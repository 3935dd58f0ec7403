// Sealing and opening of datagrams in a process of a direct volume, with the keys of the shared
// memory (seal_state.h). The same format as transport/sealer.h, which daemons use: this has AES-GCM
// of Nettle, which needs no C++ runtime, no allocation and no lock.
//
// Frames are sealed in rooms, which are memory of the process: a thread's stack may be small. A
// thread takes a room without waiting. If all are taken, its datagrams are lost, and the coordinator
// sends the records again. A room that was taken at a fork(2) stays taken in the child.
//
// Needs the standard library, POSIX and Nettle only; never allocates.
#pragma once

#include <cstddef>
#include <cstdint>

#include "client/direct/window/layout.h"

namespace salius::direct {

// Whether the session's datagrams are sealed.
inline bool IsSealed(const SharedWindow& window) {
  return window.header().seal.sealed.load(std::memory_order_relaxed) != 0;
}

struct SealRoom;
inline constexpr size_t kSealRoomBytes = 64 << 10;

// Seals frames on one thread, with one key. It holds a room.
class FrameSealer {
 public:
  FrameSealer(const SharedWindow& window, const RecordKey& key);
  ~FrameSealer();
  FrameSealer(const FrameSealer&) = delete;
  FrameSealer& operator=(const FrameSealer&) = delete;

  // Whether it can seal: there is a key, and a room.
  bool valid() const { return room_ != nullptr; }
  // Returns the room, of kSealRoomBytes.
  uint8_t* bytes() const;
  // Seals a frame of `frame_bytes` bytes that lies in the room kSealPrefixBytes behind `datagram`.
  // There is room for kSealTagBytes behind it. The datagram then begins at `datagram`. Returns its
  // size.
  size_t Seal(uint8_t* datagram, size_t frame_bytes);

 private:
  const SharedWindow window_;
  const uint32_t key_id_;
  SealRoom* room_ = nullptr;
};

// The datagram of a replica.
struct Opened {
  SealRefusal refusal = SealRefusal::kNone;  // else it is refused, and was counted
  bool notice = false;                       // it says that the replica has no key; no frame
  uint8_t* frame = nullptr;
  size_t bytes = 0;
};

// Opens a datagram of `replica` in place, and takes its counter. A notice is kept for the
// coordinator. Under the window lock.
Opened OpenDatagram(const SharedWindow& window, uint32_t replica, uint8_t* datagram, size_t size);

}  // namespace salius::direct
