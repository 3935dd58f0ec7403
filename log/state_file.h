// The state file `.salius/state`: the primary's durable memory of one volume, in two checksummed
// slots of kStateSlotBytes each. docs/log-format.md gives every byte.
//
// A crash leaves the older note or the newer one. Slots A and B are overwritten alternately, each
// with a larger generation and one O_DSYNC write. A torn write destroys only the slot that was
// being written, and the older slot is then the state. (Two torn writes of one generation, one
// after the other, could make the first one's note if both began with the same sector. That note
// was a possible outcome of its own Write(), and sessions and boots differ in the first sector.)
// This is the reason for the one rule of notes (docs/protocol.md, "Notes"): until Write() has
// returned, a crash may leave either note.
//
// Threads: one writer at a time; the caller holds the volume lock.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/files.h"
#include "common/ids.h"

namespace salius {

enum class Mode : uint8_t {
  kLocal = 1,       // only the stable log and checkpoints make a record durable
  kReplicated = 2,  // f noted members make a record durable
};
std::string_view ModeName(Mode mode);

// A replica whose acknowledgements count (docs/protocol.md, "A record").
struct Member {
  std::string address;          // "host:port" as configured, at most 200 bytes
  Incarnation incarnation = 0;  // one life of the replica's memory
  Seq base = 0;                 // first seq it holds
  bool operator==(const Member&) const = default;
};

// One note.
struct VolumeState {
  VolumeId volume{};
  bool open = false;  // false: clean, nothing to recover
  Epoch epoch = 0;    // of the current (open) or last (clean) session
  Mode mode = Mode::kLocal;
  std::string boot_id;    // of the host that wrote the note (36 characters)
  uint64_t mount_id = 0;  // unique mount id of the backing directory; 0 when the kernel has none
  uint32_t acks = 1;      // f
  std::vector<Member> members;
  Seq checkpoint = 0;  // of `epoch`
  uint64_t last_timestamp_ns = 0;
  FileId file_id_limit = 0;  // every id handed out is below this
  Epoch recovered_epoch = 0;  // last recovery's decision: (epoch, T)
  Seq recovered_seq = 0;
  bool operator==(const VolumeState&) const = default;
};

// Encodes one slot of exactly kStateSlotBytes. `generation` > 0.
std::string EncodeStateSlot(const VolumeState& state, uint64_t generation);

struct DecodedStateSlot {
  VolumeState state;
  uint64_t generation = 0;
};
// Decodes one slot. Errors: DATA_LOSS for a bad checksum or torn slot, INVALID_ARGUMENT for a
// version or content that this program never writes.
absl::StatusOr<DecodedStateSlot> DecodeStateSlot(absl::Span<const uint8_t> slot);

class StateFile {
 public:
  // `files`, of which `dirfd` is, outlives the state file.
  //
  // Creates `name` in `dirfd` with `initial` in it, synced together with the directory. Errors:
  // ALREADY_EXISTS; the file system's own.
  static absl::StatusOr<StateFile> Create(Files& files, int dirfd, const std::string& name,
                                          const VolumeState& initial);
  // Opens and reads the newest valid slot. Errors: NOT_FOUND when the file is missing (a lost state
  // file is never a new volume: the caller must refuse), DATA_LOSS when no slot is valid (gives
  // both reasons), INVALID_ARGUMENT for an unknown version.
  static absl::StatusOr<StateFile> Open(Files& files, int dirfd, const std::string& name);

  const VolumeState& state() const { return state_; }
  uint64_t generation() const { return generation_; }

  // Writes `next` durably into the other slot. When it returns OK the note is on disk; when it
  // fails, either note may be, and the file refuses all further writes (FAILED_PRECONDITION).
  absl::Status Write(const VolumeState& next);

 private:
  StateFile(Files& files, BackingFd fd, VolumeState state, uint64_t generation);
  Files* files_;
  BackingFd fd_;
  VolumeState state_;
  uint64_t generation_ = 0;
  bool failed_ = false;
};

}  // namespace salius
