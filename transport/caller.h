// The peer of a call that a server handles: its identity and its address.
//
// Threads: any.
#pragma once

#include <grpcpp/grpcpp.h>

#include <optional>
#include <string>

#include "common/keys/identity.h"

namespace salius {

struct Caller {
  // From the certificate with which it was authenticated; none without keys, and for a certificate
  // without exactly one identity.
  std::optional<keys::Identity> identity;
  std::string address;  // "10.0.0.1:2345"; empty: unknown.

  // Returns whether the connection was authenticated.
  bool authenticated() const { return identity.has_value(); }
  // Returns "client/web1 at 10.0.0.1:2345", as far as it is known.
  std::string ToString() const;
};

// Returns the caller of a call; null: a call that came without gRPC.
Caller CallerOf(const grpc::ServerContextBase* context);

}  // namespace salius
