// The peer of a call that a server handles: its identity and its address.
//
// Threads: any.
#pragma once

#include <grpcpp/grpcpp.h>
#include <sys/types.h>

#include <optional>
#include <string>

#include "common/keys/identity.h"

namespace salius {

struct Caller {
  // From the certificate with which it was authenticated; none without keys, and for a certificate
  // without exactly one identity.
  std::optional<keys::Identity> identity;
  std::string address;  // "10.0.0.1:2345"; empty: unknown.
  // The user at a unix socket of this host, as the kernel names it.
  std::optional<uid_t> local_user = std::nullopt;

  // Returns whether it is known who calls.
  bool authenticated() const { return identity.has_value() || local_user.has_value(); }
  // Returns "client/web1", or "local/UID" for a user of this host; "" when it is not known.
  std::string name() const;
  // Returns whether it may act on any volume: an operator, or root of this host.
  bool is_operator() const {
    return (identity && identity->kind == keys::Kind::kOperator) || local_user == uid_t{0};
  }
  // Returns "client/web1 at 10.0.0.1:2345" or "local/UID", as far as it is known.
  std::string ToString() const;
};

// Returns the caller of a call; null: a call that came without gRPC.
Caller CallerOf(const grpc::ServerContextBase* context);

}  // namespace salius
