#include "client/gate/memory.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <new>
#include <utility>

#include "absl/status/status.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace salius::gate {

absl::StatusOr<std::unique_ptr<Memory>> Memory::Make() {
  UniqueFd fd(::memfd_create("salius-gate", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return ErrnoStatus(errno, "memfd_create");
  if (::ftruncate(fd.get(), kPageBytes) != 0) return ErrnoStatus(errno, "gate page");
  void* const at = ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) return ErrnoStatus(errno, "gate page");
  // Later maps and writes are refused; this one stays.
  constexpr int kSeals = F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) {
    const int err = errno;
    ::munmap(at, kPageBytes);
    if (err != EINVAL) return ErrnoStatus(err, "seals of the gate page");
    return absl::UnimplementedError(
        "this kernel cannot seal memory against later writes (F_SEAL_FUTURE_WRITE, Linux 5.1)");
  }
  return std::unique_ptr<Memory>(new Memory(std::move(fd), new (at) Page()));
}

Memory::~Memory() { ::munmap(page_, kPageBytes); }

void Memory::Wake() {
  page_->news.fetch_add(1, std::memory_order_acq_rel);
  ::syscall(SYS_futex, &page_->news, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace salius::gate
