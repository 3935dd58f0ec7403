#include "tests/bench/driver/line_connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>

#include "common/check.h"
#include "common/net.h"

namespace salius::bench {

absl::StatusOr<LineConnection> LineConnection::Connect(const std::string& address) {
  SALIUS_ASSIGN_OR_RETURN(const HostPort host_port, ParseHostPort(address, 0));
  SALIUS_ASSIGN_OR_RETURN(const SocketAddress to, Resolve(host_port));
  UniqueFd fd(socket(to.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  if (connect(fd.get(), to.get(), to.length) != 0) return ErrnoStatus(errno, address);
  const int on = 1;
  if (setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) {
    return ErrnoStatus(errno, "TCP_NODELAY");
  }
  return LineConnection(std::move(fd));
}

absl::Status LineConnection::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t done = send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return ErrnoStatus(errno, "send");
    bytes.remove_prefix(static_cast<size_t>(done));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> LineConnection::ReadLine() {
  for (;;) {
    if (const size_t end = received_.find("\r\n"); end != std::string::npos) {
      std::string line = received_.substr(0, end);
      received_.erase(0, end + 2);
      return line;
    }
    char buffer[4096];
    const ssize_t got = recv(fd_.get(), buffer, sizeof buffer, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "recv");
    if (got == 0) return absl::UnavailableError("the server hung up");
    received_.append(buffer, static_cast<size_t>(got));
  }
}

}  // namespace salius::bench
