// Reads a stable log from its start position to its tail (log/stable_log.h, invariants).
//
// Threads: none of its own; one owner.
#ifndef SALIUS_LOG_STABLE_LOG_READER_H_
#define SALIUS_LOG_STABLE_LOG_READER_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/files.h"
#include "common/ids.h"
#include "log/stable_log.h"
#include "log/stable_log_format.h"

namespace salius::stable {

// The facts about a kept entry that the log needs to cut it later.
struct KeptEntry {
  EntryKind kind = EntryKind::kPad;
  uint64_t end = 0;  // position behind it
  Epoch epoch = 0;
  Seq seq = 0;  // for a record
};

struct ReadResult {
  std::deque<KeptEntry> entries;
  uint64_t tail = 0;  // position behind the last whole entry
  // File offsets of entry headers behind the tail that a torn write left. They must be wiped before
  // anything is appended: new entries in front of them could bring them back to life.
  std::vector<uint64_t> remains;
  uint64_t torn_bytes = 0;
};

// Reads both header slots of the file and returns the newer valid one. When only one is valid, the
// other may have named a larger reach, so the reach returned is one lap after the start. DATA_LOSS
// when neither is valid, INVALID_ARGUMENT when one is whole but of an unknown version.
absl::StatusOr<FileHeader> ReadFileHeader(Files& files, int fd);

// Reads and verifies every entry; `contents` may be null. DATA_LOSS names the file offset of damage
// in the middle.
absl::StatusOr<ReadResult> ReadEntries(Files& files, int fd, const FileHeader& header,
                                       StableLog::Contents* contents);

// Returns the position of the next entry after `position`. It is the ring's beginning when less
// than an entry header is left before the ring's end.
uint64_t SkipRingEnd(uint64_t position, uint64_t capacity);

}  // namespace salius::stable

#endif  // SALIUS_LOG_STABLE_LOG_READER_H_
