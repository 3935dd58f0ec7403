// Tells the thread sanitizer an order that the kernel makes and the sanitizer cannot see: changes
// to a node, and to its handles and answers, that were made before an answer are visible to the
// next request about that node, whichever worker reads it. Does nothing in other builds.
#pragma once

#include <cstdint>

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace salius {

#if defined(__SANITIZE_THREAD__)

class KernelOrder {
 public:
  // Notes that this thread begins a request about `nodeid`.
  static void Begin(uint64_t nodeid) {
    t_nodes[0] = t_nodes[1] = nodeid;
    __tsan_acquire(Key(nodeid));
  }
  // Notes that the request is also about this node.
  static void Use(uint64_t nodeid) {
    t_nodes[1] = nodeid;
    __tsan_acquire(Key(nodeid));
  }
  // Notes that the kernel is about to learn of the node, or of a change to it.
  static void Pass(uint64_t nodeid) { __tsan_release(Key(nodeid)); }
  // Notes that this thread is about to answer its request.
  static void Answer() {
    for (const uint64_t nodeid : t_nodes) Pass(nodeid);
  }

 private:
  // Returns a key for a node. Nodes may share one: the sanitizer then assumes an order that does
  // not exist, and never misses one that does.
  static void* Key(uint64_t nodeid) {
    static char keys[1 << 16];
    return &keys[nodeid % sizeof(keys)];
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
