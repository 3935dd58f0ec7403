// The arena's file `<dir>/arena` on tmpfs: preallocated, mapped, locked into memory, held by one
// process at a time (flock). It outlives the process: a restarted replica attaches to it. A reboot
// empties tmpfs, and then there is a new arena with a new incarnation.
//
// Threads: none of its own; the user of the arena guards the mapping.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/file.h"
#include "replica/arena.h"

namespace salius {

class ArenaFile {
 public:
  struct Options {
    std::string dir;            // made when missing (its parent must exist), mode 0700
    // In a directory where all users may write, as /dev/shm, another user may have made `dir`
    // first. Then, and when this is set, "<dir>.<16 hex digits>" is taken, and found again at the
    // next start.
    bool take_neighbour = false;
    uint64_t memory_bytes = 0;  // rounded down to a multiple of the page
    bool lock_memory = true;    // mlock(2)
    std::string system_root;    // prefix of /proc and /sys; for tests
  };

  // Attaches to the arena in `options.dir`. Makes a new one (with a new incarnation) when there is
  // none, or when the one there is of another size or version or is damaged. Errors:
  //
  //   UNAVAILABLE           another process holds the arena
  //   FAILED_PRECONDITION   directory or file belong to another user, others may write to them, one
  //                         is a link or another kind of file, or the directory has other contents
  //   RESOURCE_EXHAUSTED    tmpfs, the limit of locked memory, a memory cgroup or the host's memory
  //                         is too small (the message gives the remedy)
  //   INVALID_ARGUMENT      the size
  static absl::StatusOr<std::unique_ptr<ArenaFile>> Open(const Options& options,
                                                         Arena::RandomSource random);
  // Detaches; the file stays.
  ~ArenaFile();
  ArenaFile(const ArenaFile&) = delete;
  ArenaFile& operator=(const ArenaFile&) = delete;

  Arena& arena() { return *arena_; }
  // Returns "" when an existing arena was attached, otherwise the reason why a new one was made.
  const std::string& created_because() const { return created_because_; }
  // Returns false when the directory is not on tmpfs: the kernel may write its memory to a disk.
  bool on_tmpfs() const { return on_tmpfs_; }
  // Returns true when the memory may be older than its last use: it lies on a disk, and its host
  // has been started again since. Then it has a new incarnation, and nothing in it counts.
  bool went_back() const { return went_back_; }
  const std::string& path() const { return path_; }

 private:
  ArenaFile() = default;
  absl::Status OpenFile(const Options& options, const Arena::RandomSource& random);
  absl::Status Prepare(uint64_t bytes, const Options& options);
  absl::Status Map(uint64_t bytes, bool lock_memory);
  absl::Status AttachOrFormat(const Arena::RandomSource& random);
  // Notes the boot in which memory that is not on tmpfs is used. Gives it a new incarnation when
  // the boot before was another.
  absl::Status NoteBoot();

  std::string path_;
  UniqueFd dir_, fd_;
  absl::Span<uint8_t> memory_;
  std::unique_ptr<Arena> arena_;
  std::string created_because_;
  bool on_tmpfs_ = false;
  bool went_back_ = false;
};

}  // namespace salius
