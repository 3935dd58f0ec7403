#include "client/cli/echo.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <vector>

#include "common/limits.h"

namespace salius::cli {
namespace {

TEST(EchoTest, EveryExchangeGetsItsQuorum) {
  absl::StatusOr<EchoServers> servers = EchoServers::Spawn(3);
  ASSERT_TRUE(servers.ok()) << servers.status();
  ASSERT_EQ(servers->addresses().size(), 3u);
  for (size_t acks = 1; acks <= 3; ++acks) {
    absl::StatusOr<QuorumPing> ping = QuorumPing::Connect(servers->addresses(), acks);
    ASSERT_TRUE(ping.ok()) << ping.status();
    const std::vector<uint8_t> payload(4096, 'x');
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(ping->Exchange(payload).ok());
  }
}

TEST(EchoTest, LargestPayloadPassesAndALargerOneIsRefused) {
  absl::StatusOr<EchoServers> servers = EchoServers::Spawn(1);
  ASSERT_TRUE(servers.ok());
  absl::StatusOr<QuorumPing> ping = QuorumPing::Connect(servers->addresses(), 1);
  ASSERT_TRUE(ping.ok());
  const std::vector<uint8_t> payload(kMaxPingBytes + 1, 'x');
  EXPECT_TRUE(ping->Exchange(absl::MakeConstSpan(payload).first(kMaxPingBytes)).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(ping->Exchange(payload)));
}

TEST(EchoTest, QuorumThatCannotBeIsRefused) {
  absl::StatusOr<EchoServers> servers = EchoServers::Spawn(1);
  ASSERT_TRUE(servers.ok());
  EXPECT_TRUE(absl::IsInvalidArgument(QuorumPing::Connect(servers->addresses(), 0).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(QuorumPing::Connect(servers->addresses(), 2).status()));
  const std::vector<sockaddr_in> many(kMaxReplicas + 1);
  EXPECT_TRUE(absl::IsInvalidArgument(QuorumPing::Connect(many, 1).status()));
}

TEST(EchoTest, SilentServerEndsInDeadlineExceeded) {
  // A bound socket that takes datagrams and never answers.
  sockaddr_in address{};
  absl::StatusOr<UniqueFd> silent = BindLoopback(&address);
  ASSERT_TRUE(silent.ok());
  absl::StatusOr<QuorumPing> ping = QuorumPing::Connect(absl::MakeConstSpan(&address, 1), 1);
  ASSERT_TRUE(ping.ok());
  const std::vector<uint8_t> payload(16, 'x');
  EXPECT_TRUE(absl::IsDeadlineExceeded(ping->Exchange(payload)));
}

TEST(EchoTest, AnswerToAnEarlierExchangeDoesNotCount) {
  sockaddr_in address{};
  absl::StatusOr<UniqueFd> server = BindLoopback(&address);
  ASSERT_TRUE(server.ok());
  absl::StatusOr<QuorumPing> ping = QuorumPing::Connect(absl::MakeConstSpan(&address, 1), 1);
  ASSERT_TRUE(ping.ok());
  const std::vector<uint8_t> payload(16, 'x');
  ASSERT_TRUE(ping->Start(payload).ok());
  std::vector<uint8_t> first(4096);
  sockaddr_in from{};
  socklen_t length = sizeof(from);
  ASSERT_GT(recvfrom(server->get(), first.data(), first.size(), 0,
                     reinterpret_cast<sockaddr*>(&from), &length),
            0);
  // The second exchange gets the answer to the first one only: too late to count.
  ASSERT_TRUE(ping->Start(payload).ok());
  ASSERT_GT(sendto(server->get(), first.data(), kEchoAnswerBytes, 0,
                   reinterpret_cast<sockaddr*>(&from), length),
            0);
  EXPECT_TRUE(absl::IsDeadlineExceeded(ping->Finish()));
}

TEST(EchoTest, ServersEndWithTheirOwner) {
  sockaddr_in address{};
  {
    absl::StatusOr<EchoServers> servers = EchoServers::Spawn(1);
    ASSERT_TRUE(servers.ok());
    address = servers->addresses()[0];
  }
  // The port is free again: this can bind to it.
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0) << errno;
  close(fd);
}

}  // namespace
}  // namespace salius::cli
