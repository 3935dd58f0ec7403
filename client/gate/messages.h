// The messages at the gate socket of a mount: SOCK_SEQPACKET, /run/salius/<uuid>.gate.
//
//     gated process                            daemon
//        | connect                                |
//        | -------- Hello ----------------------> |  registers the process that connected
//        | <------- Welcome, memfd of the page -- |
//        |                                        |
//        | -------- Await{seq} -----------------> |  an output waits: sends the records
//        |      sleeps on Page::news              |
//        | -------- Await{kEndEarly} -----------> |  all processes of the session are outside
//        | <------- Await{kEndEarly} ------------ |
//        |                                        |
//        '--------- end of file ----------------- '  the process is registered no more
//
// The connection has close-on-exec: a program that was started by exec registers again. A child
// made by fork closes its copy and registers itself.
//
// The daemon trusts a process that registers to gate its outputs. It is no protection against a
// process that does not: such a process could only see what its own user may read anyway, before it
// is durable.
//
// Needs the standard library only.
#pragma once

#include <cstdint>

namespace salius::gate {

inline constexpr uint64_t kHelloMagic = 0x314F4C4C45484753;  // "SGHELLO1"
inline constexpr uint32_t kGateVersion = 1;

struct Hello {
  uint64_t magic = kHelloMagic;
  uint32_t version = kGateVersion;
  // The processes of one command have the same; 0: this process is alone.
  uint32_t session = 0;
};
static_assert(sizeof(Hello) == 16);

struct Welcome {
  uint64_t magic = kHelloMagic;
  uint32_t version = kGateVersion;
  int32_t error = 0;    // an errno: refused, without a descriptor, for the reason `text`
  char text[112] = {};  // ends with a zero
};
static_assert(sizeof(Welcome) == 128);

// In the place of a number of Await: a process of the session can show something outside without a
// call. From the answer on, the session's processes are outside, now and later: their synchronous
// calls wait. They keep the page.
inline constexpr uint64_t kEndEarly = UINT64_MAX;

// An output waits until `seq`, which was read from Page::issued, is durable.
struct Await {
  uint64_t seq = 0;
};
static_assert(sizeof(Await) == 8);

}  // namespace salius::gate
