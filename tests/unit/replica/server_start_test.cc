// A replica's start and stop: refusals, and the state that the next process finds.
#include <prometheus/text_serializer.h>
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
  ReplicaOptions second = Options();
  const ShmDir other;
  second.state_dir = other.path();
  absl::Status status = ReplicaServer::Start(second, SystemClock()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(shm_.path()));
  second = Options();
  second.shm_dir = other.path();
  status = ReplicaServer::Start(second, SystemClock()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(state_.path()));
}

bool FenceVolume(ReplicaClient& client, control::FenceResponse* response) {
  control::FenceRequest request;
  request.set_volume(ReplicaClient::Bytes(TestVolume()));
  request.set_epoch(2);
  request.set_token(5);
  grpc::ClientContext context;
  return client.stub().Fence(&context, request, response).ok();
}

TEST_F(ServerTest, AFenceOutlivesTheMemory) {
  StartWithSession();
  control::FenceResponse fenced;
  ASSERT_TRUE(FenceVolume(*client_, &fenced));
  EXPECT_NE(fenced.store(), 0u);
  server_.reset();
  std::filesystem::remove_all(shm_.path());
  Start();
  EXPECT_NE(client_->Inventory().incarnation(), fenced.incarnation());
  EXPECT_EQ(client_->Inventory().store(), fenced.store());
  EXPECT_EQ(client_->Inventory().inventory().promised_epoch(), 2u);
  EXPECT_EQ(client_->Open().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  client_->SendRecords({TestRecord(1)});
  const auto acked = client_->Receive();
  ASSERT_TRUE(acked.has_value());
  EXPECT_EQ(acked->ack.flags, kAckFenced);
}

TEST_F(ServerTest, LostOrDamagedPromisesAreANewStore) {
  StartWithSession();
  control::FenceResponse fenced;
  ASSERT_TRUE(FenceVolume(*client_, &fenced));
  uint64_t store = fenced.store();
  for (const bool damaged : {true, false}) {
    server_.reset();
    const std::string file = state_.path() + "/promises";
    if (damaged) {
      std::filesystem::resize_file(file, 70);
    } else {
      std::filesystem::remove(file);
    }
    Start();
    const auto inventory = client_->Inventory();
    EXPECT_NE(inventory.store(), store);
    store = inventory.store();
    // The memory still has the promise of a volume with a log.
    EXPECT_EQ(inventory.inventory().promised_epoch(), 2u);
  }
}

TEST_F(ServerTest, NothingIsPromisedThatCannotBeKept) {
  StartWithSession();
  // The file cannot be replaced any more, as on a disk that gives errors.
  std::filesystem::create_directory(state_.path() + "/promises.tmp");
  control::FenceResponse fenced;
  EXPECT_FALSE(FenceVolume(*client_, &fenced));
  EXPECT_EQ(client_->Open(ReplicaClient::SessionRequest(3, 79)).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  // A promise that could not be written is in force all the same.
  client_->SendRecords({TestRecord(1)});
  const auto acked = client_->Receive();
  ASSERT_TRUE(acked.has_value());
  EXPECT_EQ(acked->ack.flags, kAckFenced);
  std::filesystem::remove(state_.path() + "/promises.tmp");
  EXPECT_TRUE(client_->Open(ReplicaClient::SessionRequest(3, 79)).ok());
}

TEST_F(ServerTest, AnArenaThatWasPutBackIsAnotherIncarnation) {
  StartWithSession();
  const Incarnation incarnation = client_->Inventory().incarnation();
  server_.reset();
  const ShmDir kept;
  std::filesystem::copy_file(shm_.path() + "/arena", kept.path() + "/arena");
  Start();
  EXPECT_EQ(client_->Inventory().incarnation(), incarnation);
  server_.reset();
  std::filesystem::copy_file(kept.path() + "/arena", shm_.path() + "/arena",
                             std::filesystem::copy_options::overwrite_existing);
  Start();
  EXPECT_NE(client_->Inventory().incarnation(), incarnation);
}

TEST_F(ServerTest, AVolumeIsForgottenOverGrpc) {
  StartWithSession();
  control::ForgetVolumeRequest request;
  request.set_volume(ReplicaClient::Bytes(TestVolume()));
  control::ForgetVolumeResponse response;
  grpc::ClientContext refused, forced;
  const grpc::Status status = client_->stub().ForgetVolume(&refused, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("127.0.0.1"));
  request.set_force(true);
  EXPECT_TRUE(client_->stub().ForgetVolume(&forced, request, &response).ok());
  EXPECT_TRUE(response.known());
  EXPECT_FALSE(client_->Inventory().inventory().known());
}

TEST_F(ServerTest, PublicAddressNeedsInsecure) {
  ReplicaOptions options = Options();
  options.insecure = false;
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
  options.insecure = false;
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
  const std::string text = prometheus::TextSerializer().Serialize(server_->metrics().Collect());
  for (const char* const name :
       {"salius_replica_records_total", "salius_replica_acks_total",
        "salius_replica_drops_total{reason=\"memory_full\"}", "salius_replica_memory_bytes",
        "salius_replica_memory_used_bytes", "salius_replica_memory_free_bytes",
        "salius_replica_volumes", "salius_replica_overdue_volumes",
        "salius_replica_incarnation{incarnation="}) {
    EXPECT_THAT(text, HasSubstr(name));
  }
}

}  // namespace
}  // namespace salius
