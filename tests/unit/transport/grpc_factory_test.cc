#include "transport/grpc_factory.h"

#include <stdlib.h>
#include <sys/stat.h>

#include <chrono>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/net.h"
#include "gtest/gtest.h"
#include "proto/control.grpc.pb.h"

namespace salius {
namespace {

class FakeReplica : public control::Replica::Service {
  grpc::Status Status(grpc::ServerContext*, const control::ReplicaStatusRequest*,
                      control::ReplicaStatusResponse* response) override {
    response->set_incarnation(7);
    return grpc::Status::OK;
  }
};

// Returns the incarnation that a replica behind `channel` names.
absl::StatusOr<uint64_t> Ask(const std::shared_ptr<grpc::Channel>& channel) {
  grpc::ClientContext context;
  SetCallTimeout(context, std::chrono::seconds(60));
  control::ReplicaStatusResponse response;
  const grpc::Status status =
      control::Replica::NewStub(channel)->Status(&context, {}, &response);
  if (!status.ok()) return CallStatus(status, "replica");
  return response.incarnation();
}

SocketAddress Loopback(uint16_t port) { return Resolve(HostPort{"127.0.0.1", port}).value(); }

TEST(GrpcFactoryTest, TcpServerAnswersAtItsPort) {
  FakeReplica service;
  const auto server = ServeTcp(Loopback(0), service);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = absl::StrCat("127.0.0.1:", (*server)->port());
  EXPECT_EQ(Ask(TcpChannel(address)).value(), 7u);
  EXPECT_EQ(Ask(TcpChannel(address, {.own_connection = true, .keepalive = true})).value(), 7u);
}

TEST(GrpcFactoryTest, PortInUseIsRefused) {
  FakeReplica one, two;
  const auto first = ServeTcp(Loopback(0), one);
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status second = ServeTcp(Loopback((*first)->port()), two).status();
  EXPECT_TRUE(absl::IsAlreadyExists(second)) << second;
}

TEST(GrpcFactoryTest, LocalSocketIsForThisUserOnly) {
  std::string dir = "/tmp/salius-grpc-XXXXXX";
  ASSERT_NE(mkdtemp(dir.data()), nullptr);
  const std::string path = dir + "/a.sock";
  FakeReplica service;
  const mode_t before = umask(0022);
  const auto server = ServeLocal(path, service);
  EXPECT_EQ(umask(before), 0022u) << "the process's umask is back";
  ASSERT_TRUE(server.ok()) << server.status();
  struct stat found;
  ASSERT_EQ(stat(path.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
  EXPECT_EQ(Ask(LocalChannel(path)).value(), 7u);
}

TEST(GrpcFactoryTest, LocalSocketInNoDirectoryIsUnavailable) {
  FakeReplica service;
  EXPECT_TRUE(absl::IsUnavailable(ServeLocal("/no/such/directory/a.sock", service).status()));
}

TEST(CallStatusTest, PeersMessageDoesNotActOnATerminal) {
  EXPECT_TRUE(CallStatus(grpc::Status::OK, "replica a").ok());
  EXPECT_EQ(CallStatus(grpc::Status(grpc::StatusCode::ABORTED, "no\x1b[2J\n"), "replica a"),
            absl::AbortedError("replica a: no?[2J?"));
}

}  // namespace
}  // namespace salius
