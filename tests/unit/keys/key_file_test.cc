// The files of keys as a process reads them. Needs root, to give files to other users.
#include "common/keys/key_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/unit/keys/keys_testing.h"

namespace salius::keys {
namespace {

using absl::StatusCode;

constexpr uid_t kOtherUser = 65'534;

class KeyFileTest : public DirectoryTest {
 protected:
  void SetUp() override {
    DirectoryTest::SetUp();
    WriteText(file_ = Path("replica-r1.pem"), text_);
    WriteText(Path("ca.pem"), root_.chain_pem, 0644);
  }
  absl::Status Load(int64_t now_s = kNowS) const { return LoadKeys(file_, now_s).status(); }

  const KeyPair root_ = Make(AuthorityContent("Root"));
  const KeyPair replica_ = Make(ReplicaContent(), &root_);
  const std::string text_ = replica_.chain_pem + replica_.key_pem;
  std::string file_;
};

TEST_F(KeyFileTest, GoodFilesAreLoaded) {
  const absl::StatusOr<Keys> keys = LoadKeys(file_, kNowS);
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_EQ(keys->certificate.content.identity, ReplicaContent().identity);
  EXPECT_EQ(keys->pair.key_pem, replica_.key_pem);
  EXPECT_EQ(keys->pair.chain_pem, replica_.chain_pem);
  EXPECT_EQ(keys->roots_pem, root_.chain_pem);
}

TEST_F(KeyFileTest, OrderOfTheBlocksIsFree) {
  WriteText(file_, "a comment\n" + replica_.key_pem + "\n" + replica_.chain_pem);
  EXPECT_TRUE(Load().ok()) << Load();
}

TEST_F(KeyFileTest, MissingFileIsNamed) {
  std::filesystem::remove(Path("ca.pem"));
  EXPECT_TRUE(Says(Load(), StatusCode::kNotFound, Path("ca.pem")));
  std::filesystem::remove(file_);
  EXPECT_TRUE(Says(Load(), StatusCode::kNotFound, file_));
}

TEST_F(KeyFileTest, RightsOfOtherUsersAreRefused) {
  for (const mode_t mode : {0640, 0620, 0610, 0604, 0602, 0601, 0644, 0666}) {
    ASSERT_EQ(chmod(file_.c_str(), mode), 0);
    EXPECT_TRUE(Says(Load(), StatusCode::kPermissionDenied, "chmod 600 " + file_)) << mode;
  }
  ASSERT_EQ(chmod(file_.c_str(), 0400), 0);
  EXPECT_TRUE(Load().ok()) << Load();
}

TEST_F(KeyFileTest, AuthoritiesThatOthersMayReplaceAreRefused) {
  for (const mode_t mode : {0620, 0602, 0666}) {
    ASSERT_EQ(chmod(Path("ca.pem").c_str(), mode), 0);
    EXPECT_TRUE(Says(Load(), StatusCode::kPermissionDenied, "chmod go-w " + Path("ca.pem")))
        << mode;
  }
}

TEST_F(KeyFileTest, FileOfAnotherUserIsRefused) {
  ASSERT_EQ(chown(file_.c_str(), kOtherUser, 0), 0);
  EXPECT_TRUE(Says(Load(), StatusCode::kPermissionDenied, "belongs to user 65534"));
}

TEST_F(KeyFileTest, AnotherUserCannotLoadThem) {
  ASSERT_EQ(chmod(directory_.c_str(), 0755), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool refused = setuid(kOtherUser) == 0 && Load().code() == StatusCode::kPermissionDenied;
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(KeyFileTest, LinkIsFollowedToTheFile) {
  std::filesystem::rename(file_, Path("real"));
  std::filesystem::create_symlink("real", file_);
  EXPECT_TRUE(Load().ok()) << Load();
  ASSERT_EQ(chmod(Path("real").c_str(), 0644), 0);
  EXPECT_EQ(Load().code(), StatusCode::kPermissionDenied);
}

TEST_F(KeyFileTest, PipeAndDirectoryAreRefused) {
  std::filesystem::remove(file_);
  ASSERT_EQ(mkfifo(file_.c_str(), 0600), 0);
  EXPECT_TRUE(Says(Load(), StatusCode::kDataLoss, "is not a file"));
  std::filesystem::remove(file_);
  ASSERT_EQ(mkdir(file_.c_str(), 0700), 0);
  EXPECT_TRUE(Says(Load(), StatusCode::kDataLoss, "is not a file"));
}

TEST_F(KeyFileTest, HugeFileIsRefused) {
  WriteText(file_, text_ + std::string(1 << 20, '\n'));
  EXPECT_TRUE(Says(Load(), StatusCode::kDataLoss, "larger than"));
}

TEST_F(KeyFileTest, FileWrittenInPartIsRefused) {
  // Without its last newline it is whole.
  for (size_t size = 0; size + 1 < text_.size(); size += 3) {
    WriteText(file_, text_.substr(0, size));
    EXPECT_TRUE(Says(Load(), StatusCode::kDataLoss, file_)) << size;
  }
  WriteText(file_, text_);
  for (size_t size = 0; size + 1 < root_.chain_pem.size(); size += 3) {
    WriteText(Path("ca.pem"), root_.chain_pem.substr(0, size));
    EXPECT_TRUE(Says(Load(), StatusCode::kDataLoss, Path("ca.pem"))) << size;
  }
}

TEST_F(KeyFileTest, ChangedCharacterIsFound) {
  for (size_t at = 0; at < text_.size(); at += 5) {
    std::string changed = text_;
    changed[at] = changed[at] == 'A' ? 'Q' : 'A';
    WriteText(file_, changed);
    const absl::StatusOr<Keys> keys = LoadKeys(file_, kNowS);
    if (!keys.ok()) continue;
    // The last character of base64 has bits without a meaning.
    EXPECT_TRUE(CheckPair({keys->pair.key_pem, replica_.chain_pem}).ok()) << at;
    EXPECT_EQ(ReadCertificates(keys->pair.chain_pem).value()[0].serial,
              ReadCertificates(replica_.chain_pem).value()[0].serial)
        << at;
  }
}

TEST_F(KeyFileTest, KeyOfAnotherCertificateIsRefused) {
  WriteText(file_, replica_.chain_pem + root_.key_pem);
  EXPECT_TRUE(Says(Load(), StatusCode::kDataLoss, file_ + ": the private key does not belong"));
}

TEST_F(KeyFileTest, OtherAuthorityIsRefused) {
  WriteText(Path("ca.pem"), Make(AuthorityContent("Other")).chain_pem);
  EXPECT_TRUE(Says(Load(), StatusCode::kFailedPrecondition, file_ + ": the authority \"Root\""));
}

TEST_F(KeyFileTest, ClockAYearOffIsRefused) {
  EXPECT_TRUE(Says(Load(kNowS - kYearS), StatusCode::kFailedPrecondition, "valid from"));
  EXPECT_TRUE(Says(Load(kNowS + 2 * kYearS), StatusCode::kFailedPrecondition, "expired"));
  EXPECT_TRUE(LoadKeysUnverified(file_).ok());
}

TEST_F(KeyFileTest, CertificateWithoutIdentityIsRefused) {
  Content content = ReplicaContent();
  content.identity.reset();
  content.common_name = "web";
  const KeyPair web = Make(content, &root_);
  WriteText(file_, web.chain_pem + web.key_pem);
  EXPECT_TRUE(Says(Load(), StatusCode::kFailedPrecondition, "\"web\" has no identity"));
}

}  // namespace
}  // namespace salius::keys
