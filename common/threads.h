// Adds threads to a pool in a process that must not end when there is no room for one more: a limit
// of processes is reached, or memory is.
#pragma once

#include <functional>
#include <thread>
#include <vector>

namespace salius {

// Starts a thread that runs the function. Throws std::system_error when it cannot; for tests,
// anything may stand in for StartThread.
using ThreadStarter = std::function<std::thread(std::function<void()>)>;
std::thread StartThread(std::function<void()> run);

// Adds a thread that runs the function. Returns false, and logs the first time in the process, when
// none can be started: then `threads` is unchanged, and the function is not called.
bool AddThread(std::vector<std::thread>& threads, std::function<void()> run,
               const ThreadStarter& start);

}  // namespace salius
