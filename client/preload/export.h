// Interposed functions: each has the C library's name in the program and a name of ours in this
// code, so that no declaration of a system header collides with it.
#pragma once

// Begins the definition of the interposed function `symbol` (the version script exports it).
// The definition's C++ name is interposed_SYMBOL.
#define SALIUS_INTERPOSE(result, symbol, ...)               \
  extern "C" __attribute__((visibility("default")))         \
  result interposed_##symbol(__VA_ARGS__) __asm__(#symbol); \
  extern "C" result interposed_##symbol(__VA_ARGS__)

// Declares an interposed function of another file.
#define SALIUS_INTERPOSED(result, symbol, ...) \
  extern "C" result interposed_##symbol(__VA_ARGS__) __asm__(#symbol)
