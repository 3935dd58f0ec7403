#include "client/cli/rpc.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "common/net.h"
#include "proto/control.grpc.pb.h"
#include "transport/grpc_factory.h"

namespace salius::cli {
namespace {

class FakePrimary final : public control::Primary::Service {
  grpc::Status VolumeStatus(grpc::ServerContext*, const control::VolumeStatusRequest*,
                            control::VolumeStatusResponse* response) override {
    response->set_mode("replicated");
    return grpc::Status::OK;
  }
};

class FakeReplica final : public control::Replica::Service {
  grpc::Status Status(grpc::ServerContext*, const control::ReplicaStatusRequest*,
                      control::ReplicaStatusResponse* response) override {
    response->set_incarnation(7);
    return grpc::Status::OK;
  }
};

class HostileReplica final : public control::Replica::Service {
  grpc::Status Status(grpc::ServerContext*, const control::ReplicaStatusRequest*,
                      control::ReplicaStatusResponse*) override {
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "later\x1b[2J\nall is well");
  }
};

std::string TempDir() {
  std::string pattern = "/tmp/salius-rpc-XXXXXX";  // short: a unix socket's path is limited
  return mkdtemp(pattern.data());
}

std::unique_ptr<TcpServer> ServeOnLoopback(grpc::Service& service) {
  return ServeTcp(Resolve(HostPort{"127.0.0.1", 0}).value(), service).value();
}

TEST(RpcTest, MountedVolumeAnswersAtItsSocket) {
  const std::string path = TempDir() + "/v.sock";
  FakePrimary service;
  const auto server = ServeLocal(path, service);
  ASSERT_TRUE(server.ok()) << server.status();
  const auto status = CallVolumeStatus(path);
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->mode(), "replicated");
}

TEST(RpcTest, ReplicaAnswersOverTcp) {
  FakeReplica service;
  const auto server = ServeOnLoopback(service);
  const auto status = CallReplicaStatus("127.0.0.1:" + std::to_string(server->port()));
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->incarnation(), 7u);
}

TEST(RpcTest, NoSocketIsNotFound) {
  EXPECT_TRUE(absl::IsNotFound(CallVolumeStatus("/nonexistent/v.sock").status()));
}

TEST(RpcTest, SocketOfADeadMountIsUnavailable) {
  const std::string path = TempDir() + "/v.sock";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  close(fd);  // the file stays, without a listener
  const absl::Status status = CallVolumeStatus(path).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_NE(status.message().find(path), absl::string_view::npos) << status;
}

TEST(RpcTest, ReplicaThatIsNotThereIsUnavailable) {
  // Port 1 of loopback: refused at once.
  EXPECT_TRUE(absl::IsUnavailable(CallReplicaStatus("127.0.0.1:1").status()));
}

TEST(RpcTest, ReplicasTextIsEscapedForTerminals) {
  HostileReplica service;
  const auto server = ServeOnLoopback(service);
  const std::string place = "127.0.0.1:" + std::to_string(server->port());
  EXPECT_EQ(CallReplicaStatus(place).status(),
            absl::UnavailableError("replica " + place + ": later?[2J?all is well"));
}

}  // namespace
}  // namespace salius::cli
