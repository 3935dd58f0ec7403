#include "transport/local_server.h"

#include <grp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "common/file.h"
#include "common/net.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/control.grpc.pb.h"
#include "transport/grpc_factory.h"
#include "transport/local_socket.h"

namespace salius {
namespace {

using ::testing::HasSubstr;

constexpr uid_t kOther = 65534;

// Answers with the user for whom it was made.
class UserService : public control::Replica::Service {
 public:
  explicit UserService(uid_t user) : user_(user) {}

 private:
  grpc::Status Status(grpc::ServerContext*, const control::ReplicaStatusRequest*,
                      control::ReplicaStatusResponse* response) override {
    response->set_incarnation(user_);
    return grpc::Status::OK;
  }
  const uid_t user_;
};

absl::StatusOr<uint64_t> Ask(const std::string& path) {
  grpc::ClientContext context;
  SetCallTimeout(context, std::chrono::seconds(60));
  control::ReplicaStatusResponse response;
  const grpc::Status status =
      control::Replica::NewStub(LocalChannel(path))->Status(&context, {}, &response);
  if (!status.ok()) return CallStatus(status, "replica");
  return response.incarnation();
}

// Is another user, with no group of root, while it lives. For root.
class AsOther {
 public:
  AsOther() {
    groups_.resize(static_cast<size_t>(getgroups(0, nullptr)));
    EXPECT_GE(getgroups(static_cast<int>(groups_.size()), groups_.data()), 0);
    EXPECT_EQ(setgroups(0, nullptr), 0);
    EXPECT_EQ(setegid(kOther), 0);
    EXPECT_EQ(seteuid(kOther), 0);
  }
  ~AsOther() {
    EXPECT_EQ(seteuid(0), 0);
    EXPECT_EQ(setegid(0), 0);
    EXPECT_EQ(setgroups(groups_.size(), groups_.data()), 0);
  }

 private:
  std::vector<gid_t> groups_;
};

class LocalServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = "/tmp/salius-local-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    top_ = name;
    path_ = top_ + "/run/127.0.0.1-7400.sock";
  }
  void TearDown() override {
    server_.reset();
    std::filesystem::remove_all(top_);
  }
  absl::Status Start() {
    auto server = LocalServer::Start(path_, [](uid_t user) {
      return std::make_unique<UserService>(user);
    });
    if (!server.ok()) return server.status();
    server_ = *std::move(server);
    return absl::OkStatus();
  }

  std::string top_, path_;
  std::unique_ptr<LocalServer> server_;
};

TEST_F(LocalServerTest, CallerIsTheUserThatTheKernelNames) {
  ASSERT_TRUE(Start().ok());
  EXPECT_EQ(Ask(path_).value(), geteuid());
  struct stat found;
  ASSERT_EQ(stat(path_.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0660u);
  EXPECT_EQ(server_->path(), path_);
}

TEST_F(LocalServerTest, UsersAreKeptApart) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  ASSERT_TRUE(Start().ok());
  ASSERT_EQ(chmod(top_.c_str(), 0755), 0);
  {
    const AsOther other;
    const auto refused = Ask(path_);
    EXPECT_TRUE(absl::IsUnavailable(refused.status())) << refused.status();
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("Permission denied"));
  }
  ASSERT_EQ(chmod(path_.c_str(), 0666), 0);
  {
    const AsOther other;
    EXPECT_EQ(Ask(path_).value(), kOther);
  }
  EXPECT_EQ(Ask(path_).value(), 0u);
}

TEST_F(LocalServerTest, SocketInUseIsRefusedAndADeadOneReplaced) {
  ASSERT_TRUE(Start().ok());
  const auto second =
      LocalServer::Start(path_, [](uid_t user) { return std::make_unique<UserService>(user); });
  EXPECT_TRUE(absl::IsAlreadyExists(second.status())) << second.status();
  EXPECT_EQ(Ask(path_).value(), geteuid()) << "the first one serves on";
  server_.reset();
  EXPECT_FALSE(std::filesystem::exists(path_));
  {
    const UniqueFd dead(socket(AF_UNIX, SOCK_STREAM, 0));
    const sockaddr_un address = UnixSocketAddress(path_).value();
    ASSERT_EQ(bind(dead.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  ASSERT_TRUE(Start().ok());
  EXPECT_EQ(Ask(path_).value(), geteuid());
}

TEST_F(LocalServerTest, CallsFromManyConnectionsAreAnswered) {
  ASSERT_TRUE(Start().ok());
  std::vector<std::thread> callers;
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([this] {
      for (int call = 0; call < 5; ++call) EXPECT_EQ(Ask(path_).value(), geteuid());
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST_F(LocalServerTest, ImpossiblePathsAreErrors) {
  path_ = top_ + "/" + std::string(200, 'x') + ".sock";
  EXPECT_TRUE(absl::IsInvalidArgument(Start())) << Start();
  path_ = "/proc/none/a.sock";
  EXPECT_FALSE(Start().ok());
}

TEST(LocalSocketTest, NameHasTheAddress) {
  const auto path = [](const std::string& host) {
    return LocalSocketPath("/run/x", Resolve(HostPort{host, 7400}).value());
  };
  EXPECT_EQ(path("127.0.0.1"), "/run/x/127.0.0.1-7400.sock");
  EXPECT_EQ(path("127.0.0.2"), "/run/x/127.0.0.2-7400.sock");
  EXPECT_EQ(path("::1"), "/run/x/::1-7400.sock");
}

TEST(LocalSocketTest, OtherHostsHaveNone) {
  for (const char* const address : {"10.0.0.1:7400", "no-such-host.invalid:7400", "", "[::2]:1"}) {
    EXPECT_EQ(FindLocalSocket(address), "") << address;
  }
}

}  // namespace
}  // namespace salius
