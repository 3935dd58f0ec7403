// A served replica, in this process, over real sockets: shared by its tests.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "replica/server.h"
#include "tests/unit/replica/replica_client.h"

namespace salius {

using ::testing::HasSubstr;

class ServerTest : public ::testing::Test {
 protected:
  ReplicaOptions Options() {
    ReplicaOptions options;
    options.listen = HostPort{"127.0.0.1", 0};
    options.memory_bytes = uint64_t{16} << 20;
    options.shm_dir = shm_.path();
    options.state_dir = state_.path();
    options.insecure = true;  // the client uses TCP
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
  void ExpectDrops(const std::string& reason, uint64_t more_than) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (DropsNow(reason) <= more_than && std::chrono::steady_clock::now() < end) {
      client_->Probe();
    }
    EXPECT_GT(DropsNow(reason), more_than) << reason;
  }
  uint64_t DropsNow(const std::string& reason) {
    for (const prometheus::MetricFamily& family : server_->metrics().Collect()) {
      if (family.name != "salius_replica_drops_total") continue;
      for (const prometheus::ClientMetric& metric : family.metric) {
        if (metric.label.front().value == reason) {
          return static_cast<uint64_t>(metric.counter.value);
        }
      }
    }
    ADD_FAILURE() << "no drops with reason " << reason;
    return 0;
  }

  // Opens a session with a group, and again after a restart: records to the group arrive by
  // loopback.
  void ExpectMulticastByLoopback(const ReplicaOptions& options) {
    Start(options);
    // A port that is free for the group.
    group_ = ResolveAddress(HostPort{"239.255.74.2", 0}).value();
    {
      UdpSocket::Options shared;
      shared.reuse_port = true;
      group_ = UdpSocket::Bind(group_, shared)->local().value();
    }
    control::OpenSessionRequest request = ReplicaClient::SessionRequest();
    request.set_multicast(FormatSockaddr(group_));
    ASSERT_TRUE(client_->Open(request).ok());
    ASSERT_TRUE(client_->Open(request).ok());
    ExpectFromTheGroup(1);
    // A restarted process receives from the group again.
    server_.reset();
    Start(options);
    ExpectFromTheGroup(2);
  }
  void ExpectFromTheGroup(Seq seq) {
    ReplicaClient sender(server_->port());
    ASSERT_TRUE(sender.socket().PrepareMulticastSend(group_, /*loop=*/true).ok());
    sender.SendTo(group_, Datagram(TestFrame({TestRecord(seq)}), TestRecord(seq)));
    const auto acked = sender.Receive();
    ASSERT_TRUE(acked.has_value());
    EXPECT_EQ(acked->ack.contiguous, seq);
  }

  ShmDir shm_, state_;
  std::unique_ptr<ReplicaServer> server_;
  std::unique_ptr<ReplicaClient> client_;
  SocketAddress group_;
};

}  // namespace salius
