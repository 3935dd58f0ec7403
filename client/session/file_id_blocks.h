// Hands out file ids. The state file names a limit that every id is below, so that no session uses
// an id twice. The limit moves in blocks, so that not every file needs a note.
//
//     next     noted          wanted
//      |---------|---------------|
//       ids that  ids that a note under way,
//       are free  or the next one, makes free
//
// pure: no thread, lock, socket or clock. The caller serialises all calls.
#pragma once

#include <optional>

#include "common/ids.h"

namespace salius {

class FileIdBlocks {
 public:
  // Ids from `next` on are free; the state on the disk names the limit `next` + `block`.
  FileIdBlocks(FileId next, FileId block)
      : block_(block), next_(next), noted_(next + block), wanted_(noted_) {}

  // Returns an id; nothing while a note of a new limit is awaited.
  std::optional<FileId> Take() {
    if (next_ >= noted_) return std::nullopt;
    return next_++;
  }
  // Wants the next block when half of the last one is used up. Returns whether a note must be
  // written for that.
  bool WantsNote() {
    if (next_ + block_ / 2 <= wanted_) return false;
    wanted_ += block_;
    return true;
  }
  // Returns the limit for a note that is started now. Only one note is under way at a time.
  FileId StartNote() { return in_note_ = wanted_; }
  // Takes the note that was started last as written.
  void OnNoteWritten() { noted_ = in_note_; }

  // Takes the ids below `next` as taken by other processes, which stay below limit().
  void TakenUpTo(FileId next) { next_ = next; }

  FileId next() const { return next_; }
  FileId limit() const { return noted_; }
  bool empty() const { return next_ >= noted_; }

 private:
  FileId block_;
  FileId next_;
  FileId noted_;
  FileId wanted_;
  FileId in_note_ = 0;
};

}  // namespace salius
