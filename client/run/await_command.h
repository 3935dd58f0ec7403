// The end of a command and of the processes that it leaves behind, and the signals that salius-run
// passes on to it.
#pragma once

#include <sys/types.h>

#include <string>

namespace salius::run {

// Blocks the signals that AwaitCommand waits for; before any thread is made.
void BlockSignals();

// Makes processes that the command leaves behind children of this process when their own parent has
// ended, so that AwaitLeftBehind sees them. Before the command starts. Children of others are not
// to be awaited: where this process has children already (a shell started them and then became this
// program), or is process 1, AwaitLeftBehind waits for nothing.
void AdoptOrphans();

// Waits until this process has no child any more, for at most `timeout_ms`; below 0: for ever.
// Returns whether it waits no longer. After BlockSignals, AdoptOrphans and AwaitCommand.
bool AwaitLeftBehind(int timeout_ms);

// Waits for the end of the command, a child, to which SIGTERM, SIGINT and SIGHUP are passed on.
// Returns its exit code, or kExitSignal and the number of the signal that ended it. Other children
// that end meanwhile are reaped.
int AwaitCommand(pid_t child);

// Prints a message of salius-run to standard error.
void Say(const std::string& text);

}  // namespace salius::run
