// Certificates and private keys, as PEM texts: the one place that calls OpenSSL for them. Keys are
// ECDSA on P-256, signatures use SHA-256. Pure, apart from the random numbers of a new key and of a
// serial number.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/keys/identity.h"

namespace salius::keys {

// From an instant until another, which is not included. Seconds since 1970.
struct Validity {
  int64_t from_s = 0;
  int64_t until_s = 0;

  friend bool operator==(const Validity&, const Validity&) = default;
};

// Returns "2026-11-28 06:13:04 UTC".
std::string FormatTime(int64_t unix_s);

// A certificate's content. A certificate authority has no identity, and no hosts.
struct Content {
  std::string common_name;
  std::optional<Identity> identity;
  // Names and numeric addresses of the hosts that may have it.
  std::vector<std::string> hosts;
  Validity validity;
  // May sign other certificates.
  bool authority = false;
};

// A certificate as read.
struct Certificate {
  Content content;
  std::string issuer;  // The common name of its issuer.
  std::string serial;  // Hexadecimal digits.
};

// A private key with its certificates: its own, then those of intermediate authorities.
struct KeyPair {
  std::string key_pem;
  std::string chain_pem;
};

// Makes a private key. INTERNAL when OpenSSL cannot.
absl::StatusOr<std::string> MakePrivateKey();

// Signs a certificate for the key `key_pem` and returns the pair. The chain is the new certificate,
// then `issuer`'s chain without a certificate that signed itself. Without an issuer it signs
// itself.
// INVALID_ARGUMENT for a host that is neither a name nor an address.
absl::StatusOr<KeyPair> Sign(const Content& content, const std::string& key_pem,
                             const KeyPair* issuer);

// Returns the certificates of a text in their order; other blocks of PEM are skipped. DATA_LOSS
// when there is none, or when one is incomplete or damaged.
absl::StatusOr<std::vector<Certificate>> ReadCertificates(std::string_view pem);

// Returns the block of the private key of a text. DATA_LOSS when there is none, more than one, or
// when it is incomplete or damaged.
absl::StatusOr<std::string> ReadPrivateKey(std::string_view pem);

// Returns the block of each certificate of a text. Errors: as ReadCertificates.
absl::StatusOr<std::vector<std::string>> SplitCertificates(std::string_view pem);

// DATA_LOSS unless the private key belongs to the first certificate of `chain_pem`.
absl::Status CheckPair(const KeyPair& pair);

// Checks the first certificate of `chain_pem` at the time `now_s`: its signature leads to one of
// the authorities of `roots_pem`, through the others of `chain_pem`. FAILED_PRECONDITION names the
// certificate and the reason:
//
//   - its authority is another one, or has the same name and another key
//   - an intermediate authority's certificate is missing
//   - a certificate has expired or is not valid yet; the message has the clock's reading
//   - a certificate that is no authority signed another
absl::Status VerifyChain(std::string_view chain_pem, std::string_view roots_pem, int64_t now_s);

// Returns whether the text is the name or the numeric address of a host.
bool IsHost(const std::string& text);

// FAILED_PRECONDITION unless the first certificate names the host, a name or a numeric address.
absl::Status CheckHost(std::string_view chain_pem, const std::string& host);

}  // namespace salius::keys
