#include "common/threads.h"

#include <atomic>
#include <system_error>
#include <utility>

#include "common/log.h"

namespace salius {

std::thread StartThread(std::function<void()> run) { return std::thread(std::move(run)); }

bool AddThread(std::vector<std::thread>& threads, std::function<void()> run,
               const ThreadStarter& start) {
  try {
    threads.push_back(start(std::move(run)));
    return true;
  } catch (const std::system_error& error) {
    static std::atomic<bool> logged{false};
    if (!logged.exchange(true)) {
      SLOG_WARN("no more threads can be started, {} of a kind do its work: {}", threads.size(),
                error.what());
    }
    return false;
  }
}

}  // namespace salius
