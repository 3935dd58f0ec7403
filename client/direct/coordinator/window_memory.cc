#include "client/direct/coordinator/window_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace salius::direct {
namespace {

// The address space of the coordinator beside the window: stacks and heaps of its threads. Without
// it a thread could not be started, which ends the process.
constexpr uint64_t kThreadBytes = uint64_t{2} << 30;

absl::Status CheckLimit(int resource, const char* flag, const char* what, uint64_t bytes) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0 ||
      limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= bytes) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("a direct volume needs ", bytes, " bytes of ", what, ", and the limit is ",
                   limit.rlim_cur, ": raise it (ulimit ", flag, " unlimited)"));
}

}  // namespace

absl::StatusOr<WindowMemory> WindowMemory::Make(const WindowSpec& spec) {
  const uint64_t bytes = SharedWindow::BytesFor(spec);
  // Beyond the first the kernel would end this process by a signal.
  SALIUS_RETURN_IF_ERROR(CheckLimit(RLIMIT_FSIZE, "-f", "shared memory", bytes));
  SALIUS_RETURN_IF_ERROR(CheckLimit(RLIMIT_AS, "-v", "address space", bytes + kThreadBytes));
  UniqueFd fd(::memfd_create("salius-window", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) {
    return ErrnoStatus(errno,
                       "memfd_create(2), which must be allowed (by the seccomp profile of a "
                       "container, for example)");
  }
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return ErrnoStatus(errno, absl::StrCat("shared memory of ", bytes, " bytes"));
  }
  // A process that cut it would end the others by SIGBUS.
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return ErrnoStatus(errno, "shared memory (seals)");
  }
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) {
    return ErrnoStatus(errno, absl::StrCat("shared memory of ", bytes, " bytes"));
  }
  WindowMemory made(std::move(fd), memory, bytes);
  made.window_ = SharedWindow::Format(memory, spec);
  return made;
}

WindowMemory::WindowMemory(WindowMemory&& other) noexcept
    : fd_(std::move(other.fd_)),
      memory_(std::exchange(other.memory_, nullptr)),
      bytes_(other.bytes_),
      window_(other.window_) {}

WindowMemory::~WindowMemory() {
  if (memory_ != nullptr) ::munmap(memory_, bytes_);
}

}  // namespace salius::direct
