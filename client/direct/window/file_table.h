// The table of files of a direct volume, in shared memory: open addressing by inode number, no
// removal. And the rule when a file is covered.
//
// Needs the standard library and POSIX only.
#pragma once

#include <cstdint>

#include "client/direct/window/layout.h"

namespace salius::direct {

// ---- the table
// Returns the index of the file with this inode number; kNoFile when it has none. No lock.
uint32_t FindFile(const SharedWindow& window, uint64_t inode);
// Returns its index, and adds it, uncovered as new, if it has none. kNoFile when the table is full.
// Under the window lock.
uint32_t FindOrAddFile(const SharedWindow& window, uint64_t inode);
// Makes the entry that of another file, with the id `id`: uncovered as new, a new tag. Under the
// file's stripe.
void ResetFile(const SharedWindow& window, uint32_t file, FileId id);

// The file's id was read, or written to it: records name the file by it from now on. Uncovered as
// new if that was not known. Under the file's stripe.
void IdentifyFile(const SharedWindow& window, uint32_t file, FileId id);
// The file has no id, or none that can be read. It is uncovered until IdentifyFile. `maybe`: the id
// that it may have; kNoFileId: it has none. Handles of the file stay good: a process that has it
// open keeps its inode number. Under the file's stripe.
void LeaveUnidentified(const SharedWindow& window, uint32_t file, FileId maybe);

// Takes a new file id. kNoFileId when none is left until the coordinator notes more. `few`: set when
// a kick is due. Under the window lock.
FileId TakeFileId(const SharedWindow& window, bool* few);

// ---- covered and uncovered (layout.h, FileEntry)
// Makes the file uncovered. Any time; async-signal-safe.
void UncoverFile(const SharedWindow& window, uint32_t file, Reason reason);
// Does the same to a file that is uncovered already, for another change that is not logged.
void UncoverFile(const SharedWindow& window, uint32_t file);
// A change that is not logged begins: the file stays uncovered until it ends. Any time;
// async-signal-safe.
void BeginUnseenChange(const SharedWindow& window, uint32_t file, Reason reason);
// It has ended, and has left the file uncovered. Any time; async-signal-safe.
void EndUnseenChange(const SharedWindow& window, uint32_t file, Reason reason);
// Returns whether no sync can cover the file now, when `uncovered` is its word. No lock.
bool StaysUncovered(const FileEntry& entry, uint64_t uncovered);
// Returns whether the file is covered, when `uncovered` is its word. No lock.
bool IsCovered(const SharedWindow& window, const FileEntry& entry, uint64_t uncovered);
// Makes the file covered, if its word is still `uncovered`: after a real fsync(2) that began when it
// was, and whose record is stamped. `reasons`: of the file, read after its word; they are cleared,
// but for those that last, which leave the file uncovered. Under the file's stripe. Returns whether
// the file is covered now.
bool CoverFile(const SharedWindow& window, uint32_t file, uint64_t uncovered, uint32_t reasons);

// ---- the coordinator's syncs of the whole volume
// A sync that begins now.
struct SyncStart {
  uint64_t epoch = 0;  // it covers the files that became uncovered in this epoch or before
  Seq upto = 0;        // its checkpoint: every record up to here is in the page cache
};
// Begins a sync: call syncfs(2) afterwards. `upto` is read after the epoch has changed. The other way
// round, a record between the two could be replayed over a later write that was not logged, of a
// file that this sync covers (I3). Under the window lock.
SyncStart BeginSync(const SharedWindow& window);
// Takes the sync as done: the note with its checkpoint has returned, not before (I3). Call
// PublishCheckpoint first, and WakeAll afterwards.
void EndSync(const SharedWindow& window, uint64_t epoch);

}  // namespace salius::direct
