// The directory of a private certificate authority, which `salius keys` makes and keeps:
//
//   ca.key          the authority's private key; never changes
//   ca.pem          the authority's certificate; a user may add those of other authorities
//   KIND-NAME.pem   the file of an identity (common/keys/key_file.h)
//
// The directory has mode 0700, its files 0600. Each file is replaced by rename(2) and synced, so
// after a crash it has the old content or the new. Threads: one at a time; processes take turns by
// flock(2) on the directory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file.h"
#include "common/keys/identity.h"
#include "common/keys/x509.h"

namespace salius::keys {

// A certificate is valid from this long before it is made: the clocks of two hosts differ.
inline constexpr int64_t kClockSlackS = 3600;
inline constexpr int64_t kDayS = 86'400;

// Returns the end of the first two thirds of the validity, in seconds since 1970: the time to
// renew.
int64_t DueAt(const Validity& validity);

// Returns "client-web1.pem".
std::string FileNameOf(const Identity& identity);

// Returns INVALID_ARGUMENT, which says why, if the identity cannot be issued with these hosts:
//
//   a replica without a host
//   a host for a client or an operator
//   a host that is neither a name nor a numeric address
absl::Status CheckHosts(const Identity& identity, const std::vector<std::string>& hosts);

class Authority {
 public:
  // Makes the directory, unless it is there and empty of an authority, with a new authority in it
  // that is valid for `days` from `now_s` on.
  //
  //   ALREADY_EXISTS      it has ca.key or ca.pem
  //   PERMISSION_DENIED   other users have rights on the directory, or it is not this user's
  //   UNAVAILABLE         another process has its lock
  static absl::StatusOr<Authority> Create(const std::string& directory, const std::string& name,
                                          int64_t days, int64_t now_s);

  // Opens one that is there. NOT_FOUND without ca.key or ca.pem, DATA_LOSS when ca.pem has no
  // certificate of ca.key; else the errors of Create and of ReadPemFile.
  static absl::StatusOr<Authority> Open(const std::string& directory);

  // Makes a key and a certificate of `days`, and writes them to the identity's file. Returns its
  // path.
  //
  //   ALREADY_EXISTS        there is such a file
  //   INVALID_ARGUMENT      as CheckHosts
  //   FAILED_PRECONDITION   the authority's certificate has expired, is not valid yet, or ends
  //                         first
  absl::StatusOr<std::string> Issue(const Identity& identity, const std::vector<std::string>& hosts,
                                    int64_t days, int64_t now_s);

  // Replaces the identity's file by one with a new key, and the same hosts and length of validity.
  // NOT_FOUND when there is none; else as Issue. Returns its path.
  absl::StatusOr<std::string> Renew(const Identity& identity, int64_t now_s);

  // Replaces the authority's certificate by one of the same key and length of validity.
  // Certificates that it signed stay valid. Returns the path of ca.pem.
  absl::StatusOr<std::string> RenewOwn(int64_t now_s);

  // Returns the identities that have a file, sorted by its name.
  absl::StatusOr<std::vector<Identity>> Issued() const;
  // Reads the certificate of one. Errors: as ReadPemFile, DATA_LOSS.
  absl::StatusOr<Certificate> CertificateOf(const Identity& identity) const;
  const Certificate& own() const { return own_; }

 private:
  Authority(std::string path, UniqueFd directory);

  absl::Status Read();
  absl::StatusOr<std::string> Write(const Identity& identity, const std::vector<std::string>& hosts,
                                    int64_t seconds, int64_t now_s);
  std::string PathOf(std::string_view name) const;

  std::string path_;
  UniqueFd directory_;  // Locked.
  KeyPair pair_;
  Certificate own_;
  std::string others_pem_;  // The other certificates of ca.pem.
};

}  // namespace salius::keys
