#include "common/keys/x509.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/keys/keys_testing.h"

namespace salius::keys {
namespace {

using absl::StatusCode;

class X509Test : public testing::Test {
 protected:
  absl::Status Verify(const KeyPair& pair, int64_t now_s = kNowS) const {
    return VerifyChain(pair.chain_pem, root_.chain_pem, now_s);
  }

  const KeyPair root_ = Make(AuthorityContent("Root"));
  const KeyPair replica_ = Make(ReplicaContent(), &root_);
};

TEST_F(X509Test, CertificateHasTheContent) {
  const std::vector<Certificate> read = ReadCertificates(replica_.chain_pem).value();
  ASSERT_EQ(read.size(), 1u);
  const Content& content = read[0].content;
  EXPECT_EQ(content.common_name, "replica/r1");
  EXPECT_EQ(content.identity, ReplicaContent().identity);
  EXPECT_EQ(content.hosts, ReplicaContent().hosts);
  EXPECT_EQ(content.validity, ReplicaContent().validity);
  EXPECT_FALSE(content.authority);
  EXPECT_EQ(read[0].issuer, "Root");
  EXPECT_EQ(read[0].serial.size(), 32u);
}

TEST_F(X509Test, EveryCertificateHasItsOwnSerial) {
  const KeyPair other = Make(ReplicaContent(), &root_);
  EXPECT_NE(ReadCertificates(other.chain_pem).value()[0].serial,
            ReadCertificates(replica_.chain_pem).value()[0].serial);
}

TEST_F(X509Test, OwnAuthorityIsTrusted) { EXPECT_TRUE(Verify(replica_).ok()); }

TEST_F(X509Test, AnyOfSeveralAuthoritiesIsTrusted) {
  const KeyPair other = Make(AuthorityContent("Other"));
  EXPECT_TRUE(VerifyChain(replica_.chain_pem, other.chain_pem + root_.chain_pem, kNowS).ok());
}

TEST_F(X509Test, UnknownAuthorityIsRefused) {
  const KeyPair other = Make(AuthorityContent("Other"));
  EXPECT_TRUE(Says(Verify(Make(ReplicaContent(), &other)), StatusCode::kFailedPrecondition,
                   "\"Other\", which signed the certificate of \"replica/r1\", is unknown"));
}

TEST_F(X509Test, AuthorityOfTheSameNameIsRefused) {
  const KeyPair other = Make(AuthorityContent("Root"));
  EXPECT_TRUE(Says(Verify(Make(ReplicaContent(), &other)), StatusCode::kFailedPrecondition,
                   "has the same name"));
}

TEST_F(X509Test, SelfSignedCertificateIsRefused) {
  EXPECT_EQ(Verify(Make(ReplicaContent())).code(), StatusCode::kFailedPrecondition);
}

TEST_F(X509Test, ClockOutsideTheValidityIsRefused) {
  EXPECT_TRUE(Verify(replica_, kNowS + kYearS - 1).ok());
  const absl::Status late = Verify(replica_, kNowS + kYearS);
  EXPECT_TRUE(Says(late, StatusCode::kFailedPrecondition, "expired on 2027-11-28 06:06:40 UTC"));
  EXPECT_TRUE(Says(late, StatusCode::kFailedPrecondition, "the clock says 2027-11-28 06:06:40"));
  // The clock of this host is a year slow.
  const absl::Status early = Verify(replica_, kNowS - kYearS);
  EXPECT_TRUE(
      Says(early, StatusCode::kFailedPrecondition, "valid from 2026-11-28 06:06:40 UTC on"));
  EXPECT_TRUE(Says(early, StatusCode::kFailedPrecondition, "correct the clock"));
}

TEST_F(X509Test, ExpiredAuthorityIsRefused) {
  Content content = ReplicaContent();
  content.validity.until_s += 20 * kYearS;
  EXPECT_TRUE(Says(Verify(Make(content, &root_), kNowS + 11 * kYearS),
                   StatusCode::kFailedPrecondition, "the certificate of \"Root\" expired"));
}

TEST_F(X509Test, IntermediateAuthorityIsInTheChain) {
  const KeyPair between = Make(AuthorityContent("Between"), &root_);
  const KeyPair replica = Make(ReplicaContent(), &between);
  EXPECT_EQ(SplitCertificates(replica.chain_pem).value().size(), 2u);
  EXPECT_TRUE(Verify(replica).ok());
}

TEST_F(X509Test, MissingIntermediateAuthorityIsRefused) {
  const KeyPair between = Make(AuthorityContent("Between"), &root_);
  KeyPair replica = Make(ReplicaContent(), &between);
  replica.chain_pem = SplitCertificates(replica.chain_pem).value()[0];
  EXPECT_TRUE(Says(Verify(replica), StatusCode::kFailedPrecondition,
                   "the file lacks the certificate of an intermediate one"));
}

TEST_F(X509Test, ReplicaCannotSignOthers) {
  Content content = ReplicaContent();
  content.identity = Identity{Kind::kOperator, "thief"};
  content.common_name = "operator/thief";
  const KeyPair thief = Make(content, &replica_);
  EXPECT_EQ(SplitCertificates(thief.chain_pem).value().size(), 2u);
  EXPECT_EQ(Verify(thief).code(), StatusCode::kFailedPrecondition);
}

TEST_F(X509Test, HostsOfTheCertificateAreAccepted) {
  for (const char* const host : {"r1.example", "R1.EXAMPLE", "10.0.0.1", "::1", "0:0::1"}) {
    EXPECT_TRUE(CheckHost(replica_.chain_pem, host).ok()) << host;
  }
}

TEST_F(X509Test, OtherHostsAreRefused) {
  for (const char* const host : {"r2.example", "r1", "10.0.0.2", "::2", "replica/r1", ""}) {
    EXPECT_TRUE(Says(CheckHost(replica_.chain_pem, host), StatusCode::kFailedPrecondition,
                     "is for r1.example, 10.0.0.1, ::1, not for"))
        << host;
  }
}

TEST_F(X509Test, HostThatIsNoHostIsNotSigned) {
  for (const char* const host :
       {"", "-x", ".x", "a b", "*.example", "a,DNS:b", "a:b", "1.2.3.4/8"}) {
    Content content = ReplicaContent();
    content.hosts = {host};
    EXPECT_TRUE(Says(Sign(content, replica_.key_pem, &root_).status(), StatusCode::kInvalidArgument,
                     "neither the name nor the numeric address"))
        << host;
  }
}

TEST_F(X509Test, KeyOfAnotherCertificateIsRefused) {
  EXPECT_TRUE(CheckPair(replica_).ok());
  EXPECT_TRUE(Says(CheckPair({root_.key_pem, replica_.chain_pem}), StatusCode::kDataLoss,
                   "does not belong to the certificate of \"replica/r1\""));
}

TEST_F(X509Test, KeyOfAnotherAuthorityDoesNotSign) {
  const KeyPair mixed{replica_.key_pem, root_.chain_pem};
  EXPECT_EQ(Sign(ReplicaContent(), replica_.key_pem, &mixed).status().code(),
            StatusCode::kDataLoss);
}

TEST_F(X509Test, TextWithoutBlocksIsRefused) {
  for (const char* const text : {"", "hello", "-----BEGIN ", "-----BEGIN CERTIFICATE-----"}) {
    EXPECT_EQ(ReadCertificates(text).status().code(), StatusCode::kDataLoss) << text;
    EXPECT_EQ(ReadPrivateKey(text).status().code(), StatusCode::kDataLoss) << text;
  }
}

TEST_F(X509Test, TwoPrivateKeysAreRefused) {
  EXPECT_TRUE(Says(ReadPrivateKey(root_.key_pem + replica_.key_pem).status(), StatusCode::kDataLoss,
                   "two private keys"));
}

TEST_F(X509Test, KeyWithPassPhraseIsRefused) {
  const std::string text =
      "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
  EXPECT_TRUE(Says(ReadPrivateKey(text).status(), StatusCode::kDataLoss, "pass phrase"));
}

}  // namespace
}  // namespace salius::keys
