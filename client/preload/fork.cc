// New processes: fork(2), vfork(2), _Fork(3), clone(2).
//
// fork(2), daemon(3) and forkpty(3) are seen by a pthread_atfork(3) handler (library.cc). A child that
// the C library did not make by these does not have its own thread id there, and no list of robust
// locks. So a clone(2) that does what fork(2) does is made by _Fork(3), and after another one the
// child takes no lock. One that shares descriptors and no memory is refused with EINVAL: neither
// process could know which files its descriptors are.
//
// A child of vfork(2) runs in its parent's memory with descriptors of its own: while one lives
// (salius_preload_borrowers), a call looks at the process id, and in the child it neither changes
// the table nor takes a lock.
#include <sched.h>
#include <signal.h>
#include <sys/types.h>

#include <cerrno>
#include <cstdarg>

#include "client/preload/export.h"
#include "client/preload/library.h"
#include "client/preload/raw_call.h"
#include "client/preload/real_calls.h"

// The parent returns to a stack that the child has used, so vfork has no frame: it keeps the
// return address in a register over the system call, as the C library's does.
__asm__(R"(
  .pushsection .text
  .globl vfork
  .type vfork, @function
  .hidden salius_preload_started
  .hidden salius_preload_borrowers
vfork:
  movl salius_preload_started(%rip), %esi
  testl %esi, %esi
  je 1f
  lock incl salius_preload_borrowers(%rip)
1:
  popq %rdi
  movl $58, %eax
  syscall
  pushq %rdi
  testq %rax, %rax
  je 3f
  testl %esi, %esi
  je 2f
  lock decl salius_preload_borrowers(%rip)
2:
  cmpq $-4095, %rax
  jae 4f
3:
  ret
4:
  negl %eax
  pushq %rax
  call __errno_location@PLT
  popq %rdx
  movl %edx, (%rax)
  movl $-1, %eax
  ret
  .size vfork, .-vfork
  .popsection
)");

namespace salius::preload {
namespace {

struct Beginning {
  int (*function)(void*);
  void* argument;
};

// The first function of a child with memory of its own.
int BeginChild(void* beginning) {
  const Beginning begun = *static_cast<Beginning*>(beginning);
  library.AfterUnknownFork();
  return begun.function(begun.argument);
}

// Does what a clone(2) does that asks for nothing but the signal SIGCHLD.
int ForkAndRun(int (*function)(void*), void* argument) {
  const pid_t child = real_calls._Fork();
  if (child != 0) return child;
  library.AfterFork();
  Raw(SYS_exit_group, function(argument));
  __builtin_unreachable();
}

}  // namespace
}  // namespace salius::preload

using salius::preload::library;
using salius::preload::real_calls;

SALIUS_INTERPOSE(pid_t, _Fork) {
  const pid_t child = real_calls._Fork();
  if (child == 0 && library.on()) library.AfterFork();
  return child;
}

SALIUS_INTERPOSE(int, clone, int (*function)(void*), void* stack, int flags, void* argument, ...) {
  va_list rest;
  va_start(rest, argument);
  void* parent_tid = va_arg(rest, void*);
  void* tls = va_arg(rest, void*);
  void* child_tid = va_arg(rest, void*);
  va_end(rest);
  const bool borrows = (flags & CLONE_VM) != 0;
  if (!library.on() || (borrows && (flags & CLONE_FILES) != 0)) {
    return real_calls.clone(function, stack, flags, argument, parent_tid, tls, child_tid);
  }
  if (flags == SIGCHLD && function != nullptr && stack != nullptr) {
    return salius::preload::ForkAndRun(function, argument);
  }
  if (!borrows && (flags & CLONE_FILES) != 0 && library.logs()) {
    errno = EINVAL;
    return -1;
  }
  if (!borrows) {
    // The child has a copy of this frame.
    salius::preload::Beginning beginning = {function, argument};
    return real_calls.clone(salius::preload::BeginChild, stack, flags, &beginning, parent_tid, tls,
                            child_tid);
  }
  salius_preload_borrowers.fetch_add(1);
  const int child = real_calls.clone(function, stack, flags, argument, parent_tid, tls, child_tid);
  // Only then the child is known to have ended or to have a program of its own.
  if (child < 0 || (flags & CLONE_VFORK) != 0) salius_preload_borrowers.fetch_sub(1);
  return child;
}
