#include "common/lookup.h"

#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

namespace salius {

std::shared_ptr<Lookup> Lookup::Start(const HostPort& host_port, int family) {
  auto lookup = std::make_shared<Lookup>();
  try {
    std::thread([lookup, host_port, family] {
      Answer answer = ResolveAll(host_port, family);
      absl::MutexLock lock(&lookup->mutex_);
      lookup->answer_ = std::move(answer);
    }).detach();
  } catch (const std::system_error& error) {
    absl::MutexLock lock(&lookup->mutex_);
    lookup->answer_ = absl::UnavailableError(
        absl::StrCat("cannot ask for host \"", host_port.host, "\": ", error.what()));
  }
  return lookup;
}

std::optional<Lookup::Answer> Lookup::answer() const {
  absl::MutexLock lock(&mutex_);
  return answer_;
}

}  // namespace salius
