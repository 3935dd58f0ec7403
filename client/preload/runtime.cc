// The functions that the compiler expects of a C++ runtime, which this library does not have.
extern "C" {
// In the place of a function without a definition: never called.
__attribute__((visibility("hidden"), noreturn)) void __cxa_pure_virtual() { __builtin_trap(); }
}
