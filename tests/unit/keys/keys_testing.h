// Keys and a directory for the tests of common/keys.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "common/keys/authority.h"
#include "common/keys/x509.h"

namespace salius::keys {

// Some day in 2026, in seconds since 1970: no test here reads the clock.
inline constexpr int64_t kNowS = 1'795'846'000;
inline constexpr int64_t kYearS = 365 * kDayS;

// Returns whether the message of a status contains the text.
inline testing::AssertionResult Says(const absl::Status& status, absl::StatusCode code,
                                     const std::string& text) {
  const std::string message(status.message());
  if (status.code() == code && message.find(text) != message.npos) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << status.ToString() << ", not " << code << ": " << text;
}

inline Content AuthorityContent(const std::string& name) {
  return {.common_name = name,
          .identity = {},
          .hosts = {},
          .validity = {kNowS - kYearS, kNowS + 10 * kYearS},
          .authority = true};
}

inline Content ReplicaContent() {
  const Identity identity{Kind::kReplica, "r1"};
  return {.common_name = identity.ToString(),
          .identity = identity,
          .hosts = {"r1.example", "10.0.0.1", "::1"},
          .validity = {kNowS, kNowS + kYearS}};
}

// Makes a key and its certificate; without an issuer it signs itself.
inline KeyPair Make(const Content& content, const KeyPair* issuer = nullptr) {
  const absl::StatusOr<std::string> key = MakePrivateKey();
  EXPECT_TRUE(key.ok()) << key.status();
  const absl::StatusOr<KeyPair> pair = Sign(content, *key, issuer);
  EXPECT_TRUE(pair.ok()) << pair.status();
  return *pair;
}

inline std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void WriteText(const std::string& path, const std::string& text, mode_t mode = 0600) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
  ASSERT_EQ(chmod(path.c_str(), mode), 0);
}

class DirectoryTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/salius-keys-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }

  std::string directory_;
};

}  // namespace salius::keys
