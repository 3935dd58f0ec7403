// The contents of one file in memory: blocks that were written, blocks that are only allocated, and
// holes. Copyable.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace salius {

class SparseFile {
 public:
  explicit SparseFile(uint64_t block_bytes) : block_bytes_(block_bytes) {}

  uint64_t size() const { return size_; }
  // Returns the number of allocated blocks.
  uint64_t blocks() const { return blocks_.size(); }

  // Returns how many blocks, or bytes, of the range are not allocated.
  uint64_t MissingBlocks(uint64_t offset, uint64_t length) const;
  uint64_t MissingBytes(uint64_t offset, uint64_t length) const;

  // Returns the number of bytes read into `out`: fewer than `size` only at the end of the file.
  size_t Read(uint64_t offset, char* out, size_t size) const;
  void Write(uint64_t offset, std::string_view data);
  // A file that becomes shorter, or keeps its size, loses the blocks behind its end.
  void Resize(uint64_t size);
  // Allocates the range; its unwritten bytes are zero. Keeps the size.
  void Allocate(uint64_t offset, uint64_t length);
  // Makes the range zero: without its whole blocks, or with all of its blocks.
  void Punch(uint64_t offset, uint64_t length);
  void Zero(uint64_t offset, uint64_t length);
  // Returns the first byte from `offset` on that is (not) written; the end of the file counts as a
  // hole. Nothing when there is none before the end.
  std::optional<uint64_t> NextData(uint64_t offset) const;
  std::optional<uint64_t> NextHole(uint64_t offset) const;

 private:
  // Makes the bytes zero that are written, block by block.
  void Clear(uint64_t offset, uint64_t length);
  bool IsWritten(uint64_t block) const;

  uint64_t block_bytes_;
  uint64_t size_ = 0;
  std::map<uint64_t, std::string> blocks_;  // by number; empty: allocated, not written
};

}  // namespace salius
