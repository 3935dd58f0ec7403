// The process of the command.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/run/program.h"
#include "common/file.h"

namespace salius::run {

struct ChildOptions {
  std::string file;                       // the program
  std::vector<std::string> arguments;     // its name first
  std::string library;                    // put before all else of LD_PRELOAD
  std::string socket;                     // of the coordinator; "": there is none
  std::string gates;                      // the value of gate::kGatesVariable; "": there are none
  // Takes the listener of the gate's filter, before the program starts: its outputs are gated. Null:
  // there is no gate.
  std::function<void(UniqueFd)> supervise;
  std::string held;  // the streams that this process holds (gate::kHeldVariable)
};

// Finds the program `command[0]` and the library. Errors as those of FindProgram;
// FAILED_PRECONDITION: the library is missing.
absl::StatusOr<ChildOptions> PrepareChild(const std::vector<std::string>& command,
                                          Programs programs);

// Starts the command: with this process's environment, the library and the socket, no signal
// blocked, and without io_uring and the kernel's asynchronous I/O, whose writes the library would
// not see (ENOSYS: programs fall back). It can gain no privilege (PR_SET_NO_NEW_PRIVS). Returns its
// process id. Errors: PERMISSION_DENIED and NOT_FOUND are those of execve(2); FAILED_PRECONDITION: the
// outputs cannot be gated here, with the reason.
absl::StatusOr<pid_t> StartChild(const ChildOptions& options);

}  // namespace salius::run
