// Sets up the process of a mount: limits, memory, and its place in reclaim.
//
// Threads: the main thread, before others are made.
#pragma once

#include "absl/status/status.h"

namespace salius {

// Lifts the limit of a file's size, clears the umask, keeps memory reclaim from waiting for this
// process, and limits malloc's arenas. RESOURCE_EXHAUSTED: the limit of a file's size stays.
absl::Status PrepareProcess();

// Raises the limit of descriptors: an open file holds one, and a name in the kernel's cache another
// while there are enough.
void RaiseDescriptorLimit();

// Makes malloc keep freed memory. A checkpoint frees its records at once, and as many come again:
// if the memory went back to the system in between, every page would cost a fault.
void KeepFreedMemory();

}  // namespace salius
