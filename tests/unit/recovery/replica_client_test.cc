#include "recovery/agree/replica_client.h"

#include <grpcpp/grpcpp.h>

#include <thread>

#include "absl/synchronization/notification.h"
#include "common/crc32c.h"
#include "common/limits.h"
#include "common/net.h"
#include "proto/control.grpc.pb.h"
#include "tests/unit/recovery/test_util.h"
#include "transport/grpc_factory.h"

namespace salius::recovery {
namespace {

// A service that answers as the test sets it.
class Service : public control::Replica::Service {
 public:
  grpc::Status Fence(grpc::ServerContext* context, const control::FenceRequest* request,
                     control::FenceResponse* response) override {
    if (hang) {
      entered.Notify();
      while (!context->IsCancelled()) std::this_thread::yield();
      return grpc::Status::CANCELLED;
    }
    fence = *request;
    response->set_accepted(accept);
    response->set_promised_epoch(9);
    response->set_incarnation(77);
    *response->mutable_inventory() = inventory;
    return fence_status;
  }
  grpc::Status Inventory(grpc::ServerContext*, const control::InventoryRequest*,
                         control::InventoryResponse* response) override {
    response->set_incarnation(77);
    *response->mutable_inventory() = inventory;
    return grpc::Status::OK;
  }
  grpc::Status Fetch(grpc::ServerContext* context, const control::FetchRequest* request,
                     grpc::ServerWriter<control::FetchResponse>* writer) override {
    fetch = *request;
    control::FetchResponse response;
    response.set_count(chunks.size());
    response.set_incarnation(77);
    if (send_count) writer->Write(response);
    for (const std::string& chunk : chunks) {
      response.Clear();
      response.set_records(chunk);
      response.set_crc32c(Crc32c(AsBytes(chunk)) ^ (damage ? 1 : 0));
      if (!writer->Write(response)) return grpc::Status::CANCELLED;
      ++sent;
    }
    if (hang && !entered.HasBeenNotified()) entered.Notify();
    while (hang && !context->IsCancelled()) std::this_thread::yield();
    return fetch_status;
  }
  grpc::Status DropVolume(grpc::ServerContext*, const control::DropVolumeRequest* request,
                          control::DropVolumeResponse*) override {
    drop = *request;
    return grpc::Status::OK;
  }

  bool accept = true, hang = false, send_count = true, damage = false;
  control::VolumeInventory inventory;
  std::vector<std::string> chunks;
  grpc::Status fence_status, fetch_status;
  control::FenceRequest fence;
  control::FetchRequest fetch;
  control::DropVolumeRequest drop;
  int sent = 0;
  absl::Notification entered;
};

class ReplicaClientTest : public ::testing::Test {
 protected:
  ~ReplicaClientTest() override {
    server_.reset();
  }

  // Returns a client of service_, which serves from the first call on. Its threads see all that a
  // test sets before.
  ReplicaClient& client() {
    if (server_ == nullptr) {
      server_ = ServeTcp(Resolve(HostPort{"127.0.0.1", 0}).value(), service_).value();
      address_ = "127.0.0.1:" + std::to_string(server_->port());
      client_ = connector_->Connect(address_);
    }
    return *client_;
  }

  absl::Status Fetch(uint64_t timeout_ms = 10000) {
    got_.clear();
    return client().Fetch(
        TestVolume(), 7, 5, timeout_ms,
        [this](uint64_t count, Incarnation incarnation) {
          count_ = count;
          fetched_incarnation_ = incarnation;
          return count_status_;
        },
        [this](std::string chunk) {
          got_.push_back(std::move(chunk));
          return chunk_status_;
        });
  }

  Service service_;
  std::unique_ptr<TcpServer> server_;
  std::unique_ptr<ReplicaConnector> connector_ = MakeGrpcConnector();
  std::string address_;
  std::unique_ptr<ReplicaClient> client_;
  uint64_t count_ = 0;
  Incarnation fetched_incarnation_ = 0;
  std::vector<std::string> got_;
  absl::Status count_status_, chunk_status_;
};

TEST_F(ReplicaClientTest, FenceCarriesEverything) {
  service_.inventory.set_known(true);
  service_.inventory.set_epoch(7);
  service_.inventory.set_base(2);
  service_.inventory.set_contiguous(3);
  service_.inventory.set_highest(4);
  service_.inventory.set_records(5);
  service_.inventory.set_bytes(6);
  service_.inventory.set_trimmed(8);
  service_.inventory.set_durable_mark(10);
  service_.inventory.set_checkpoint_mark(11);
  const auto result = client().Fence(TestVolume(), 8, 42, 10000);
  ASSERT_OK(result.status());
  EXPECT_EQ(service_.fence.volume(), std::string(16, '\x5A'));
  EXPECT_EQ(service_.fence.epoch(), 8u);
  EXPECT_EQ(service_.fence.token(), 42u);
  EXPECT_TRUE(result->accepted);
  EXPECT_EQ(result->answer.incarnation, 77u);
  const Inventory& inventory = result->answer.inventory;
  EXPECT_TRUE(inventory.known);
  EXPECT_EQ(inventory.epoch, 7u);
  EXPECT_EQ(inventory.base, 2u);
  EXPECT_EQ(inventory.contiguous, 3u);
  EXPECT_EQ(inventory.highest, 4u);
  EXPECT_EQ(inventory.records, 5u);
  EXPECT_EQ(inventory.bytes, 6u);
  EXPECT_EQ(inventory.trimmed, 8u);
  EXPECT_EQ(inventory.durable_mark, 10u);
  EXPECT_EQ(inventory.checkpoint_mark, 11u);
  EXPECT_EQ(inventory.promised_epoch, 9u);
}

TEST_F(ReplicaClientTest, ImpossibleNumbersAreDataLoss) {
  service_.inventory.set_highest(kMaxCount);
  service_.inventory.set_bytes(UINT64_MAX);
  ASSERT_OK(client().Ask(TestVolume(), 10000).status());
  service_.inventory.set_highest(kMaxCount + 1);
  EXPECT_TRUE(absl::IsDataLoss(client().Ask(TestVolume(), 10000).status()));
  EXPECT_TRUE(absl::IsDataLoss(client().Fence(TestVolume(), 8, 42, 10000).status()));
}

TEST_F(ReplicaClientTest, ARefusalIsNoError) {
  service_.accept = false;
  const auto result = client().Fence(TestVolume(), 8, 42, 10000);
  ASSERT_OK(result.status());
  EXPECT_FALSE(result->accepted);
}

TEST_F(ReplicaClientTest, ErrorsKeepTheirCodeAndNameTheReplica) {
  service_.fence_status = grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "no room");
  const absl::Status status = client().Fence(TestVolume(), 8, 42, 10000).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_NE(status.message().find(address_), absl::string_view::npos);
}

TEST_F(ReplicaClientTest, ReplicasTextIsEscapedForTerminals) {
  service_.fence_status = grpc::Status(grpc::StatusCode::INTERNAL, "\x1b[2J\nrecovered");
  const absl::Status status = client().Fence(TestVolume(), 8, 42, 10000).status();
  EXPECT_EQ(status.message(), "replica " + address_ + ": ?[2J?recovered");
}

TEST_F(ReplicaClientTest, AskAndDrop) {
  service_.inventory.set_epoch(7);
  const auto answer = client().Ask(TestVolume(), 10000);
  ASSERT_OK(answer.status());
  EXPECT_EQ(answer->inventory.epoch, 7u);
  EXPECT_EQ(answer->address, address_);
  ASSERT_OK(client().Drop(TestVolume(), 7, 10000));
  EXPECT_EQ(service_.drop.epoch(), 7u);
}

TEST_F(ReplicaClientTest, ChunksArriveInOrderAfterTheCount) {
  service_.chunks = {"one", "two", "three"};
  ASSERT_OK(Fetch());
  EXPECT_EQ(count_, 3u);
  EXPECT_EQ(fetched_incarnation_, 77u);
  EXPECT_EQ(got_, service_.chunks);
  EXPECT_EQ(service_.fetch.after(), 5u);
  EXPECT_EQ(service_.fetch.epoch(), 7u);
}

TEST_F(ReplicaClientTest, ADamagedChunkIsDataLossAndNotHandedOn) {
  service_.chunks = {"one"};
  service_.damage = true;
  EXPECT_TRUE(absl::IsDataLoss(Fetch()));
  EXPECT_TRUE(got_.empty());
}

TEST_F(ReplicaClientTest, EnoughEndsTheStreamWithoutAnError) {
  service_.chunks = std::vector<std::string>(1000, std::string(10000, 'x'));
  chunk_status_ = absl::CancelledError("enough");
  ASSERT_OK(Fetch());
  EXPECT_EQ(got_.size(), 1u);
}

TEST_F(ReplicaClientTest, AnErrorOfTheCallerEndsTheStreamAndComesBack) {
  service_.chunks = {"one", "two"};
  chunk_status_ = absl::InternalError("mine");
  EXPECT_EQ(Fetch(), absl::InternalError("mine"));
  count_status_ = absl::InternalError("count");
  EXPECT_EQ(Fetch(), absl::InternalError("count"));
}

TEST_F(ReplicaClientTest, AStreamThatBreaksIsUnavailable) {
  service_.chunks = {"one"};
  service_.fetch_status = grpc::Status(grpc::StatusCode::UNAVAILABLE, "going down");
  EXPECT_TRUE(absl::IsUnavailable(Fetch()));
  EXPECT_EQ(got_.size(), 1u);
}

TEST_F(ReplicaClientTest, AStreamWithoutACountIsDataLoss) {
  service_.send_count = false;
  EXPECT_TRUE(absl::IsDataLoss(Fetch()));
}

TEST_F(ReplicaClientTest, RefusedConnectionIsUnavailable) {
  const auto nobody = connector_->Connect("127.0.0.1:1");
  EXPECT_TRUE(absl::IsUnavailable(nobody->Ask(TestVolume(), 10000).status()));
}

TEST_F(ReplicaClientTest, AHangingReplicaRunsIntoTheDeadline) {
  service_.hang = true;
  EXPECT_TRUE(absl::IsDeadlineExceeded(client().Fence(TestVolume(), 8, 42, 100).status()));
}

TEST_F(ReplicaClientTest, StoppedStreamRunsIntoTheDeadline) {
  service_.hang = true;
  service_.chunks = {"one"};
  EXPECT_TRUE(absl::IsDeadlineExceeded(Fetch(3000)));
  EXPECT_EQ(got_.size(), 1u);
}

TEST_F(ReplicaClientTest, CancelEndsACallUnderWayAndAllLaterOnes) {
  service_.hang = true;
  ReplicaClient& served = client();
  std::thread canceller([&] {
    service_.entered.WaitForNotification();
    served.Cancel();
  });
  EXPECT_TRUE(absl::IsCancelled(client().Fence(TestVolume(), 8, 42, 600'000).status()));
  canceller.join();
  EXPECT_TRUE(absl::IsCancelled(client().Ask(TestVolume(), 10000).status()));
}

TEST_F(ReplicaClientTest, CancelCallEndsTheOneUnderWayOnly) {
  service_.hang = true;
  ReplicaClient& served = client();
  std::thread canceller([&] {
    service_.entered.WaitForNotification();
    served.CancelCall();
  });
  EXPECT_TRUE(absl::IsCancelled(Fetch(600'000)));
  canceller.join();
  EXPECT_OK(client().Ask(TestVolume(), 10000).status());
}

}  // namespace
}  // namespace salius::recovery
