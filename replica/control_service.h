// The control plane: service Replica of proto/control.proto over the acceptor.
//
// Callers at the unix socket have a service of their own for each user, which shares its state with
// that of the TCP port.
//
// Threads: gRPC's. Each call holds the acceptor's lock briefly (replica/shared_acceptor.h). Fetch
// takes it for one piece at a time, so that a recovery does not stop other volumes'
// acknowledgements. Calls wait for the disk with the promise file without that lock.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "proto/control.grpc.pb.h"
#include "replica/call_log.h"
#include "replica/caller_limits.h"
#include "replica/owner_book.h"
#include "replica/owner_keeper.h"
#include "replica/promise_keeper.h"
#include "replica/receive_loop.h"
#include "replica/session_keys.h"
#include "replica/shared_acceptor.h"
#include "transport/caller.h"

namespace salius {

class ControlService final : public control::Replica::Service {
 public:
  // All must outlive the service. OpenSession and Status report `version`. With `owners` a caller
  // needs an identity (else UNAUTHENTICATED), which may act on its own volumes only
  // (PERMISSION_DENIED); null: there are no keys. `keys`: of the sessions, whose datagrams are
  // sealed; null: they are not.
  ControlService(SharedAcceptor& acceptor, PromiseKeeper& promises, ReceiveLoop& loop, Clock& clock,
                 std::string version, OwnerKeeper* owners = nullptr, SessionKeys* keys = nullptr);
  // Makes a service for the callers of one user of this host; it shares everything with `first`,
  // which must outlive it and have no owners.
  ControlService(ControlService& first, uid_t user);

  // Makes OpenSession answer UNAVAILABLE from now on; the other calls still work.
  void StopSessions() { shared_->stopping.store(true); }

  grpc::Status OpenSession(grpc::ServerContext* context, const control::OpenSessionRequest* request,
                           control::OpenSessionResponse* response) override;
  grpc::Status Fence(grpc::ServerContext* context, const control::FenceRequest* request,
                     control::FenceResponse* response) override;
  grpc::Status Inventory(grpc::ServerContext* context, const control::InventoryRequest* request,
                         control::InventoryResponse* response) override;
  grpc::Status Fetch(grpc::ServerContext* context, const control::FetchRequest* request,
                     grpc::ServerWriter<control::FetchResponse>* writer) override;
  // Streams the records to `write`. CANCELLED when `write` returns false: the reader has gone.
  grpc::Status FetchTo(const control::FetchRequest& request,
                       const std::function<bool(const control::FetchResponse&)>& write);
  grpc::Status DropVolume(grpc::ServerContext* context, const control::DropVolumeRequest* request,
                          control::DropVolumeResponse* response) override;
  grpc::Status ForgetVolume(grpc::ServerContext* context,
                            const control::ForgetVolumeRequest* request,
                            control::ForgetVolumeResponse* response) override;
  grpc::Status Status(grpc::ServerContext* context, const control::ReplicaStatusRequest* request,
                      control::ReplicaStatusResponse* response) override;

 private:
  // The state that the services of one replica share.
  struct Shared {
    CallLog calls;
    std::atomic<bool> stopping{false};
    absl::Mutex joining;  // held from the joining of a group until a session names it
  };

  // Returns the caller, also of a call at the unix socket, which has the loopback address.
  Caller CallerOf(const grpc::ServerContextBase* context) const;
  // Do the work of the calls. The callers note it in `calls_`.
  grpc::Status DoOpen(const Caller& caller, const control::OpenSessionRequest& request,
                      control::OpenSessionResponse* response);
  grpc::Status DoFence(const Caller& caller, const control::FenceRequest& request,
                       control::FenceResponse* response);
  grpc::Status DoDrop(const Caller& caller, const control::DropVolumeRequest& request,
                      control::DropVolumeResponse* response);
  grpc::Status DoForget(const Caller& caller, const control::ForgetVolumeRequest& request,
                        control::ForgetVolumeResponse* response);
  // Checks that the caller may make calls at all: UNAUTHENTICATED, RESOURCE_EXHAUSTED.
  absl::Status Admit(const Caller& caller);
  // Makes the call if the caller may act on the volume.
  grpc::Status Guard(const Caller& caller, OwnerBook::Action action, const std::string& volume,
                     absl::FunctionRef<grpc::Status()> call);
  // Fills in what Status shows of the whole replica; returns the volumes.
  std::vector<Acceptor::VolumeStatus> FillTotals(int64_t now_ns,
                                                 control::ReplicaStatusResponse* response);
  // Returns who owns the volume that a status names, as far as the caller may know.
  control::ReplicaStatusResponse::Owner OwnerFor(const Caller& caller,
                                                 const std::string& bytes) const;
  // Returns whether the status shows the volume to the caller.
  bool MaySee(const Caller& caller, const VolumeId& volume) const;
  // Returns whether there is a log or a promise of the volume.
  bool Uses(const VolumeId& volume);
  grpc::Status DoInventory(const control::InventoryRequest& request,
                           control::InventoryResponse* response);
  // Notes a call of `caller`, and returns its status. `refused`: the reason for a
  // call that is refused with the status OK; empty: none.
  grpc::Status Note(CallKind kind, const Caller& caller, const std::string& volume,
                    Epoch epoch, grpc::Status status, std::string refused = "");
  // Checks that both ends seal, or neither. At the unix socket the primary decides.
  absl::Status CheckSealing(const control::OpenSessionRequest& request) const;
  // Takes the request's key for its session, which is open, and answers with the one for
  // acknowledgements.
  absl::Status TakeKey(const VolumeId& volume, const control::OpenSessionRequest& request,
                       control::OpenSessionResponse* response);
  // Forgets the keys of a volume whose log was dropped.
  void DropKeys(const VolumeId& volume);
  // Writes the promises; call it before an answer that promises something. UNAVAILABLE when they
  // are not on the disk.
  absl::Status PersistPromises(const VolumeId& volume);

  SharedAcceptor& acceptor_;
  PromiseKeeper& promises_;
  ReceiveLoop& loop_;
  Clock& clock_;
  const std::string version_;
  OwnerKeeper* const owners_;
  SessionKeys* const keys_;
  const std::string host_;  // boot id of this host, empty: not known
  const int64_t start_ns_;
  const std::optional<uid_t> local_user_;  // of all callers; none: they come by the network
  const std::shared_ptr<Shared> shared_;
  absl::Mutex limits_mutex_;
  CallerLimits limits_ ABSL_GUARDED_BY(limits_mutex_);
};

}  // namespace salius
