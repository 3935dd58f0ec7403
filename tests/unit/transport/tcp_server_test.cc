// The TCP server of control calls: with too many connections, and without free descriptors.
#include "transport/tcp_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "common/file.h"
#include "common/metrics.h"
#include "common/net.h"
#include "gtest/gtest.h"
#include "proto/control.grpc.pb.h"
#include "transport/grpc_factory.h"

namespace salius {
namespace {

constexpr int kPatienceMs = 60'000;
constexpr rlim_t kDescriptors = 256;
constexpr size_t kPerHost = 32;

class FakeReplica : public control::Replica::Service {
  grpc::Status Status(grpc::ServerContext* context, const control::ReplicaStatusRequest*,
                      control::ReplicaStatusResponse* response) override {
    response->set_version(context->peer());
    return grpc::Status::OK;
  }
};

SocketAddress Address(const std::string& host, uint16_t port) {
  return Resolve(HostPort{host, port}).value();
}

double Closed(const char* of) {
  return GetCounter("salius_control_connections_closed_total", "", {{"of", of}}).Value();
}

double Failed() { return GetCounter("salius_control_accepts_failed_total", "").Value(); }

// Waits until the other end has closed a connection.
bool Ends(const UniqueFd& connection) {
  pollfd ready{connection.get(), POLLIN, 0};
  char byte;
  for (;;) {
    if (poll(&ready, 1, kPatienceMs) != 1) return false;
    const ssize_t got = read(connection.get(), &byte, 1);
    if (got <= 0) return true;  // Else it is the server's part of HTTP/2's beginning.
  }
}

// Returns whether a connection gets the server's settings of HTTP/2 within a time, and not its end.
bool IsServed(const UniqueFd& connection, int patience_ms) {
  pollfd ready{connection.get(), POLLIN, 0};
  char byte;
  return poll(&ready, 1, patience_ms) == 1 && read(connection.get(), &byte, 1) == 1;
}

class TcpServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    rlimit lower = before_;
    lower.rlim_cur = kDescriptors;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &lower), 0);
    Serve(Address("127.0.0.1", 0));
  }
  void TearDown() override {
    server_.reset();
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before_), 0);
  }
  void Serve(const SocketAddress& listen) {
    auto made = ServeTcp(listen, service_);
    ASSERT_TRUE(made.ok()) << made.status();
    server_ = *std::move(made);
  }
  // Returns a connection from `host`, an address of this host.
  UniqueFd Connect(const std::string& host) {
    UniqueFd made(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_TRUE(made.valid());
    const SocketAddress from = Address(host, 0), to = Address("127.0.0.1", server_->port());
    EXPECT_EQ(bind(made.get(), from.get(), from.length), 0);
    EXPECT_EQ(connect(made.get(), to.get(), to.length), 0);
    return made;
  }
  // Returns what the server calls this peer.
  absl::StatusOr<std::string> Ask(const std::string& host = "127.0.0.1") {
    grpc::ClientContext context;
    SetCallTimeout(context, std::chrono::milliseconds(kPatienceMs));
    context.set_wait_for_ready(true);
    control::ReplicaStatusResponse response;
    const std::string to = HostPort{host, server_->port()}.ToString();
    const grpc::Status status =
        control::Replica::NewStub(TcpChannel(to, {.own_connection = true}))
            ->Status(&context, {}, &response);
    if (!status.ok()) return CallStatus(status, "replica");
    return response.version();
  }

  rlimit before_{};
  FakeReplica service_;
  std::unique_ptr<TcpServer> server_;
};

TEST_F(TcpServerTest, HostThatFloodsLosesTheSurplusAndOthersGetIn) {
  const double closed = Closed("host");
  std::vector<UniqueFd> flood;
  for (size_t i = 0; i < kPerHost + 5; ++i) flood.push_back(Connect("127.0.0.2"));
  // They are accepted in their order.
  for (size_t i = kPerHost; i < flood.size(); ++i) EXPECT_TRUE(Ends(flood[i])) << i;
  EXPECT_EQ(Closed("host"), closed + 5);
  EXPECT_EQ(Ask().value().rfind("ipv4:127.0.0.1:", 0), 0u) << "another host";
  // The flood ends: its host is served again. The server sees that within a moment.
  flood.clear();
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
  while (!IsServed(Connect("127.0.0.2"), kPatienceMs)) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
  }
}

TEST_F(TcpServerTest, AllHostsTogetherAreBounded) {
  const double closed = Closed("all");
  std::vector<UniqueFd> held;
  // The client's ends are descriptors of this process too.
  rlimit more = before_;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &more), 0);
  for (const char* const host : {"127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"}) {
    for (size_t i = 0; i < kPerHost; ++i) held.push_back(Connect(host));
  }
  const UniqueFd surplus = Connect("127.0.0.6");
  EXPECT_TRUE(Ends(surplus));
  EXPECT_GE(Closed("all"), closed + 1);
  held.clear();
  EXPECT_TRUE(Ask().ok());
}

TEST_F(TcpServerTest, ServesAgainAfterDescriptorsRanOut) {
  ASSERT_TRUE(Ask().ok()) << "gRPC has opened what it needs";
  const double failed = Failed();
  std::vector<UniqueFd> callers(16), taken;
  for (UniqueFd& caller : callers) caller.Reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const SocketAddress to = Address("127.0.0.1", server_->port());
  int waits = -1;
  for (size_t i = 0; i < callers.size() && waits < 0; ++i) {
    for (;;) {
      UniqueFd one(open("/dev/null", O_RDONLY | O_CLOEXEC));
      if (!one.valid()) break;
      taken.push_back(std::move(one));
    }
    ASSERT_EQ(connect(callers[i].get(), to.get(), to.length), 0);
    // gRPC may still give descriptors back: then this one is served, and the next one may wait.
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
    while (waits < 0 && !IsServed(callers[i], 10) && std::chrono::steady_clock::now() < end) {
      if (Failed() >= failed + 2) waits = static_cast<int>(i);
    }
  }
  ASSERT_GE(waits, 0);
  taken.clear();
  EXPECT_TRUE(IsServed(callers[static_cast<size_t>(waits)], kPatienceMs));
  EXPECT_TRUE(Ask().ok());
}

TEST_F(TcpServerTest, StopsWithConnectionsAndClosesThem) {
  const UniqueFd idle = Connect("127.0.0.1");
  ASSERT_TRUE(Ask().ok());
  const uint16_t port = server_->port();
  server_->Stop(std::chrono::milliseconds(0));
  EXPECT_TRUE(Ends(idle));
  server_.reset();
  Serve(Address("127.0.0.1", port));
  EXPECT_TRUE(Ask().ok());
}

TEST_F(TcpServerTest, WildcardOfIpv6TakesBothFamilies) {
  server_.reset();
  Serve(Address("::", 0));
  EXPECT_EQ(Ask("127.0.0.1").value().rfind("ipv4:127.0.0.1:", 0), 0u);
  EXPECT_EQ(Ask("::1").value().rfind("ipv6:%5B::1%5D:", 0), 0u);
}

TEST_F(TcpServerTest, AddressOfAnotherHostIsAnError) {
  const absl::Status status = ServeTcp(Address("192.0.2.1", 0), service_).status();
  EXPECT_NE(status.message().find("bind TCP 192.0.2.1:0"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace salius
