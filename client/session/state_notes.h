// The content of a session's state notes (docs/protocol.md, "Notes").
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/session/configurations.h"
#include "common/ids.h"
#include "log/state_file.h"

namespace salius {

// The parts of a note that the policy does not decide.
struct NoteMarks {
  uint64_t last_timestamp_ns = 0;
  FileId file_id_limit = 0;
};

class StateNotes {
 public:
  // Where the volume is mounted, for a recovery on the same host.
  struct Place {
    std::string boot_id;
    uint64_t mount_id = 0;  // 0: not known
  };

  // Returns the first note of a session, which must be on the disk before anything is issued: open,
  // the next epoch, mode local, no members. `before`: the clean state. `file_ids`: how many ids the
  // session takes at once.
  static VolumeState First(VolumeState before, const Place& place, uint32_t acks, FileId file_ids);

  // `first`: as First() returned it. `replicas`: addresses as configured.
  StateNotes(VolumeState first, std::vector<std::string> replicas)
      : first_(std::move(first)), replicas_(std::move(replicas)) {}

  VolumeState Compose(const Note& note, const NoteMarks& marks) const;
  // Returns the last note: the state is clean, and all records up to `issued` are on the disk.
  VolumeState Closed(Seq issued, const NoteMarks& marks) const;

 private:
  VolumeState first_;
  std::vector<std::string> replicas_;
};

}  // namespace salius
