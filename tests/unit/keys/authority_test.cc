#include "common/keys/authority.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "common/keys/key_file.h"
#include "tests/unit/keys/keys_testing.h"

namespace salius::keys {
namespace {

using absl::StatusCode;

const Identity kReplicaId{Kind::kReplica, "r-1"};
const Identity kClientId{Kind::kClient, "web"};

class AuthorityTest : public DirectoryTest {
 protected:
  void SetUp() override {
    DirectoryTest::SetUp();
    absl::StatusOr<Authority> made = Authority::Create(Path("ca"), "Root", 3650, kNowS);
    ASSERT_TRUE(made.ok()) << made.status();
    authority_.emplace(std::move(*made));
  }
  std::string Issue(const Identity& identity, const std::vector<std::string>& hosts = {}) {
    const absl::StatusOr<std::string> path = authority_->Issue(identity, hosts, 365, kNowS);
    EXPECT_TRUE(path.ok()) << path.status();
    return path.ok() ? *path : "";
  }
  absl::Status Open() { return Authority::Open(Path("ca")).status(); }

  std::optional<Authority> authority_;
};

mode_t ModeOf(const std::string& path) {
  struct stat st {};
  EXPECT_EQ(stat(path.c_str(), &st), 0) << path;
  return st.st_mode & 07777;
}

TEST_F(AuthorityTest, IssuedFilesAreLoaded) {
  const std::string path = Issue(kReplicaId, {"r1.example", "10.0.0.1"});
  EXPECT_EQ(path, Path("ca/replica-r-1.pem"));
  const absl::StatusOr<Keys> keys = LoadKeys(path, kNowS);
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_EQ(keys->certificate.content.identity, kReplicaId);
  EXPECT_EQ(keys->certificate.content.validity.until_s, kNowS + kYearS);
  // A host with a slow clock accepts it at once.
  EXPECT_TRUE(LoadKeys(path, kNowS - kClockSlackS).ok());
}

TEST_F(AuthorityTest, OtherUsersHaveNoRights) {
  const mode_t before = umask(0);
  absl::StatusOr<Authority> open = Authority::Create(Path("open"), "Root", 3650, kNowS);
  ASSERT_TRUE(open.ok()) << open.status();
  ASSERT_TRUE(open->Issue(kClientId, {}, 1, kNowS).ok());
  umask(before);
  EXPECT_EQ(ModeOf(Path("open")), 0700u);
  for (const char* const name : {"open/ca.key", "open/ca.pem", "open/client-web.pem"}) {
    EXPECT_EQ(ModeOf(Path(name)), 0600u) << name;
  }
}

TEST_F(AuthorityTest, SecondCreateIsRefused) {
  authority_.reset();
  const std::string key = ReadText(Path("ca/ca.key"));
  EXPECT_TRUE(Says(Authority::Create(Path("ca"), "Root", 1, kNowS).status(),
                   StatusCode::kAlreadyExists, "there is an authority already"));
  // Nor does it replace what a lost file leaves.
  std::filesystem::remove(Path("ca/ca.pem"));
  EXPECT_EQ(Authority::Create(Path("ca"), "Root", 1, kNowS).status().code(),
            StatusCode::kAlreadyExists);
  EXPECT_EQ(ReadText(Path("ca/ca.key")), key);
}

TEST_F(AuthorityTest, OpenDirectoryIsLocked) {
  EXPECT_EQ(Open().code(), StatusCode::kUnavailable);
  authority_.reset();
  EXPECT_TRUE(Open().ok()) << Open();
}

TEST_F(AuthorityTest, DirectoryWithRightsForOthersIsRefused) {
  authority_.reset();
  ASSERT_EQ(chmod(Path("ca").c_str(), 0750), 0);
  EXPECT_TRUE(Says(Open(), StatusCode::kPermissionDenied, "chmod 700 " + Path("ca")));
  ASSERT_EQ(chmod(Path("ca").c_str(), 0700), 0);
  ASSERT_EQ(chmod(Path("ca/ca.key").c_str(), 0640), 0);
  EXPECT_TRUE(Says(Open(), StatusCode::kPermissionDenied, "chmod 600 " + Path("ca/ca.key")));
}

TEST_F(AuthorityTest, KeyWithoutItsCertificateIsRefused) {
  authority_.reset();
  WriteText(Path("ca/ca.pem"), Make(AuthorityContent("Root")).chain_pem);
  EXPECT_TRUE(Says(Open(), StatusCode::kDataLoss, "has no certificate of the key"));
  std::filesystem::remove(Path("ca/ca.key"));
  EXPECT_TRUE(Says(Open(), StatusCode::kNotFound, "ca.key"));
}

TEST_F(AuthorityTest, SecondIssueNamesTheRenewal) {
  const std::string path = Issue(kClientId);
  const std::string before = ReadText(path);
  EXPECT_TRUE(Says(authority_->Issue(kClientId, {}, 1, kNowS).status(), StatusCode::kAlreadyExists,
                   "salius keys renew " + Path("ca") + " client/web"));
  EXPECT_EQ(ReadText(path), before);
}

TEST_F(AuthorityTest, HostsAreForReplicasOnly) {
  EXPECT_TRUE(Says(authority_->Issue(kReplicaId, {}, 1, kNowS).status(),
                   StatusCode::kInvalidArgument, "needs the names and addresses"));
  EXPECT_TRUE(Says(authority_->Issue(kClientId, {"web"}, 1, kNowS).status(),
                   StatusCode::kInvalidArgument, "hosts are for replicas"));
  EXPECT_TRUE(authority_->Issued().value().empty());
}

TEST_F(AuthorityTest, RenewalHasANewKeyAndTheOldNames) {
  const std::string path = Issue(kReplicaId, {"r1.example"});
  const Keys before = LoadKeys(path, kNowS).value();
  const int64_t later_s = kNowS + 2 * kYearS;  // It has expired.
  ASSERT_EQ(authority_->Renew(kReplicaId, later_s).value(), path);
  const Keys after = LoadKeys(path, later_s).value();
  EXPECT_NE(after.pair.key_pem, before.pair.key_pem);
  EXPECT_NE(after.certificate.serial, before.certificate.serial);
  EXPECT_EQ(after.certificate.content.hosts, before.certificate.content.hosts);
  EXPECT_EQ(after.certificate.content.validity.until_s, later_s + kYearS);
}

TEST_F(AuthorityTest, RenewalOfAnUnknownIdentityIsRefused) {
  EXPECT_EQ(authority_->Renew(kClientId, kNowS).status().code(), StatusCode::kNotFound);
  std::filesystem::rename(Issue(kReplicaId, {"r1"}), Path("ca/client-web.pem"));
  EXPECT_TRUE(Says(authority_->Renew(kClientId, kNowS).status(), StatusCode::kDataLoss,
                   "the certificate of \"replica/r-1\", not of client/web"));
}

TEST_F(AuthorityTest, RenewedAuthorityKeepsIssuedOnesValid) {
  const std::string path = Issue(kClientId);
  authority_.reset();
  const std::string other = Make(AuthorityContent("Other")).chain_pem;
  WriteText(Path("ca/ca.pem"), other + ReadText(Path("ca/ca.pem")));
  authority_.emplace(Authority::Open(Path("ca")).value());
  const std::string serial = authority_->own().serial;
  ASSERT_TRUE(authority_->RenewOwn(kNowS + 3600).ok());
  EXPECT_NE(authority_->own().serial, serial);
  EXPECT_EQ(authority_->own().content.validity.until_s, kNowS + 3600 + 10 * kYearS);
  EXPECT_TRUE(LoadKeys(path, kNowS + 3600).ok());
  EXPECT_NE(ReadText(Path("ca/ca.pem")).find(other), std::string::npos);
}

TEST_F(AuthorityTest, CertificateNeverOutlivesItsAuthority) {
  EXPECT_TRUE(Says(authority_->Issue(kClientId, {}, 3651, kNowS).status(),
                   StatusCode::kFailedPrecondition, "renew that first"));
  EXPECT_TRUE(Says(authority_->Issue(kClientId, {}, 1, kNowS + 11 * kYearS).status(),
                   StatusCode::kFailedPrecondition, "\"Root\" expired"));
  EXPECT_TRUE(Says(authority_->Issue(kClientId, {}, 1, kNowS - kYearS).status(),
                   StatusCode::kFailedPrecondition, "correct the clock"));
  EXPECT_TRUE(authority_->Issued().value().empty());
}

TEST_F(AuthorityTest, IssuedListsTheIdentities) {
  Issue(kReplicaId, {"r1"});
  Issue(kClientId);
  WriteText(Path("ca/notes.pem"), "");
  WriteText(Path("ca/client-web2.pem.tmp"), "");
  EXPECT_EQ(authority_->Issued().value(), (std::vector<Identity>{kClientId, kReplicaId}));
}

TEST_F(AuthorityTest, DueAfterTwoThirdsOfItsTime) { EXPECT_EQ(DueAt({1000, 4000}), 3000); }

}  // namespace
}  // namespace salius::keys
