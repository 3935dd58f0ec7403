#include "common/lookup.h"

#include <thread>
#include <utility>

namespace salius {

std::shared_ptr<Lookup> Lookup::Start(const HostPort& host_port, int family) {
  auto lookup = std::make_shared<Lookup>();
  std::thread([lookup, host_port, family] {
    Answer answer = ResolveAll(host_port, family);
    absl::MutexLock lock(&lookup->mutex_);
    lookup->answer_ = std::move(answer);
  }).detach();
  return lookup;
}

std::optional<Lookup::Answer> Lookup::answer() const {
  absl::MutexLock lock(&mutex_);
  return answer_;
}

}  // namespace salius
