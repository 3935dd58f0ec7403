// The system calls that may be outputs, and the seccomp filter that finds them. Pure.
//
//     call                                   from the call page    from elsewhere
//     an output of the table                 allowed               to the supervisor
//     io_uring_setup, io_setup               ENOSYS                ENOSYS
//     a call of another ABI (i386, x32)      ENOSYS                ENOSYS
//     prctl(kGateProbe)                      EALREADY              EALREADY
//     all others                             allowed               allowed
//
// The kernel remembers the calls of the last row and does not run the filter for them.
#pragma once

#include <linux/filter.h>

#include <cstdint>
#include <span>
#include <vector>

namespace salius::gate {

// When a call of the table is an output.
enum class Where : uint8_t {
  kAlways,
  kDescriptor,  // descriptor `a` leads outside
  kSendMessage,  // likewise; it may also pass descriptors: one message or several
  kLend,        // likewise; its pages stay shared with the reader
  kClose,       // descriptor `a` is closed: a stream outside gets its end of file
  kScan,        // any descriptor of the process may be closed
  kPath,        // a name is changed that is not in the volume: directory `a`, path `b`; and `c`, `d`
  kSignal,      // signal `b` goes to another process than the caller's own: process or thread `a`
  kMap,         // descriptor `a` is mapped shared
  kAttach,      // System V shared memory is attached
};

// Arguments are numbered from 0. -1: there is none; a path is then under the working directory.
struct OutputCall {
  int number;
  Where where;
  int8_t a = -1, b = -1, c = -1, d = -1;
};

// Returns all calls that may be outputs.
std::span<const OutputCall> OutputCalls();
// Returns the call with this number, or null.
const OutputCall* FindOutputCall(int number);

// Returns the filter. With it a command can gain no privilege (PR_SET_NO_NEW_PRIVS).
std::vector<sock_filter> GateFilter();

}  // namespace salius::gate
