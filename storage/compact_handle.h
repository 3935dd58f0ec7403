// A file handle in 16 bytes: there is one for each inode that the kernel caches. Handles of up to
// 14 bytes lie inside (ext4: 8; xfs: 12), longer ones in memory of their own.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "common/check.h"
#include "common/file.h"

namespace salius {

class CompactHandle {
 public:
  // Holds nothing.
  CompactHandle() = default;
  explicit CompactHandle(const FileHandle& handle) {
    SALIUS_CHECK(Holds(handle), "a file handle that the kernel does not give");
    size_ = static_cast<uint8_t>(handle.bytes.size());
    type_ = static_cast<uint8_t>(handle.type);
    char* to = inside_;
    if (!fits()) {
      to = new char[size_];
      std::memcpy(inside_, &to, sizeof(to));
    }
    std::memcpy(to, handle.bytes.data(), size_);
  }
  CompactHandle(CompactHandle&& other) noexcept { *this = std::move(other); }
  CompactHandle& operator=(CompactHandle&& other) noexcept {
    std::swap(size_, other.size_);
    std::swap(type_, other.type_);
    std::swap(inside_, other.inside_);
    return *this;
  }
  ~CompactHandle() {
    if (!fits()) delete[] bytes();
  }

  bool empty() const { return size_ == 0; }
  // Returns the handle; there must be one.
  FileHandle ToHandle() const {
    SALIUS_CHECK(!empty());
    return {type_, std::string(bytes(), size_)};
  }
  // Returns whether the handle is one that the kernel gives: 1 to 128 bytes, a type below 256.
  static bool Holds(const FileHandle& handle) {
    return !handle.bytes.empty() && handle.bytes.size() <= kMaxBytes && handle.type >= 0 &&
           handle.type <= UINT8_MAX;
  }

 private:
  static constexpr size_t kMaxBytes = 128;  // MAX_HANDLE_SZ

  bool fits() const { return size_ <= sizeof(inside_); }
  const char* bytes() const {
    if (fits()) return inside_;
    const char* outside = nullptr;
    std::memcpy(&outside, inside_, sizeof(outside));
    return outside;
  }

  uint8_t size_ = 0;
  uint8_t type_ = 0;
  char inside_[14] = {};  // the bytes, or the address of longer ones
};

static_assert(sizeof(CompactHandle) == 16);

}  // namespace salius
