// The page of the gated system calls: `syscall; ret` at a fixed address.
//
// A seccomp filter sees the address of each system call instruction. The preload library waits
// where that is needed, and then makes its calls through this page, which the filter allows. An
// output from any other instruction (stdio inside the C library, a raw system call, a program
// without the library) goes to the supervisor of salius-run. A process that could not map the page
// is only slower.
//
// Any code may call into the page: it keeps programs correct, it does not imprison them.
//
// Needs the C library's headers only. Async-signal-safe, also in children of vfork(2).
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {
// Makes a system call: through the page once it is mapped, else by an instruction of its own.
// Returns what the kernel returns: a failure is -errno. errno stays.
long salius_gate_call(long number, long a, long b, long c, long d, long e, long f);
// Makes it by an instruction of its own, which the filter does not know.
long salius_plain_call(long number, long a, long b, long c, long d, long e, long f);
}

namespace salius::gate {

// Far from where the kernel, the dynamic linker and the sanitizers put anything.
inline constexpr uint64_t kCallPage = 0x2000'5A11'0000;
inline constexpr size_t kCallPageBytes = 4096;

// Maps the page in this process, or uses the one that is mapped there already. Returns 0, or the errno of mmap(2) or mprotect(2): calls are then
// made as before. A child of fork(2) has the page; a new program has not.
int MapCallPage();

}  // namespace salius::gate
