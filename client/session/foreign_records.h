// The records of a session that other processes issue, send and count (a direct volume). They lie
// in memory that the processes share, and this is the policy's way to them.
//
// Calls are serialised by the caller. Enter and Leave enclose each step of the policy.
#pragma once

#include <cstdint>

#include "client/session/peer_paths.h"
#include "client/session/record_draft.h"
#include "client/session/replicator.h"
#include "client/session/window.h"
#include "common/ids.h"

namespace salius {

class ForeignRecords {
 public:
  virtual ~ForeignRecords() = default;

  virtual Window& window() = 0;
  // Keeps other processes from issuing, claiming and counting, until Leave. Gives the policy notice
  // of their steps, and the paths of what they sent. Returns the first file id that they have not
  // taken.
  virtual FileId Enter(int64_t now, Replicator& policy, PeerPaths& paths) = 0;
  // Publishes the decisions of the policy, and lets the other processes continue.
  // `file_id_limit`: ids below it may be taken.
  virtual void Leave(const Replicator& policy, const PeerPaths& paths, FileId file_id_limit) = 0;
  // Returns a copy of a record of the window that was sent before.
  virtual RecordRef At(Seq seq) const = 0;
  // Returns the timestamp of the last record.
  virtual uint64_t last_timestamp_ns() const = 0;
};

}  // namespace salius
