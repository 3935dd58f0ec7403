#include "transport/connection_acceptor.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "common/log.h"
#include "common/strings.h"

namespace salius {
namespace {

// A pause after a failed accept(2), such as EMFILE. The kernel keeps the connections that wait.
constexpr int kPauseMs = 100;
constexpr int64_t kLogNs = 1'000'000'000;

uint64_t Descriptors() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}

// Returns the kernel's number of a socket, never used twice; 0 for what is no socket.
uint64_t CookieOf(int fd) {
  uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  return ::getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

Counter& ClosedBecause(const char* why) {
  return GetCounter("salius_control_connections_closed_total",
                    "Control connections that were closed because there were too many of one host, "
                    "or of all",
                    {{"of", why}});
}

}  // namespace

absl::StatusOr<std::unique_ptr<ConnectionAcceptor>> ConnectionAcceptor::Start(
    std::string place, UniqueFd listener, HostOf host_of, Take take, Clock& clock) {
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return ErrnoStatus(errno, "eventfd");
  return std::unique_ptr<ConnectionAcceptor>(
      new ConnectionAcceptor(std::move(place), std::move(listener), std::move(wake),
                             std::move(host_of), std::move(take), clock));
}

ConnectionAcceptor::ConnectionAcceptor(std::string place, UniqueFd listener, UniqueFd wake,
                                       HostOf host_of, Take take, Clock& clock)
    : place_(std::move(place)),
      listener_(std::move(listener)),
      wake_(std::move(wake)),
      host_of_(std::move(host_of)),
      take_(std::move(take)),
      clock_(clock),
      limits_(ConnectionLimits::BoundsFor(Descriptors()),
              [](int fd, uint64_t cookie) { return CookieOf(fd) == cookie; }),
      closed_of_host_(ClosedBecause("host")),
      closed_of_all_(ClosedBecause("all")),
      failed_(GetCounter("salius_control_accepts_failed_total",
                         "Times that a control connection could not be accepted, such as without a "
                         "free descriptor; it was tried again")),
      thread_([this] { Run(); }) {}

ConnectionAcceptor::~ConnectionAcceptor() { Stop(); }

void ConnectionAcceptor::Stop() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  static_cast<void>(!::write(wake_.get(), &one, sizeof(one)));
  thread_.join();
  listener_.Reset();
}

void ConnectionAcceptor::Run() {
  for (;;) {
    pollfd ready[] = {{listener_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    if (::poll(ready, 2, -1) < 0 && errno != EINTR) return;
    if (ready[1].revents != 0) return;
    if (ready[0].revents == 0) continue;
    SocketAddress peer;
    peer.length = sizeof(peer.storage);
    UniqueFd connection(
        ::accept4(listener_.get(), peer.get(), &peer.length, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (connection.valid()) {
      Admit(std::move(connection), peer);
    } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
      const int error = errno;
      failed_.Increment();
      if (MayLog()) {
        SLOG_WARN("{}: a connection could not be accepted, and waits: {}", place_,
                  Sv(ErrnoStatus(error, "accept").message()));
      }
      static_cast<void>(::poll(&ready[1], 1, kPauseMs));
    }
  }
}

void ConnectionAcceptor::Admit(UniqueFd connection, const SocketAddress& peer) {
  const std::string host = host_of_(connection.get(), peer);
  const auto verdict = limits_.Admit(clock_.MonotonicNanos(), connection.get(),
                                     CookieOf(connection.get()), host);
  if (verdict == ConnectionLimits::Verdict::kAdmitted) {
    take_(std::move(connection));
    return;
  }
  const bool of_host = verdict == ConnectionLimits::Verdict::kHostHasItsShare;
  (of_host ? closed_of_host_ : closed_of_all_).Increment();
  if (!MayLog()) return;
  SLOG_WARN("{}: closed a connection of {}: {} are open, which are all that {} may have; end some, or "
            "raise the limit of open files (LimitNOFILE=, ulimit -n)",
            place_, host, of_host ? limits_.bounds().per_host : limits_.size(),
            of_host ? "it" : "all hosts together");
}

bool ConnectionAcceptor::MayLog() {
  const int64_t now = clock_.MonotonicNanos();
  if (now < next_line_ns_) return false;
  next_line_ns_ = now + kLogNs;
  return true;
}

}  // namespace salius
