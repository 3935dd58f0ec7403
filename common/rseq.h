// Restartable sequences, which the C library registers every thread for.
#pragma once

namespace salius {

// Unregisters the calling thread. The kernel then has nothing to write into its memory each time
// that it runs again. Where everything switches on one CPU, that is a fortieth of the cost of a
// short synchronous write (docs/history/performance.md). For threads that are switched to for every
// message. Our code does not use restartable sequences; sched_getcpu(3) still works, by a call.
// Returns false when the kernel refuses, or the thread is not registered: then nothing changes.
bool LeaveRestartableSequences();

}  // namespace salius
