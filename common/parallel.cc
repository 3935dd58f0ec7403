#include "common/parallel.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "common/host.h"

namespace salius {

void OnAllCpus(size_t count, const std::function<void(size_t)>& one) {
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < count; i = next++) one(i);
  };
  std::vector<std::thread> threads;
  const size_t cpus = AvailableCpus();
  for (size_t i = 1; i < std::min(count, cpus); ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace salius
