#include "client/mount/address_checks.h"

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/net.h"
#include "common/runbook.h"

namespace salius {

absl::Status CheckReplicas(const std::vector<std::string>& replicas, bool anywhere) {
  const absl::StatusOr<std::vector<SocketAddress>> addresses =
      ResolveReplicas(replicas, Unresolved::kIsLeftEmpty);
  if (absl::IsNotFound(addresses.status()) || absl::IsFailedPrecondition(addresses.status())) {
    return absl::UnavailableError(addresses.status().message());  // names may lead elsewhere later
  }
  SALIUS_RETURN_IF_ERROR(addresses.status());
  for (size_t i = 0; i < replicas.size() && !anywhere; ++i) {
    const SocketAddress& address = (*addresses)[i];
    if (address.length == 0 || IsLoopback(address)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "replica ", replicas[i], " is another host, and records travel unencrypted: ",
        "give the option \"keys\", or \"insecure\" if the network is trusted; ",
        SeeRunbook("insecure-needed")));
  }
  return absl::OkStatus();
}

absl::Status CheckMetrics(const std::string& metrics, bool insecure) {
  if (metrics.empty()) return absl::OkStatus();
  const absl::StatusOr<HostPort> host_port = ParseHostPort(metrics, 0);
  if (!host_port.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("metrics: ", host_port.status().message()));
  }
  const absl::StatusOr<SocketAddress> address = Resolve(*host_port);
  if (!address.ok()) {
    return absl::UnavailableError(absl::StrCat("metrics: ", address.status().message()));
  }
  if (insecure || IsLoopback(*address)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("metrics ", metrics,
                   " can be read from other hosts; if the network is trusted, give the option ",
                   "\"insecure\"; ", SeeRunbook("insecure-needed")));
}

}  // namespace salius
