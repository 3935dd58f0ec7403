// The identity in a certificate of Salius: a kind and a name. Pure.
//
// As text it is "client/web1". In a certificate it is the URI "salius:client/web1" among the
// subject's alternative names; a certificate has exactly one.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace salius::keys {

enum class Kind {
  kReplica,   // A replica's server.
  kClient,    // A host that mounts, runs or recovers volumes.
  kOperator,  // An administrator, who may act on any volume.
};

struct Identity {
  Kind kind = Kind::kClient;
  // 1 to 55 of the characters a-z, 0-9, '.', '_', '-'; the first is a letter or a digit.
  std::string name;

  // Returns "client/web1".
  std::string ToString() const;
  // Returns "salius:client/web1".
  std::string ToUri() const;

  friend bool operator==(const Identity&, const Identity&) = default;
};

// Parses "client/web1". INVALID_ARGUMENT says what is accepted.
absl::StatusOr<Identity> ParseIdentity(std::string_view text);

// Returns whether the URI has the scheme "salius".
bool IsIdentityUri(std::string_view uri);

// Parses "salius:client/web1". Errors: as ParseIdentity.
absl::StatusOr<Identity> ParseIdentityUri(std::string_view uri);

}  // namespace salius::keys
