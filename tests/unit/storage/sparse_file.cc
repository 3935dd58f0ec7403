#include "tests/unit/storage/sparse_file.h"

#include <algorithm>
#include <cstring>

namespace salius {

uint64_t SparseFile::MissingBlocks(uint64_t offset, uint64_t length) const {
  if (length == 0) return 0;
  const uint64_t first = offset / block_bytes_, last = (offset + length - 1) / block_bytes_;
  const auto there = std::distance(blocks_.lower_bound(first), blocks_.upper_bound(last));
  return last - first + 1 - static_cast<uint64_t>(there);
}

uint64_t SparseFile::MissingBytes(uint64_t offset, uint64_t length) const {
  uint64_t missing = length;
  const uint64_t end = offset + length;
  for (auto at = blocks_.lower_bound(offset / block_bytes_);
       at != blocks_.end() && at->first * block_bytes_ < end; ++at) {
    const uint64_t begin = at->first * block_bytes_;
    missing -= std::min(end, begin + block_bytes_) - std::max(offset, begin);
  }
  return missing;
}

size_t SparseFile::Read(uint64_t offset, char* out, size_t size) const {
  if (offset >= size_) return 0;
  size = static_cast<size_t>(std::min<uint64_t>(size, size_ - offset));
  memset(out, 0, size);
  const uint64_t end = offset + size;
  for (auto at = blocks_.lower_bound(offset / block_bytes_);
       at != blocks_.end() && at->first * block_bytes_ < end; ++at) {
    if (at->second.empty()) continue;
    const uint64_t begin = at->first * block_bytes_;
    const uint64_t from = std::max(offset, begin), to = std::min(end, begin + block_bytes_);
    memcpy(out + (from - offset), at->second.data() + (from - begin), to - from);
  }
  return size;
}

void SparseFile::Write(uint64_t offset, std::string_view data) {
  size_ = std::max(size_, offset + data.size());
  while (!data.empty()) {
    std::string& block = blocks_[offset / block_bytes_];
    block.resize(block_bytes_, '\0');
    const uint64_t at = offset % block_bytes_;
    const size_t count = static_cast<size_t>(std::min<uint64_t>(data.size(), block_bytes_ - at));
    data.copy(block.data() + at, count);
    data.remove_prefix(count);
    offset += count;
  }
}

void SparseFile::Resize(uint64_t size) {
  if (size <= size_) {
    blocks_.erase(blocks_.lower_bound((size + block_bytes_ - 1) / block_bytes_), blocks_.end());
    Clear(size, block_bytes_ - size % block_bytes_);
  }
  size_ = size;
}

void SparseFile::Allocate(uint64_t offset, uint64_t length) {
  const uint64_t end = (offset + length + block_bytes_ - 1) / block_bytes_;
  for (uint64_t block = offset / block_bytes_; block < end; ++block) blocks_[block];
}

void SparseFile::Punch(uint64_t offset, uint64_t length) {
  const uint64_t first = (offset + block_bytes_ - 1) / block_bytes_;
  const uint64_t end = (offset + length) / block_bytes_;
  if (first < end) blocks_.erase(blocks_.lower_bound(first), blocks_.lower_bound(end));
  Clear(offset, length);
}

void SparseFile::Zero(uint64_t offset, uint64_t length) {
  Punch(offset, length);
  Allocate(offset, length);
}

void SparseFile::Clear(uint64_t offset, uint64_t length) {
  const uint64_t end = offset + length;
  for (auto at = blocks_.lower_bound(offset / block_bytes_);
       at != blocks_.end() && at->first * block_bytes_ < end; ++at) {
    if (at->second.empty()) continue;
    const uint64_t begin = at->first * block_bytes_;
    const uint64_t from = std::max(offset, begin), to = std::min(end, begin + block_bytes_);
    memset(at->second.data() + (from - begin), 0, to - from);
  }
}

bool SparseFile::IsWritten(uint64_t block) const {
  const auto found = blocks_.find(block);
  return found != blocks_.end() && !found->second.empty();
}

std::optional<uint64_t> SparseFile::NextData(uint64_t offset) const {
  if (offset >= size_) return std::nullopt;
  for (auto at = blocks_.lower_bound(offset / block_bytes_); at != blocks_.end(); ++at) {
    const uint64_t begin = std::max(offset, at->first * block_bytes_);
    if (begin >= size_) break;
    if (!at->second.empty()) return begin;
  }
  return std::nullopt;
}

std::optional<uint64_t> SparseFile::NextHole(uint64_t offset) const {
  if (offset >= size_) return std::nullopt;
  uint64_t block = offset / block_bytes_;
  while (IsWritten(block)) ++block;
  return std::min(size_, std::max(offset, block * block_bytes_));
}

}  // namespace salius
