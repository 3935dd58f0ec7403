// The files with keys that a process reads: NAME.pem and, in the same directory, ca.pem.
//
//   NAME.pem   the certificate, the certificates of intermediate authorities, the private key. They
//              are one file, so that one rename(2) replaces all of them.
//   ca.pem     the certificates of the authorities that are trusted; several while one replaces
//              another
//
// Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/keys/x509.h"

namespace salius::keys {

inline constexpr std::string_view kAuthoritiesFile = "ca.pem";
inline constexpr std::string_view kAuthorityKeyFile = "ca.key";

// Reads a file of PEM. A secret file must belong to this user or root, and other users must have no
// rights on it; another file they must not be able to write. A symbolic link is followed.
//
//   NOT_FOUND           there is no such file
//   PERMISSION_DENIED   the rule above is broken, or the file cannot be opened; says the remedy
//   DATA_LOSS           it is no file, or is too large
enum class Secrecy { kSecret, kPublic };
absl::StatusOr<std::string> ReadPemFile(const std::string& path, Secrecy secrecy);

// The certificate that a process shows to its peers, its key, and the authorities that it trusts.
struct Keys {
  Certificate certificate;  // Has an identity.
  KeyPair pair;
  std::string roots_pem;
};

// Reads `path` and the ca.pem beside it, and checks them at the time `now_s` (seconds since 1970).
// Each error names the file:
//
//   NOT_FOUND, PERMISSION_DENIED   as ReadPemFile
//   DATA_LOSS                      a file is written in part, damaged, or lacks a block; the
//                                  private key is of another certificate
//   FAILED_PRECONDITION            as VerifyChain; the certificate has no identity
absl::StatusOr<Keys> LoadKeys(const std::string& path, int64_t now_s);

// Reads them likewise and checks all but the dates and the authority. For a command that shows
// them.
absl::StatusOr<Keys> LoadKeysUnverified(const std::string& path);

}  // namespace salius::keys
