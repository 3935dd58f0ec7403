// A write to a file of the volume: the write itself and its record, in one order with all others.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

namespace salius::preload {

struct WriteCall {
  int fd = -1;
  // Vectored: `parts` and `count`; else `data` and `size`.
  bool vectored = false;
  const void* data = nullptr;
  size_t size = 0;
  const iovec* parts = nullptr;
  int count = 0;
  // At `offset`, which the kernel judges; else at the descriptor's position.
  bool positioned = false;
  off64_t offset = 0;
  // RWF_ flags of pwritev2(2).
  bool with_flags = false;
  int flags = 0;
};

// Makes the call if its descriptor is a file of the volume, and stores what it returns (errno is
// then set). Returns false when it is none: the caller makes the call.
// A synchronous write returns once its bytes are durable.
bool WriteTracked(const WriteCall& call, ssize_t* result);

}  // namespace salius::preload
