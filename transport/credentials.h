// The keys of this process for its control channels: mutual TLS of gRPC. A null pointer to
// Credentials means "no keys": nothing is authenticated.
//
// The files are read again when they have changed: by a client for each new channel, by a server
// for each handshake. So a renewal needs no restart. A file that is damaged, written in part or has
// expired is not used: the last good ones are, an error is logged and
// salius_keys_refused_total counts it.
//
// Threads: any.
#pragma once

#include <grpcpp/grpcpp.h>
#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/keys/identity.h"
#include "common/keys/key_file.h"

namespace salius {

class Credentials {
 public:
  // Reads the file NAME.pem of `salius keys` and the ca.pem beside it. "" gives a null pointer.
  // Errors as keys::LoadKeys. `clock` outlives the credentials.
  static absl::StatusOr<std::shared_ptr<Credentials>> Load(const std::string& path,
                                                           Clock& clock = SystemClock());

  // Returns the identity that peers see.
  keys::Identity identity() const;
  // Returns a number that changes with the keys, after it has looked at the files. A channel that
  // was made with an earlier one has the old keys.
  uint64_t Generation();
  // Returns the present keys, after a look at the files.
  keys::Keys Current();

  // Returns credentials for a channel to a replica that the user knows as `host`, a name or a
  // numeric address. The peer must be a replica of a trusted authority, and the host must be in its
  // certificate.
  std::shared_ptr<grpc::ChannelCredentials> ForChannel(const std::string& host);
  // Returns credentials for a server. Callers must have a certificate of a trusted authority that
  // allows to call.
  static std::shared_ptr<grpc::ServerCredentials> ForServer(std::shared_ptr<Credentials> keys);

 private:
  // The results of stat(2) of the two files.
  struct Stamp {
    struct stat own = {}, authorities = {};
  };
  Credentials(std::string path, Clock& clock) : path_(std::move(path)), clock_(clock) {}
  static Stamp Look(const std::string& path);
  static bool Same(const Stamp& a, const Stamp& b);
  int64_t NowS() const { return clock_.RealtimeNanos() / 1'000'000'000; }
  // Reads the files again if they have changed.
  void Refresh() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  Clock& clock_;
  mutable absl::Mutex mutex_;  // Held while the files are read: others wait for the new keys.
  keys::Keys keys_ ABSL_GUARDED_BY(mutex_);
  Stamp stamp_ ABSL_GUARDED_BY(mutex_);
  // The stamp is from a moment at which a later change might not show in it.
  bool stamp_is_fresh_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string problem_ ABSL_GUARDED_BY(mutex_);  // The error of the last reading; empty: none.
};

// Returns whether channels and servers with these credentials authenticate their peers.
inline bool Authenticated(const std::shared_ptr<Credentials>& keys) { return keys != nullptr; }

// Checks the certificate of a replica, PEM, against the host by which the user knows it.
// FAILED_PRECONDITION names the certificate and the reason.
absl::Status CheckReplicaCertificate(std::string_view pem, const std::string& host);

}  // namespace salius
