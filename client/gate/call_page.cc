#include "client/gate/call_page.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>

#if !defined(__x86_64__)
#error "the gate knows the system calls of x86-64 only"
#endif

// salius_gate_entry is 0 until the page is mapped. The last jump makes the page return to the
// caller of salius_gate_call.
__asm__(R"(
  .pushsection .bss
  .globl salius_gate_entry
  .hidden salius_gate_entry
  .balign 8
  .type salius_gate_entry, @object
  .size salius_gate_entry, 8
salius_gate_entry:
  .zero 8
  .popsection

  .pushsection .text
  .globl salius_gate_call
  .hidden salius_gate_call
  .type salius_gate_call, @function
salius_gate_call:
  movq %rdi, %rax
  movq %rsi, %rdi
  movq %rdx, %rsi
  movq %rcx, %rdx
  movq %r8, %r10
  movq %r9, %r8
  movq 8(%rsp), %r9
  movq salius_gate_entry(%rip), %r11
  testq %r11, %r11
  je 1f
  jmp *%r11
1:
  syscall
  ret
  .size salius_gate_call, .-salius_gate_call

  .globl salius_plain_call
  .hidden salius_plain_call
  .type salius_plain_call, @function
salius_plain_call:
  movq %rdi, %rax
  movq %rsi, %rdi
  movq %rdx, %rsi
  movq %rcx, %rdx
  movq %r8, %r10
  movq %r9, %r8
  movq 8(%rsp), %r9
  syscall
  ret
  .size salius_plain_call, .-salius_plain_call
  .popsection
)");

extern "C" __attribute__((visibility("hidden"))) uint64_t salius_gate_entry;

namespace salius::gate {
namespace {

// endbr64; syscall; ret
constexpr unsigned char kCode[] = {0xF3, 0x0F, 0x1E, 0xFA, 0x0F, 0x05, 0xC3};

// Returns whether the page is there already: another object of this process has mapped it.
bool IsThere() {
  unsigned char found[sizeof(kCode)] = {};
  const iovec here = {found, sizeof(found)};
  const iovec there = {reinterpret_cast<void*>(kCallPage), sizeof(found)};
  const long self = salius_plain_call(SYS_getpid, 0, 0, 0, 0, 0, 0);
  // The kernel copies: the memory there may not be readable.
  return salius_plain_call(SYS_process_vm_readv, self, reinterpret_cast<long>(&here), 1,
                           reinterpret_cast<long>(&there), 1, 0) == sizeof(found) &&
         memcmp(found, kCode, sizeof(kCode)) == 0;
}

}  // namespace

int MapCallPage() {
  const auto address = static_cast<long>(kCallPage);
  const auto bytes = static_cast<long>(kCallPageBytes);
  const long mapped =
      salius_plain_call(SYS_mmap, address, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (mapped != address) {
    // A kernel before 4.17 takes the address as a hint.
    if (mapped >= 0) salius_plain_call(SYS_munmap, mapped, bytes, 0, 0, 0, 0);
    if (mapped != -EEXIST || !IsThere()) return mapped < 0 ? static_cast<int>(-mapped) : EEXIST;
    __atomic_store_n(&salius_gate_entry, kCallPage, __ATOMIC_RELEASE);
    return 0;
  }
  memcpy(reinterpret_cast<void*>(kCallPage), kCode, sizeof(kCode));
  const long sealed =
      salius_plain_call(SYS_mprotect, address, bytes, PROT_READ | PROT_EXEC, 0, 0, 0);
  if (sealed != 0) {
    salius_plain_call(SYS_munmap, address, bytes, 0, 0, 0, 0);
    return static_cast<int>(-sealed);
  }
  __atomic_store_n(&salius_gate_entry, kCallPage, __ATOMIC_RELEASE);
  return 0;
}

}  // namespace salius::gate
