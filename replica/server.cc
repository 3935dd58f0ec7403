#include "replica/server.h"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/log.h"
#include "common/parallel.h"
#include "common/random.h"
#include "common/runbook.h"
#include "common/strings.h"
#include "transport/grpc_factory.h"
#include "transport/local_socket.h"
#include "transport/sealed_channel.h"
#include "transport/udp_socket.h"
#include "transport/without_keys.h"

namespace salius {
namespace {

// Time for calls at the end. A Fetch of a whole large arena takes seconds. A call that takes longer
// is cut off, and the recovery resumes it at another start.
constexpr auto kDrainTime = std::chrono::seconds(5);
// Interval between two notices "no key" to one source. A primary's first datagram after a restart
// of the replica gets one at once.
constexpr int64_t kNoticeNs = 10'000'000;
constexpr size_t kNoticeSources = 1024;

absl::Status CheckAddress(std::string_view option, const SocketAddress& listen,
                          const ReplicaOptions& options) {
  if (IsMulticast(listen)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--%s must be an address of this host, not multicast", option));
  }
  // With keys control calls are authenticated, and datagrams sealed.
  const bool keyed = option == "listen" && !options.keys.empty();
  if (keyed || AllowedWithoutKeys(listen, options.insecure)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("--%s %s is not a loopback address, and no authentication is configured: "
                      "every host that reaches it could "
                      "read, forge and drop logs. Give --keys, or on a trusted network "
                      "--insecure; %s",
                      option, FormatSockaddr(listen), SeeRunbook("insecure-needed")));
}

// Returns the keys of a replica; a null pointer without a file.
absl::StatusOr<std::shared_ptr<Credentials>> LoadServerKeys(const std::string& path) {
  SALIUS_ASSIGN_OR_RETURN(std::shared_ptr<Credentials> keys, Credentials::Load(path));
  if (keys == nullptr || keys->identity().kind == keys::Kind::kReplica) return keys;
  return absl::FailedPreconditionError(
      absl::StrFormat("%s: is the certificate of %s, which may not serve: give the file of a "
                      "replica (salius keys issue DIR replica/NAME --hosts HOST,...)",
                      path, keys->identity().ToString()));
}

}  // namespace

absl::Status ReplicaServer::CheckOptions(const ReplicaOptions& options) {
  const absl::StatusOr<SocketAddress> listen = Resolve(options.listen);
  if (listen.ok()) SALIUS_RETURN_IF_ERROR(CheckAddress("listen", *listen, options));
  if (options.metrics.empty()) return absl::OkStatus();
  SALIUS_ASSIGN_OR_RETURN(const HostPort metrics, ParseHostPort(options.metrics, 0));
  const absl::StatusOr<SocketAddress> address = Resolve(metrics);
  return address.ok() ? CheckAddress("metrics", *address, options) : absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ReplicaServer>> ReplicaServer::Start(const ReplicaOptions& options,
                                                                    Clock& clock,
                                                                    const ChannelLayer& layer) {
  SALIUS_ASSIGN_OR_RETURN(const SocketAddress listen, Resolve(options.listen));
  SALIUS_RETURN_IF_ERROR(CheckAddress("listen", listen, options));
  SALIUS_ASSIGN_OR_RETURN(std::shared_ptr<Credentials> keys, LoadServerKeys(options.keys));
  if (!options.metrics.empty()) {
    SALIUS_ASSIGN_OR_RETURN(const HostPort metrics, ParseHostPort(options.metrics, 0));
    SALIUS_ASSIGN_OR_RETURN(const SocketAddress address, Resolve(metrics));
    SALIUS_RETURN_IF_ERROR(CheckAddress("metrics", address, options));
  }
  UdpSocket::Options socket_options;
  socket_options.coalesce = true;
  socket_options.local_address = ReceiveLoop::IsAnyAddress(listen);
  SALIUS_ASSIGN_OR_RETURN(UdpSocket socket, UdpSocket::Bind(listen, socket_options));
  std::unique_ptr<ReplicaServer> server(new ReplicaServer());
  server->keys_ = std::move(keys);
  // Without keys and without --insecure control calls come by the unix socket, which authenticates
  // the primary as keys do. But older primaries and others that offer no key use it too.
  const bool keyed = options.sealed || server->keys_ != nullptr;
  server->sealed_ = keyed || !options.insecure;
  if (!keyed) server->ring_.AllowAllPlain();
  if (server->sealed_) server->session_keys_ = std::make_unique<SessionKeys>(server->ring_);
  SALIUS_RETURN_IF_ERROR(server->AttachArena(options, clock));
  SALIUS_RETURN_IF_ERROR(server->Serve(options, listen,
                                       WithLayer(server->Sealing(layer, clock, /*answers=*/true),
                                                 std::make_unique<UdpSocket>(std::move(socket))),
                                       clock, server->Sealing(layer, clock, /*answers=*/false)));
  return server;
}

ChannelLayer ReplicaServer::Sealing(const ChannelLayer& layer, Clock& clock, bool answers) {
  if (!sealed_) return layer;
  SealedChannel::Options sealing;
  sealing.plain_without_key = true;
  sealing.clock = &clock;
  if (answers) {
    // The one thread that receives calls it.
    const auto limiter = std::make_shared<RateLimiter>(kNoticeNs, kNoticeSources);
    sealing.may_notify = [limiter, &clock](const SocketAddress& from) {
      return limiter->Allow(
          clock.MonotonicNanos(),
          std::string_view(reinterpret_cast<const char*>(&from.storage), from.length));
    };
  }
  return [this, layer, sealing](std::unique_ptr<DatagramChannel> inner) {
    return std::make_unique<SealedChannel>(WithLayer(layer, std::move(inner)), ring_, sealing);
  };
}

absl::Status ReplicaServer::AttachArena(const ReplicaOptions& options, Clock& clock) {
  ArenaFile::Options file;
  file.dir = options.shm_dir;
  file.take_neighbour = !options.shm_dir_given;
  file.memory_bytes = options.memory_bytes;
  file.lock_memory = !options.no_mlock;
  SALIUS_ASSIGN_OR_RETURN(promise_dir_, PromiseDir::Open(options.state_dir));
  if (keys_ != nullptr) {
    SALIUS_ASSIGN_OR_RETURN(owners_,
                            OwnerKeeper::Load(promise_dir_->owners(),
                                              static_cast<uint32_t>(options.peer_share_percent)));
  }
  SALIUS_ASSIGN_OR_RETURN(PromiseKeeper::Loaded loaded,
                          PromiseKeeper::Load(*promise_dir_, SecureRandom64));
  SALIUS_ASSIGN_OR_RETURN(arena_, ArenaFile::Open(file, SecureRandom64));
  Arena& arena = arena_->arena();
  if (PromiseKeeper::IsRolledBack(loaded.file, arena.incarnation(), arena.process_starts())) {
    const Incarnation old = arena.incarnation();
    arena.NewIncarnation();
    SLOG_ERROR(
        "arena {} is one of an earlier moment that was put back (process start {}, {} knows {}): "
        "incarnation was {:016x}, is {:016x}",
        arena_->path(), arena.process_starts(), promise_dir_->name(), loaded.file.process_starts,
        old, arena.incarnation());
  }
  ReportPromises(loaded);
  Acceptor::Options rules;
  rules.abandon_after_ns = options.abandon_after_us * 1000;
  rules.for_each = OnAllCpus;
  rules.promises = std::move(loaded.file.promises);
  rules.peer_share_percent = static_cast<uint32_t>(options.peer_share_percent);
  Acceptor::AttachReport report;
  const Incarnation before = arena.incarnation();
  acceptor_ = std::make_unique<SharedAcceptor>(arena, rules, clock.MonotonicNanos(), &report);
  promises_ = std::make_unique<PromiseKeeper>(*promise_dir_, loaded.file.store,
                                              [acceptor = acceptor_.get()](uint64_t known) {
                                                absl::MutexLock lock(&acceptor->mutex);
                                                return acceptor->acceptor.Promises(known);
                                              });
  SALIUS_RETURN_IF_ERROR(promises_->Begin(arena.incarnation(), arena.process_starts()));
  ReportArena(report, before);
  metrics_ = std::make_shared<ReplicaMetrics>(*acceptor_, clock, arena.incarnation(),
                                              arena.process_starts(), sealed_, ring_);
  return absl::OkStatus();
}

void ReplicaServer::ReportPromises(const PromiseKeeper::Loaded& loaded) const {
  if (loaded.problem.empty()) {
    SLOG_INFO("{} promises in {} (store {:016x})", loaded.file.promises.size(),
              promise_dir_->name(), loaded.file.store);
  } else if (loaded.damaged) {
    SLOG_ERROR(
        "{}: it was put aside. What this replica promised to recoveries may be forgotten, so it "
        "has a new store identity ({:016x}) and is no witness for sessions that knew the old one",
        loaded.problem, loaded.file.store);
  } else if (arena_->created_because().empty()) {
    SLOG_ERROR(
        "{}, though the memory was used before: promises to recoveries of volumes without a log "
        "may be forgotten, so there is a new store identity ({:016x})",
        loaded.problem, loaded.file.store);
  } else {
    SLOG_WARN("{}: it begins with store identity {:016x} and without promises", loaded.problem,
              loaded.file.store);
  }
  if (promise_dir_->on_tmpfs()) {
    SLOG_WARN("{} is on tmpfs: promises to recoveries will not outlive a reboot",
              promise_dir_->name());
  }
}

void ReplicaServer::ReportArena(const Acceptor::AttachReport& report, Incarnation before) const {
  const Arena& arena = arena_->arena();
  if (!arena_->created_because().empty()) {
    SLOG_WARN("new arena {} (incarnation {:016x}): {}", arena_->path(), arena.incarnation(),
              arena_->created_because());
  } else if (report.damaged > 0) {
    SLOG_ERROR(
        "arena {} is damaged in {} places: incarnation was {:016x}, is {:016x}; {} records of "
        "{} volumes are left",
        arena_->path(), report.damaged, before, arena.incarnation(), report.records,
        report.volumes);
  } else {
    SLOG_INFO(
        "attached to arena {} (incarnation {:016x}, process start {}): {} records of {} volumes",
        arena_->path(), arena.incarnation(), arena.process_starts(), report.records,
        report.volumes);
  }
  if (!arena_->on_tmpfs()) {
    SLOG_WARN(
        "{} is not on tmpfs: the kernel will write it to a disk, and what it holds does not count "
        "after the host was started again",
        arena_->path());
  }
  if (arena_->went_back()) {
    SLOG_WARN(
        "{}: the host has been started again (or an older version of this program noted no boot), "
        "so it has a new incarnation ({:016x})",
        arena_->path(), arena.incarnation());
  }
}

absl::Status ReplicaServer::Serve(const ReplicaOptions& options, const SocketAddress& listen,
                                  std::unique_ptr<DatagramChannel> channel, Clock& clock,
                                  const ChannelLayer& layer) {
  ReceiveLoop::Options loop_options;
  loop_options.listen = listen;
  loop_options.multicast_interface = options.multicast_interface;
  loop_options.channel_layer = layer;
  SALIUS_ASSIGN_OR_RETURN(
      loop_, ReceiveLoop::Create(std::move(channel), loop_options, *acceptor_, *metrics_, clock));
  service_ = std::make_unique<ControlService>(*acceptor_, *promises_, *loop_, clock, kReplicaVersion,
                                              owners_.get(), session_keys_.get());

  SocketAddress tcp = listen;
  tcp.set_port(loop_->port());  // the same port, also when any was asked for
  SALIUS_RETURN_IF_ERROR(ServeControl(options, tcp));
  if (!options.metrics.empty()) {
    SALIUS_ASSIGN_OR_RETURN(metrics_server_, MetricsServer::Start(options.metrics, {metrics_}));
  }
  JoinGroups();
  loop_->Start();
  return absl::OkStatus();
}

// Any user of this host reaches a port on loopback, and nothing says which one it is. So without keys
// the port stays closed, unless the user asked for it.
absl::Status ReplicaServer::ServeControl(const ReplicaOptions& options, const SocketAddress& tcp) {
  if (options.insecure || keys_ != nullptr) {
    SALIUS_ASSIGN_OR_RETURN(tcp_, ServeTcp(tcp, *service_, keys_, &keys_only_));
    return absl::OkStatus();
  }
  const std::string path = LocalSocketPath(LocalSocketDirectory(), tcp);
  absl::StatusOr<std::unique_ptr<LocalServer>> local = LocalServer::Start(
      path, [this](uid_t user) { return std::make_unique<ControlService>(*service_, user); });
  if (!local.ok()) {
    return absl::Status(
        local.status().code(),
        absl::StrFormat("the socket for control calls, %s: %s; %s", path,
                        Sv(local.status().message()), SeeRunbook("no-local-socket")));
  }
  local_ = *std::move(local);
  return absl::OkStatus();
}

std::string ReplicaServer::control_place() const {
  return local_ != nullptr ? local_->path() : absl::StrFormat("TCP port %d", port());
}

// Joins the groups of sessions that were open before this process: they continue.
void ReplicaServer::JoinGroups() {
  std::vector<std::string> groups;
  {
    absl::MutexLock lock(&acceptor_->mutex);
    groups = acceptor_->acceptor.MulticastGroups();
  }
  for (const std::string& group : groups) {
    if (const auto joined = loop_->Join(group); !joined.ok()) {
      SLOG_ERROR("multicast group {}: {}", group, Sv(joined.status().message()));
    }
  }
}

ReplicaServer::~ReplicaServer() { Stop(); }

void ReplicaServer::Stop() {
  if (std::exchange(stopped_, true)) return;
  if (service_ != nullptr) service_->StopSessions();
  if (tcp_ != nullptr) tcp_->Stop(kDrainTime);
  if (local_ != nullptr) local_->Stop(kDrainTime);
  if (loop_ != nullptr) loop_->Stop();
  metrics_server_.reset();
}

}  // namespace salius
