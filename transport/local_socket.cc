#include "transport/local_socket.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/file.h"

namespace salius {
namespace {

std::string DirectoryOfUser() { return absl::StrCat("/run/user/", ::geteuid(), "/salius-replica"); }

bool IsThere(const std::string& path) {
  const absl::StatusOr<sockaddr_un> address = UnixSocketAddress(path);
  if (!address.ok()) return false;
  // Does not wait: the other end accepts later.
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe.valid()) return false;
  if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) == 0) {
    return true;
  }
  return errno == EACCES || errno == EPERM || errno == EAGAIN;
}

}  // namespace

std::string LocalSocketDirectory() {
  if (::access(kLocalSocketDirectory, W_OK) == 0 || ::geteuid() == 0) return kLocalSocketDirectory;
  return DirectoryOfUser();
}

std::string LocalSocketPath(const std::string& directory, const SocketAddress& address) {
  SocketAddress host = address;
  host.set_port(0);
  // "127.0.0.1:0" or "[::1]:0"; brackets are not allowed in the URI of a socket.
  std::string text = FormatSockaddr(host);
  text.resize(text.rfind(':'));
  if (text.front() == '[') text = text.substr(1, text.size() - 2);
  return absl::StrCat(directory, "/", text, "-", address.port(), ".sock");
}

std::string FindLocalSocket(std::string_view host_port, NoSocket without) {
  const absl::StatusOr<HostPort> parsed = ParseHostPort(host_port, 0);
  if (!parsed.ok()) return "";
  std::vector<std::string> hosts = {parsed->host};
  if (parsed->host == "localhost") hosts = {"127.0.0.1", "::1"};
  std::string missing;
  for (const std::string& host : hosts) {
    if (!IsNumeric(host)) continue;
    const absl::StatusOr<SocketAddress> address = Resolve(HostPort{host, parsed->port});
    if (!address.ok() || !IsLoopback(*address)) continue;
    for (const std::string& directory : {std::string(kLocalSocketDirectory), DirectoryOfUser()}) {
      std::string path = LocalSocketPath(directory, *address);
      if (IsThere(path)) return path;
      if (missing.empty() && without == NoSocket::kFail) missing = std::move(path);
    }
  }
  return missing;
}

absl::StatusOr<sockaddr_un> UnixSocketAddress(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is too long for a socket"));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

}  // namespace salius
