// A replica's start and stop: what is refused, and what the next process finds.
#include <sys/socket.h>

#include <filesystem>
#include <string>

#include "tests/unit/replica/server_testing.h"

namespace salius {
namespace {

TEST_F(ServerTest, StoppedServerLeavesTheArenaToTheNext) {
  StartWithSession();
  client_->SendRecords({TestRecord(1)});
  ASSERT_TRUE(client_->Receive().has_value());
  const Incarnation incarnation = client_->Inventory().incarnation();
  server_.reset();
  Start();
  EXPECT_EQ(client_->Inventory().incarnation(), incarnation);
  EXPECT_EQ(client_->Fetch().records, TestRecord(1));
}

TEST_F(ServerTest, PortInUseIsNamedAndLeavesNoArena) {
  Start();
  ReplicaOptions second = Options();
  const ShmDir other;
  second.listen.port = server_->port();
  second.shm_dir = other.path();
  const absl::Status status = ReplicaServer::Start(second, SystemClock()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(server_->port())));
  EXPECT_TRUE(std::filesystem::is_empty(other.path()));
}

TEST_F(ServerTest, TcpPortInUseIsNamed) {
  const SocketAddress any = ResolveAddress(HostPort{"127.0.0.1", 0}).value();
  UniqueFd tcp(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(bind(tcp.get(), any.get(), any.length), 0);
  ASSERT_EQ(listen(tcp.get(), 1), 0);
  SocketAddress taken = any;
  ASSERT_EQ(getsockname(tcp.get(), taken.get(), &taken.length), 0);
  ReplicaOptions options = Options();
  options.listen.port = taken.port();
  const absl::Status status = ReplicaServer::Start(options, SystemClock()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(taken.port())));
}

TEST_F(ServerTest, ArenaInUseIsRefused) {
  Start();
  const absl::Status status = ReplicaServer::Start(Options(), SystemClock()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(shm_.path()));
}

TEST_F(ServerTest, PublicAddressNeedsInsecure) {
  ReplicaOptions options = Options();
  options.listen.host = "0.0.0.0";
  const absl::Status status = ReplicaServer::Start(options, SystemClock()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--insecure"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("authentication"));
  options.insecure = true;
  EXPECT_TRUE(ReplicaServer::Start(options, SystemClock()).ok());
}

TEST_F(ServerTest, PublicMetricsAddressNeedsInsecure) {
  ReplicaOptions options = Options();
  options.metrics = "0.0.0.0:0";
  EXPECT_EQ(ReplicaServer::Start(options, SystemClock()).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(ServerTest, MulticastListenAddressIsRefused) {
  ReplicaOptions options = Options();
  options.listen.host = "239.1.2.3";
  EXPECT_EQ(ReplicaServer::Start(options, SystemClock()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ServerTest, MetricsAreServed) {
  ReplicaOptions options = Options();
  options.metrics = "127.0.0.1:0";
  Start(options);
  EXPECT_GT(server_->metrics_port(), 0);
  for (const char* const name :
       {"salius_replica_records_total", "salius_replica_acks_total",
        "salius_replica_drops_total{reason=\"memory_full\"}", "salius_replica_memory_bytes",
        "salius_replica_memory_used_bytes", "salius_replica_memory_free_bytes",
        "salius_replica_volumes", "salius_replica_overdue_volumes",
        "salius_replica_incarnation{incarnation="}) {
    EXPECT_THAT(MetricsText(), HasSubstr(name));
  }
}

}  // namespace
}  // namespace salius
