#include "client/status/status_server.h"

#include <grpcpp/grpcpp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/file.h"
#include "proto/control.grpc.pb.h"
#include "transport/grpc_factory.h"

namespace salius {
namespace {

// How long calls in progress may take when the server stops.
constexpr std::chrono::seconds kStopGrace{2};

// Returns whether a process listens at the socket.
bool IsListening(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return false;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return socket.valid() &&
         ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

void AddRecoveries(const RecoveryNotes& notes, control::VolumeStatusResponse* out) {
  for (const RecoveryNote& from : notes.all()) {
    control::VolumeStatusResponse::Recovery* const to = out->add_recoveries();
    to->set_at_unix_ms(from.at_unix_ms);
    to->set_epoch(from.epoch);
    to->set_next_epoch(from.next_epoch);
    to->set_decided(from.decided);
    to->set_records(from.records);
    to->set_forced(from.GaveUp());
    to->set_acknowledged(from.acknowledged);
    to->set_given_up(GivenUpText(from));
  }
}

void AddDirectUse(const DirectUse& from, control::VolumeStatusResponse::DirectUse* to) {
  to->set_processes(from.processes);
  to->set_records(from.records);
  to->set_record_bytes(from.record_bytes);
  to->set_syncs(from.syncs);
  to->set_real_syncs(from.real_syncs);
  to->set_dead_owners(from.dead_owners);
  to->set_voids(from.voids);
  to->set_early_syncs(from.early_syncs);
  to->set_owed_syncs(from.owed_syncs);
  to->set_outputs(from.outputs);
  to->set_paid_outputs(from.paid_outputs);
  to->set_refused_outputs(from.refused_outputs);
  to->set_early_end(from.early_end);
  for (const DirectUse::Reason& reason : from.reasons) {
    control::VolumeStatusResponse::DirectUse::Reason* const added = to->add_reasons();
    added->set_name(reason.name);
    added->set_syncs(reason.syncs);
  }
}

class PrimaryService final : public control::Primary::Service {
 public:
  explicit PrimaryService(const StatusServerOptions& options) : options_(options) {}

  void SetDraining() { draining_.store(true); }

  grpc::Status VolumeStatus(grpc::ServerContext*, const control::VolumeStatusRequest*,
                            control::VolumeStatusResponse* response) override {
    *response = ToStatusResponse(options_, options_.source());
    response->set_serving(!draining_.load());
    return grpc::Status::OK;
  }

  grpc::Status Acknowledge(grpc::ServerContext*, const control::AcknowledgeRequest*,
                           control::AcknowledgeResponse* response) override {
    const absl::StatusOr<uint32_t> count =
        options_.history == nullptr ? uint32_t{0} : options_.history->Acknowledge();
    if (!count.ok()) {
      return grpc::Status(static_cast<grpc::StatusCode>(count.status().code()),
                          std::string(count.status().message()));
    }
    response->set_acknowledged(*count);
    return grpc::Status::OK;
  }

  grpc::Status Remount(grpc::ServerContext*, const control::RemountRequest* request,
                       control::RemountResponse*) override {
    if (!options_.remount) return {grpc::StatusCode::UNIMPLEMENTED, "no remount here"};
    const std::lock_guard<std::mutex> one_at_a_time(remount_mu_);
    const absl::Status done = options_.remount(request->options(), request->check_only());
    return {static_cast<grpc::StatusCode>(done.code()), std::string(done.message())};
  }

 private:
  const StatusServerOptions& options_;
  std::atomic<bool> draining_{false};
  std::mutex remount_mu_;
};

}  // namespace

std::vector<PlacedReplica> PlacedReplicas(const SessionStatus& status) {
  std::vector<PlacedReplica> replicas;
  for (const ReplicaReport& replica : status.replicas) {
    replicas.push_back({replica.address, replica.ip, replica.host});
  }
  return replicas;
}

control::VolumeStatusResponse ToStatusResponse(const StatusServerOptions& options,
                                               const SessionStatus& status) {
  control::VolumeStatusResponse out;
  out.set_volume(options.volume.bytes.data(), options.volume.bytes.size());
  out.set_backing(options.backing);
  out.set_mountpoint(options.mountpoint);
  out.set_epoch(status.epoch);
  out.set_mode(status.mode);
  out.set_mode_detail(status.mode_detail);
  out.set_acks(options.acks);
  out.set_names(options.names);
  out.set_contract(options.contract);
  if (options.gate) *out.mutable_gate() = options.gate();
  if (options.patches) *out.mutable_patches() = options.patches();
  out.set_checkpoint(status.marks.checkpoint);
  out.set_applied(status.marks.applied);
  out.set_durable(status.marks.durable);
  out.set_issued(status.marks.issued);
  out.set_uncheckpointed_bytes(status.uncheckpointed_bytes);
  out.set_oldest_uncheckpointed_ms(status.oldest_uncheckpointed_ms);
  out.set_stable_log_used_bytes(status.stable_log_used_bytes);
  out.set_stable_log_capacity_bytes(status.stable_log_capacity_bytes);
  for (const ReplicaReport& from : status.replicas) {
    control::VolumeStatusResponse::ReplicaStatus* to = out.add_replicas();
    to->set_address(from.address);
    to->set_member(from.member);
    to->set_connected(from.connected);
    to->set_incarnation(from.incarnation);
    to->set_base(from.base);
    to->set_contiguous(from.contiguous);
    to->set_lag_records(from.lag_records);
    to->set_lag_bytes(from.lag_bytes);
    to->set_rtt_us(from.rtt_us);
    to->set_free_bytes(from.free_bytes);
    to->set_resent(from.resent);
    to->set_problem(from.problem);
    to->set_datagram_bytes(from.datagram_bytes);
    to->set_route_bytes(from.route_bytes);
    to->set_group_unheard(from.group_unheard);
    to->set_control_problem(from.control_problem);
    to->set_host(from.host);
    if (from.member) out.set_members(out.members() + 1);
  }
  out.set_pid(static_cast<uint32_t>(::getpid()));
  out.set_mode_since_unix_ms(status.mode_since_unix_ms);
  out.set_mode_for_ms(status.mode_for_ms);
  out.set_started_unix_ms(options.started_unix_ms);
  out.set_log_file(options.log_file);
  if (options.host.has_value()) {
    for (std::string& warning : SharedHostWarnings(PlacedReplicas(status), *options.host)) {
      out.add_warnings(std::move(warning));
    }
  }
  if (options.history != nullptr) AddRecoveries(options.history->notes(), &out);
  if (status.direct.has_value()) AddDirectUse(*status.direct, out.mutable_direct());
  if (status.sealing.has_value()) {
    control::VolumeStatusResponse::SealingUse* const use = out.mutable_sealing();
    use->set_key_changes(status.sealing->key_changes);
    for (const SealingUse::Refusal& from : status.sealing->refusals) {
      control::VolumeStatusResponse::SealingUse::Refusal* const to = use->add_refusals();
      to->set_reason(from.reason);
      to->set_datagrams(from.datagrams);
    }
  }
  out.set_version(kSaliusVersion);
  out.set_failure(status.failure);
  out.set_serving(true);
  return out;
}

struct StatusServer::Impl {
  explicit Impl(StatusServerOptions o) : options(std::move(o)), service(options) {}
  const StatusServerOptions options;
  std::string path;
  PrimaryService service;
  std::unique_ptr<grpc::Server> server;
};

absl::StatusOr<std::unique_ptr<StatusServer>> StatusServer::Start(StatusServerOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  const std::string& directory = impl->options.run_directory;
  // A process that can write there can replace this socket with its own.
  SALIUS_RETURN_IF_ERROR(MakeOwnDirs(directory));
  impl->path = SocketPathOf(impl->options.volume, directory);
  if (IsListening(impl->path)) {
    return absl::AlreadyExistsError(absl::StrCat("a mounted volume with the same UUID answers at ",
                                                 impl->path, "; is this directory a copy of it?"));
  }
  // No other thread creates files yet.
  SALIUS_ASSIGN_OR_RETURN(impl->server, ServeLocal(impl->path, impl->service));
  return std::unique_ptr<StatusServer>(new StatusServer(std::move(impl)));
}

StatusServer::StatusServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

StatusServer::~StatusServer() {
  impl_->server->Shutdown(std::chrono::system_clock::now() + kStopGrace);
  impl_->server->Wait();
  std::error_code ignored;  // gRPC may have removed it
  std::filesystem::remove(impl_->path, ignored);
}

void StatusServer::SetDraining() { impl_->service.SetDraining(); }

const std::string& StatusServer::socket_path() const { return impl_->path; }

}  // namespace salius
