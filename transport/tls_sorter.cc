#include "transport/tls_sorter.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "common/check.h"

namespace salius {
namespace {

// A plain client begins with "PRI * HTTP/2.0" (RFC 9113, section 3.4). No record of TLS begins with
// this byte.
constexpr uint8_t kPlain = 'P';
constexpr int kRoundMs = 1000;

enum class First { kTls, kPlain, kNothingYet, kEnded };

First FirstOf(int fd) {
  uint8_t byte = 0;
  const ssize_t got = ::recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (got == 1) return byte == kPlain ? First::kPlain : First::kTls;
  return got < 0 && (errno == EAGAIN || errno == EINTR) ? First::kNothingYet : First::kEnded;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TlsSorter>> TlsSorter::Start(Take take, Clock& clock) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll.valid() || !wake.valid()) return ErrnoStatus(errno, "epoll");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = wake.get();
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0) {
    return ErrnoStatus(errno, "epoll_ctl");
  }
  return std::unique_ptr<TlsSorter>(
      new TlsSorter(std::move(epoll), std::move(wake), std::move(take), clock));
}

TlsSorter::TlsSorter(UniqueFd epoll, UniqueFd wake, Take take, Clock& clock)
    : epoll_(std::move(epoll)),
      wake_(std::move(wake)),
      take_(std::move(take)),
      clock_(clock),
      thread_([this] { Run(); }) {}

TlsSorter::~TlsSorter() {
  const uint64_t one = 1;
  static_cast<void>(!::write(wake_.get(), &one, sizeof(one)));
  thread_.join();
}

void TlsSorter::Add(UniqueFd connection) {
  const int fd = connection.get();
  const First first = FirstOf(fd);
  if (first == First::kEnded) return;
  if (first != First::kNothingYet) return take_(std::move(connection), first == First::kTls);
  const int64_t until_ns =
      clock_.MonotonicNanos() + std::chrono::nanoseconds(kPatience).count();
  absl::MutexLock lock(&mutex_);
  waiting_[fd] = {std::move(connection), until_ns};
  ends_.emplace_back(until_ns, fd);
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.fd = fd;
  // Without memory of the kernel for it, the connection ends.
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) waiting_.erase(fd);
}

void TlsSorter::Run() {
  std::array<epoll_event, 64> events;
  for (;;) {
    const int count =
        ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), kRoundMs);
    SALIUS_CHECK(count >= 0 || errno == EINTR);
    for (int i = 0; i < count; ++i) {
      if (events[i].data.fd == wake_.get()) return;
      Look(events[i].data.fd);
    }
    CloseOverdue();
  }
}

void TlsSorter::Look(int fd) {
  UniqueFd connection;
  First first = First::kNothingYet;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = waiting_.find(fd);
    if (found == waiting_.end()) return;  // closed meanwhile
    first = FirstOf(fd);
    if (first == First::kNothingYet) return;
    connection = std::move(found->second.connection);
    waiting_.erase(found);
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  }
  if (first != First::kEnded) take_(std::move(connection), first == First::kTls);
}

void TlsSorter::CloseOverdue() {
  const int64_t now = clock_.MonotonicNanos();
  absl::MutexLock lock(&mutex_);
  while (!ends_.empty() && ends_.front().first <= now) {
    const auto [until_ns, fd] = ends_.front();
    ends_.pop_front();
    const auto found = waiting_.find(fd);
    // A later connection may have the number.
    if (found != waiting_.end() && found->second.until_ns == until_ns) waiting_.erase(found);
  }
}

}  // namespace salius
