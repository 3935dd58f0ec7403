// The offsets that the kernel gets for the entries of one open directory.
//
// The backing file system's own offsets take 63 bits on ext4, and a 32-bit program without
// large-file support sees no entry whose offset needs more than 31. These are small numbers: the
// entry that is listed first has 1. An offset stays good while the directory is open, also when
// entries come and go. An entry that appears between two listed ones gets the next free number.
//
// An offset outlives the start of another listing (rewinddir) if its entry was applied when it was
// listed. Other entries come last, and their cookies are positions in the list of pending names
// that a listing takes when it begins. The next listing gives the same numbers to the positions of
// its own list, so within one listing each number still leads to the entry behind its own.
//
// Memory: 8 bytes for each entry that was listed. All open directories together keep kMaxKept. A
// directory that goes beyond forgets the older half of its own offsets; an offset of that half is
// found again by counting entries from the start.
//
// pure: no lock, socket or clock.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace salius {

class DirOffsets {
 public:
  static constexpr uint64_t kMaxOffset = 0x7fffffff;  // the largest for a 32-bit program
  static constexpr uint64_t kMaxKept = uint64_t{16} << 20;

  // Makes an empty set. `kept`: how many offsets all sets that share it keep; `max_kept`: their
  // limit.
  DirOffsets(std::atomic<uint64_t>& kept, uint64_t max_kept) : kept_(kept), max_kept_(max_kept) {}
  ~DirOffsets() { kept_.fetch_sub(cookies_.size()); }
  DirOffsets(const DirOffsets&) = delete;
  DirOffsets& operator=(const DirOffsets&) = delete;

  // The position in the backing directory of the entries that follow an offset: behind the entry
  // with `cookie` (0: from the start), then `skip` entries farther.
  struct Place {
    uint64_t cookie = 0;
    uint64_t skip = 0;
  };
  Place Find(uint64_t offset) const;

  // Returns the offset of an entry that was listed behind `previous`; `cookie` is the backing file
  // system's offset of it. Nothing when there are too many.
  std::optional<uint64_t> Number(uint64_t previous, uint64_t cookie);

  // Begins the listing again. Keeps the offsets, unless they have become very many.
  void Rewind();

 private:
  static constexpr size_t kKeptOverRewind = size_t{1} << 20;

  std::optional<uint64_t> Append(uint64_t cookie);
  void Clear();

  std::atomic<uint64_t>& kept_;
  const uint64_t max_kept_;
  uint64_t first_ = 1;             // the offset of cookies_[0]
  std::vector<uint64_t> cookies_;  // by offset
  bool in_order_ = true;           // each listing so far gave the same entries
  absl::flat_hash_map<uint64_t, uint64_t> offsets_;  // by cookie; empty while in_order_
};

}  // namespace salius
