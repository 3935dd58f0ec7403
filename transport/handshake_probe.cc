#include "transport/handshake_probe.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <ctime>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/deadline.h"
#include "common/file.h"
#include "common/keys/x509.h"
#include "common/net.h"
#include "common/strings.h"
#include "common/version.h"
#include "proto/control.grpc.pb.h"
#include "transport/grpc_factory.h"

namespace salius {
namespace {

template <auto kFree>
struct Free {
  template <typename T>
  void operator()(T* what) const {
    kFree(what);
  }
};
using ContextPtr = std::unique_ptr<SSL_CTX, Free<SSL_CTX_free>>;
using SslPtr = std::unique_ptr<SSL, Free<SSL_free>>;
using BioPtr = std::unique_ptr<BIO, Free<BIO_free>>;
using X509Ptr = std::unique_ptr<X509, Free<X509_free>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;

// The first byte of a record of TLS: an alert, or a part of the handshake.
constexpr uint8_t kAlert = 21, kHandshake = 22;
constexpr unsigned char kHttp2[] = {2, 'h', '2'};

// Waits until the socket can be read or written. Returns false at the deadline.
bool Await(int fd, short events, const Deadline& deadline) {
  pollfd one = {.fd = fd, .events = events, .revents = 0};
  while (!deadline.Expired(SystemClock())) {
    const int ready = poll(&one, 1, 10);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
  return false;
}

UniqueFd Connect(const std::string& address, const Deadline& deadline) {
  const absl::StatusOr<HostPort> host_port = ParseHostPort(address, 0);
  if (!host_port.ok()) return {};
  const absl::StatusOr<SocketAddress> to = Resolve(*host_port);
  if (!to.ok()) return {};
  UniqueFd fd(socket(to->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return {};
  const auto* const name = reinterpret_cast<const sockaddr*>(&to->storage);
  if (connect(fd.get(), name, to->length) != 0 && errno != EINPROGRESS) return {};
  int error = 0;
  socklen_t size = sizeof(error);
  if (!Await(fd.get(), POLLOUT, deadline) ||
      getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) {
    return {};
  }
  return fd;
}

// Runs a function of OpenSSL until it succeeds, fails, or the deadline passes. Returns its error.
template <typename F>
int Drive(SSL* ssl, int fd, const Deadline& deadline, F step) {
  while (true) {
    ERR_clear_error();
    const int result = step();
    if (result > 0) return SSL_ERROR_NONE;
    const int error = SSL_get_error(ssl, result);
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) return error;
    if (!Await(fd, error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT, deadline)) return error;
  }
}

// Gives OpenSSL this host's certificates and private key.
bool Use(const keys::Keys& keys, SSL_CTX* context) {
  const BioPtr chain(BIO_new_mem_buf(keys.pair.chain_pem.data(),
                                     static_cast<int>(keys.pair.chain_pem.size())));
  const BioPtr pem(
      BIO_new_mem_buf(keys.pair.key_pem.data(), static_cast<int>(keys.pair.key_pem.size())));
  const X509Ptr own(PEM_read_bio_X509(chain.get(), nullptr, nullptr, nullptr));
  const KeyPtr key(PEM_read_bio_PrivateKey(pem.get(), nullptr, nullptr, nullptr));
  if (own == nullptr || key == nullptr || SSL_CTX_use_certificate(context, own.get()) != 1 ||
      SSL_CTX_use_PrivateKey(context, key.get()) != 1) {
    return false;
  }
  for (X509Ptr next; next.reset(PEM_read_bio_X509(chain.get(), nullptr, nullptr, nullptr)), next;) {
    if (SSL_CTX_add1_chain_cert(context, next.get()) != 1) return false;
  }
  return true;
}

std::string PeerChain(const SSL* ssl) {
  std::string pem;
  STACK_OF(X509)* const chain = SSL_get_peer_cert_chain(ssl);
  const BioPtr bio(BIO_new(BIO_s_mem()));
  for (int i = 0; i < sk_X509_num(chain); ++i) {
    if (PEM_write_bio_X509(bio.get(), sk_X509_value(chain, i)) != 1) break;
  }
  char* text = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &text);
  if (size > 0) pem.assign(text, static_cast<size_t>(size));
  return pem;
}

// Returns what a replica without TLS says its version is. It is asked nothing that is secret.
std::string VersionWithoutKeys(const std::string& address, const Deadline& deadline) {
  const auto stub = control::Replica::NewStub(TcpChannel(address, {.own_connection = true}));
  grpc::ClientContext context;
  SetCallTimeout(context, std::chrono::milliseconds(deadline.RemainingNs(SystemClock()) / 1'000'000));
  control::ReplicaStatusResponse response;
  if (!stub->Status(&context, {}, &response).ok() || response.version().empty()) return "a version";
  return absl::StrCat("version ", Printable(response.version(), NewLines::kReplace));
}

// Returns the finding of a handshake that ended, without the peer's refusal.
std::string Judge(const SSL* ssl, const keys::Keys& own, const std::string& host) {
  const std::string chain = PeerChain(ssl);
  if (chain.empty()) return "";
  const int64_t now_s = SystemClock().RealtimeNanos() / 1'000'000'000;
  absl::Status trusted = keys::VerifyChain(chain, own.roots_pem, now_s);
  if (trusted.ok()) trusted = CheckReplicaCertificate(chain, host);
  return std::string(trusted.message());
}

std::string Refusal(const keys::Keys& own, int error) {
  const unsigned long code = error == SSL_ERROR_SSL ? ERR_peek_last_error() : 0;
  const char* const reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return absl::StrFormat(
      "it refuses this host's certificate, of %s, signed by \"%s\", valid until %s%s: its ca.pem "
      "lacks that authority, or one of the two clocks is wrong; its log has a line",
      own.certificate.content.identity->ToString(), own.certificate.issuer,
      keys::FormatTime(own.certificate.content.validity.until_s),
      reason == nullptr ? "" : absl::StrCat(" (it says: ", reason, ")"));
}

// While it lives, a write to a closed connection raises no SIGPIPE in this thread: OpenSSL writes
// with write(2).
class NoSigpipe {
 public:
  NoSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    SALIUS_CHECK(pthread_sigmask(SIG_BLOCK, &pipe_, &before_) == 0, "pthread_sigmask fails");
  }
  ~NoSigpipe() {
    if (sigismember(&before_, SIGPIPE) == 1) return;
    constexpr timespec kNow{};
    while (sigtimedwait(&pipe_, nullptr, &kNow) == SIGPIPE) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  sigset_t pipe_, before_;
};

// Makes a handshake. With `chain` it ends there, and `chain` gets the peer's certificates. Else
// returns the finding.
std::string Probe(const CallTarget& target, std::string* chain) {
  const NoSigpipe no_sigpipe;
  const Deadline deadline = Deadline::AfterMillis(SystemClock(), kProbeTime.count());
  const UniqueFd fd = Connect(target.address, deadline);
  const ContextPtr context(SSL_CTX_new(TLS_client_method()));
  if (!fd.valid() || context == nullptr) return "";
  std::optional<keys::Keys> own;
  if (target.keys != nullptr) own = target.keys->Current();
  if (own && !Use(*own, context.get())) return "";
  const SslPtr ssl(SSL_new(context.get()));
  BIO* const nothing = BIO_new(BIO_s_mem());
  BIO* const peer = BIO_new_socket(fd.get(), BIO_NOCLOSE);
  if (ssl == nullptr || nothing == nullptr || peer == nullptr) return "";
  BIO_set_mem_eof_return(nothing, -1);
  SSL_set_bio(ssl.get(), nothing, peer);
  SSL_set_alpn_protos(ssl.get(), kHttp2, sizeof(kHttp2));
  SSL_set_connect_state(ssl.get());
  // Sends the first message, and cannot read yet. Then the first byte of the answer tells whether
  // the peer speaks TLS.
  ERR_clear_error();
  SSL_do_handshake(ssl.get());
  uint8_t first = 0;
  if (!Await(fd.get(), POLLIN, deadline) || recv(fd.get(), &first, 1, MSG_PEEK) != 1) return "";
  const bool tls = first == kAlert || first == kHandshake;
  if (!own) {
    return tls ? absl::StrCat("it takes calls with keys only, and this program (version ",
                              kSaliusVersion,
                              ") was given none: give it the option keys with a file of `salius "
                              "keys issue DIR client/NAME`")
               : "";
  }
  if (!tls) {
    return absl::StrCat("it has no keys (it is ", VersionWithoutKeys(target.address, deadline),
                        "), and this program (version ", kSaliusVersion,
                        ") has, and trusts no replica without: start it with --keys, after an "
                        "upgrade if it has no such option");
  }
  BIO_up_ref(peer);
  SSL_set0_rbio(ssl.get(), peer);
  const auto handshake = [&] { return SSL_do_handshake(ssl.get()); };
  if (Drive(ssl.get(), fd.get(), deadline, handshake) != SSL_ERROR_NONE) return "";
  if (chain != nullptr) {
    *chain = PeerChain(ssl.get());
    return "";
  }
  const std::string& host = target.host;
  const absl::StatusOr<HostPort> host_port = ParseHostPort(target.address, 0);
  std::string found = Judge(ssl.get(), *own, host.empty() && host_port.ok() ? host_port->host : host);
  if (!found.empty()) return found;
  // The peer sees this host's certificate last. It then speaks, or ends the connection.
  char byte;
  const int error =
      Drive(ssl.get(), fd.get(), deadline, [&] { return SSL_read(ssl.get(), &byte, 1); });
  const bool ended = error == SSL_ERROR_SSL || error == SSL_ERROR_SYSCALL ||
                     error == SSL_ERROR_ZERO_RETURN;
  return ended ? Refusal(*own, error) : "";
}

}  // namespace

std::string WhyRefused(const CallTarget& target) { return Probe(target, nullptr); }

std::string PeerCertificates(const CallTarget& target) {
  std::string chain;
  Probe(target, &chain);
  return chain;
}

absl::Status ExplainedStatus(const grpc::Status& status, std::string_view peer,
                             const CallTarget& target) {
  const absl::Status plain = CallStatus(status, peer);
  if (!absl::IsUnavailable(plain)) return plain;
  const std::string why = WhyRefused(target);
  return why.empty() ? plain : absl::UnavailableError(absl::StrCat(Av(peer), ": ", Av(why)));
}

}  // namespace salius
