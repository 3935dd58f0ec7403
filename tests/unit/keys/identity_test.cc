#include "common/keys/identity.h"

#include <gtest/gtest.h>

#include <string>

namespace salius::keys {
namespace {

TEST(Identity, TextAndUriReturnToTheIdentity) {
  for (const Identity& identity : {Identity{Kind::kReplica, "r1"}, Identity{Kind::kClient, "0"},
                                   Identity{Kind::kOperator, "a.b_c-d"}}) {
    EXPECT_EQ(ParseIdentity(identity.ToString()).value(), identity);
    EXPECT_EQ(ParseIdentityUri(identity.ToUri()).value(), identity);
  }
  EXPECT_EQ((Identity{Kind::kClient, "web1"}.ToUri()), "salius:client/web1");
}

TEST(Identity, LongestNameIsAccepted) {
  EXPECT_TRUE(ParseIdentity("operator/" + std::string(55, 'a')).ok());
  EXPECT_FALSE(ParseIdentity("operator/" + std::string(56, 'a')).ok());
}

TEST(Identity, WrongTextIsRefused) {
  for (const char* const text :
       {"", "client", "client/", "/web1", "Client/web1", "client/Web1", "client/a/b", "client/../x",
        "client/.x", "client/-x", "client/a b", "clientx/a", "tenant/a", "client/a\n"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseIdentity(text).status())) << text;
  }
}

TEST(Identity, UriOfAnotherSchemeIsRefused) {
  EXPECT_FALSE(ParseIdentityUri("client/web1").ok());
  EXPECT_FALSE(ParseIdentityUri("spiffe:client/web1").ok());
  EXPECT_FALSE(IsIdentityUri("spiffe:client/web1"));
}

}  // namespace
}  // namespace salius::keys
