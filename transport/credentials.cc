#include "transport/credentials.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/log.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <atomic>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/keys/x509.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/strings.h"

namespace salius {
namespace {

// Within this time of a file's change another one may leave its times as they are.
constexpr int64_t kFreshS = 2;

Counter& Refused() {
  static Counter& counter =
      GetCounter("salius_keys_refused_total", "Times that changed key files could not be used");
  return counter;
}

// Takes the messages of gRPC, which would go to stderr. Callers get the errors of their calls. A
// server has no other trace of a handshake that failed: it counts them, and the log shows at most
// one a second.
void TakeMessage(gpr_log_func_args* args) {
  static Counter& failed = GetCounter("salius_control_handshakes_refused_total",
                                      "TLS handshakes of control connections that failed");
  static std::atomic<int64_t> next_ns{0};
  const std::string_view text(args->message);
  if (text.find("Handshake failed") == text.npos) {
    SLOG_DEBUG("gRPC: {}", Printable(std::string(text), NewLines::kReplace));
    return;
  }
  failed.Increment();
  const int64_t now = SystemClock().MonotonicNanos();
  int64_t next = next_ns.load();
  if (now < next || !next_ns.compare_exchange_strong(next, now + 1'000'000'000)) return;
  SLOG_WARN("control connection refused: {}", Printable(std::string(text), NewLines::kReplace));
}

// Accepts replicas only, and of those the one that the user named. The library has checked the
// chain of certificates, its dates, and that it may serve.
class ReplicaVerifier : public grpc::experimental::ExternalCertificateVerifier {
 public:
  explicit ReplicaVerifier(std::string host) : host_(std::move(host)) {}

  bool Verify(grpc::experimental::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)>, grpc::Status* result) override {
    const grpc::string_ref pem = request->peer_cert();
    const absl::Status checked =
        CheckReplicaCertificate(std::string_view(pem.data(), pem.size()), host_);
    *result = checked.ok() ? grpc::Status::OK
                           : grpc::Status(grpc::StatusCode::UNAUTHENTICATED,
                                          std::string(checked.message()));
    return true;
  }
  void Cancel(grpc::experimental::TlsCustomVerificationCheckRequest*) override {}

 private:
  const std::string host_;
};

// Gives gRPC the certificates of a server, when it asks before a handshake.
class ServerFiles {
 public:
  explicit ServerFiles(std::shared_ptr<Credentials> keys) : keys_(std::move(keys)) {}

  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config) {
    auto* const files = static_cast<ServerFiles*>(self);
    absl::MutexLock lock(&files->mutex_);
    const uint64_t generation = files->keys_->Generation();
    if (generation == files->given_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    const keys::Keys keys = files->keys_->Current();
    const grpc_ssl_pem_key_cert_pair pair = {keys.pair.key_pem.c_str(),
                                             keys.pair.chain_pem.c_str()};
    *config = grpc_ssl_server_certificate_config_create(keys.roots_pem.c_str(), &pair, 1);
    files->given_ = generation;
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

 private:
  const std::shared_ptr<Credentials> keys_;
  absl::Mutex mutex_;
  uint64_t given_ ABSL_GUARDED_BY(mutex_) = 0;  // Generation that gRPC has; 0: none.
};

// Returns an object that lives as long as the process: gRPC does not say when it has asked for the
// last time.
ServerFiles* KeepFiles(std::shared_ptr<Credentials> keys) {
  static absl::Mutex mutex(absl::kConstInit);
  static auto* const all = new std::vector<std::unique_ptr<ServerFiles>>();
  absl::MutexLock lock(&mutex);
  return all->emplace_back(std::make_unique<ServerFiles>(std::move(keys))).get();
}

// gRPC's C++ interface has no server that reads its certificates again for a handshake; the C
// interface has.
class ReloadingServer final : public grpc::ServerCredentials {
 public:
  explicit ReloadingServer(std::shared_ptr<Credentials> keys)
      : made_(grpc_ssl_server_credentials_create_with_options(
            grpc_ssl_server_credentials_create_options_using_config_fetcher(
                GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY, &ServerFiles::Fetch,
                KeepFiles(std::move(keys))))) {
    SALIUS_CHECK(made_ != nullptr, "gRPC makes no credentials");
  }
  ~ReloadingServer() override { grpc_server_credentials_release(made_); }

  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {
    SALIUS_CHECK(false, "not used");
  }

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), made_);
  }

  grpc_server_credentials* const made_;
};

}  // namespace

absl::Status CheckReplicaCertificate(std::string_view pem, const std::string& host) {
  SALIUS_ASSIGN_OR_RETURN(const std::vector<keys::Certificate> chain, keys::ReadCertificates(pem));
  const std::optional<keys::Identity>& identity = chain[0].content.identity;
  if (!identity) {
    return absl::FailedPreconditionError(
        absl::StrCat("the peer's certificate, of \"", chain[0].content.common_name,
                     "\", has no identity of Salius: make one with `salius keys issue`"));
  }
  if (identity->kind != keys::Kind::kReplica) {
    return absl::FailedPreconditionError(
        absl::StrCat("the peer is ", identity->ToString(), ", and no replica"));
  }
  return keys::CheckHost(pem, host);
}

absl::StatusOr<std::shared_ptr<Credentials>> Credentials::Load(const std::string& path,
                                                               Clock& clock) {
  if (path.empty()) return nullptr;
  static const bool taken = (gpr_set_log_function(TakeMessage), true);
  static_cast<void>(taken);
  std::shared_ptr<Credentials> made(new Credentials(path, clock));
  absl::MutexLock lock(&made->mutex_);
  made->stamp_ = Look(path);
  made->stamp_is_fresh_ = true;
  SALIUS_ASSIGN_OR_RETURN(made->keys_, keys::LoadKeys(path, made->NowS()));
  made->generation_ = 1;
  return made;
}

Credentials::Stamp Credentials::Look(const std::string& path) {
  Stamp stamp;
  // A file that is missing has the empty stamp.
  static_cast<void>(stat(path.c_str(), &stamp.own));
  const std::string beside =
      (std::filesystem::path(path).parent_path() / keys::kAuthoritiesFile).string();
  static_cast<void>(stat(beside.c_str(), &stamp.authorities));
  return stamp;
}

bool Credentials::Same(const Stamp& a, const Stamp& b) {
  const auto same = [](const struct stat& one, const struct stat& other) {
    return one.st_ino == other.st_ino && one.st_dev == other.st_dev &&
           one.st_size == other.st_size && one.st_mode == other.st_mode &&
           one.st_uid == other.st_uid && one.st_mtim.tv_sec == other.st_mtim.tv_sec &&
           one.st_mtim.tv_nsec == other.st_mtim.tv_nsec &&
           one.st_ctim.tv_sec == other.st_ctim.tv_sec &&
           one.st_ctim.tv_nsec == other.st_ctim.tv_nsec;
  };
  return same(a.own, b.own) && same(a.authorities, b.authorities);
}

void Credentials::Refresh() {
  const Stamp now = Look(path_);
  if (Same(now, stamp_) && !stamp_is_fresh_) return;
  const int64_t now_s = NowS();
  stamp_ = now;
  stamp_is_fresh_ = now.own.st_ctim.tv_sec + kFreshS >= now_s ||
                    now.authorities.st_ctim.tv_sec + kFreshS >= now_s;
  absl::StatusOr<keys::Keys> read = keys::LoadKeys(path_, now_s);
  if (!read.ok()) {
    std::string problem(read.status().message());
    if (problem == problem_) return;
    Refused().Increment();
    SLOG_ERROR("the changed keys are not used, those of before are: {}",
               Printable(problem, NewLines::kReplace));
    problem_ = std::move(problem);
    return;
  }
  problem_.clear();
  const bool changed = read->pair.key_pem != keys_.pair.key_pem ||
                       read->pair.chain_pem != keys_.pair.chain_pem ||
                       read->roots_pem != keys_.roots_pem;
  if (!changed) return;
  keys_ = *std::move(read);
  ++generation_;
  SLOG_INFO("new keys of {} are used, valid until {}",
            keys_.certificate.content.identity->ToString(),
            keys::FormatTime(keys_.certificate.content.validity.until_s));
}

keys::Identity Credentials::identity() const {
  absl::MutexLock lock(&mutex_);
  return *keys_.certificate.content.identity;
}

uint64_t Credentials::Generation() {
  absl::MutexLock lock(&mutex_);
  Refresh();
  return generation_;
}

keys::Keys Credentials::Current() {
  absl::MutexLock lock(&mutex_);
  Refresh();
  return keys_;
}

std::shared_ptr<grpc::ChannelCredentials> Credentials::ForChannel(const std::string& host) {
  using grpc::experimental::ExternalCertificateVerifier;
  const keys::Keys keys = Current();
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(
      std::make_shared<grpc::experimental::StaticDataCertificateProvider>(
          keys.roots_pem, std::vector<grpc::experimental::IdentityKeyCertPair>{
                              {keys.pair.key_pem, keys.pair.chain_pem}}));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_verify_server_certs(true);
  // The verifier compares the host by which the user knows the replica; gRPC would compare the
  // numeric address to which it connects.
  options.set_check_call_host(false);
  options.set_certificate_verifier(ExternalCertificateVerifier::Create<ReplicaVerifier>(host));
  return grpc::experimental::TlsCredentials(options);
}

std::shared_ptr<grpc::ServerCredentials> Credentials::ForServer(std::shared_ptr<Credentials> keys) {
  return std::make_shared<ReloadingServer>(std::move(keys));
}

}  // namespace salius
