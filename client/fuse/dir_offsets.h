// The offsets that the kernel is given for the entries of one open directory.
//
// The backing file system's own take 63 bits on ext4, and a 32-bit program without large-file
// support is told of no entry whose offset does not fit 31. These are small numbers: the entry that
// is listed first has 1. An offset stays good while the directory is open, also when the listing
// begins again or entries come and go; an entry that comes between two listed ones gets the next
// free number.
//
// Memory: 8 bytes an entry that was listed. All open directories together keep kMostKept; who goes
// beyond forgets the older half of its own, and an offset of that half is found again by counting
// entries from the start.
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
  static constexpr uint64_t kMost = 0x7fffffff;        // what a 32-bit program can be told
  static constexpr uint64_t kMostKept = uint64_t{16} << 20;

  // `kept`: how many are kept by all that share it; `most_kept`: how many these may be.
  DirOffsets(std::atomic<uint64_t>& kept, uint64_t most_kept) : kept_(kept), most_kept_(most_kept) {}
  ~DirOffsets() { kept_.fetch_sub(cookies_.size()); }
  DirOffsets(const DirOffsets&) = delete;
  DirOffsets& operator=(const DirOffsets&) = delete;

  // Where the backing directory is to be read for what follows `offset`: behind the entry with
  // `cookie` (0: from the start), and so many entries farther.
  struct Place {
    uint64_t cookie = 0;
    uint64_t skip = 0;
  };
  Place Find(uint64_t offset) const;

  // The offset of an entry that was listed behind `previous`; `cookie` is the backing file system's
  // offset of it. Nothing when there are too many.
  std::optional<uint64_t> Number(uint64_t previous, uint64_t cookie);

  // The listing begins again. Keeps the offsets, unless they have become very many.
  void Rewind();

 private:
  static constexpr size_t kKeptOverRewind = size_t{1} << 20;

  std::optional<uint64_t> Append(uint64_t cookie);
  void Clear();

  std::atomic<uint64_t>& kept_;
  const uint64_t most_kept_;
  uint64_t first_ = 1;             // the offset of cookies_[0]
  std::vector<uint64_t> cookies_;  // by offset
  bool in_order_ = true;           // each listing so far gave the same entries
  absl::flat_hash_map<uint64_t, uint64_t> offsets_;  // by cookie; empty while in_order_
};

}  // namespace salius
