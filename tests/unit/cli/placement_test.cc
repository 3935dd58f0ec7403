#include "client/status/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace salius {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const PrimaryHost kPrimary = {{"127.0.0.1", "10.0.0.1", "fe80::1"}, "boot-p"};

std::vector<std::string> Warnings(const std::vector<PlacedReplica>& replicas) {
  return SharedHostWarnings(replicas, kPrimary);
}

TEST(PlacementTest, ReplicasOnHostsOfTheirOwnAreFine) {
  EXPECT_THAT(Warnings({{"a:7400", "10.0.0.2", "boot-a"}, {"b:7400", "10.0.0.3", "boot-b"}}),
              IsEmpty());
  EXPECT_THAT(Warnings({{"a:7400", "", ""}, {"b:7400", "", ""}}), IsEmpty()) << "nothing is known";
}

TEST(PlacementTest, LoopbackAnInterfaceAndTheBootIdAreThePrimary) {
  for (const PlacedReplica& replica :
       {PlacedReplica{"a:7400", "127.0.0.9", ""}, PlacedReplica{"a:7400", "::1", ""},
        PlacedReplica{"a:7400", "10.0.0.1", ""}, PlacedReplica{"a:7400", "10.9.9.9", "boot-p"}}) {
    EXPECT_THAT(Warnings({replica}), ElementsAre(HasSubstr("replica a:7400 is on this host")))
        << replica.ip;
  }
}

TEST(PlacementTest, TwoPortsOfOneAddressAreOneHost) {
  EXPECT_THAT(Warnings({{"a:7400", "10.0.0.2", ""},
                        {"b:7400", "10.0.0.3", ""},
                        {"other-name:7401", "10.0.0.2", ""}}),
              ElementsAre(HasSubstr("replicas a:7400, other-name:7401 are on one host")));
}

TEST(PlacementTest, TwoAddressesWithOneBootIdAreOneHost) {
  EXPECT_THAT(Warnings({{"a:7400", "10.0.0.2", "boot-a"}, {"b:7400", "10.0.1.2", "boot-a"}}),
              ElementsAre(HasSubstr("a:7400, b:7400")));
}

TEST(PlacementTest, AddressAndBootIdTogetherJoinAGroup) {
  EXPECT_THAT(Warnings({{"a:1", "10.0.0.2", ""}, {"b:1", "10.0.1.2", "x"}, {"c:1", "10.0.0.2", "x"}}),
              ElementsAre(HasSubstr("a:1, c:1, b:1")));
}

TEST(PlacementTest, ThisHostKnowsItsLoopback) {
  const PrimaryHost host = ThisHost();
  EXPECT_THAT(host.ips, testing::Contains("127.0.0.1"));
  EXPECT_EQ(host.boot_id.size(), 36u);
}

}  // namespace
}  // namespace salius
