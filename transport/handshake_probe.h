// Finds out why a control connection cannot be made: gRPC reports the failure of a handshake
// without its reason. The probe connects to the same port and makes a handshake of its own. It
// sends no data and its finding is for the user alone.
//
// Threads: any.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "transport/credentials.h"

namespace salius {

// The replica that is called, and the keys of the caller.
struct CallTarget {
  std::string address;                // "host:port" of the channel.
  std::string host;                   // By which the user knows it; empty: that of `address`.
  std::shared_ptr<Credentials> keys;  // null: none.
};

// How long a probe takes at most.
inline constexpr std::chrono::milliseconds kProbeTime{1000};

// Returns why connections to the target fail and what to do; "" when nothing was found. Blocks for
// at most kProbeTime, if the address needs no resolver.
std::string WhyRefused(const CallTarget& target);

// Returns the certificates that the target shows to this host, PEM, its own first; "" without keys,
// or when there was no handshake. Nothing is checked. Blocks like WhyRefused.
std::string PeerCertificates(const CallTarget& target);

// Returns OK, or the call's error as "`peer`: reason". When no connection was made (UNAVAILABLE),
// the reason is that of WhyRefused, if there is one.
absl::Status ExplainedStatus(const grpc::Status& status, std::string_view peer,
                             const CallTarget& target);

}  // namespace salius
