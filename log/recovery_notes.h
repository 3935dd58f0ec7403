// Notes about the recoveries of a volume: `.salius/recoveries`, a text file. It has one line for
// the last recovery, and one for each earlier recovery that gave records up and was not
// acknowledged since. docs/log-format.md gives the format. `salius status` shows the file; nothing
// depends on it.
//
// A crash leaves the file before the change or the file after it (WriteFileAtomically). A recovery
// that gives records up notes this before it pins its decision, so that no crash hides it.
//
// pure, but for the two functions that read and write the file. Its writer holds the volume lock.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/files.h"
#include "common/ids.h"

namespace salius {

inline constexpr char kRecoveriesFileName[] = "recoveries";

struct RecoveryNote {
  uint64_t at_unix_ms = 0;
  Epoch epoch = 0;       // the epoch that was recovered
  Epoch next_epoch = 0;  // noted by the commit; 0: the recovery has not ended yet
  Seq decided = 0;       // T
  uint64_t records = 0;  // replayed
  // Records that were left out although they had been acknowledged, or may have been.
  std::vector<std::pair<Seq, Seq>> given_up;
  // Other refusals that --force overrode, a sentence each.
  std::vector<std::string> overridden;
  bool acknowledged = false;

  bool GaveUp() const { return !given_up.empty() || !overridden.empty(); }
  bool operator==(const RecoveryNote&) const = default;
};

// Returns, for example, "records 5-9 and 11; 2 of 3 members must answer, 1 did".
std::string GivenUpText(const RecoveryNote& note);

class RecoveryNotes {
 public:
  static constexpr size_t kMost = 64;

  const std::vector<RecoveryNote>& all() const { return notes_; }  // oldest first
  // Returns the note of a recovery of `epoch`, which another run of it may have begun; null: none.
  const RecoveryNote* Find(Epoch epoch) const;
  // Puts the note in the place of one of the same epoch, or last. Removes earlier notes that gave
  // nothing up or were acknowledged, and the oldest ones above kMost.
  void Put(RecoveryNote note);
  // Marks every note as acknowledged. Returns how many were not before.
  uint32_t AcknowledgeAll();
  // Returns the notes that gave something up and were not acknowledged.
  std::vector<RecoveryNote> Unacknowledged() const;

  std::string Encode() const;
  // Parses the file. DATA_LOSS for a bad checksum, INVALID_ARGUMENT for content that this program
  // never writes.
  static absl::StatusOr<RecoveryNotes> Decode(std::string_view text);

  bool operator==(const RecoveryNotes&) const = default;

 private:
  std::vector<RecoveryNote> notes_;
};

// Returns no notes when there is no file. Errors: as Decode, and the file system's own.
absl::StatusOr<RecoveryNotes> ReadRecoveryNotes(Files& files, int salius_fd);
// Writes the notes; on OK they are on the disk.
absl::Status WriteRecoveryNotes(Files& files, int salius_fd, const RecoveryNotes& notes);

}  // namespace salius
