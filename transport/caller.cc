#include "transport/caller.h"

#include <grpc/grpc_security_constants.h>

#include <string_view>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace salius {
namespace {

std::optional<keys::Identity> IdentityOf(const grpc::ServerContextBase& context) {
  const std::shared_ptr<const grpc::AuthContext> auth = context.auth_context();
  if (auth == nullptr || !auth->IsPeerAuthenticated()) return std::nullopt;
  std::optional<keys::Identity> found;
  for (const grpc::string_ref& uri : auth->FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME)) {
    const std::string_view text(uri.data(), uri.size());
    if (!keys::IsIdentityUri(text)) continue;
    const absl::StatusOr<keys::Identity> identity = keys::ParseIdentityUri(text);
    if (!identity.ok() || found) return std::nullopt;
    found = *identity;
  }
  return found;
}

// Returns gRPC's name of a peer without the family, from "ipv4:10.0.0.1:2345" or
// "ipv6:%5B::1%5D:2345". Returns "" for others.
std::string AddressOf(const grpc::ServerContextBase& context) {
  std::string peer = context.peer();
  const size_t family = peer.find(':');
  if (family == std::string::npos || !absl::StartsWith(peer, "ipv")) return "";
  peer.erase(0, family + 1);
  return absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}});
}

}  // namespace

std::string Caller::name() const {
  if (local_user) return absl::StrCat("local/", *local_user);
  return identity ? identity->ToString() : "";
}

std::string Caller::ToString() const {
  if (local_user) return name();
  const std::string at = address.empty() ? "an unknown peer" : address;
  return identity ? absl::StrCat(identity->ToString(), " at ", at) : at;
}

Caller CallerOf(const grpc::ServerContextBase* context) {
  if (context == nullptr) return {};
  return {IdentityOf(*context), AddressOf(*context)};
}

}  // namespace salius
