// Mutual TLS between a server and channels of this process, with the files of `salius keys`.
#include "transport/credentials.h"

#include <chrono>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/keys/authority.h"
#include "common/metrics.h"
#include "common/version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/control.grpc.pb.h"
#include "tests/unit/keys/keys_testing.h"
#include "transport/caller.h"
#include "transport/grpc_factory.h"
#include "transport/handshake_probe.h"

namespace salius {
namespace {

using keys::Authority;
using keys::Identity;
using keys::Kind;
using ::testing::AllOf;
using ::testing::HasSubstr;

const Identity kReplica{Kind::kReplica, "r1"};
const Identity kClient{Kind::kClient, "web"};
using keys::kYearS;

// Reports the caller's identity as the version.
class Echo : public control::Replica::Service {
  grpc::Status Status(grpc::ServerContext* context, const control::ReplicaStatusRequest*,
                      control::ReplicaStatusResponse* response) override {
    const Caller caller = CallerOf(context);
    response->set_version(caller.authenticated() ? caller.identity->ToString() : "unknown");
    return grpc::Status::OK;
  }
};

int64_t NowS() { return SystemClock().RealtimeNanos() / 1'000'000'000; }

class CredentialsTest : public keys::DirectoryTest {
 protected:
  void SetUp() override {
    DirectoryTest::SetUp();
    MakeAuthority("ca");
  }
  // Makes an authority, a replica for 127.0.0.1 and a client, valid for a year from `from_s`.
  void MakeAuthority(const std::string& name, int64_t from_s = NowS()) {
    absl::StatusOr<Authority> made = Authority::Create(Path(name), "Root", 3650, from_s);
    ASSERT_TRUE(made.ok()) << made.status();
    ASSERT_TRUE(made->Issue(kReplica, {"127.0.0.1"}, 365, from_s).ok());
    ASSERT_TRUE(made->Issue(kClient, {}, 365, from_s).ok());
  }
  std::shared_ptr<Credentials> Load(const std::string& name, Clock& clock = SystemClock()) {
    absl::StatusOr<std::shared_ptr<Credentials>> made = Credentials::Load(Path(name), clock);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *made : nullptr;
  }
  void Serve(std::shared_ptr<Credentials> keys) {
    absl::StatusOr<std::unique_ptr<TcpServer>> made =
        ServeTcp(Resolve(HostPort{"127.0.0.1", 0}).value(), service_, std::move(keys));
    ASSERT_TRUE(made.ok()) << made.status();
    server_ = *std::move(made);
  }
  // Asks the server over a new connection which caller it sees.
  absl::StatusOr<std::string> Ask(const std::shared_ptr<Credentials>& keys,
                                  const std::string& host = "") {
    grpc::ClientContext context;
    SetCallTimeout(context, std::chrono::seconds(60));
    control::ReplicaStatusResponse response;
    const std::string address = absl::StrCat("127.0.0.1:", server_->port());
    const auto channel = TcpChannel(
        address, {.own_connection = true, .keys = keys, .host = host});
    const grpc::Status status =
        control::Replica::NewStub(channel)->Status(&context, {}, &response);
    if (!status.ok()) {
      return ExplainedStatus(status, "r", {.address = address, .host = host, .keys = keys});
    }
    return response.version();
  }
  // Returns the error with which the server is not reached, or it refuses.
  std::string Refusal(const std::shared_ptr<Credentials>& keys, const std::string& host = "") {
    const absl::Status status = Ask(keys, host).status();
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    return std::string(status.message());
  }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(Path(name), std::ios::trunc) << text;
  }
  std::string Read(const std::string& name) {
    std::ifstream file(Path(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }

  Echo service_;
  std::unique_ptr<TcpServer> server_;
};

TEST_F(CredentialsTest, BothEndsAreAuthenticated) {
  Serve(Load("ca/replica-r1.pem"));
  EXPECT_EQ(Ask(Load("ca/client-web.pem")).value(), "client/web");
  EXPECT_EQ(Ask(Load("ca/client-web.pem"), "127.0.0.1").value(), "client/web");
}

TEST_F(CredentialsTest, NoFileMeansNoKeys) {
  EXPECT_EQ(Credentials::Load("").value(), nullptr);
  EXPECT_FALSE(Credentials::Load(Path("ca/none.pem")).ok());
  EXPECT_FALSE(Authenticated(nullptr));
  EXPECT_TRUE(Authenticated(Load("ca/client-web.pem")));
}

TEST_F(CredentialsTest, ReplicaOfAnotherHostIsRefused) {
  Serve(Load("ca/replica-r1.pem"));
  EXPECT_THAT(Refusal(Load("ca/client-web.pem"), "r2.example"),
              HasSubstr("not for \"r2.example\""));
}

TEST_F(CredentialsTest, PeersCertificateIsReadForADoctor) {
  Serve(Load("ca/replica-r1.pem"));
  CallTarget target{.address = absl::StrCat("127.0.0.1:", server_->port()),
                    .host = "",
                    .keys = Load("ca/client-web.pem")};
  const auto chain = keys::ReadCertificates(PeerCertificates(target));
  ASSERT_TRUE(chain.ok()) << chain.status();
  EXPECT_EQ(chain->front().content.identity, kReplica);
  target.keys = nullptr;
  EXPECT_EQ(PeerCertificates(target), "") << "without keys there is no handshake";
}

TEST_F(CredentialsTest, OtherAuthorityIsRefusedByEachEnd) {
  MakeAuthority("other");
  Serve(Load("ca/replica-r1.pem"));
  EXPECT_THAT(Refusal(Load("other/client-web.pem")), HasSubstr("another authority"));
  // A client that trusts both authorities is still refused by the replica.
  Write("other/ca.pem", Read("other/ca.pem") + Read("ca/ca.pem"));
  EXPECT_THAT(Refusal(Load("other/client-web.pem")),
              HasSubstr("refuses this host's certificate, of client/web"));
  // And after the replica trusts it too, it is not.
  Write("ca/ca.pem", Read("other/ca.pem") + Read("ca/ca.pem"));
  EXPECT_EQ(Ask(Load("other/client-web.pem")).value(), "client/web");
}

TEST_F(CredentialsTest, PeerWithoutKeysIsRefusedByEachEnd) {
  Serve(Load("ca/replica-r1.pem"));
  EXPECT_THAT(Refusal(nullptr), AllOf(HasSubstr("with keys only"), HasSubstr(kSaliusVersion)));
  Serve(nullptr);
  EXPECT_THAT(Refusal(Load("ca/client-web.pem")),
              AllOf(HasSubstr("it is version unknown"), HasSubstr(kSaliusVersion)));
}

TEST_F(CredentialsTest, ClientDoesNotPassAsReplica) {
  Serve(Load("ca/client-web.pem"));
  EXPECT_THAT(Refusal(Load("ca/client-web.pem")), HasSubstr("client/web"));
}

TEST_F(CredentialsTest, ReplicaDoesNotPassAsCaller) {
  Serve(Load("ca/replica-r1.pem"));
  EXPECT_THAT(Refusal(Load("ca/replica-r1.pem")),
              HasSubstr("refuses this host's certificate, of replica/r1"));
}

TEST_F(CredentialsTest, CertificatesOutOfTheirDatesAreRefused) {
  for (const int64_t from_s : {NowS() - 2 * kYearS, NowS() + kYearS}) {
    const std::string name = absl::StrCat("ca", from_s);
    MakeAuthority(name, from_s);
    // Each end that reads them has a wrong clock, the other a right one.
    ManualClock wrong(1, (from_s + 1) * 1'000'000'000);
    for (const std::string end : {"replica-r1.pem", "client-web.pem"}) {
      EXPECT_FALSE(Credentials::Load(Path(absl::StrCat(name, "/", end))).ok());
    }
    Write("ca/ca.pem", Read("ca/ca.pem") + Read(name + "/ca.pem"));
    Write(name + "/ca.pem", Read("ca/ca.pem"));
    Serve(Load("ca/replica-r1.pem"));
    EXPECT_THAT(Refusal(Load(name + "/client-web.pem", wrong)), HasSubstr("two clocks"));
    Serve(Load(name + "/replica-r1.pem", wrong));
    EXPECT_THAT(Refusal(Load("ca/client-web.pem")),
                AllOf(HasSubstr(from_s < NowS() ? "expired on" : "is valid from"),
                      HasSubstr("the clock says")));
  }
}

TEST_F(CredentialsTest, ServerUsesRenewedFilesForTheNextConnection) {
  Serve(Load("ca/replica-r1.pem"));
  const std::shared_ptr<Credentials> client = Load("ca/client-web.pem");
  ASSERT_TRUE(Ask(client).ok());
  // With the other authority's files the old client is a stranger.
  MakeAuthority("other");
  Write("ca/ca.pem", Read("other/ca.pem"));
  Write("ca/replica-r1.pem", Read("other/replica-r1.pem"));
  EXPECT_EQ(Ask(Load("other/client-web.pem")).value(), "client/web");
}

TEST_F(CredentialsTest, ClientSeesChangedFiles) {
  const std::shared_ptr<Credentials> client = Load("ca/client-web.pem");
  const uint64_t before = client->Generation();
  EXPECT_EQ(client->Generation(), before);
  absl::StatusOr<Authority> authority = Authority::Open(Path("ca"));
  ASSERT_TRUE(authority->Renew(kClient, NowS()).ok());
  EXPECT_GT(client->Generation(), before);
  EXPECT_EQ(client->Current().pair.chain_pem + client->Current().pair.key_pem,
            Read("ca/client-web.pem"));
}

TEST_F(CredentialsTest, HalfWrittenFilesLeaveTheOldKeys) {
  Serve(Load("ca/replica-r1.pem"));
  const std::shared_ptr<Credentials> client = Load("ca/client-web.pem");
  const Counter& refused = GetCounter("salius_keys_refused_total", "");
  for (const std::string name : {"ca/replica-r1.pem", "ca/client-web.pem", "ca/ca.pem"}) {
    const std::string whole = Read(name);
    const double before = refused.Value();
    for (const size_t size : {size_t{0}, size_t{1}, whole.size() / 3, whole.size() - 30}) {
      Write(name, whole.substr(0, size));
      EXPECT_EQ(Ask(client).value(), "client/web") << name << " " << size;
    }
    EXPECT_GT(refused.Value(), before) << name;
    Write(name, whole);
    EXPECT_EQ(Ask(client).value(), "client/web") << name;
  }
}

TEST_F(CredentialsTest, MissingFileLeavesTheOldKeys) {
  Serve(Load("ca/replica-r1.pem"));
  const std::shared_ptr<Credentials> client = Load("ca/client-web.pem");
  ASSERT_EQ(std::remove(Path("ca/replica-r1.pem").c_str()), 0);
  EXPECT_EQ(Ask(client).value(), "client/web");
}

// Returns the verdict on a certificate of the host r1.example.
absl::Status Verdict(const Identity& identity, const std::string& host) {
  keys::Content content = keys::ReplicaContent();
  content.identity = identity;
  return CheckReplicaCertificate(keys::Make(content).chain_pem, host);
}

TEST(ReplicaCertificateTest, ReplicaOfTheHostIsAccepted) {
  EXPECT_TRUE(Verdict(kReplica, "r1.example").ok());
  EXPECT_TRUE(Verdict(kReplica, "10.0.0.1").ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(Verdict(kReplica, "r2.example")));
}

TEST(ReplicaCertificateTest, ClientWithTheHostIsRefused) {
  EXPECT_TRUE(absl::IsFailedPrecondition(Verdict(kClient, "r1.example")));
  EXPECT_TRUE(absl::IsFailedPrecondition(Verdict({Kind::kOperator, "o"}, "r1.example")));
}

TEST(CallerTest, TextNamesWhatIsKnown) {
  EXPECT_EQ(Caller().ToString(), "an unknown peer");
  EXPECT_EQ((Caller{std::nullopt, "1.2.3.4:5"}).ToString(), "1.2.3.4:5");
  EXPECT_EQ((Caller{kClient, "1.2.3.4:5"}).ToString(), "client/web at 1.2.3.4:5");
  EXPECT_FALSE(CallerOf(nullptr).authenticated());
}

}  // namespace
}  // namespace salius
