// The messages at the gate socket of a mount: SOCK_SEQPACKET, /run/salius/<uuid>.gate.
//
//     gated process                            daemon
//        | connect                                |
//        | -------- Hello ----------------------> |  registers the process that connected
//        | <------- Welcome, memfd of the page -- |
//        |                                        |
//        | -------- Await{seq} -----------------> |  an output waits: sends the records
//        |      sleeps on Page::news              |
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
  uint32_t reserved = 0;
};
static_assert(sizeof(Hello) == 16);

struct Welcome {
  uint64_t magic = kHelloMagic;
  uint32_t version = kGateVersion;
  int32_t error = 0;    // an errno: refused, without a descriptor, for the reason `text`
  char text[112] = {};  // ends with a zero
};
static_assert(sizeof(Welcome) == 128);

// An output waits until `seq`, which was read from Page::issued, is durable.
struct Await {
  uint64_t seq = 0;
};
static_assert(sizeof(Await) == 8);

}  // namespace salius::gate
