// A served replica: records, sessions, fences and fetches.
#include <chrono>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "tests/unit/replica/server_testing.h"

namespace salius {
namespace {

TEST_F(ServerTest, RecordsAreAcknowledgedAndFetchedBack) {
  Start();
  control::OpenSessionResponse opened;
  ASSERT_TRUE(client_->Open(ReplicaClient::SessionRequest(), &opened).ok());
  EXPECT_EQ(opened.udp_port(), server_->port());
  EXPECT_GE(opened.free_bytes(), uint64_t{4} << 20);
  EXPECT_EQ(opened.version(), kReplicaVersion);
  EXPECT_TRUE(opened.compact_records());
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

TEST_F(ServerTest, FullMemoryIsReported) {
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

TEST_F(ServerTest, StatusListsTheLastControlCalls) {
  StartWithSession();
  control::FenceRequest fence;
  fence.set_volume(ReplicaClient::Bytes(TestVolume()));
  fence.set_token(9);
  control::FenceResponse fenced;
  for (const Epoch epoch : {5, 4}) {  // The second is below the promise.
    fence.set_epoch(epoch);
    grpc::ClientContext context;
    ASSERT_TRUE(client_->stub().Fence(&context, fence, &fenced).ok());
    ASSERT_EQ(fenced.accepted(), epoch == 5);
  }
  ASSERT_FALSE(client_->Open().ok()) << "fenced";
  ASSERT_FALSE(client_->Fetch(3).status.ok()) << "no such epoch";
  ASSERT_TRUE(client_->Fetch(1).status.ok());
  control::DropVolumeRequest drop;
  control::DropVolumeResponse dropped;
  grpc::ClientContext without_volume, status_call, forget_call;
  ASSERT_FALSE(client_->stub().DropVolume(&without_volume, drop, &dropped).ok());
  control::ForgetVolumeRequest forget;
  forget.set_volume(fence.volume());
  forget.set_force(true);
  control::ForgetVolumeResponse forgotten;
  ASSERT_TRUE(client_->stub().ForgetVolume(&forget_call, forget, &forgotten).ok());
  control::ReplicaStatusResponse status;
  ASSERT_TRUE(client_->stub().Status(&status_call, control::ReplicaStatusRequest(), &status).ok());
  std::string calls;
  for (const auto& call : status.calls()) {
    absl::StrAppend(&calls, call.kind(), " ", call.epoch(), call.accepted() ? " yes" : " no", "\n");
    EXPECT_EQ(call.peer().rfind("127.0.0.1:", 0), 0u) << call.peer();
    EXPECT_EQ(call.accepted(), call.reason().empty()) << call.reason();
    EXPECT_EQ(call.volume(), call.kind() == "drop" ? "" : fence.volume());
    EXPECT_GT(call.at_unix_ms(), 0u);
  }
  EXPECT_EQ(calls,
            "forget 0 yes\ndrop 0 no\nfetch 1 yes\nfetch 3 no\nopen 1 no\nfence 4 no\n"
            "fence 5 yes\nopen 1 yes\n");
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
  // A name is refused too: a resolver without an answer would keep one of the replica's threads.
  for (const char* const group :
       {"127.0.0.1:7500", "239.1.2.3", "239.1.2.3:0", "localhost:7500", "all-hosts:7500",
        "[ff02::1%lo]:7500", "239.1.2.3:7500 ", "239.1.2.3\t:7500"}) {
    control::OpenSessionRequest request = ReplicaClient::SessionRequest();
    request.set_multicast(group);
    EXPECT_EQ(client_->Open(request).error_code(), grpc::StatusCode::INVALID_ARGUMENT) << group;
  }
  EXPECT_FALSE(client_->Inventory().inventory().known());
}

TEST_F(ServerTest, AGroupOfALinkIsJoinedOnIt) {
  ReplicaOptions options = Options();
  options.multicast_interface = "lo";
  Start(options);
  control::OpenSessionRequest request = ReplicaClient::SessionRequest();
  request.set_multicast("[ff02::5a4c]:7500");
  const grpc::Status opened = client_->Open(request);
  EXPECT_TRUE(opened.ok()) << opened.error_message();
}

TEST_F(ServerTest, GroupsThatNoSessionUsesGiveWayToOthersAndThatOfASessionStays) {
  ReplicaOptions options = Options();
  options.multicast_interface = "lo";
  ExpectMulticastByLoopback(options);
  control::OpenSessionRequest refused = ReplicaClient::SessionRequest();
  refused.set_base(0);
  for (int i = 0; i < 70; ++i) {
    refused.set_multicast(absl::StrCat("239.255.75.", i, ":7500"));
    EXPECT_EQ(client_->Open(refused).error_code(), grpc::StatusCode::INVALID_ARGUMENT) << i;
  }
  ExpectFromTheGroup(3);
}

// Logs how fast one stream is. There is no bound, so that a busy machine fails nothing.
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

}  // namespace
}  // namespace salius
