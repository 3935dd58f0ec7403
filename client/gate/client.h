// A gated process's end of the gate of a mount: it registers, maps the page, and waits before an
// output.
//
// Needs the standard library and POSIX only, and makes its system calls by direct::RawCall, so that
// the preload library can use it within its own wrappers. Threads: a Joined may be used by any
// number of threads.
#pragma once

#include <cstdint>

#include "client/gate/page.h"

namespace salius::gate {

struct Joined {
  int error = 0;        // an errno; 0: all below is good
  char text[128] = {};  // the step that failed, or the daemon's reason
  int connection = -1;
  uint64_t connection_inode = 0;  // of fstat(2): a program may close what it does not know
  const Page* page = nullptr;
  uint64_t page_inode = 0;  // of fstat(2): another for each daemon that ever lived
};

// Registers this process at the gate socket `path` and maps the page. The connection has
// close-on-exec and a high number. On an error nothing is left open. Waits for at most 10 s.
// `session`: Hello::session.
Joined Join(const char* path, uint32_t session = 0);

// Ends the registration, or only this process's copies of it: a child made by fork calls this
// before it joins again.
void Leave(Joined& joined);

// Returns whether an output may be made now. Makes no system call.
inline bool MayOutput(const Joined& joined) { return joined.page->AwaitedByOutput() == 0; }

// Returns whether this process is registered still, and its volume has not failed. Makes two system
// calls.
bool IsRegistered(const Joined& joined);

// Ends early return for all processes of the session (kEndEarly). Returns 0 when the daemon has done
// it; EPIPE: the connection has ended; ENOTCONN: the program has closed it. Waits for a daemon that
// does not answer.
int EndEarly(const Joined& joined);

// Returns 0 when everything that was issued before this call is durable. EIO: the volume has
// failed, or its daemon has ended, before that. ENOTCONN: the program has closed the connection.
// Has the daemon send the records.
int AwaitOutput(const Joined& joined);

}  // namespace salius::gate
