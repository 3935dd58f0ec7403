#include "client/mount/find_daemon.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "client/status/socket_path.h"
#include "client/status/status_reader.h"

namespace salius {

std::string SocketOf(const std::string& mountpoint, const absl::StatusOr<VolumeDir>& dir) {
  if (dir.ok()) return SocketPathOf(dir->config.volume);
  for (const std::string& socket : VolumeSocketsIn(kRunDirectory)) {
    const auto status = ReadVolumeStatus(socket, kDaemonAnswerBound);
    if (status.ok() && status->mountpoint() == mountpoint) return socket;
  }
  return "";
}

DaemonProcess ListenerAt(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) return {};
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid() ||
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return {};
  }
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid <= 0) {
    return {};
  }
  return {UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0))), peer.pid};
}

}  // namespace salius
