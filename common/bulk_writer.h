// Long writes past the page cache (O_DIRECT), for data that nobody reads back soon: recovery's pin
// and replay. It saves a page of cache for every page written, which on a machine whose memory is
// cold costs more than the disk does.
//
// Threads: not thread safe; one owner.
#ifndef SALIUS_COMMON_BULK_WRITER_H_
#define SALIUS_COMMON_BULK_WRITER_H_

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/file.h"

namespace salius {

class BulkWriter {
 public:
  // For the regular file `fd`, open for writing; it stays the caller's, and open while this lives.
  // Where the file system takes no O_DIRECT, every write goes through `fd`.
  explicit BulkWriter(int fd) : fd_(fd) {}

  // As PwritevFull: all parts, one after the other, from offset `off`. The whole blocks of a long
  // write go straight to the device, the rest into the page cache. Afterwards every reader sees the
  // bytes, and a sync of `fd` makes them durable. After an error any part of them may have been
  // written.
  absl::Status Write(absl::Span<const iovec> parts, int64_t off);

 private:
  // Writes the `size` first bytes of the buffer.
  absl::Status WriteBuffer(int64_t off, size_t size);
  bool OpenDirect();

  struct Free {
    void operator()(void* memory) const;
  };
  const int fd_;
  UniqueFd direct_;  // of the same file; none before the first long write
  bool refused_ = false;
  std::unique_ptr<uint8_t, Free> buffer_;  // aligned; with `direct_`
};

}  // namespace salius

#endif  // SALIUS_COMMON_BULK_WRITER_H_
