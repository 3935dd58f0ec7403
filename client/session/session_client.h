// The primary's side of the control plane: opens sessions at one replica and asks it to drop logs.
//
// Threads: thread safe. gRPC's timers wait on the wall clock (like those of the distribution's
// Abseil): a clock that is set back stops them for as long. So nothing here relies on them. Each
// call blocks for at most its deadline if the owner calls EndOverdueCalls() from time to time, and
// after a failed connection for kProbeTime longer (transport/handshake_probe.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/session/offered_keys.h"
#include "client/session/session_answer.h"
#include "common/ids.h"
#include "storage/volume_config.h"

namespace salius {

class Credentials;  // transport/credentials.h

class SessionClient {
 public:
  // Makes a client without an address. `name`: of the replica, for messages. With `keys` the
  // replica must show a certificate for `host`, the name or address by which the user knows it.
  // Without keys, a replica at a loopback address is reached by TCP only if `insecure`.
  explicit SessionClient(const std::string& name, std::shared_ptr<Credentials> keys = nullptr,
                         const std::string& host = "", bool insecure = true);
  ~SessionClient();

  // Sets the address of the replica's control service ("host:port"; empty: not known). Calls that
  // are under way continue; the next one connects.
  void SetAddress(const std::string& address);

  // Opens (or confirms) session `session` of `epoch`, in which the replica will hold seqs from
  // `base` on. FAILED_PRECONDITION: a larger epoch was promised or opened (this primary is fenced);
  // UNAVAILABLE (no address, too) and DEADLINE_EXCEEDED: try again; RESOURCE_EXHAUSTED: no memory
  // there. `key`: the key that the replica is given, for sealed datagrams; null: none. UNIMPLEMENTED:
  // the replica takes none, and the offer says that it must. `plain`: the
  // datagrams are not sealed, though the replica may seal those of other sessions.
  absl::StatusOr<OpenedSession> Open(const VolumeConfig& config, Epoch epoch, uint64_t session,
                                     Seq base, int64_t deadline_ms, const KeyOffer* key = nullptr,
                                     bool plain = false);
  // Gives the replica a key for the session, which is open there. Errors as of Open, and NOT_FOUND:
  // it is not open there; ALREADY_EXISTS: choose another key id.
  absl::StatusOr<OpenedSession> GiveKey(const VolumeConfig& config, Epoch epoch, uint64_t session,
                                        Seq base, int64_t deadline_ms, const KeyOffer& key);
  // Asks for the replica's inventory of the volume, as a recovery would: over a new connection,
  // which a firewall must let through now. Errors as of Open.
  absl::StatusOr<HeldSession> Ask(const VolumeId& volume, int64_t deadline_ms);
  // Asks the replica to drop the volume's log of epochs up to `epoch`.
  absl::Status Drop(const VolumeId& volume, Epoch epoch, uint64_t session, int64_t deadline_ms);

  // Ends the calls that are past their deadline by the monotonic clock.
  void EndOverdueCalls();
  // Ends calls to Open and Ask that are under way; from now on they return CANCELLED at once.
  void StopOpening();

 private:
  absl::StatusOr<OpenedSession> DoOpen(const VolumeConfig& config, Epoch epoch, uint64_t session,
                                       Seq base, int64_t deadline_ms, const KeyOffer* key,
                                       bool key_only, bool plain);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace salius
