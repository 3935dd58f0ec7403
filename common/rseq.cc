#include "common/rseq.h"

#include <sys/rseq.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

namespace salius {

bool LeaveRestartableSequences() {
  // The size that the C library registers; __rseq_size is that of the features in use, since 2.40.
  constexpr unsigned kRegisteredBytes = 32;
  if (__rseq_size == 0) return false;
  auto* const area = static_cast<std::byte*>(__builtin_thread_pointer()) + __rseq_offset;
  return syscall(SYS_rseq, area, kRegisteredBytes, RSEQ_FLAG_UNREGISTER, RSEQ_SIG) == 0;
}

}  // namespace salius
