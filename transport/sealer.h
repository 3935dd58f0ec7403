// Seals and opens datagrams with AES-128-GCM (OpenSSL): proto/sealed_frame.h has the format. A
// context is made once per key; each datagram then only sets a nonce.
//
// The nonce is (sender id, counter). A counter that was used twice under one key and sender would
// reveal the data of both datagrams and let others forge. So NonceCounter gives each number once,
// and a second NonceCounter for one key needs another sender id.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <sys/uio.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/types/span.h"
#include "proto/sealed_frame.h"
#include "transport/seal_key.h"

struct evp_cipher_ctx_st;

namespace salius {

// Returns a new random key, from the kernel.
SealKey NewSealKey();

// Gives the counters of one sender under one key, from 1, each once. Any thread may call Take.
class NonceCounter {
 public:
  NonceCounter() = default;
  NonceCounter(const NonceCounter&) = delete;
  NonceCounter& operator=(const NonceCounter&) = delete;

  // Returns the first of `count` numbers, which belong to the caller. It ends the process before
  // the numbers of a key are used up: at a million datagrams a second after 146,000 years.
  uint64_t Take(uint64_t count);
  // Returns the number that is given next.
  uint64_t next() const { return next_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> next_{1};
};

struct FreeCipherContext {
  void operator()(evp_cipher_ctx_st* context) const;
};
using CipherContext = std::unique_ptr<evp_cipher_ctx_st, FreeCipherContext>;

// Seals with one key. One thread at a time uses it.
class Sealer {
 public:
  explicit Sealer(const SealKey& key);

  // Writes the sealed datagram of the frame that `parts` make: their bytes and kSealBytes. `out`
  // overlaps none of them. `prefix` has the kind kSealed, and a counter that NonceCounter gave.
  // Returns how many bytes were written.
  size_t Seal(const SealPrefix& prefix, absl::Span<const iovec> parts, uint8_t* out);

 private:
  CipherContext context_;
};

// Opens with one key. One thread at a time uses it.
class Opener {
 public:
  explicit Opener(const SealKey& key);

  // Opens a datagram in place; `prefix` is its prefix, of kind kSealed. Returns the frame in it,
  // which lies in `datagram`. Returns an empty span when the tag is wrong; the bytes behind the
  // prefix are then zero.
  absl::Span<const uint8_t> Open(const SealPrefix& prefix, absl::Span<uint8_t> datagram);

 private:
  CipherContext context_;
};

}  // namespace salius
