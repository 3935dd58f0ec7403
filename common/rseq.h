// Restartable sequences, which the C library registers every thread for.
#pragma once

namespace salius {

// Takes the calling thread off: the kernel then has nothing to write into its memory each time that
// it runs again, a fortieth of what a short synchronous write costs where everything switches on
// one CPU (docs/performance.md). For threads that are switched to for every message. Nothing of
// ours uses restartable sequences; sched_getcpu(3) works on, by a call. Where the kernel refuses,
// or the thread was never registered, nothing changes.
void LeaveRestartableSequences();

}  // namespace salius
