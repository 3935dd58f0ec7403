// A served replica with keys: what each identity may do, over real connections.
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/keys/authority.h"
#include "common/metrics.h"
#include "tests/unit/replica/server_testing.h"
#include "transport/credentials.h"

namespace salius {
namespace {

using ::testing::Not;
using Code = grpc::StatusCode;

class ServerKeysTest : public ServerTest {
 protected:
  void SetUp() override {
    const int64_t now_s = SystemClock().RealtimeNanos() / 1'000'000'000;
    absl::StatusOr<keys::Authority> made =
        keys::Authority::Create(absl::StrCat(keys_.path(), "/ca"), "Root", 3650, now_s);
    ASSERT_TRUE(made.ok()) << made.status();
    ASSERT_TRUE(made->Issue({keys::Kind::kReplica, "r"}, {"127.0.0.1"}, 30, now_s).ok());
    for (const std::string name : {"anne", "bob"}) {
      ASSERT_TRUE(made->Issue({keys::Kind::kClient, name}, {}, 30, now_s).ok());
    }
    ASSERT_TRUE(made->Issue({keys::Kind::kOperator, "op"}, {}, 30, now_s).ok());
    StartWithKeys();
  }
  void StartWithKeys(uint64_t peer_share_percent = 75) {
    ReplicaOptions options = Options();
    options.peer_share_percent = peer_share_percent;
    options.keys = absl::StrCat(keys_.path(), "/ca/replica-r.pem");
    Start(options);
    anne_ = Client("client-anne");
    bob_ = Client("client-bob");
    op_ = Client("operator-op");
  }
  // Returns the request of a session whose datagrams are not sealed: none is sent here.
  static control::OpenSessionRequest Session(Epoch epoch = 1, uint64_t session = 77) {
    control::OpenSessionRequest request = ReplicaClient::SessionRequest(epoch, session);
    request.set_plain(true);
    return request;
  }
  std::unique_ptr<ReplicaClient> Client(const std::string& name) {
    auto loaded = Credentials::Load(absl::StrCat(keys_.path(), "/ca/", name, ".pem"));
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return std::make_unique<ReplicaClient>(server_->port(), "127.0.0.1", *loaded);
  }
  // Makes one call; returns its status.
  template <typename Request, typename Response>
  grpc::Status Call(ReplicaClient& by,
                    grpc::Status (control::Replica::Stub::*call)(grpc::ClientContext*,
                                                                 const Request&, Response*),
                    const Request& request, Response* response = nullptr) {
    grpc::ClientContext context;
    Response ignored;
    return (by.stub().*call)(&context, request, response == nullptr ? &ignored : response);
  }
  grpc::Status Fence(ReplicaClient& by, Epoch epoch = 5) {
    control::FenceRequest request;
    request.set_volume(ReplicaClient::Bytes(TestVolume()));
    request.set_epoch(epoch);
    request.set_token(9);
    return Call(by, &control::Replica::Stub::Fence, request);
  }
  grpc::Status Ask(ReplicaClient& by) {
    control::InventoryRequest request;
    request.set_volume(ReplicaClient::Bytes(TestVolume()));
    return Call(by, &control::Replica::Stub::Inventory, request);
  }
  grpc::Status Drop(ReplicaClient& by) {
    control::DropVolumeRequest request;
    request.set_volume(ReplicaClient::Bytes(TestVolume()));
    request.set_epoch(1);
    return Call(by, &control::Replica::Stub::DropVolume, request);
  }
  grpc::Status Forget(ReplicaClient& by) {
    control::ForgetVolumeRequest request;
    request.set_volume(ReplicaClient::Bytes(TestVolume()));
    request.set_force(true);
    return Call(by, &control::Replica::Stub::ForgetVolume, request);
  }
  control::ReplicaStatusResponse Status(ReplicaClient& by) {
    control::ReplicaStatusResponse response;
    const grpc::Status status = Call(by, &control::Replica::Stub::Status,
                                     control::ReplicaStatusRequest(), &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }

  // Returns what the caller learns of the volume's owner.
  control::ReplicaStatusResponse::Owner OwnerSeenBy(ReplicaClient& by) {
    control::ReplicaStatusRequest request;
    request.set_volume(ReplicaClient::Bytes(TestVolume()));
    control::ReplicaStatusResponse response;
    const grpc::Status status =
        Call(by, &control::Replica::Stub::Status, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_GT(response.now_unix_ms(), 0u);
    return response.asked_owner();
  }

  ShmDir keys_;
  std::unique_ptr<ReplicaClient> anne_, bob_, op_;
};

TEST_F(ServerKeysTest, StatusSaysWhoseTheAskedVolumeIs) {
  using Owner = control::ReplicaStatusResponse;
  EXPECT_EQ(OwnerSeenBy(*anne_), Owner::OWNER_NONE);
  ASSERT_TRUE(anne_->Open(Session()).ok());
  EXPECT_EQ(OwnerSeenBy(*anne_), Owner::OWNER_CALLER);
  EXPECT_EQ(OwnerSeenBy(*bob_), Owner::OWNER_OTHER);
  EXPECT_EQ(OwnerSeenBy(*op_), Owner::OWNER_OTHER);
  EXPECT_EQ(Status(*anne_).asked_owner(), Owner::OWNER_UNKNOWN) << "nothing is asked";
}

TEST_F(ServerKeysTest, ClientWithoutKeysLearnsWhatItNeeds) {
  ReplicaClient plain(server_->port());  // as clients of every version without keys
  control::ReplicaStatusResponse status;
  const std::vector<grpc::Status> refused = {
      plain.Open(Session()), Fence(plain), Ask(plain), plain.Fetch().status, Drop(plain), Forget(plain),
      Call(plain, &control::Replica::Stub::Status, control::ReplicaStatusRequest(), &status)};
  for (const grpc::Status& one : refused) {
    EXPECT_EQ(one.error_code(), Code::UNAVAILABLE);
    EXPECT_THAT(one.error_message(), HasSubstr(absl::StrCat("version ", kReplicaVersion)));
    EXPECT_THAT(one.error_message(), HasSubstr("with keys only"));
  }
  EXPECT_GE(GetCounter("salius_control_clients_without_keys_total", "").Value(), 1);
  // Others are served meanwhile.
  EXPECT_TRUE(anne_->Open(Session()).ok());
}

TEST_F(ServerKeysTest, OtherTenantsVolumeIsRefusedInEachCall) {
  ASSERT_TRUE(anne_->Open(Session()).ok());
  // The stolen session id is no key: each field is that of anne's session.
  std::vector<grpc::Status> refused = {bob_->Open(Session()), bob_->Open(Session(2, 8)),
                                       Fence(*bob_), Ask(*bob_), bob_->Fetch().status, Drop(*bob_),
                                       Forget(*bob_)};
  for (const grpc::Status& status : refused) {
    EXPECT_EQ(status.error_code(), Code::PERMISSION_DENIED) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr("client/bob"));
    EXPECT_THAT(status.error_message(), Not(HasSubstr("anne")));
  }
  EXPECT_TRUE(anne_->Open(Session()).ok()) << "the session is as it was";
  EXPECT_TRUE(Ask(*anne_).ok());
  EXPECT_TRUE(anne_->Fetch().status.ok());
  EXPECT_TRUE(Fence(*anne_).ok());
  EXPECT_TRUE(Drop(*anne_).ok());
}

TEST_F(ServerKeysTest, OperatorMayActOnEachVolume) {
  ASSERT_TRUE(anne_->Open(Session()).ok());
  EXPECT_TRUE(Ask(*op_).ok());
  EXPECT_TRUE(op_->Fetch().status.ok());
  EXPECT_TRUE(Fence(*op_).ok());
  EXPECT_TRUE(Drop(*op_).ok());
  EXPECT_TRUE(Forget(*op_).ok());
  // It has no owner now.
  EXPECT_TRUE(bob_->Open(Session()).ok());
}

TEST_F(ServerKeysTest, OwnerStaysOverDropAndRestart) {
  ASSERT_TRUE(anne_->Open(Session()).ok());
  ASSERT_TRUE(Drop(*anne_).ok());
  server_.reset();
  shm_.Remove();
  std::filesystem::create_directory(shm_.path());
  StartWithKeys();
  EXPECT_EQ(bob_->Open(Session()).error_code(), Code::PERMISSION_DENIED);
  EXPECT_TRUE(anne_->Open(Session()).ok());
}

TEST_F(ServerKeysTest, FailedOpenMakesNoOwner) {
  control::OpenSessionRequest huge = Session();
  huge.set_memory_bytes(uint64_t{1} << 40);
  EXPECT_EQ(bob_->Open(huge).error_code(), Code::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(anne_->Open(Session()).ok());
}

TEST_F(ServerKeysTest, VolumeFromBeforeTheKeysIsTheFirstOpeners) {
  server_.reset();
  Start();
  ASSERT_TRUE(client_->Open().ok());
  server_.reset();
  StartWithKeys();
  EXPECT_EQ(Ask(*bob_).error_code(), Code::PERMISSION_DENIED);
  EXPECT_EQ(Drop(*bob_).error_code(), Code::PERMISSION_DENIED);
  EXPECT_TRUE(anne_->Open(Session()).ok());
  EXPECT_TRUE(Ask(*anne_).ok());
  EXPECT_EQ(Fence(*bob_).error_code(), Code::PERMISSION_DENIED);
}

TEST_F(ServerKeysTest, StatusShowsEachClientItsOwn) {
  ASSERT_TRUE(anne_->Open(Session()).ok());
  ASSERT_FALSE(Fence(*bob_).ok());
  const control::ReplicaStatusResponse all = Status(*op_);
  ASSERT_EQ(all.volumes_size(), 1);
  EXPECT_EQ(all.volumes(0).owner(), "client/anne");
  ASSERT_EQ(all.calls_size(), 2);
  EXPECT_EQ(all.calls(0).identity(), "client/bob");
  EXPECT_FALSE(all.calls(0).accepted());
  EXPECT_EQ(all.calls(1).identity(), "client/anne");
  EXPECT_EQ(Status(*anne_).volumes_size(), 1);
  EXPECT_EQ(Status(*bob_).volumes_size(), 0);
  EXPECT_EQ(Status(*bob_).calls_size(), 0);
}

TEST_F(ServerKeysTest, SharesAreCountedByIdentity) {
  // A session of 4 MiB takes a third of the arena; there is room for two.
  server_.reset();
  StartWithKeys(/*peer_share_percent=*/50);
  control::OpenSessionRequest request = Session();
  ASSERT_TRUE(anne_->Open(request).ok());
  request.set_volume(ReplicaClient::Bytes(TestVolume(2)));
  EXPECT_EQ(anne_->Open(request).error_code(), Code::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(bob_->Open(request).ok()) << "it is on the same host";
}

TEST_F(ServerKeysTest, ClientsCertificateDoesNotServe) {
  ReplicaOptions options = Options();
  options.keys = absl::StrCat(keys_.path(), "/ca/client-anne.pem");
  server_.reset();
  const absl::Status refused = ReplicaServer::Start(options, SystemClock()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("client/anne, which may not serve"));
}

TEST_F(ServerKeysTest, DamagedOwnersKeepTheReplicaFromStarting) {
  ASSERT_TRUE(anne_->Open(Session()).ok());
  server_.reset();
  const std::string path = absl::StrCat(state_.path(), "/owners");
  std::ofstream(path, std::ios::app) << "x";
  ReplicaOptions options = Options();
  options.keys = absl::StrCat(keys_.path(), "/ca/replica-r.pem");
  const absl::Status refused = ReplicaServer::Start(options, SystemClock()).status();
  EXPECT_TRUE(absl::IsDataLoss(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr(path));
}

}  // namespace
}  // namespace salius
