// Whether a program can be run under the library, judged before execve(2).
//
// Makes raw system calls only and allocates nothing: it runs in children of vfork(2).
#pragma once

namespace salius::preload {

enum class Verdict {
  kRuns,        // loads the library; or the kernel refuses it for a reason of its own
  kStatic,      // has no dynamic linker, so its calls are not seen
  kSetId,       // gains an identity or capabilities: ld.so(8) ignores LD_PRELOAD for it
  kUnreadable,  // may be executed but not read, so that it cannot be judged
  kOther,       // for another C library or another machine: the library cannot be loaded
  kGo,          // a Go program: it makes its system calls itself, past the C library
};

// Judges the program at `path` under the directory descriptor `directory` (AT_FDCWD: the working
// directory). A script is judged by its interpreter.
Verdict JudgeProgram(int directory, const char* path);

// Returns why such a program is not started; "" for kRuns.
const char* VerdictText(Verdict verdict);

}  // namespace salius::preload
