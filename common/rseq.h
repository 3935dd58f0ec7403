// Restartable sequences, which the C library registers every thread for.
#pragma once

namespace salius {

// Takes the calling thread off: the kernel then has nothing to write into its memory each time that
// it runs again, a fortieth of what a short synchronous write costs where everything switches on
// one CPU (docs/performance.md). For threads that are switched to for every message. Nothing of
// ours uses restartable sequences; sched_getcpu(3) works on, by a call. False when the
// kernel refuses, or the thread is not registered: then nothing changes.
bool LeaveRestartableSequences();

}  // namespace salius
