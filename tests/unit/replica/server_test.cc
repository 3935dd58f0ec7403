// A served replica, in this process, over real sockets.
#include "replica/server.h"

#include <sys/socket.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/replica/replica_client.h"

namespace salius {
namespace {

using ::testing::HasSubstr;

class ServerTest : public ::testing::Test {
 protected:
  ReplicaOptions Options() {
    ReplicaOptions options;
    options.listen = HostPort{"127.0.0.1", 0};
    options.memory_bytes = uint64_t{16} << 20;
    options.shm_dir = shm_.path();
    options.no_mlock = true;  // tests run with any limit of locked memory
    options.log_level = "off";
    return options;
  }
  void Start(const ReplicaOptions& options) {
    auto server = ReplicaServer::Start(options, SystemClock());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    client_ = std::make_unique<ReplicaClient>(server_->port());
  }
  void Start() { Start(Options()); }
  void StartWithSession() {
    Start();
    ASSERT_TRUE(client_->Open().ok());
  }
  // The counters reach the metrics at the loop's next tick.
  void ExpectDrops(const std::string& reason, uint64_t more_than) {
    Counter& counter = GetCounter("salius_replica_drops_total", "", {{"reason", reason}});
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (counter.value() <= more_than && std::chrono::steady_clock::now() < end) {
      client_->Probe();
    }
    EXPECT_GT(counter.value(), more_than) << reason;
  }
  uint64_t DropsNow(const std::string& reason) {
    return GetCounter("salius_replica_drops_total", "", {{"reason", reason}}).value();
  }

  // Opens a session with a group, and again after a restart: records to the group arrive by
  // loopback.
  void ExpectMulticastByLoopback(const ReplicaOptions& options) {
    Start(options);
    // A port that is free for the group.
    SocketAddress group = ResolveAddress(HostPort{"239.255.74.2", 0}).value();
    {
      UdpSocket::Options shared;
      shared.reuse_port = true;
      group = UdpSocket::Bind(group, shared)->local().value();
    }
    control::OpenSessionRequest request = ReplicaClient::SessionRequest();
    request.set_multicast(FormatSockaddr(group));
    ASSERT_TRUE(client_->Open(request).ok());
    ASSERT_TRUE(client_->Open(request).ok());
    ASSERT_TRUE(client_->socket().PrepareMulticastSend(group, /*loop=*/true).ok());
    client_->SendTo(group, Datagram(TestFrame({TestRecord(1)}), TestRecord(1)));
    const auto acked = client_->Receive();
    ASSERT_TRUE(acked.has_value());
    EXPECT_EQ(acked->ack.contiguous, 1u);
    // A restarted process goes on receiving from the group.
    server_.reset();
    Start(options);
    ReplicaClient sender(server_->port());
    ASSERT_TRUE(sender.socket().PrepareMulticastSend(group, /*loop=*/true).ok());
    sender.SendTo(group, Datagram(TestFrame({TestRecord(2)}), TestRecord(2)));
    const auto again = sender.Receive();
    ASSERT_TRUE(again.has_value());
    EXPECT_EQ(again->ack.contiguous, 2u);
  }

  ShmDir shm_;
  std::unique_ptr<ReplicaServer> server_;
  std::unique_ptr<ReplicaClient> client_;
};

TEST_F(ServerTest, RecordsAreAcknowledgedAndFetchedBack) {
  Start();
  control::OpenSessionResponse opened;
  ASSERT_TRUE(client_->Open(ReplicaClient::SessionRequest(), &opened).ok());
  EXPECT_EQ(opened.udp_port(), server_->port());
  EXPECT_GE(opened.free_bytes(), uint64_t{4} << 20);
  EXPECT_EQ(opened.version(), kReplicaVersion);
  client_->SendRecords({TestRecord(1), TestRecord(2)}, 1, 77, 1234);
  const auto acked = client_->Receive();
  ASSERT_TRUE(acked.has_value());
  EXPECT_EQ(acked->header.volume, TestVolume());
  EXPECT_EQ(acked->header.epoch, 1u);
  EXPECT_EQ(acked->header.session, 77u);
  EXPECT_EQ(acked->header.send_time_ns, 1234u);
  EXPECT_EQ(acked->ack.incarnation, opened.incarnation());
  EXPECT_EQ(acked->ack.contiguous, 2u);
  const auto fetched = client_->Fetch();
  EXPECT_TRUE(fetched.status.ok());
  EXPECT_EQ(fetched.count, 2u);
  EXPECT_EQ(fetched.incarnation, opened.incarnation());
  EXPECT_EQ(fetched.records, TestRecord(1) + TestRecord(2));
}

TEST_F(ServerTest, BadDatagramsAreCountedHaveNoEffectAndGetNoAnswer) {
  StartWithSession();
  const std::string good = Datagram(TestFrame({TestRecord(1)}), TestRecord(1));
  const uint64_t corrupt = DropsNow("corrupt_frame");
  std::vector<std::string> bad = {"",
                                  "x",
                                  good.substr(0, kFrameHeaderBytes - 1),
                                  good.substr(0, kFrameHeaderBytes),
                                  good.substr(0, good.size() - 1),
                                  good + "x"};
  for (const size_t at : {0, 4, 5, 8, 20, 40, 60, 84}) {
    bad.push_back(good);
    bad.back()[at] ^= 1;
  }
  for (const std::string& datagram : bad) client_->SendRaw(datagram);
  const auto acked = client_->Probe();
  ASSERT_TRUE(acked.has_value());
  EXPECT_EQ(acked->ack.contiguous, 0u);
  EXPECT_EQ(client_->Inventory().inventory().records(), 0u);
  // An empty datagram is one, too.
  ExpectDrops("corrupt_frame", corrupt + bad.size() - 1);
}

TEST_F(ServerTest, CorruptForeignAndReplayedRecordsAreCounted) {
  StartWithSession();
  const uint64_t corrupt = DropsNow("corrupt_record");
  const uint64_t foreign = DropsNow("foreign_record");
  const uint64_t duplicate = DropsNow("duplicate");
  std::string bad = TestRecord(1);
  bad[bad.size() - 3] ^= 4;
  client_->SendRecords({bad});
  client_->SendRecords({TestRecord(1, 100, 1, TestVolume(5))});
  client_->SendRecords({TestRecord(2)});
  client_->SendRecords({TestRecord(2)});
  const auto acked = client_->Probe();
  ASSERT_TRUE(acked.has_value());
  EXPECT_EQ(acked->ack.contiguous, 0u);
  EXPECT_EQ(acked->ack.ranges, (std::vector<SeqRange>{{2, 2}}));
  ExpectDrops("corrupt_record", corrupt);
  ExpectDrops("foreign_record", foreign);
  ExpectDrops("duplicate", duplicate);
}

TEST_F(ServerTest, FramesOfAnOldSessionReplayedAreNotAcknowledgedAsHeld) {
  StartWithSession();
  const std::string old = Datagram(TestFrame({TestRecord(1)}), TestRecord(1));
  client_->SendRaw(old);
  ASSERT_TRUE(client_->Receive().has_value());
  ASSERT_TRUE(client_->Open(ReplicaClient::SessionRequest(2, 78)).ok());
  client_->SendRaw(old);
  const auto acked = client_->Receive();
  ASSERT_TRUE(acked.has_value());
  EXPECT_EQ(acked->ack.flags, kAckFenced);
  EXPECT_EQ(acked->ack.contiguous, 0u);
  EXPECT_EQ(client_->Inventory().inventory().records(), 0u);
}

TEST_F(ServerTest, UnknownSessionIsAnsweredButNotForEveryFrame) {
  StartWithSession();
  const uint64_t limited = DropsNow("rate_limited");
  for (int i = 0; i < 200; ++i) client_->SendRecords({TestRecord(1)}, 1, 99);
  const auto acked = client_->Receive();
  ASSERT_TRUE(acked.has_value());
  EXPECT_EQ(acked->ack.flags, kAckUnknownSession);
  EXPECT_EQ(acked->ack.contiguous, 0u);
  ExpectDrops("rate_limited", limited);
}

TEST_F(ServerTest, FullMemoryIsSaid) {
  StartWithSession();
  Seq seq = 0;
  uint16_t flags = 0;
  while (flags == 0) {
    client_->SendRecords({TestRecord(++seq, 60000)});
    const auto acked = client_->Receive();
    ASSERT_TRUE(acked.has_value());
    flags = acked->ack.flags;
  }
  EXPECT_EQ(flags, kAckMemoryFull);
  EXPECT_GE(seq * 60000, uint64_t{4} << 20);
  EXPECT_EQ(client_->Fetch().count, seq - 1);
}

TEST_F(ServerTest, FragmentedRecordIsAcknowledgedWhenItIsWhole) {
  StartWithSession();
  const std::string record = TestRecord(1, 50000);
  FrameHeader header = TestFrame({});
  header.type = FrameType::kFragment;
  for (uint32_t at = 0; at < record.size(); at += 1360) {
    client_->SendRaw(Datagram(header, Piece(record, 1, at, 1360)));
  }
  const auto acked = client_->Probe();
  ASSERT_TRUE(acked.has_value());
  EXPECT_EQ(acked->ack.contiguous, 1u);
  EXPECT_EQ(client_->Fetch().records, record);
}

TEST_F(ServerTest, FenceOverGrpcStopsTheSession) {
  StartWithSession();
  client_->SendRecords({TestRecord(1)});
  ASSERT_TRUE(client_->Receive().has_value());
  control::FenceRequest request;
  request.set_volume(ReplicaClient::Bytes(TestVolume()));
  request.set_epoch(2);
  request.set_token(5);
  control::FenceResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(client_->stub().Fence(&context, request, &response).ok());
  EXPECT_TRUE(response.accepted());
  EXPECT_EQ(response.promised_epoch(), 2u);
  EXPECT_EQ(response.inventory().records(), 1u);
  EXPECT_EQ(response.inventory().contiguous(), 1u);
  client_->SendRecords({TestRecord(2)});
  const auto acked = client_->Receive();
  ASSERT_TRUE(acked.has_value());
  EXPECT_EQ(acked->ack.flags, kAckFenced);
  EXPECT_EQ(acked->ack.promise_epoch, 2u);
  EXPECT_EQ(client_->Fetch().records, TestRecord(1));
}

TEST_F(ServerTest, FetchIsChunkedCheckedAndResumable) {
  StartWithSession();
  std::string all;
  const Seq last = 60;
  std::vector<std::string> records;
  for (Seq seq = 1; seq <= last; ++seq) {
    records.push_back(TestRecord(seq, 50000));
    client_->SendRecords({records.back()});
    ASSERT_TRUE(client_->Receive().has_value());
    all += records.back();
  }
  const auto fetched = client_->Fetch();
  EXPECT_TRUE(fetched.status.ok());
  EXPECT_EQ(fetched.count, last);
  EXPECT_TRUE(fetched.checksums_match);
  EXPECT_LE(fetched.largest_chunk, size_t{1} << 20);
  EXPECT_GT(fetched.largest_chunk, size_t{400} << 10);
  EXPECT_EQ(fetched.records, all);
  const auto rest = client_->Fetch(1, 58);
  EXPECT_EQ(rest.count, 2u);
  EXPECT_EQ(rest.records, records[58] + records[59]);
  EXPECT_EQ(client_->Fetch(2).status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(client_->Fetch(1, 0, TestVolume(9)).status.error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(ServerTest, VolumeOfAnotherLengthIsInvalidEverywhere) {
  Start();
  grpc::ClientContext c1, c2, c3, c4, c5;
  control::OpenSessionRequest open;
  control::OpenSessionResponse opened;
  EXPECT_EQ(client_->stub().OpenSession(&c1, open, &opened).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  control::FenceRequest fence;
  control::FenceResponse fenced;
  EXPECT_EQ(client_->stub().Fence(&c2, fence, &fenced).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  control::InventoryRequest inventory;
  control::InventoryResponse held;
  EXPECT_EQ(client_->stub().Inventory(&c3, inventory, &held).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  control::DropVolumeRequest drop;
  control::DropVolumeResponse dropped;
  EXPECT_EQ(client_->stub().DropVolume(&c4, drop, &dropped).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  control::FetchRequest fetch;
  control::FetchResponse message;
  const auto reader = client_->stub().Fetch(&c5, fetch);
  EXPECT_FALSE(reader->Read(&message));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ServerTest, StatusAndDropVolume) {
  StartWithSession();
  client_->SendRecords({TestRecord(1)});
  ASSERT_TRUE(client_->Receive().has_value());
  const auto status = [&] {
    grpc::ClientContext context;
    control::ReplicaStatusResponse response;
    EXPECT_TRUE(client_->stub().Status(&context, control::ReplicaStatusRequest(), &response).ok());
    return response;
  };
  EXPECT_EQ(status().memory_bytes(), uint64_t{16} << 20);
  ASSERT_EQ(status().volumes_size(), 1);
  EXPECT_EQ(status().volumes(0).inventory().records(), 1u);
  EXPECT_EQ(status().volumes(0).volume(), ReplicaClient::Bytes(TestVolume()));
  control::DropVolumeRequest request;
  request.set_volume(ReplicaClient::Bytes(TestVolume()));
  control::DropVolumeResponse response;
  grpc::ClientContext refused, accepted;
  EXPECT_EQ(client_->stub().DropVolume(&refused, request, &response).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  request.set_epoch(1);
  EXPECT_TRUE(client_->stub().DropVolume(&accepted, request, &response).ok());
  EXPECT_EQ(response.bytes_freed(), TestRecord(1).size());
  EXPECT_FALSE(client_->Inventory().inventory().known());
  EXPECT_EQ(status().volumes_size(), 0);
}

TEST_F(ServerTest, RefusedSessionSaysWhy) {
  StartWithSession();
  const grpc::Status status = client_->Open(ReplicaClient::SessionRequest(1, 78));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("another session"));
}

TEST_F(ServerTest, MulticastRecordsAreAcknowledgedByUnicast) {
  ReplicaOptions options = Options();
  options.multicast_interface = "lo";
  ExpectMulticastByLoopback(options);
}

TEST_F(ServerTest, GroupIsJoinedOnTheInterfaceTowardsThePrimaryWhenListeningOnAny) {
  ReplicaOptions options = Options();
  options.listen.host = "0.0.0.0";
  options.insecure = true;
  ExpectMulticastByLoopback(options);
}

TEST_F(ServerTest, WrongMulticastGroupRefusesTheSession) {
  Start();
  for (const char* const group : {"127.0.0.1:7500", "239.1.2.3", "239.1.2.3:0"}) {
    control::OpenSessionRequest request = ReplicaClient::SessionRequest();
    request.set_multicast(group);
    EXPECT_EQ(client_->Open(request).error_code(), grpc::StatusCode::INVALID_ARGUMENT) << group;
  }
  EXPECT_FALSE(client_->Inventory().inventory().known());
}

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

// How fast one stream is, for the log of the run; no bound, so that a busy machine fails nothing.
TEST_F(ServerTest, FetchOfALargeLog) {
  ReplicaOptions options = Options();
  options.memory_bytes = uint64_t{160} << 20;
  Start(options);
  control::OpenSessionRequest request = ReplicaClient::SessionRequest();
  request.set_memory_bytes(uint64_t{100} << 20);
  ASSERT_TRUE(client_->Open(request).ok());
  Seq seq = 0;
  for (uint64_t bytes = 0; bytes < uint64_t{64} << 20; bytes += 60000) {
    client_->SendRecords({TestRecord(++seq, 60000)});
    ASSERT_TRUE(client_->Receive().has_value());
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto fetched = client_->Fetch();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_TRUE(fetched.status.ok());
  EXPECT_EQ(fetched.count, seq);
  std::printf("fetched %.0f MiB in %.3f s: %.0f MiB/s\n", fetched.records.size() / 1048576.0,
              took.count(), fetched.records.size() / 1048576.0 / took.count());
}

// ---- the loop by itself: what has arrived before it starts is one batch

TEST_F(ServerTest, OneAcknowledgementAnswersABatch) {
  TestMemory memory(uint64_t{8} << 20);
  Arena arena = memory.FormatAndAttach();
  SharedAcceptor acceptor(arena, {}, 0, nullptr);
  {
    absl::MutexLock lock(&acceptor.mutex);
    SessionParams params;
    params.volume = TestVolume();
    params.epoch = 1;
    params.session = 77;
    params.base = 1;
    params.memory_bytes = 1 << 20;
    ASSERT_TRUE(acceptor.acceptor.OpenSession(0, params).ok());
    params.volume = TestVolume(2);
    ASSERT_TRUE(acceptor.acceptor.OpenSession(0, params).ok());
  }
  ReplicaMetrics metrics(arena.incarnation(), 1);
  ReceiveLoop::Options options;
  options.listen = ResolveAddress(HostPort{"127.0.0.1", 0}).value();
  auto loop = ReceiveLoop::Create(UdpSocket::Bind(options.listen, {}).value(), options, acceptor,
                                  metrics, SystemClock());
  ASSERT_TRUE(loop.ok());
  ReplicaClient one((*loop)->port()), two((*loop)->port());
  for (Seq seq = 1; seq <= 10; ++seq) one.SendRecords({TestRecord(seq)}, 1, 77, 1000 + seq);
  one.SendRecords({TestRecord(1, 10, 1, TestVolume(2))}, 1, 77, 5, TestVolume(2));
  two.SendRecords({TestRecord(11)}, 1, 77, 6);
  (*loop)->Start();
  const auto first = one.Receive();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->header.send_time_ns, 1010u);
  EXPECT_EQ(first->ack.contiguous, 11u);
  const auto second = one.Receive();
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->header.volume, TestVolume(2));
  const auto third = two.Receive();
  ASSERT_TRUE(third.has_value());
  EXPECT_EQ(third->header.send_time_ns, 6u);
  (*loop)->Stop();
  EXPECT_FALSE(one.Receive(0).has_value());
  EXPECT_FALSE(two.Receive(0).has_value());
}

TEST_F(ServerTest, DatagramsThatArrivedBeforeTheStopAreAnswered) {
  TestMemory memory(uint64_t{8} << 20);
  Arena arena = memory.FormatAndAttach();
  SharedAcceptor acceptor(arena, {}, 0, nullptr);
  ReplicaMetrics metrics(arena.incarnation(), 1);
  ReceiveLoop::Options options;
  options.listen = ResolveAddress(HostPort{"127.0.0.1", 0}).value();
  auto loop = ReceiveLoop::Create(UdpSocket::Bind(options.listen, {}).value(), options, acceptor,
                                  metrics, SystemClock());
  ASSERT_TRUE(loop.ok());
  ReplicaClient client((*loop)->port());
  client.SendRecords({TestRecord(1)});
  (*loop)->Start();
  (*loop)->Stop();
  EXPECT_TRUE(client.Receive(0).has_value());
}

}  // namespace
}  // namespace salius
