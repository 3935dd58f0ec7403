#include "common/bulk_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"

namespace salius {
namespace {

// A multiple of every device's block; memory, offset and length are multiples of it.
constexpr size_t kBlock = 4096;
constexpr size_t kBufferBytes = size_t{4} << 20;  // one write to the device
// Below this the page cache is faster.
constexpr size_t kLong = size_t{256} << 10;

size_t TotalBytes(absl::Span<const iovec> parts) {
  size_t total = 0;
  for (const iovec& part : parts) total += part.iov_len;
  return total;
}

// Copies bytes out of a list of parts, in order.
class Gather {
 public:
  explicit Gather(absl::Span<const iovec> parts) : parts_(parts) {}

  void Copy(uint8_t* to, size_t size) {
    Each(size, [&to](const uint8_t* from, size_t n) {
      std::memcpy(to, from, n);
      to += n;
    });
  }
  // Returns the next `size` bytes as parts, not copied.
  std::vector<iovec> Take(size_t size) {
    std::vector<iovec> taken;
    Each(size, [&taken](const uint8_t* from, size_t n) {
      taken.push_back({const_cast<uint8_t*>(from), n});
    });
    return taken;
  }

 private:
  template <typename Visit>
  void Each(size_t size, Visit visit) {
    while (size > 0) {
      const iovec& part = parts_[at_];
      const size_t n = std::min(size, part.iov_len - done_);
      if (n > 0) visit(static_cast<const uint8_t*>(part.iov_base) + done_, n);
      size -= n;
      done_ += n;
      if (done_ == part.iov_len) {
        ++at_;
        done_ = 0;
      }
    }
  }

  absl::Span<const iovec> parts_;
  size_t at_ = 0;    // the part that comes next
  size_t done_ = 0;  // bytes of it that are taken
};

}  // namespace

void BulkWriter::Free::operator()(void* memory) const { free(memory); }

bool BulkWriter::OpenDirect() {
  if (direct_.valid()) return true;
  if (refused_) return false;
  absl::StatusOr<UniqueFd> opened =
      OpenAt(AT_FDCWD, absl::StrCat("/proc/self/fd/", fd_), O_WRONLY | O_DIRECT);
  if (opened.ok()) buffer_.reset(static_cast<uint8_t*>(aligned_alloc(kBlock, kBufferBytes)));
  refused_ = !opened.ok() || buffer_ == nullptr;
  if (!refused_) direct_ = *std::move(opened);
  return !refused_;
}

absl::Status BulkWriter::WriteBuffer(int64_t off, size_t size) {
  const iovec part = {buffer_.get(), size};
  if (direct_.valid()) {
    absl::Status status = PwritevFull(direct_.get(), {&part, 1}, off);
    if (StatusErrno(status) != EINVAL) return status;
    // The file system opens with O_DIRECT, but refuses these blocks.
    direct_.Reset();
    refused_ = true;
  }
  return PwritevFull(fd_, {&part, 1}, off);
}

absl::Status BulkWriter::Write(absl::Span<const iovec> parts, int64_t off) {
  const size_t total = TotalBytes(parts);
  if (total < kLong || off < 0 || !OpenDirect()) return PwritevFull(fd_, parts, off);
  const size_t head = (kBlock - static_cast<uint64_t>(off) % kBlock) % kBlock;
  const size_t blocks = (total - head) / kBlock * kBlock;
  Gather gather(parts);
  absl::Status status = PwritevFull(fd_, gather.Take(head), off);
  off += static_cast<int64_t>(head);
  for (size_t done = 0; status.ok() && done < blocks;) {
    const size_t size = std::min(blocks - done, kBufferBytes);
    gather.Copy(buffer_.get(), size);
    status = WriteBuffer(off, size);
    off += static_cast<int64_t>(size);
    done += size;
  }
  if (!status.ok()) return status;
  return PwritevFull(fd_, gather.Take(total - head - blocks), off);
}

}  // namespace salius
