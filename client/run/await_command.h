// The end of a command, and the signals that salius-run passes on to it.
#pragma once

#include <sys/types.h>

#include <string>

namespace salius::run {

// Blocks the signals that AwaitCommand waits for; before any thread is made.
void BlockSignals();

// Waits for the end of the command, a child, to which SIGTERM, SIGINT and SIGHUP are passed on.
// Returns its exit code, or kExitSignal and the number of the signal that ended it.
int AwaitCommand(pid_t child);

// Prints a message of salius-run to standard error.
void Say(const std::string& text);

}  // namespace salius::run
