// The accesses of the shipping code to memory, as steps of a simulated thread. The code of the
// shared window is compiled here once more with -fsanitize=thread. Then the compiler calls one of
// these functions before each access. Atomic operations are done here. The sanitizer's own library is
// not linked.
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tests/sim/direct_machine.h"

namespace {

void Touch(const volatile void* address) {
  salius::sim::DirectMachine* const machine = salius::sim::DirectMachine::current();
  if (machine != nullptr) machine->Touch(const_cast<const void*>(address));
}

}  // namespace

extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_read(void**) {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_atomic_thread_fence(int) {}
void __tsan_atomic_signal_fence(int) {}
void __tsan_read_range(void* address, size_t) { Touch(address); }
void __tsan_write_range(void* address, size_t) { Touch(address); }

#define SALIUS_ACCESS(size)                                           \
  void __tsan_read##size(void* address) { Touch(address); }           \
  void __tsan_write##size(void* address) { Touch(address); }          \
  void __tsan_volatile_read##size(void* address) { Touch(address); }  \
  void __tsan_volatile_write##size(void* address) { Touch(address); } \
  void __tsan_unaligned_read##size(void* address) { Touch(address); } \
  void __tsan_unaligned_write##size(void* address) { Touch(address); }
SALIUS_ACCESS(1)
SALIUS_ACCESS(2)
SALIUS_ACCESS(4)
SALIUS_ACCESS(8)
SALIUS_ACCESS(16)
#undef SALIUS_ACCESS

// There is one thread of the real kind, so these need not be atomic themselves.
#define SALIUS_CHANGE(bits, name, change)                                                        \
  uint##bits##_t __tsan_atomic##bits##_##name(volatile uint##bits##_t* at, uint##bits##_t value, \
                                              int) {                                             \
    Touch(at);                                                                                   \
    const uint##bits##_t before = *at;                                                           \
    *at = static_cast<uint##bits##_t>(change);                                                   \
    return before;                                                                               \
  }
#define SALIUS_ATOMIC(bits)                                                                        \
  uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t* at, int) {              \
    Touch(at);                                                                                     \
    return *at;                                                                                    \
  }                                                                                                \
  void __tsan_atomic##bits##_store(volatile uint##bits##_t* at, uint##bits##_t value, int) {       \
    Touch(at);                                                                                     \
    *at = value;                                                                                   \
  }                                                                                                \
  SALIUS_CHANGE(bits, exchange, value)                                                             \
  SALIUS_CHANGE(bits, fetch_add, before + value)                                                   \
  SALIUS_CHANGE(bits, fetch_sub, before - value)                                                   \
  SALIUS_CHANGE(bits, fetch_and, before& value)                                                    \
  SALIUS_CHANGE(bits, fetch_or, before | value)                                                    \
  SALIUS_CHANGE(bits, fetch_xor, before ^ value)                                                   \
  int __tsan_atomic##bits##_compare_exchange_strong(                                               \
      volatile uint##bits##_t* at, uint##bits##_t* expected, uint##bits##_t wanted, int, int) {    \
    Touch(at);                                                                                     \
    const bool same = *at == *expected;                                                            \
    if (same)                                                                                      \
      *at = wanted;                                                                                \
    else                                                                                           \
      *expected = *at;                                                                             \
    return same;                                                                                   \
  }                                                                                                \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile uint##bits##_t* at,                     \
                                                  uint##bits##_t* expected, uint##bits##_t wanted, \
                                                  int a, int b) {                                  \
    return __tsan_atomic##bits##_compare_exchange_strong(at, expected, wanted, a, b);              \
  }                                                                                                \
  uint##bits##_t __tsan_atomic##bits##_compare_exchange_val(                                       \
      volatile uint##bits##_t* at, uint##bits##_t expected, uint##bits##_t wanted, int, int) {     \
    Touch(at);                                                                                     \
    const uint##bits##_t before = *at;                                                             \
    if (before == expected) *at = wanted;                                                          \
    return before;                                                                                 \
  }
SALIUS_ATOMIC(8)
SALIUS_ATOMIC(16)
SALIUS_ATOMIC(32)
SALIUS_ATOMIC(64)
#undef SALIUS_ATOMIC
#undef SALIUS_CHANGE
}  // extern "C"
