#include "storage/backing.h"

#include "common/check.h"

namespace salius {

void BackingFd::Reset() {
  if (number_ < 0) return;
  const int number = Release();
  if (backing_ != nullptr) return backing_->Close(number);
  UniqueFd kernel(number);
  kernel.Reset();
}

absl::Status Backing::Pwrite(int fd, std::string_view data, uint64_t offset) {
  // pwritev only reads, although iovec is not const.
  const iovec part = {const_cast<char*>(data.data()), data.size()};
  return Pwritev(fd, {&part, 1}, offset);
}

Backing::LongWrite Backing::LongWrites(int fd) {
  return [this, fd](absl::Span<const iovec> parts, uint64_t offset) {
    return Pwritev(fd, parts, offset);
  };
}

}  // namespace salius
