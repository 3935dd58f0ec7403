// Little-endian bytes: loads and stores, and cursors that never leave their buffer.
//
// Every decoder of bytes from the network or the disk reads through ByteReader: failure is sticky,
// so a decoder reads all its fields and asks ok() once, before it believes any of them.
#ifndef SALIUS_COMMON_BYTES_H_
#define SALIUS_COMMON_BYTES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/types/span.h"
#include "common/load_store.h"

namespace salius {

// Convert a text to a span of bytes, and back. The memory stays the caller's.
inline absl::Span<const uint8_t> AsBytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}
inline std::string_view AsText(absl::Span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Reads from the front of a buffer that must outlive it and everything it returns.
class ByteReader {
 public:
  explicit ByteReader(absl::Span<const uint8_t> bytes) : rest_(bytes) {}
  explicit ByteReader(std::string_view bytes) : rest_(AsBytes(bytes)) {}

  // Returns false once a read went past the end; then every read gives zero or nothing.
  bool ok() const { return ok_; }
  // Bytes not yet read; 0 after a failure.
  size_t remaining() const { return rest_.size(); }
  // Whether everything was read and nothing failed. A decoder of a whole message asks this last.
  bool AtEnd() const { return ok_ && rest_.empty(); }

  uint8_t U8() { return Get<uint8_t>(); }
  uint16_t U16() { return Get<uint16_t>(); }
  uint32_t U32() { return Get<uint32_t>(); }
  uint64_t U64() { return Get<uint64_t>(); }

  // Returns the next n bytes, in place; empty on failure.
  absl::Span<const uint8_t> Bytes(size_t n) {
    if (n > rest_.size()) {
      Fail();
      return {};
    }
    const absl::Span<const uint8_t> taken = rest_.first(n);
    rest_.remove_prefix(n);
    return taken;
  }

  // Returns the next n bytes as text, in place; empty on failure.
  std::string_view String(size_t n) { return AsText(Bytes(n)); }

  // Takes n bytes that must all be zero (reserved fields, padding). If they are not, or are not
  // there, returns false and fails the reader.
  bool AllZero(size_t n) {
    const absl::Span<const uint8_t> taken = Bytes(n);
    if (!ok_) return false;
    if (std::any_of(taken.begin(), taken.end(), [](uint8_t b) { return b != 0; })) Fail();
    return ok_;
  }

  // Makes the reader fail: for a value that the decoder itself refuses.
  void Fail() {
    ok_ = false;
    rest_ = {};
  }

 private:
  template <typename T>
  T Get() {
    const absl::Span<const uint8_t> taken = Bytes(sizeof(T));
    return ok_ ? bytes_internal::Load<T>(taken.data()) : T{0};
  }

  absl::Span<const uint8_t> rest_;
  bool ok_ = true;
};

// Appends to a vector, which grows, or fills a span from its front. A value that does not fit the
// span is left out whole and makes ok() false for good. The buffer must outlive the writer.
class ByteWriter {
 public:
  explicit ByteWriter(std::vector<uint8_t>* out) : vector_(out) {}
  explicit ByteWriter(absl::Span<uint8_t> out) : span_(out) {}

  bool ok() const { return ok_; }
  // Bytes written by this writer so far.
  size_t written() const { return written_; }

  void PutU16(uint16_t value) { Put(&value, sizeof(value)); }
  void PutU32(uint32_t value) { Put(&value, sizeof(value)); }
  void PutU64(uint64_t value) { Put(&value, sizeof(value)); }
  void PutBytes(absl::Span<const uint8_t> bytes) { Put(bytes.data(), bytes.size()); }

 private:
  void Put(const void* from, size_t n) {
    if (uint8_t* to = Reserve(n); to != nullptr && n > 0) std::memcpy(to, from, n);
  }

  // Returns the place of the next n bytes; null, and failed, when they do not fit.
  uint8_t* Reserve(size_t n) {
    if (!ok_) return nullptr;
    if (vector_ != nullptr) {
      const size_t old_size = vector_->size();
      vector_->resize(old_size + n);
      written_ += n;
      return vector_->data() + old_size;
    }
    if (n > span_.size() - written_) {
      ok_ = false;
      return nullptr;
    }
    uint8_t* const to = span_.data() + written_;
    written_ += n;
    return to;
  }

  std::vector<uint8_t>* vector_ = nullptr;
  absl::Span<uint8_t> span_;
  size_t written_ = 0;
  bool ok_ = true;
};

}  // namespace salius

#endif  // SALIUS_COMMON_BYTES_H_
