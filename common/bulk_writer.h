// Long writes past the page cache (O_DIRECT), for data that is not read back soon: recovery's pin
// and replay. They save a page of cache for every page written. On a machine whose memory is cold
// that page costs more than the disk does.
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
  // Writes to the regular file `fd`, which is open for writing. The caller keeps `fd`, and keeps it
  // open while this lives. Where the file system takes no O_DIRECT, every write goes through `fd`.
  explicit BulkWriter(int fd) : fd_(fd) {}

  // Writes all parts, one after the other, from offset `off`, like PwritevFull. The whole blocks of
  // a long write go straight to the device, the rest into the page cache. Afterwards every reader
  // sees the bytes, and a sync of `fd` makes them durable. After an error any part of them may have
  // been written.
  absl::Status Write(absl::Span<const iovec> parts, int64_t off);

 private:
  // Writes the first `size` bytes of the buffer.
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
