#include "replica/control_service.h"

#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "common/bytes.h"
#include "common/check.h"
#include "common/crc32c.h"
#include "common/host.h"
#include "common/log.h"
#include "common/strings.h"

namespace salius {
namespace {

// Bytes of records per Fetch message. A message may exceed it by one record, well below gRPC's
// bound of 4 MiB.
constexpr size_t kChunkBytes = (size_t{1} << 20) - kFetchPieceBytes - (size_t{256} << 10);

// The address of callers at the unix socket, for limits by host.
constexpr char kLocalPeer[] = "127.0.0.1:0";

// Converts a status: the two libraries number their codes alike (both are google.rpc.Code).
grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

absl::StatusOr<VolumeId> ParseVolume(const std::string& bytes) {
  VolumeId volume;
  if (bytes.size() != volume.bytes.size()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("volume has %d bytes, not %d", bytes.size(), volume.bytes.size()));
  }
  std::memcpy(volume.bytes.data(), bytes.data(), bytes.size());
  return volume;
}

void FillInventory(const Inventory& from, control::VolumeInventory* to) {
  to->set_known(from.known);
  to->set_epoch(from.epoch);
  to->set_session(from.session);
  to->set_base(from.base);
  to->set_contiguous(from.contiguous);
  to->set_highest(from.highest);
  to->set_records(from.records);
  to->set_bytes(from.bytes);
  to->set_trimmed(from.trimmed);
  to->set_durable_mark(from.durable_mark);
  to->set_checkpoint_mark(from.checkpoint_mark);
  to->set_promised_epoch(from.promised_epoch);
  to->set_overdue(from.overdue);
}

// Returns the number under which the caller's share of the memory is counted.
PeerId ShareOf(const Caller& caller) {
  return caller.identity ? PeerIdOfIdentity(caller.identity->ToString()) : PeerIdOf(caller.address);
}

}  // namespace

ControlService::ControlService(SharedAcceptor& acceptor, PromiseKeeper& promises, ReceiveLoop& loop,
                               Clock& clock, std::string version, OwnerKeeper* owners,
                               SessionKeys* keys)
    : acceptor_(acceptor),
      promises_(promises),
      loop_(loop),
      clock_(clock),
      version_(std::move(version)),
      owners_(owners),
      keys_(keys),
      host_(BootId().value_or("")),
      start_ns_(clock.MonotonicNanos()),
      shared_(std::make_shared<Shared>()) {}

ControlService::ControlService(ControlService& first, uid_t user)
    : acceptor_(first.acceptor_),
      promises_(first.promises_),
      loop_(first.loop_),
      clock_(first.clock_),
      version_(first.version_),
      owners_(nullptr),  // the kernel names the caller, and there are no keys
      keys_(first.keys_),
      host_(first.host_),
      start_ns_(first.start_ns_),
      local_user_(user),
      shared_(first.shared_) {}

Caller ControlService::CallerOf(const grpc::ServerContextBase* context) const {
  if (!local_user_.has_value()) return salius::CallerOf(context);
  Caller caller;
  caller.local_user = *local_user_;
  caller.address = kLocalPeer;
  return caller;
}

absl::Status ControlService::PersistPromises(const VolumeId& volume) {
  const absl::Status kept = promises_.Keep();
  if (kept.ok()) return kept;
  SLOG_ERROR("volume {}: not answered, since a promise cannot be kept: {}", volume.ToString(),
             Sv(kept.message()));
  return absl::UnavailableError(
      absl::StrFormat("this replica cannot keep a promise: %s", Sv(kept.message())));
}

grpc::Status ControlService::Note(CallKind kind, const Caller& caller, const std::string& volume,
                                  Epoch epoch, grpc::Status status, std::string refused) {
  if (!status.ok()) refused = status.error_message();
  shared_->calls.Add({.at_unix_ms = static_cast<uint64_t>(clock_.RealtimeNanos() / 1'000'000),
              .kind = kind,
              .accepted = status.ok() && refused.empty(),
              .volume = volume,
              .epoch = epoch,
              .identity = caller.identity ? caller.identity->ToString() : "",
              .peer = caller.local_user ? caller.ToString() : caller.address,
              .reason = std::move(refused)});
  return status;
}

absl::Status ControlService::Admit(const Caller& caller) {
  if (owners_ == nullptr) return absl::OkStatus();
  if (!caller.authenticated() || caller.identity->kind == keys::Kind::kReplica) {
    SLOG_WARN("a call refused to {}: its certificate has no identity that may call",
              caller.ToString());
    return absl::UnauthenticatedError(
        "your certificate has no identity, or more than one, or that of a replica: use one of "
        "`salius keys issue DIR client/NAME`");
  }
  absl::MutexLock lock(&limits_mutex_);
  return limits_.Admit(clock_.MonotonicNanos(), caller.identity->ToString(), caller.address);
}

bool ControlService::MaySee(const Caller& caller, const VolumeId& volume) const {
  return owners_ == nullptr || owners_->MaySee(*caller.identity, volume);
}

bool ControlService::Uses(const VolumeId& volume) {
  absl::MutexLock lock(&acceptor_.mutex);
  return acceptor_.acceptor.Knows(volume);
}

grpc::Status ControlService::Guard(const Caller& caller, OwnerBook::Action action,
                                   const std::string& volume_bytes,
                                   absl::FunctionRef<grpc::Status()> call) {
  if (owners_ == nullptr) return call();
  if (const absl::Status admitted = Admit(caller); !admitted.ok()) return ToGrpc(admitted);
  const absl::StatusOr<VolumeId> volume = ParseVolume(volume_bytes);
  if (!volume.ok()) return ToGrpc(volume.status());
  // Set when the call was made; else the caller may not make it.
  std::optional<grpc::Status> made;
  const auto make = [&] {
    made = call();
    return absl::Status(static_cast<absl::StatusCode>(made->error_code()), "");
  };
  absl::Status allowed;
  if (action == OwnerBook::Action::kClaim) {
    allowed = owners_->Claim(*caller.identity, *volume, [&] { return Uses(*volume); }, make);
  } else {
    allowed = owners_->MayUse(*caller.identity, *volume, Uses(*volume));
    if (allowed.ok()) static_cast<void>(make());
  }
  if (made) return *made;
  const std::string owner = owners_->OwnerOf(*volume);
  SLOG_WARN("volume {}, owned by {}: a call refused to {}: {}", volume->ToString(),
            owner.empty() ? "no identity" : owner, caller.ToString(), Sv(allowed.message()));
  return ToGrpc(allowed);
}

grpc::Status ControlService::OpenSession(grpc::ServerContext* context,
                                         const control::OpenSessionRequest* request,
                                         control::OpenSessionResponse* response) {
  const Caller caller = CallerOf(context);
  grpc::Status status = Guard(caller, OwnerBook::Action::kClaim, request->volume(),
                              [&] { return DoOpen(caller, *request, response); });
  // A new key for an open session is no event.
  if (request->key_only() && status.ok()) return status;
  return Note(CallKind::kOpen, caller, request->volume(), request->epoch(), std::move(status));
}

grpc::Status ControlService::Fence(grpc::ServerContext* context,
                                   const control::FenceRequest* request,
                                   control::FenceResponse* response) {
  const Caller caller = CallerOf(context);
  grpc::Status status = Guard(caller, OwnerBook::Action::kClaim, request->volume(),
                              [&] { return DoFence(caller, *request, response); });
  std::string refused;
  if (status.ok() && !response->accepted()) {
    refused = absl::StrFormat("promised is epoch %d, the session's epoch is %d",
                              response->promised_epoch(), response->inventory().epoch());
  }
  return Note(CallKind::kFence, caller, request->volume(), request->epoch(), std::move(status),
              std::move(refused));
}

grpc::Status ControlService::DropVolume(grpc::ServerContext* context,
                                        const control::DropVolumeRequest* request,
                                        control::DropVolumeResponse* response) {
  const Caller caller = CallerOf(context);
  return Note(CallKind::kDrop, caller, request->volume(), request->epoch(),
              Guard(caller, OwnerBook::Action::kUse, request->volume(),
                    [&] { return DoDrop(caller, *request, response); }));
}

grpc::Status ControlService::ForgetVolume(grpc::ServerContext* context,
                                          const control::ForgetVolumeRequest* request,
                                          control::ForgetVolumeResponse* response) {
  const Caller caller = CallerOf(context);
  return Note(CallKind::kForget, caller, request->volume(), 0,
              Guard(caller, OwnerBook::Action::kUse, request->volume(),
                    [&] { return DoForget(caller, *request, response); }));
}

grpc::Status ControlService::Inventory(grpc::ServerContext* context,
                                       const control::InventoryRequest* request,
                                       control::InventoryResponse* response) {
  return Guard(CallerOf(context), OwnerBook::Action::kUse, request->volume(),
               [&] { return DoInventory(*request, response); });
}

grpc::Status ControlService::Fetch(grpc::ServerContext* context,
                                   const control::FetchRequest* request,
                                   grpc::ServerWriter<control::FetchResponse>* writer) {
  const Caller caller = CallerOf(context);
  const auto write = [writer](const control::FetchResponse& message) {
    return writer->Write(message);
  };
  grpc::Status status = Guard(caller, OwnerBook::Action::kUse, request->volume(),
                              [&] { return FetchTo(*request, write); });
  if (context->IsCancelled()) status = grpc::Status(grpc::StatusCode::CANCELLED, "cancelled");
  const absl::StatusOr<VolumeId> volume = ParseVolume(request->volume());
  SLOG_INFO("volume {}: records of epoch {} above {} {} {}{}",
            volume.ok() ? volume->ToString() : "?", request->epoch(), request->after(),
            status.ok() ? "read by" : "not read by", caller.ToString(),
            status.ok() ? "" : ": " + status.error_message());
  return Note(CallKind::kFetch, caller, request->volume(), request->epoch(), std::move(status));
}

absl::Status ControlService::CheckSealing(const control::OpenSessionRequest& request) const {
  if (keys_ == nullptr && request.key_only()) {
    return absl::UnimplementedError("this replica seals no datagrams: give it --keys");
  }
  if (keys_ == nullptr || request.has_key() || request.plain()) return absl::OkStatus();
  // A primary of this host; an older one offers no key.
  if (local_user_.has_value()) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrFormat(
      "this replica (version %s) seals datagrams, and the primary (version %s) offers no key: "
      "upgrade the primary, and give it keys=",
      version_,
      request.version().empty() ? "unknown" : Printable(request.version(), NewLines::kReplace)));
}

absl::Status ControlService::TakeKey(const VolumeId& volume,
                                     const control::OpenSessionRequest& request,
                                     control::OpenSessionResponse* response) {
  if (keys_ == nullptr) return absl::OkStatus();
  if (!request.has_key()) {
    return keys_->TakePlain({volume, request.epoch(), request.session()});
  }
  SessionKeys::Offer offer;
  offer.session = {volume, request.epoch(), request.session()};
  offer.key_id = request.key().key_id();
  offer.ack_sender = request.key().ack_sender();
  if (request.key().record_key().size() != offer.record_key.size()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "record key of %d bytes, not %d", request.key().record_key().size(), kSealKeyBytes));
  }
  std::memcpy(offer.record_key.data(), request.key().record_key().data(), kSealKeyBytes);
  SALIUS_ASSIGN_OR_RETURN(const SealKey ack_key, keys_->Take(offer));
  response->set_ack_key(ack_key.data(), ack_key.size());
  // Logs that end without a call (abandoned ones) leave their keys here.
  size_t slots = 0;
  {
    absl::MutexLock lock(&acceptor_.mutex);
    slots = acceptor_.acceptor.slot_count();
  }
  if (keys_->volumes() > slots) {
    keys_->DropUnless([this](const VolumeId& one) {
      absl::MutexLock lock(&acceptor_.mutex);
      return acceptor_.acceptor.GetInventory(clock_.MonotonicNanos(), one).known;
    });
  }
  return absl::OkStatus();
}

void ControlService::DropKeys(const VolumeId& volume) {
  if (keys_ != nullptr) keys_->Drop(volume);
}

grpc::Status ControlService::DoOpen(const Caller& caller,
                                    const control::OpenSessionRequest& request,
                                    control::OpenSessionResponse* response) {
  if (shared_->stopping.load()) return ToGrpc(absl::UnavailableError("this replica is shutting down"));
  const absl::StatusOr<VolumeId> volume = ParseVolume(request.volume());
  if (!volume.ok()) return ToGrpc(volume.status());
  if (const absl::Status sealing = CheckSealing(request); !sealing.ok()) return ToGrpc(sealing);
  SessionParams params;
  params.volume = *volume;
  params.epoch = request.epoch();
  params.session = request.session();
  params.base = request.base();
  params.tau_ms = request.tau_ms();
  params.k = request.k();
  params.memory_bytes = request.memory_bytes();
  params.existing_only = request.key_only();
  params.sealed = keys_ != nullptr && request.has_key();
  params.peer = ShareOf(caller);
  const bool multicast = !request.multicast().empty() && !request.key_only();
  absl::MutexLockMaybe joining(multicast ? &shared_->joining : nullptr);
  if (multicast) {
    const absl::StatusOr<std::string> joined = loop_.Join(request.multicast(), caller.address);
    if (!joined.ok()) return ToGrpc(joined.status());
    params.multicast = *joined;
  }
  absl::StatusOr<uint64_t> free_bytes;
  {
    absl::MutexLock lock(&acceptor_.mutex);
    free_bytes = acceptor_.acceptor.OpenSession(clock_.MonotonicNanos(), params);
    response->set_incarnation(acceptor_.acceptor.incarnation());
  }
  if (!free_bytes.ok()) {
    SLOG_WARN("session of volume {} epoch {} refused to {}: {}", volume->ToString(), params.epoch,
              caller.ToString(), Sv(free_bytes.status().message()));
    return ToGrpc(free_bytes.status());
  }
  if (const absl::Status kept = PersistPromises(*volume); !kept.ok()) return ToGrpc(kept);
  if (const absl::Status taken = TakeKey(*volume, request, response); !taken.ok()) {
    SLOG_WARN("session of volume {} epoch {}: the key of {} is refused: {}", volume->ToString(),
              params.epoch, caller.ToString(), Sv(taken.message()));
    return ToGrpc(taken);
  }
  if (request.key_only()) {
    SLOG_DEBUG("session of volume {} has a new key", volume->ToString());
  } else {
    SLOG_INFO("session of volume {} open: epoch {}, base {}, for {}", volume->ToString(),
              params.epoch, params.base, caller.ToString());
  }
  response->set_store(promises_.id());
  response->set_udp_port(loop_.port());
  response->set_free_bytes(*free_bytes);
  response->set_version(version_);
  response->set_host(host_);
  response->set_compact_records(true);
  return grpc::Status::OK;
}

grpc::Status ControlService::DoFence(const Caller& caller,
                                     const control::FenceRequest& request,
                                     control::FenceResponse* response) {
  const absl::StatusOr<VolumeId> volume = ParseVolume(request.volume());
  if (!volume.ok()) return ToGrpc(volume.status());
  absl::StatusOr<Acceptor::FenceResult> fence;
  {
    absl::MutexLock lock(&acceptor_.mutex);
    fence = acceptor_.acceptor.Fence(*volume, request.epoch(), request.token(),
                                     ShareOf(caller));
    // Under the same lock: the inventory lists the records that are held behind the fence.
    FillInventory(acceptor_.acceptor.GetInventory(clock_.MonotonicNanos(), *volume),
                  response->mutable_inventory());
    response->set_incarnation(acceptor_.acceptor.incarnation());
  }
  if (!fence.ok()) {
    SLOG_WARN("fence of volume {} with epoch {} by {} refused: {}", volume->ToString(),
              request.epoch(), caller.ToString(), Sv(fence.status().message()));
    return ToGrpc(fence.status());
  }
  if (fence->accepted) {
    if (const absl::Status kept = PersistPromises(*volume); !kept.ok()) return ToGrpc(kept);
  }
  SLOG_WARN("fence of volume {} with epoch {} by {}: {}, promised is {}, the session's epoch is {}",
            volume->ToString(), request.epoch(), caller.ToString(),
            fence->accepted ? "accepted" : "refused", fence->promised_epoch,
            response->inventory().epoch());
  response->set_store(promises_.id());
  response->set_accepted(fence->accepted);
  response->set_promised_epoch(fence->promised_epoch);
  return grpc::Status::OK;
}

grpc::Status ControlService::DoInventory(const control::InventoryRequest& request,
                                         control::InventoryResponse* response) {
  const absl::StatusOr<VolumeId> volume = ParseVolume(request.volume());
  if (!volume.ok()) return ToGrpc(volume.status());
  response->set_store(promises_.id());
  absl::MutexLock lock(&acceptor_.mutex);
  FillInventory(acceptor_.acceptor.GetInventory(clock_.MonotonicNanos(), *volume),
                response->mutable_inventory());
  response->set_incarnation(acceptor_.acceptor.incarnation());
  return grpc::Status::OK;
}

grpc::Status ControlService::FetchTo(
    const control::FetchRequest& request,
    const std::function<bool(const control::FetchResponse&)>& write) {
  const absl::StatusOr<VolumeId> volume = ParseVolume(request.volume());
  if (!volume.ok()) return ToGrpc(volume.status());
  control::FetchResponse message;
  absl::StatusOr<Acceptor::FetchStart> fetch;
  {
    absl::MutexLock lock(&acceptor_.mutex);
    fetch = acceptor_.acceptor.StartFetch(*volume, request.epoch(), request.after());
    message.set_incarnation(acceptor_.acceptor.incarnation());
  }
  if (!fetch.ok()) return ToGrpc(fetch.status());
  message.set_count(fetch->count);
  bool connected = write(message);
  message.Clear();

  uint64_t sent = 0;
  Seq cursor = fetch->start;
  while (connected && cursor < fetch->upto) {
    std::string& records = *message.mutable_records();
    records.clear();
    records.reserve(size_t{1} << 20);
    while (cursor < fetch->upto && records.size() < kChunkBytes) {
      absl::MutexLock lock(&acceptor_.mutex);
      const absl::StatusOr<uint64_t> read = acceptor_.acceptor.ReadRecords(
          *volume, request.epoch(), *fetch, &cursor, records.size() + kFetchPieceBytes, &records);
      if (!read.ok()) return ToGrpc(read.status());
      sent += *read;
    }
    if (records.empty()) continue;
    message.set_crc32c(Crc32c(AsBytes(records)));
    connected = write(message);
  }
  if (!connected) return grpc::Status::CANCELLED;
  if (sent != fetch->count) {
    return ToGrpc(absl::AbortedError(absl::StrFormat(
        "the log changed while it was read: %d records announced, %d sent", fetch->count, sent)));
  }
  return grpc::Status::OK;
}

grpc::Status ControlService::DoDrop(const Caller& caller,
                                    const control::DropVolumeRequest& request,
                                    control::DropVolumeResponse* response) {
  const absl::StatusOr<VolumeId> volume = ParseVolume(request.volume());
  if (!volume.ok()) return ToGrpc(volume.status());
  absl::StatusOr<uint64_t> freed;
  {
    absl::MutexLock lock(&acceptor_.mutex);
    freed = acceptor_.acceptor.DropVolume(*volume, request.epoch(), request.session());
  }
  if (!freed.ok()) {
    SLOG_WARN("volume {}: drop of epochs up to {} refused to {}: {}", volume->ToString(),
              request.epoch(), caller.ToString(), Sv(freed.status().message()));
    return ToGrpc(freed.status());
  }
  SLOG_INFO("volume {}: epochs up to {} dropped for {}, {} bytes", volume->ToString(),
            request.epoch(), caller.ToString(), *freed);
  DropKeys(*volume);
  // A session too many in the file does no harm: not a reason to fail.
  static_cast<void>(PersistPromises(*volume));
  response->set_bytes_freed(*freed);
  return grpc::Status::OK;
}

grpc::Status ControlService::DoForget(const Caller& caller,
                                      const control::ForgetVolumeRequest& request,
                                      control::ForgetVolumeResponse* response) {
  const absl::StatusOr<VolumeId> volume = ParseVolume(request.volume());
  if (!volume.ok()) return ToGrpc(volume.status());
  absl::StatusOr<Acceptor::Forgotten> forgotten;
  {
    absl::MutexLock lock(&acceptor_.mutex);
    forgotten = acceptor_.acceptor.Forget(clock_.MonotonicNanos(), *volume, request.force());
  }
  if (!forgotten.ok()) {
    SLOG_WARN("volume {}: not forgotten for {}: {}", volume->ToString(), caller.ToString(),
              Sv(forgotten.status().message()));
    return ToGrpc(forgotten.status());
  }
  if (const absl::Status kept = PersistPromises(*volume); !kept.ok()) return ToGrpc(kept);
  DropKeys(*volume);
  if (owners_ != nullptr) {
    if (const absl::Status kept = owners_->Forget(*volume); !kept.ok()) return ToGrpc(kept);
  }
  SLOG_WARN("volume {}: forgotten for {}{}, {} bytes, promised was {}", volume->ToString(),
            caller.ToString(), request.force() ? " by force" : "", forgotten->bytes,
            forgotten->promised);
  response->set_known(forgotten->known);
  response->set_bytes_freed(forgotten->bytes);
  response->set_promised_epoch(forgotten->promised);
  return grpc::Status::OK;
}

std::vector<Acceptor::VolumeStatus> ControlService::FillTotals(
    int64_t now_ns, control::ReplicaStatusResponse* response) {
  absl::MutexLock lock(&acceptor_.mutex);
  response->set_incarnation(acceptor_.acceptor.incarnation());
  response->set_version(version_);
  response->set_host(host_);
  response->set_slots(acceptor_.acceptor.slot_count());
  response->set_slots_used(static_cast<uint32_t>(acceptor_.acceptor.volume_count()));
  response->set_granted_bytes(acceptor_.acceptor.granted_bytes());
  response->set_promises(static_cast<uint32_t>(acceptor_.acceptor.promise_count()));
  response->set_promises_most(static_cast<uint32_t>(acceptor_.acceptor.most_promises()));
  response->set_memory_bytes(acceptor_.acceptor.memory_bytes());
  response->set_free_bytes(acceptor_.acceptor.free_bytes());
  response->set_uptime_s(static_cast<uint64_t>((now_ns - start_ns_) / 1'000'000'000));
  return acceptor_.acceptor.Status(now_ns);
}

control::ReplicaStatusResponse::Owner ControlService::OwnerFor(const Caller& caller,
                                                               const std::string& bytes) const {
  using Status = control::ReplicaStatusResponse;
  const absl::StatusOr<VolumeId> volume = ParseVolume(bytes);
  if (!volume.ok() || owners_ == nullptr || !caller.identity) return Status::OWNER_UNKNOWN;
  const std::string owner = owners_->OwnerOf(*volume);
  if (owner.empty()) return Status::OWNER_NONE;
  return owner == caller.identity->ToString() ? Status::OWNER_CALLER : Status::OWNER_OTHER;
}

grpc::Status ControlService::Status(grpc::ServerContext* context,
                                    const control::ReplicaStatusRequest* request,
                                    control::ReplicaStatusResponse* response) {
  const Caller caller = CallerOf(context);
  if (const absl::Status admitted = Admit(caller); !admitted.ok()) return ToGrpc(admitted);
  const int64_t now_ns = clock_.MonotonicNanos();
  response->set_store(promises_.id());
  response->set_now_unix_ms(static_cast<uint64_t>(clock_.RealtimeNanos() / 1'000'000));
  response->set_asked_owner(OwnerFor(caller, request->volume()));
  const std::vector<Acceptor::VolumeStatus> volumes = FillTotals(now_ns, response);
  // Without the acceptor's lock: that of the owners is held over writes to the disk.
  for (const Acceptor::VolumeStatus& status : volumes) {
    if (!MaySee(caller, status.volume)) continue;
    control::ReplicaStatusResponse::Volume* const volume = response->add_volumes();
    volume->set_volume(std::string(reinterpret_cast<const char*>(status.volume.bytes.data()),
                                   status.volume.bytes.size()));
    FillInventory(status.inventory, volume->mutable_inventory());
    volume->set_memory_bytes(status.memory_bytes);
    volume->set_silent_s(static_cast<uint64_t>(status.silent_ns / 1'000'000'000));
    const std::string owner = owners_ == nullptr ? "" : owners_->OwnerOf(status.volume);
    volume->set_owner(owner);
    volume->set_peer(owner.empty() ? PeerText(status.peer) : "");
  }
  for (const CallEntry& entry : shared_->calls.Recent()) {
    const absl::StatusOr<VolumeId> named = ParseVolume(entry.volume);
    if (!MaySee(caller, named.ok() ? *named : VolumeId{})) continue;
    control::ReplicaStatusResponse::Call* const call = response->add_calls();
    call->set_at_unix_ms(entry.at_unix_ms);
    call->set_kind(std::string(CallName(entry.kind)));
    call->set_accepted(entry.accepted);
    call->set_volume(entry.volume);
    call->set_epoch(entry.epoch);
    call->set_peer(entry.peer);
    call->set_identity(entry.identity);
    call->set_reason(entry.reason);
  }
  return grpc::Status::OK;
}

}  // namespace salius
