// One replica, wired together: arena, acceptor, receive loop, control service, metrics. The only
// place that knows all of them.
//
// Order of life:
//
//   1. the UDP port is bound (a port in use must not leave an arena behind)
//   2. promises are read, the arena is attached, logs are rebuilt
//   3. the TCP port or the unix socket is bound, and the replica serves
//   4. at the end sessions are refused, and present calls and datagrams are finished
//   5. the arena is detached and left in place
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/metrics.h"
#include "replica/arena_file.h"
#include "replica/control_service.h"
#include "replica/keys_only_service.h"
#include "replica/options.h"
#include "replica/owner_keeper.h"
#include "replica/promise_keeper.h"
#include "replica/promise_store.h"
#include "replica/rate_limiter.h"
#include "replica/receive_loop.h"
#include "replica/session_keys.h"
#include "replica/shared_acceptor.h"
#include "transport/credentials.h"
#include "transport/datagram_channel.h"
#include "transport/key_ring.h"
#include "transport/local_server.h"
#include "transport/tcp_server.h"

namespace salius {

class ReplicaServer {
 public:
  // Starts a replica, which serves when this returns. `layer` goes around each channel of
  // datagrams. Errors: FAILED_PRECONDITION for a public
  // address without --insecure, those of Credentials::Load and FAILED_PRECONDITION for keys that
  // are no replica's,
  // ALREADY_EXISTS for a port in use, those of PromiseDir, ArenaFile::Open, Resolve and
  // MetricsServer.
  static absl::StatusOr<std::unique_ptr<ReplicaServer>> Start(const ReplicaOptions& options,
                                                              Clock& clock,
                                                              const ChannelLayer& layer = {});
  // Returns the first error of Start that comes from the options and is permanent, as far as that
  // can be seen. OK when a name does not resolve now.
  static absl::Status CheckOptions(const ReplicaOptions& options);
  ~ReplicaServer();
  ReplicaServer(const ReplicaServer&) = delete;
  ReplicaServer& operator=(const ReplicaServer&) = delete;

  // Ends service in the order above; waits at most a few seconds for calls under way.
  void Stop();

  uint16_t port() const { return loop_->port(); }
  // Returns where control calls are accepted, for the log: "TCP port 7400", or the unix socket.
  std::string control_place() const;
  const prometheus::Collectable& metrics() const { return *metrics_; }
  int metrics_port() const { return metrics_server_ != nullptr ? metrics_server_->port() : 0; }

 private:
  ReplicaServer() = default;
  // Reads the promises, attaches the arena, builds the acceptor from both, and writes the promises.
  absl::Status AttachArena(const ReplicaOptions& options, Clock& clock);
  void ReportArena(const Acceptor::AttachReport& report, Incarnation before) const;
  void ReportPromises(const PromiseKeeper::Loaded& loaded) const;
  absl::Status Serve(const ReplicaOptions& options, const SocketAddress& listen,
                     std::unique_ptr<DatagramChannel> channel, Clock& clock,
                     const ChannelLayer& layer);
  // Begins to accept control calls: by TCP at `tcp`, or without keys at the unix socket beside it.
  absl::Status ServeControl(const ReplicaOptions& options, const SocketAddress& tcp);
  void JoinGroups();
  // Returns `layer` with one that seals around it, when datagrams are sealed. `answers`: datagrams
  // without a key are answered.
  ChannelLayer Sealing(const ChannelLayer& layer, Clock& clock, bool answers);

  std::shared_ptr<Credentials> keys_;          // null: none
  bool sealed_ = false;                        // datagrams are sealed: of all sessions, or of those
                                               // whose primary gave a key (without keys)
  KeyRing ring_;                               // of the channels
  std::unique_ptr<SessionKeys> session_keys_;  // null: datagrams are not sealed
  std::unique_ptr<PromiseDir> promise_dir_;
  std::unique_ptr<OwnerKeeper> owners_;  // null: no keys
  std::unique_ptr<ArenaFile> arena_;
  std::unique_ptr<SharedAcceptor> acceptor_;
  std::unique_ptr<PromiseKeeper> promises_;
  std::shared_ptr<ReplicaMetrics> metrics_;
  std::unique_ptr<ReceiveLoop> loop_;
  std::unique_ptr<ControlService> service_;
  KeysOnlyService keys_only_{kReplicaVersion};  // answers clients without keys where there are keys
  std::unique_ptr<TcpServer> tcp_;      // null: control calls come by the unix socket only
  std::unique_ptr<LocalServer> local_;  // null: they come by TCP only
  std::unique_ptr<MetricsServer> metrics_server_;
  bool stopped_ = false;
};

}  // namespace salius
