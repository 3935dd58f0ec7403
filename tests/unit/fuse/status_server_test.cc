// The status of a mounted volume over its socket.
#include "client/status/status_server.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "client/status/recovery_history.h"
#include "client/status/status_reader.h"
#include "common/file.h"
#include "proto/control.grpc.pb.h"
#include "storage/backing.h"
#include "transport/grpc_factory.h"

namespace salius {
namespace {

SessionStatus SomeStatus() {
  SessionStatus status;
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
  replica.host = "boot";
  replica.ip = "10.0.0.1";
  status.mode_since_unix_ms = 12;
  status.mode_for_ms = 13;
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
    options_.names = "async";
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
  EXPECT_EQ(response.names(), "async");
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
  EXPECT_EQ(response.pid(), static_cast<uint32_t>(::getpid()));
  EXPECT_EQ(response.mode_since_unix_ms(), 12u);
  EXPECT_EQ(response.mode_for_ms(), 13u);
  EXPECT_EQ(response.members(), 1u);
  EXPECT_EQ(response.replicas(0).host(), "boot");
  EXPECT_EQ(response.warnings_size(), 0);
}

TEST_F(StatusServerTest, ReplicasOnThisHostAreWarnedOf) {
  options_.host = PrimaryHost{{"10.0.0.1"}, "other boot"};
  options_.started_unix_ms = 5;
  options_.log_file = "/log";
  const control::VolumeStatusResponse response = ToStatusResponse(options_, SomeStatus());
  ASSERT_EQ(response.warnings_size(), 1);
  EXPECT_NE(response.warnings(0).find("r:1"), std::string::npos);
  EXPECT_EQ(response.started_unix_ms(), 5u);
  EXPECT_EQ(response.log_file(), "/log");
}

TEST_F(StatusServerTest, RecoveryLossIsShownUntilAcknowledged) {
  std::filesystem::create_directories(base_);
  const auto dir = OpenAt(AT_FDCWD, base_, O_RDONLY | O_DIRECTORY);
  ASSERT_TRUE(dir.ok());
  RecoveryNotes notes;
  RecoveryNote note;
  note.epoch = 6;
  note.given_up = {{5, 9}};
  notes.Put(note);
  ASSERT_TRUE(WriteRecoveryNotes(LinuxBacking(), dir->get(), notes).ok());
  const auto history = RecoveryHistory::Load(LinuxBacking(), dir->get(), base_);
  ASSERT_TRUE(history.ok()) << history.status();
  options_.history = history->get();
  const auto server = StatusServer::Start(options_);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string& socket = (*server)->socket_path();
  const auto acknowledged = [&] {
    return ReadVolumeStatus(socket, std::chrono::seconds(5))->recoveries(0).acknowledged();
  };
  EXPECT_FALSE(acknowledged());
  EXPECT_EQ(*SendAcknowledge(socket, std::chrono::seconds(5)), 1u);
  EXPECT_TRUE(acknowledged());
  EXPECT_EQ(*SendAcknowledge(socket, std::chrono::seconds(5)), 0u);
  EXPECT_TRUE(ReadRecoveryNotes(LinuxBacking(), dir->get())->Unacknowledged().empty())
      << "it outlives the daemon";
}

TEST_F(StatusServerTest, ListenersAreToldFromDeadOnesAndThoseThatMayNotBeAsked) {
  EXPECT_EQ(ProbeSocket(base_ + "/none.sock").state, SocketState::kNone);
  std::string path;
  {
    const auto server = StatusServer::Start(options_);
    ASSERT_TRUE(server.ok()) << server.status();
    path = (*server)->socket_path();
    const SocketProbe here = ProbeSocket(path);
    EXPECT_EQ(here.state, SocketState::kListening);
    EXPECT_EQ(here.pid, ::getpid());
    const pid_t child = ::fork();
    if (child == 0) {
      const bool gave_up_root = ::setgid(65534) == 0 && ::setuid(65534) == 0;
      ::_exit(gave_up_root && ProbeSocket(path).state == SocketState::kNoPermission ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  // The socket as a killed process leaves it.
  const int left = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(::bind(left, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ::close(left);
  EXPECT_EQ(ProbeSocket(path).state, SocketState::kDead);
}

TEST(SocketPathTest, SocketIsNamedByTheVolume) {
  const absl::StatusOr<VolumeId> id = ParseVolumeId("00112233-4455-6677-8899-aabbccddeeff");
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
  (*server)->SetDraining();
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
  const auto stub = control::Primary::NewStub(LocalChannel((*server)->socket_path()));
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

TEST_F(StatusServerTest, ARemountIsAskedForWithItsOptionsAndItsErrorComesBack) {
  std::string asked;
  options_.remount = [&asked](const std::string& options, bool check_only) -> absl::Status {
    asked = options + (check_only ? "?" : "!");
    if (options == "acks=9") return absl::InvalidArgumentError("option acks cannot change");
    return absl::OkStatus();
  };
  const auto server = StatusServer::Start(options_);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string path = (*server)->socket_path();
  constexpr std::chrono::seconds kBound{30};
  EXPECT_TRUE(SendRemount(path, "ro", true, kBound).ok());
  EXPECT_EQ(asked, "ro?");
  EXPECT_TRUE(SendRemount(path, "ro", false, kBound).ok());
  EXPECT_EQ(asked, "ro!");
  const absl::Status refused = SendRemount(path, "acks=9", true, kBound);
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_EQ(refused.message(), "option acks cannot change");
  EXPECT_TRUE(absl::IsUnavailable(SendRemount("/no/such.sock", "ro", true, kBound)));
}

TEST_F(StatusServerTest, DirectoryThatCannotBeMadeIsAnError) {
  options_.run_directory = "/proc/salius";
  EXPECT_FALSE(StatusServer::Start(options_).ok());
}

}  // namespace
}  // namespace salius
