#include "client/session/places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace salius {
namespace {

using ::testing::HasSubstr;

SocketAddress At(const char* host) { return Resolve({host, 7400}).value(); }

absl::StatusOr<std::vector<SocketAddress>> Answer(std::vector<const char*> hosts) {
  std::vector<SocketAddress> addresses;
  for (const char* host : hosts) addresses.push_back(At(host));
  return addresses;
}

std::string Problem(const Places& places, int index) {
  return std::string(places.problem(index).message());
}

class PlacesTest : public ::testing::Test {
 protected:
  // Replicas a, b and c; the third has no address yet.
  PlacesTest() : places_({"a:7400", "b:7400", "c:7400"}, /*insecure=*/true) {
    EXPECT_TRUE(places_.Begin({At("10.0.0.1"), At("10.0.0.2"), SocketAddress()}).ok());
  }
  void ExpectAt(int index, const char* host) {
    EXPECT_EQ(FormatSockaddr(places_.at(index)), FormatSockaddr(At(host)));
    EXPECT_EQ(places_.Find(At(host)), index);
  }
  Places places_;
};

TEST_F(PlacesTest, BeginsWhereTheNamesLead) {
  ExpectAt(0, "10.0.0.1");
  ExpectAt(1, "10.0.0.2");
  EXPECT_FALSE(places_.known(2));
  EXPECT_THAT(Problem(places_, 2), HasSubstr("c:7400 has no address yet"));
  EXPECT_EQ(places_.Find(At("10.0.0.3")), -1);
  EXPECT_EQ(places_.family(), AF_INET);
}

TEST_F(PlacesTest, GoesWhereTheNameLeadsNow) {
  const auto change = places_.OnAnswer(1, Answer({"10.0.0.9"}), 0);
  EXPECT_TRUE(change.moved);
  EXPECT_EQ(change.gave_up, -1);
  ExpectAt(1, "10.0.0.9");
  EXPECT_EQ(places_.Find(At("10.0.0.2")), -1);
}

TEST_F(PlacesTest, OneThatHadNoneGetsItsFirst) {
  EXPECT_FALSE(places_.OnAnswer(2, absl::NotFoundError("no such host"), 0).moved);
  EXPECT_THAT(Problem(places_, 2), HasSubstr("replica c:7400: no such host"));
  EXPECT_TRUE(places_.OnAnswer(2, Answer({"10.0.0.3"}), 0).moved);
  ExpectAt(2, "10.0.0.3");
  EXPECT_TRUE(places_.problem(2).ok());
}

TEST_F(PlacesTest, StaysWhileItsAddressIsAmongTheNames) {
  EXPECT_FALSE(places_.OnAnswer(0, Answer({"10.0.0.8", "10.0.0.1"}), 0).moved);
  ExpectAt(0, "10.0.0.1");
}

TEST_F(PlacesTest, StaysWhenTheResolverHasNoAnswer) {
  for (const absl::Status& status : {absl::UnavailableError("x"), absl::NotFoundError("x")}) {
    EXPECT_FALSE(places_.OnAnswer(0, status, 0).moved);
    ExpectAt(0, "10.0.0.1");
    EXPECT_TRUE(places_.problem(0).ok());
  }
}

TEST_F(PlacesTest, StaysWhereItAnswersWhereverItsNameLeads) {
  EXPECT_FALSE(places_.OnAnswer(0, Answer({"10.0.0.9"}), /*connected=*/0b001).moved);
  ExpectAt(0, "10.0.0.1");
  EXPECT_TRUE(places_.OnAnswer(0, Answer({"10.0.0.9"}), 0).moved);
}

TEST_F(PlacesTest, GoesToTheFirstAddressThatItMayHave) {
  EXPECT_TRUE(places_.OnAnswer(2, Answer({"10.0.0.1", "10.0.0.3", "10.0.0.4"}), 0).moved);
  ExpectAt(2, "10.0.0.3");
  EXPECT_TRUE(places_.problem(2).ok());
}

// A replica answers at the other's address: it started there before the names led there.
TEST_F(PlacesTest, AddressBelongsToTheReplicaThatAnswersThere) {
  EXPECT_FALSE(places_.OnAnswer(1, Answer({"10.0.0.1"}), /*connected=*/0b001).moved);
  EXPECT_FALSE(places_.OnAnswer(0, Answer({"10.0.0.2"}), /*connected=*/0b001).moved);
  const auto change = places_.OnAnswer(1, Answer({"10.0.0.1"}), /*connected=*/0b001);
  EXPECT_TRUE(change.moved);
  EXPECT_EQ(change.gave_up, 0);
  EXPECT_TRUE(places_.OnAnswer(0, Answer({"10.0.0.2"}), 0).moved);
  ExpectAt(0, "10.0.0.2");
  ExpectAt(1, "10.0.0.1");
}

TEST_F(PlacesTest, AnAddressThatAnotherAnswersFromIsNotTaken) {
  (void)places_.OnAnswer(0, absl::NotFoundError("its name is gone"), 0);
  EXPECT_FALSE(places_.OnAnswer(2, Answer({"10.0.0.1"}), /*connected=*/0b001).moved);
  EXPECT_FALSE(places_.known(2));
  EXPECT_THAT(Problem(places_, 2), HasSubstr("as replica a:7400 is"));
  ExpectAt(0, "10.0.0.1");
}

TEST_F(PlacesTest, AnAddressThatAnothersNameLeadsToIsNotTaken) {
  EXPECT_FALSE(places_.OnAnswer(2, Answer({"10.0.0.1"}), 0).moved);
  // A resolver that fails changes nothing.
  (void)places_.OnAnswer(0, absl::UnavailableError("no answer"), 0);
  EXPECT_FALSE(places_.OnAnswer(2, Answer({"10.0.0.1"}), 0).moved);
}

TEST_F(PlacesTest, AddressOfAVanishedNameIsTaken) {
  (void)places_.OnAnswer(0, absl::NotFoundError("its name is gone"), 0);
  const auto change = places_.OnAnswer(2, Answer({"10.0.0.1"}), 0);
  EXPECT_TRUE(change.moved);
  EXPECT_EQ(change.gave_up, 0);
  ExpectAt(2, "10.0.0.1");
  EXPECT_FALSE(places_.known(0));
  EXPECT_THAT(Problem(places_, 0), HasSubstr("where replica c:7400 is now"));
}

TEST_F(PlacesTest, TwoThatHaveExchangedTheirAddressesAreFound) {
  for (int round = 0; round < 2; ++round) {
    (void)places_.OnAnswer(0, Answer({"10.0.0.2"}), 0);
    (void)places_.OnAnswer(1, Answer({"10.0.0.1"}), 0);
  }
  ExpectAt(0, "10.0.0.2");
  ExpectAt(1, "10.0.0.1");
  EXPECT_TRUE(places_.problem(0).ok());
  EXPECT_TRUE(places_.problem(1).ok());
}

TEST_F(PlacesTest, TriesEachAddressOfItsNameInTurn) {
  places_.Know(0, *Answer({"10.0.0.1", "10.0.0.2", "10.0.0.7", "::1"}));
  EXPECT_TRUE(places_.TryNext(0));
  ExpectAt(0, "10.0.0.7");  // 10.0.0.2 is another's
  EXPECT_TRUE(places_.TryNext(0));
  ExpectAt(0, "::1");
  EXPECT_TRUE(places_.TryNext(0));
  ExpectAt(0, "10.0.0.1");
}

TEST_F(PlacesTest, TriesAddressesOfTheLastAnswer) {
  EXPECT_FALSE(places_.TryNext(0));
  EXPECT_FALSE(places_.OnAnswer(0, Answer({"10.0.0.5", "10.0.0.1"}), 0).moved);
  EXPECT_TRUE(places_.TryNext(0));
  ExpectAt(0, "10.0.0.5");
  EXPECT_FALSE(places_.OnAnswer(0, Answer({"10.0.0.5", "10.0.0.1"}), 0).moved);
  ExpectAt(0, "10.0.0.5");
}

TEST_F(PlacesTest, OneAddressIsNotLeft) {
  places_.Know(0, *Answer({"10.0.0.1"}));
  EXPECT_FALSE(places_.TryNext(0));
  ExpectAt(0, "10.0.0.1");
  EXPECT_FALSE(places_.TryNext(2)) << "it has none";
}

TEST(PlacesOnThisHostTest, TriesNoAddressOfAnotherHostWithoutTheWord) {
  Places places({"a:7400"}, /*insecure=*/false);
  ASSERT_TRUE(places.Begin({At("127.0.0.1")}).ok());
  places.Know(0, *Answer({"127.0.0.1", "10.0.0.1", "127.0.0.2"}));
  EXPECT_TRUE(places.TryNext(0));
  EXPECT_EQ(FormatSockaddr(places.at(0)), "127.0.0.2:7400");
}

TEST(PlacesOnThisHostTest, OtherHostsNeedTheWordThatTheNetworkIsTrusted) {
  Places places({"a:7400"}, /*insecure=*/false);
  EXPECT_THAT(std::string(places.Begin({At("10.0.0.1")}).message()), HasSubstr("insecure"));
  ASSERT_TRUE(places.Begin({At("127.0.0.1")}).ok());
  EXPECT_FALSE(places.OnAnswer(0, Answer({"10.0.0.1"}), 0).moved);
  EXPECT_THAT(Problem(places, 0), HasSubstr("\"insecure\""));
  EXPECT_EQ(FormatSockaddr(places.at(0)), "127.0.0.1:7400");
  // It is not forgotten when the resolver fails for a while.
  (void)places.OnAnswer(0, absl::UnavailableError("no answer"), 0);
  EXPECT_THAT(Problem(places, 0), HasSubstr("\"insecure\""));
  EXPECT_TRUE(places.OnAnswer(0, Answer({"127.0.0.2"}), 0).moved);
  EXPECT_TRUE(places.problem(0).ok());
}

}  // namespace
}  // namespace salius
