// The status of a mounted volume over its socket.
#include "client/status/status_server.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "client/status/status_reader.h"
#include "proto/control.grpc.pb.h"

namespace salius {
namespace {

PipelineStatus SomeStatus() {
  PipelineStatus status;
  status.epoch = 7;
  status.mode = "replicated";
  status.mode_detail = "detail";
  status.marks = {.checkpoint = 1, .applied = 2, .durable = 3, .issued = 4};
  status.uncheckpointed_bytes = 5;
  status.oldest_uncheckpointed_ms = 6;
  status.stable_log_used_bytes = 8;
  status.stable_log_capacity_bytes = 9;
  ReplicaReport replica;
  replica.address = "r:1";
  replica.member = replica.connected = true;
  replica.incarnation = 10;
  replica.lag_records = 11;
  replica.problem = "none";
  status.replicas = {replica};
  status.failure = "disk";
  return status;
}

class StatusServerTest : public testing::Test {
 protected:
  void SetUp() override {
    options_.volume = VolumeId::Random();
    options_.backing = "/b";
    options_.mountpoint = "/m";
    options_.acks = 2;
    // Short: a socket's path has 107 bytes at most.
    std::string base = "/tmp/salius-status-XXXXXX";
    ASSERT_NE(::mkdtemp(base.data()), nullptr);
    base_ = base;
    options_.run_directory = base_ + "/run/salius";
    options_.source = SomeStatus;
  }
  void TearDown() override { std::filesystem::remove_all(base_); }

  StatusServerOptions options_;
  std::string base_;
};

TEST_F(StatusServerTest, EveryFieldIsInTheAnswer) {
  const control::VolumeStatusResponse response = ToStatusResponse(options_, SomeStatus());
  EXPECT_EQ(response.volume().size(), 16u);
  EXPECT_EQ(response.backing(), "/b");
  EXPECT_EQ(response.mountpoint(), "/m");
  EXPECT_EQ(response.epoch(), 7u);
  EXPECT_EQ(response.mode(), "replicated");
  EXPECT_EQ(response.mode_detail(), "detail");
  EXPECT_EQ(response.acks(), 2u);
  EXPECT_EQ(response.checkpoint(), 1u);
  EXPECT_EQ(response.applied(), 2u);
  EXPECT_EQ(response.durable(), 3u);
  EXPECT_EQ(response.issued(), 4u);
  EXPECT_EQ(response.uncheckpointed_bytes(), 5u);
  EXPECT_EQ(response.oldest_uncheckpointed_ms(), 6u);
  EXPECT_EQ(response.stable_log_used_bytes(), 8u);
  EXPECT_EQ(response.stable_log_capacity_bytes(), 9u);
  ASSERT_EQ(response.replicas_size(), 1);
  EXPECT_EQ(response.replicas(0).address(), "r:1");
  EXPECT_TRUE(response.replicas(0).member());
  EXPECT_TRUE(response.replicas(0).connected());
  EXPECT_EQ(response.replicas(0).incarnation(), 10u);
  EXPECT_EQ(response.replicas(0).lag_records(), 11u);
  EXPECT_EQ(response.replicas(0).problem(), "none");
  EXPECT_EQ(response.version(), kSaliusVersion);
  EXPECT_EQ(response.failure(), "disk");
  EXPECT_TRUE(response.serving());
}

TEST(SocketPathTest, SocketIsNamedByTheVolume) {
  const absl::StatusOr<VolumeId> id = VolumeId::Parse("00112233-4455-6677-8899-aabbccddeeff");
  ASSERT_TRUE(id.ok());
  EXPECT_EQ(SocketPathOf(*id), "/run/salius/00112233-4455-6677-8899-aabbccddeeff.sock");
}

TEST_F(StatusServerTest, ADrainingVolumeServesNoMore) {
  const auto server = StatusServer::Start(options_);
  ASSERT_TRUE(server.ok()) << server.status();
  const auto serving = [&] {
    return ReadVolumeStatus((*server)->socket_path(), std::chrono::seconds(5))->serving();
  };
  EXPECT_TRUE(serving());
  (*server)->SayDraining();
  EXPECT_FALSE(serving());
}

TEST_F(StatusServerTest, AnswersAtASocketOfItsOwnerOnly) {
  const auto server = StatusServer::Start(options_);
  ASSERT_TRUE(server.ok()) << server.status();
  struct stat st {};
  ASSERT_EQ(::stat((*server)->socket_path().c_str(), &st), 0);
  EXPECT_TRUE(S_ISSOCK(st.st_mode));
  EXPECT_EQ(st.st_mode & 0177u, 0u);
  EXPECT_EQ(VolumeSocketsIn(options_.run_directory),
            std::vector<std::string>{(*server)->socket_path()});
  EXPECT_EQ(ReadVolumeStatus((*server)->socket_path(), std::chrono::seconds(5))->mountpoint(),
            "/m");
  EXPECT_FALSE(ReadVolumeStatus("/no/such.sock", std::chrono::milliseconds(100)).ok());
  EXPECT_TRUE(VolumeSocketsIn("/no/such/directory").empty());
  const auto stub = control::Primary::NewStub(
      grpc::CreateChannel("unix:" + (*server)->socket_path(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  control::VolumeStatusResponse response;
  ASSERT_TRUE(stub->VolumeStatus(&context, {}, &response).ok());
  EXPECT_EQ(response.mode(), "replicated");
}

TEST_F(StatusServerTest, SecondServerOfAVolumeIsRefusedWhileTheFirstAnswers) {
  const auto first = StatusServer::Start(options_);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(StatusServer::Start(options_).status().code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(StatusServerTest, SocketIsGoneAfterwardsAndADeadOneIsReplaced) {
  std::string path;
  {
    const auto server = StatusServer::Start(options_);
    ASSERT_TRUE(server.ok());
    path = (*server)->socket_path();
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  ASSERT_EQ(::mknod(path.c_str(), S_IFSOCK | 0600, 0), 0);
  EXPECT_TRUE(StatusServer::Start(options_).ok());
}

TEST_F(StatusServerTest, DirectoryThatCannotBeMadeIsAnError) {
  options_.run_directory = "/proc/salius";
  EXPECT_FALSE(StatusServer::Start(options_).ok());
}

}  // namespace
}  // namespace salius
