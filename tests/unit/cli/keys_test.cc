// `salius keys` as it is called, on a real directory.
#include "client/cli/keys.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

#include "client/cli/exit_code.h"
#include "common/keys/authority.h"
#include "tests/unit/keys/keys_testing.h"

namespace salius::cli {
namespace {

using Words = std::vector<std::string>;

struct Outcome {
  int code = 0;
  std::string out, err;
};

class KeysCommandTest : public keys::DirectoryTest {
 protected:
  Outcome Call(const Words& words) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    Outcome outcome;
    outcome.code = RunKeys(words);
    outcome.out = testing::internal::GetCapturedStdout();
    outcome.err = testing::internal::GetCapturedStderr();
    return outcome;
  }
  // Makes an authority, a replica's keys and a client's.
  void MakeAll() {
    ASSERT_EQ(Call({"init", ca_, "--name", "Our CA"}).code, kExitOk);
    ASSERT_EQ(Call({"issue", ca_, "replica/r1", "--hosts", "r1.example,10.0.0.1"}).code, kExitOk);
    ASSERT_EQ(Call({"issue", ca_, "client/web", "--days", "1"}).code, kExitOk);
  }
  void SetUp() override {
    DirectoryTest::SetUp();
    ca_ = Path("ca");
  }

  std::string ca_;
};

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(KeysCommandTest, NewKeysAreShownWithoutProblem) {
  MakeAll();
  const Outcome shown = Call({"show", ca_});
  EXPECT_EQ(shown.code, kExitOk) << shown.err;
  for (const char* const part : {"Our CA", "replica/r1", "r1.example, 10.0.0.1", "client/web"}) {
    EXPECT_TRUE(Contains(shown.out, part)) << part << " in " << shown.out;
  }
  EXPECT_FALSE(Contains(shown.out, "PROBLEM")) << shown.out;
  EXPECT_EQ(Call({"show", Path("ca/replica-r1.pem"), "--for-host", "10.0.0.1"}).code, kExitOk);
}

TEST_F(KeysCommandTest, InitMakesTheNamedKeysToo) {
  const Outcome made =
      Call({"init", ca_, "replica/r1=r1.example,10.0.0.1", "replica/r2=::1", "client/web"});
  ASSERT_EQ(made.code, kExitOk) << made.err;
  for (const char* const file : {"ca.pem", "replica-r1.pem", "replica-r2.pem", "client-web.pem"}) {
    EXPECT_TRUE(Contains(made.out, Path(std::string("ca/") + file))) << made.out;
  }
  EXPECT_EQ(Call({"show", ca_}).code, kExitOk);
  EXPECT_EQ(Call({"show", Path("ca/replica-r1.pem"), "--for-host", "10.0.0.1"}).code, kExitOk);
  EXPECT_EQ(Call({"show", Path("ca/replica-r2.pem"), "--for-host", "10.0.0.1"}).code,
            kExitUnsuitable);
}

TEST_F(KeysCommandTest, KeysOfAShortLivedAuthorityEndWithIt) {
  const Outcome made = Call({"init", ca_, "client/web", "--days", "10"});
  ASSERT_EQ(made.code, kExitOk) << made.err;
  EXPECT_EQ(Call({"show", ca_}).code, kExitOk);
}

TEST_F(KeysCommandTest, WrongIdentityMakesNothing) {
  for (const Words& wrong :
       {Words{"client/a", "replica/r1"}, Words{"client/a", "client/b=b.example"},
        Words{"client/a", "replica/r1=r_1"}, Words{"client/a", "replica/r1="},
        Words{"client/a", "client/a"}, Words{"client/a", "tenant/a"}}) {
    Words words = {"init", ca_};
    words.insert(words.end(), wrong.begin(), wrong.end());
    const Outcome refused = Call(words);
    EXPECT_EQ(refused.code, kExitUsage) << wrong.back() << refused.err;
    EXPECT_FALSE(std::filesystem::exists(ca_)) << wrong.back();
  }
}

TEST_F(KeysCommandTest, IssueTakesSeveralIdentities) {
  ASSERT_EQ(Call({"init", ca_}).code, kExitOk);
  ASSERT_EQ(Call({"issue", ca_, "replica/r1=r1.example", "replica/r2=r2.example"}).code, kExitOk);
  EXPECT_EQ(Call({"show", Path("ca/replica-r2.pem"), "--for-host", "r2.example"}).code, kExitOk);
  EXPECT_EQ(Call({"issue", ca_, "replica/r3", "replica/r4", "--hosts", "r.example"}).code,
            kExitUsage);
  EXPECT_EQ(Call({"issue", ca_, "replica/r3=a.example", "--hosts", "r.example"}).code, kExitUsage);
  EXPECT_FALSE(std::filesystem::exists(Path("ca/replica-r3.pem")));
}

TEST_F(KeysCommandTest, ProblemsAreShownWithTheirCode) {
  MakeAll();
  const std::string replica = Path("ca/replica-r1.pem");
  const Outcome other_host = Call({"show", replica, "--for-host", "r2.example"});
  EXPECT_EQ(other_host.code, kExitUnsuitable);
  EXPECT_TRUE(Contains(other_host.out, "PROBLEM")) << other_host.out;
  ASSERT_EQ(chmod(replica.c_str(), 0640), 0);
  const Outcome readable = Call({"show", ca_, "--json"});
  EXPECT_EQ(readable.code, kExitPermission);
  EXPECT_TRUE(Contains(readable.out, R"("identity":"client/web","authority":false)"))
      << readable.out;
  EXPECT_TRUE(Contains(readable.out, "chmod 600")) << readable.out;
  ASSERT_EQ(chmod(replica.c_str(), 0600), 0);
  keys::WriteText(replica, keys::ReadText(replica).substr(0, 100));
  EXPECT_EQ(Call({"show", ca_}).code, kExitDamaged);
  ASSERT_EQ(chmod(Path("ca/ca.key").c_str(), 0644), 0);
  EXPECT_TRUE(Contains(Call({"show", ca_}).out, "ca.key")) << "rights of the authority's key";
}

TEST_F(KeysCommandTest, RenewReplacesTheNamedOnes) {
  MakeAll();
  const std::string replica = keys::ReadText(Path("ca/replica-r1.pem"));
  const std::string client = keys::ReadText(Path("ca/client-web.pem"));
  const std::string authority = keys::ReadText(Path("ca/ca.pem"));
  ASSERT_EQ(Call({"renew", ca_, "replica/r1", "ca"}).code, kExitOk);
  EXPECT_NE(keys::ReadText(Path("ca/replica-r1.pem")), replica);
  EXPECT_EQ(keys::ReadText(Path("ca/client-web.pem")), client);
  EXPECT_NE(keys::ReadText(Path("ca/ca.pem")), authority);
  EXPECT_EQ(Call({"show", ca_}).code, kExitOk);
}

TEST_F(KeysCommandTest, RenewWithAWrongNameReplacesNothing) {
  MakeAll();
  const std::string replica = keys::ReadText(Path("ca/replica-r1.pem"));
  EXPECT_EQ(Call({"renew", ca_, "replica/r1", "replica"}).code, kExitUsage);
  EXPECT_EQ(keys::ReadText(Path("ca/replica-r1.pem")), replica);
}

TEST_F(KeysCommandTest, RenewDueLeavesFreshOnes) {
  MakeAll();
  const std::string before = keys::ReadText(Path("ca/replica-r1.pem"));
  const Outcome renewed = Call({"renew", ca_, "--due"});
  EXPECT_EQ(renewed.code, kExitOk) << renewed.err;
  EXPECT_EQ(renewed.out, "");
  EXPECT_EQ(keys::ReadText(Path("ca/replica-r1.pem")), before);
}

TEST_F(KeysCommandTest, RenewDueReplacesOldOnes) {
  // A certificate of a year, eleven months old, and its authority of ten years.
  const int64_t then_s = time(nullptr) - 335 * keys::kDayS;
  {
    keys::Authority authority = keys::Authority::Create(ca_, "Our CA", 3650, then_s).value();
    ASSERT_TRUE(authority.Issue({keys::Kind::kClient, "web"}, {}, 365, then_s).ok());
  }
  const std::string authority = keys::ReadText(Path("ca/ca.pem"));
  const Outcome renewed = Call({"renew", ca_, "--due"});
  EXPECT_EQ(renewed.code, kExitOk) << renewed.err;
  EXPECT_TRUE(Contains(renewed.out, "client-web.pem")) << renewed.out;
  EXPECT_EQ(keys::ReadText(Path("ca/ca.pem")), authority);
}

TEST_F(KeysCommandTest, EarlierKeysAreKept) {
  MakeAll();
  EXPECT_EQ(Call({"init", ca_}).code, kExitExists);
  const Outcome again = Call({"issue", ca_, "client/web"});
  EXPECT_EQ(again.code, kExitExists);
  EXPECT_TRUE(Contains(again.err, "salius keys renew")) << again.err;
}

TEST_F(KeysCommandTest, WrongUseIsRefused) {
  MakeAll();
  for (const Words& words :
       {Words{}, Words{"make", ca_}, Words{"init"}, Words{"init", ca_, "x"}, Words{"issue", ca_},
        Words{"issue", ca_, "web"}, Words{"issue", ca_, "replica/r2"},
        Words{"issue", ca_, "client/x", "--hosts", "x"}, Words{"renew", ca_},
        Words{"renew", ca_, "ca", "--due"}, Words{"show"}, Words{"show", ca_, "--due"},
        Words{"init", Path("x"), "--json"}, Words{"issue", ca_, "client/x", "--days", "0"},
        Words{"init", Path("x"), "--name", std::string(65, 'x')}}) {
    EXPECT_EQ(Call(words).code, kExitUsage) << testing::PrintToString(words);
  }
  EXPECT_EQ(Call({"show", Path("absent.pem")}).code, kExitNotFound);
  EXPECT_EQ(Call({"issue", Path("absent"), "client/x"}).code, kExitNotFound);
  EXPECT_FALSE(std::filesystem::exists(Path("x")));
}

}  // namespace
}  // namespace salius::cli
