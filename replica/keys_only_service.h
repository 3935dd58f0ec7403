// Answers clients without keys at a replica with keys: every call is refused with the reason. A client
// of any version shows it to its user.
//
// Threads: gRPC's.
#pragma once

#include <string>

#include "proto/control.grpc.pb.h"

namespace salius {

class KeysOnlyService final : public control::Replica::Service {
 public:
  // `version`: of this replica.
  explicit KeysOnlyService(const std::string& version);

 private:
  // As a connection that is refused: the client tries again, and gets in when it has keys.
  grpc::Status Refuse() const { return {grpc::StatusCode::UNAVAILABLE, reason_}; }

  grpc::Status OpenSession(grpc::ServerContext*, const control::OpenSessionRequest*,
                           control::OpenSessionResponse*) override {
    return Refuse();
  }
  grpc::Status Fence(grpc::ServerContext*, const control::FenceRequest*,
                     control::FenceResponse*) override {
    return Refuse();
  }
  grpc::Status Inventory(grpc::ServerContext*, const control::InventoryRequest*,
                         control::InventoryResponse*) override {
    return Refuse();
  }
  grpc::Status Fetch(grpc::ServerContext*, const control::FetchRequest*,
                     grpc::ServerWriter<control::FetchResponse>*) override {
    return Refuse();
  }
  grpc::Status DropVolume(grpc::ServerContext*, const control::DropVolumeRequest*,
                          control::DropVolumeResponse*) override {
    return Refuse();
  }
  grpc::Status ForgetVolume(grpc::ServerContext*, const control::ForgetVolumeRequest*,
                            control::ForgetVolumeResponse*) override {
    return Refuse();
  }
  grpc::Status Status(grpc::ServerContext*, const control::ReplicaStatusRequest*,
                      control::ReplicaStatusResponse*) override {
    return Refuse();
  }

  const std::string reason_;
};

}  // namespace salius
