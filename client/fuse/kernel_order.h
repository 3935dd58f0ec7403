// Tells the thread sanitizer what the kernel orders, which it cannot see: what was done to a node,
// and to the handles and answers that belong to it, before an answer is there for the next request
// about that node, whichever worker reads it. Nothing at all in other builds.
#pragma once

#include <cstdint>

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace salius {

#if defined(__SANITIZE_THREAD__)

class KernelOrder {
 public:
  // This thread begins with a request about `nodeid`.
  static void Begin(uint64_t nodeid) {
    t_nodes[0] = t_nodes[1] = nodeid;
    __tsan_acquire(Key(nodeid));
  }
  // The request is about this node, too.
  static void Use(uint64_t nodeid) {
    t_nodes[1] = nodeid;
    __tsan_acquire(Key(nodeid));
  }
  // The kernel is about to learn of the node, or of what was done to it.
  static void Pass(uint64_t nodeid) { __tsan_release(Key(nodeid)); }
  // This thread is about to answer the request it began with.
  static void Answer() {
    for (const uint64_t nodeid : t_nodes) Pass(nodeid);
  }

 private:
  // A node's number is its address, but the root's.
  static void* Key(uint64_t nodeid) {
    static char small_number;
    return nodeid <= 1 ? &small_number : reinterpret_cast<void*>(nodeid);
  }

  static inline thread_local uint64_t t_nodes[2] = {};
};

#else

class KernelOrder {
 public:
  static void Begin(uint64_t) {}
  static void Use(uint64_t) {}
  static void Pass(uint64_t) {}
  static void Answer() {}
};

#endif

}  // namespace salius
