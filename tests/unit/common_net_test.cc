#include "common/net.h"

#include <sys/un.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace salius {
namespace {

using ::testing::HasSubstr;

TEST(ParseHostPortTest, AcceptsEveryUsualForm) {
  const struct {
    const char* text;
    const char* host;
    uint16_t port;
  } cases[] = {
      {"a:7400", "a", 7400},
      {"a", "a", 99},
      {"10.0.0.1:1", "10.0.0.1", 1},
      {"[::1]:7400", "::1", 7400},
      {"[::1]", "::1", 99},
      {"fe80::1", "fe80::1", 99},
      {"host.x:65535", "host.x", 65535},
      {"h:0", "h", 0},
  };
  for (const auto& c : cases) {
    const auto result = ParseHostPort(c.text, 99);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->host, c.host);
    EXPECT_EQ(result->port, c.port);
  }
}

TEST(ParseHostPortTest, RefusesBadAddressesAndNamesThem) {
  for (const char* text : {"", ":7400", "a:", "a:x", "a:-1", "a:+1", "a:65536", "a:999999", "a: 1",
                           "[::1", "[::1]7400", "[]:1", "[::1]:", "a:b:c"}) {
    const auto status = ParseHostPort(text, 99).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string("\"") + text + "\""));
  }
}

TEST(ReplicaAddressTest, PortIsTheDefaultWhereNoneIsGiven) {
  const auto result = ReplicaAddress("a.example");
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(*result, "a.example:7400");
  EXPECT_EQ(*ReplicaAddress("a:1"), "a:1");
  EXPECT_EQ(*ReplicaAddress("::1"), "[::1]:7400");
  EXPECT_EQ(ReplicaAddress("a:x").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(HostPortTest, TextHasBracketsWhereNeeded) {
  EXPECT_EQ((HostPort{"a", 1}).ToString(), "a:1");
  EXPECT_EQ((HostPort{"::1", 1}).ToString(), "[::1]:1");
}

TEST(ResolveTest, NumericAddressesNeedNoResolver) {
  const auto v4 = Resolve({"127.0.0.1", 7400});
  ASSERT_TRUE(v4.ok()) << v4.status();
  EXPECT_EQ(FormatSockaddr(*v4), "127.0.0.1:7400");
  EXPECT_EQ(FormatSockaddr(v4->get(), v4->length), "127.0.0.1:7400");
  const auto v6 = Resolve({"::1", 7400});
  ASSERT_TRUE(v6.ok()) << v6.status();
  EXPECT_EQ(FormatSockaddr(*v6), "[::1]:7400");
  EXPECT_EQ(v6->port(), 7400);
}

TEST(ResolveTest, UnknownHostIsNamed) {
  const auto result = Resolve({"no-such-host.invalid", 1});
  EXPECT_FALSE(result.ok());
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("no-such-host.invalid"));
}

TEST(IsNumericTest, OnlyAddressesThemselves) {
  for (const char* host : {"127.0.0.1", "::1", "2001:db8::1"}) EXPECT_TRUE(IsNumeric(host)) << host;
  for (const char* host : {"localhost", "1.2.3", "fe80::1%eth0", ""}) {
    EXPECT_FALSE(IsNumeric(host)) << host;
  }
}

TEST(ResolveReplicasTest, GivesEachItsAddressInOrder) {
  const auto addresses = ResolveReplicas({"127.0.0.2:7400", "127.0.0.1:7401", "127.0.0.1:7400"});
  ASSERT_TRUE(addresses.ok()) << addresses.status();
  ASSERT_EQ(addresses->size(), 3u);
  EXPECT_EQ(FormatSockaddr((*addresses)[0]), "127.0.0.2:7400");
  EXPECT_EQ(FormatSockaddr((*addresses)[2]), "127.0.0.1:7400");
  EXPECT_TRUE(ResolveReplicas({}).ok());
}

TEST(ResolveReplicasTest, AllOfThemBeginWithTheOneThatIsUsed) {
  const std::vector<std::string> replicas = {"127.0.0.1:7400", "localhost:7401"};
  const auto all = ResolveAllOfReplicas(replicas, Unresolved::kIsAnError);
  ASSERT_TRUE(all.ok()) << all.status();
  const auto firsts = ResolveReplicas(replicas);
  ASSERT_TRUE(firsts.ok()) << firsts.status();
  for (size_t i = 0; i < replicas.size(); ++i) EXPECT_EQ((*all)[i].front(), (*firsts)[i]);
  // The family is one that both have, whatever the resolver returns first.
  EXPECT_EQ(FormatSockaddr((*firsts)[1]), "127.0.0.1:7401");
}

TEST(ResolveReplicasTest, AFamilyThatIsAskedForIsTheOnlyOne) {
  EXPECT_FALSE(
      ResolveAllOfReplicas({"127.0.0.1:7400"}, Unresolved::kIsAnError, AF_INET6).ok());
  EXPECT_TRUE(ResolveAllOfReplicas({"127.0.0.1:7400"}, Unresolved::kIsAnError, AF_INET).ok());
}

TEST(MapToIpv6Test, AddressComesBack) {
  const SocketAddress v4 = Resolve({"10.1.2.3", 7400}).value();
  const SocketAddress mapped = MapToIpv6(v4);
  EXPECT_EQ(mapped.storage.ss_family, AF_INET6);
  EXPECT_EQ(FormatSockaddr(mapped), "[::ffff:10.1.2.3]:7400");
  EXPECT_EQ(UnmapFromIpv6(mapped), v4);
  const SocketAddress v6 = Resolve({"fd00::1", 7400}).value();
  EXPECT_EQ(MapToIpv6(v6), v6);
  EXPECT_EQ(UnmapFromIpv6(v6), v6);
  EXPECT_EQ(UnmapFromIpv6(v4), v4);
}

TEST(ResolveReplicasTest, RefusesContradictionsAndNamesThem) {
  const struct {
    std::vector<std::string> replicas;
    absl::StatusCode code;
    const char* says;
  } cases[] = {
      {{"a"}, absl::StatusCode::kInvalidArgument, "\"a\""},
      {{"127.0.0.1:7400", "127.0.0.1:07400"}, absl::StatusCode::kInvalidArgument, "are the same"},
      {{"127.0.0.1:7400", "[::1]:7400"}, absl::StatusCode::kInvalidArgument, "IPv6"},
      // The name may lead elsewhere later.
      {{"localhost:7400", "127.0.0.1:7400"}, absl::StatusCode::kFailedPrecondition, "localhost"},
  };
  for (const auto& c : cases) {
    const absl::Status status = ResolveReplicas(c.replicas).status();
    EXPECT_EQ(status.code(), c.code) << c.replicas.back();
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.says));
  }
  EXPECT_THAT(std::string(ResolveReplicas({"no-such-host.invalid:1"}).status().message()),
              HasSubstr("no-such-host.invalid:1"));
}

TEST(ResolveReplicasTest, NameWithoutAddressIsLeftEmptyUnlessNoneHasOne) {
  const auto some = ResolveReplicas(
      {"no-such-host.invalid:1", "127.0.0.2:7400", "nor-this.invalid:1"}, Unresolved::kIsLeftEmpty);
  ASSERT_TRUE(some.ok()) << some.status();
  ASSERT_EQ(some->size(), 3u);
  EXPECT_EQ((*some)[0].length, 0u);
  EXPECT_EQ(FormatSockaddr((*some)[1]), "127.0.0.2:7400");
  EXPECT_EQ((*some)[2].length, 0u);
  EXPECT_THAT(std::string(ResolveReplicas({"no-such-host.invalid:1", "nor-this.invalid:1"},
                                          Unresolved::kIsLeftEmpty)
                              .status()
                              .message()),
              HasSubstr("no-such-host.invalid:1"));
  // Only the names that have an address are checked together.
  EXPECT_THAT(
      std::string(ResolveReplicas({"no-such-host.invalid:1", "127.0.0.1:7400", "[::1]:7400"},
                                  Unresolved::kIsLeftEmpty)
                      .status()
                      .message()),
      HasSubstr("replica 127.0.0.1:7400 is at"));
}

TEST(SocketAddressTest, KnowsLoopbackAndMulticast) {
  const struct {
    const char* host;
    bool loopback;
    bool multicast;
  } cases[] = {
      {"127.0.0.1", true, false},        {"127.9.9.9", true, false}, {"10.0.0.1", false, false},
      {"239.1.2.3", false, true},        {"224.0.0.1", false, true}, {"::1", true, false},
      {"::ffff:127.0.0.1", true, false}, {"ff02::1", false, true},   {"::2", false, false},
      {"::ffff:10.0.0.1", false, false},
  };
  for (const auto& c : cases) {
    const auto address = Resolve({c.host, 1});
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_EQ(IsLoopback(*address), c.loopback) << c.host;
    EXPECT_EQ(IsMulticast(*address), c.multicast) << c.host;
  }
}

TEST(SocketAddressTest, EqualityIsFamilyAddressAndPort) {
  SocketAddress a = *Resolve({"127.0.0.1", 1});
  const SocketAddress b = *Resolve({"127.0.0.1", 2});
  EXPECT_FALSE(a == b);
  a.set_port(2);
  EXPECT_TRUE(a == b);
  EXPECT_FALSE(a == *Resolve({"127.0.0.2", 2}));
  EXPECT_FALSE(a == *Resolve({"::1", 2}));
  SocketAddress v6 = *Resolve({"::1", 1});
  v6.set_port(2);
  EXPECT_TRUE(v6 == *Resolve({"::1", 2}));
}

TEST(SocketAddressTest, OtherFamiliesAreShownByNumber) {
  SocketAddress unix_address;
  unix_address.storage.ss_family = AF_UNIX;
  unix_address.length = sizeof(sockaddr_un);
  EXPECT_EQ(FormatSockaddr(unix_address), "family 1");
  EXPECT_EQ(unix_address.port(), 0);
  EXPECT_FALSE(IsLoopback(unix_address));
  EXPECT_FALSE(IsMulticast(unix_address));
}

}  // namespace
}  // namespace salius
