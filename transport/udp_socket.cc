#include "transport/udp_socket.h"

#include <errno.h>
#include <ifaddrs.h>
#include <linux/sock_diag.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/limits.h"
#include "common/strings.h"

namespace salius {
namespace {

template <typename T>
absl::Status SetOption(int fd, int level, int option, const T& value, std::string_view what) {
  if (setsockopt(fd, level, option, &value, sizeof(value)) != 0) return ErrnoStatus(errno, what);
  return absl::OkStatus();
}

// Sets a buffer's size. The force variant goes beyond net.core.[rw]mem_max but needs CAP_NET_ADMIN.
void SetBuffer(int fd, int force_option, int option, int bytes) {
  if (setsockopt(fd, SOL_SOCKET, force_option, &bytes, sizeof(bytes)) == 0) return;
  (void)setsockopt(fd, SOL_SOCKET, option, &bytes,
                   sizeof(bytes));  // a hint; see receive_buffer_bytes()
}

// Whether datagrams may arrive joined. An older kernel refuses, and hands over one at a time.
void SetJoining(int fd, bool on) {
  const int value = on ? 1 : 0;
  (void)setsockopt(fd, SOL_UDP, UDP_GRO, &value, sizeof(value));
}

bool IsAny(const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_addr.s_addr == INADDR_ANY;
  }
  return IN6_IS_ADDR_UNSPECIFIED(
      &reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_addr);
}

absl::Status CheckMulticast(const SocketAddress& group) {
  if (IsMulticast(group)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s is not a multicast address", FormatSockaddr(group)));
}

absl::StatusOr<unsigned> InterfaceIndex(const std::string& name) {
  const unsigned index = if_nametoindex(name.c_str());
  if (index != 0) return index;
  return absl::NotFoundError(absl::StrFormat("no network interface \"%s\"", name));
}

absl::StatusOr<UniqueFd> NewSocket(int family) {
  UniqueFd fd(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  return fd;
}

// Returns a socket that has chosen its route to `to`. Nothing is sent.
absl::StatusOr<UniqueFd> Connected(const SocketAddress& to) {
  SALIUS_ASSIGN_OR_RETURN(UniqueFd fd, NewSocket(to.storage.ss_family));
  if (connect(fd.get(), to.get(), to.length) != 0) {
    return ErrnoStatus(errno, "route to " + FormatSockaddr(to));
  }
  return fd;
}

}  // namespace

absl::StatusOr<UdpSocket> UdpSocket::Bind(const SocketAddress& local, const Options& options) {
  SALIUS_ASSIGN_OR_RETURN(UniqueFd fd, NewSocket(local.storage.ss_family));
  SetBuffer(fd.get(), SO_RCVBUFFORCE, SO_RCVBUF, options.receive_buffer_bytes);
  SetBuffer(fd.get(), SO_SNDBUFFORCE, SO_SNDBUF, options.send_buffer_bytes);
  if (options.reuse_port) {
    SALIUS_RETURN_IF_ERROR(SetOption(fd.get(), SOL_SOCKET, SO_REUSEPORT, int{1}, "SO_REUSEPORT"));
  }
  if (options.both_families) {
    SALIUS_RETURN_IF_ERROR(SetOption(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, int{0}, "IPV6_V6ONLY"));
  }
  if (options.coalesce) SetJoining(fd.get(), true);
  if (options.local_address) {
    const bool v4 = local.storage.ss_family == AF_INET;
    SALIUS_RETURN_IF_ERROR(SetOption(fd.get(), v4 ? IPPROTO_IP : IPPROTO_IPV6,
                                     v4 ? IP_PKTINFO : IPV6_RECVPKTINFO, int{1}, "IP_PKTINFO"));
  }
  if (bind(fd.get(), local.get(), local.length) != 0) {
    if (errno == EADDRINUSE) {
      return absl::AlreadyExistsError(
          absl::StrFormat("UDP port %d is in use (bind %s)", local.port(), FormatSockaddr(local)));
    }
    return ErrnoStatus(errno, "bind UDP " + FormatSockaddr(local));
  }
  UdpSocket socket(std::move(fd));
  socket.segments_from_ns_ = 0;
  socket.bound_here_ = true;
  socket.coalesce_ = options.coalesce;
  return socket;
}

absl::Status ScopeTo(const std::string& interface, SocketAddress* address) {
  if (interface.empty() || address->storage.ss_family != AF_INET6) return absl::OkStatus();
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&address->storage);
  if (!IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr) && !IN6_IS_ADDR_MC_LINKLOCAL(&v6->sin6_addr)) {
    return absl::OkStatus();
  }
  SALIUS_ASSIGN_OR_RETURN(v6->sin6_scope_id, InterfaceIndex(interface));
  return absl::OkStatus();
}

absl::Status UdpSocket::JoinGroup(const SocketAddress& group, std::string_view interface) {
  SALIUS_RETURN_IF_ERROR(CheckMulticast(group));
  unsigned index = 0;
  if (!interface.empty()) {
    SALIUS_ASSIGN_OR_RETURN(index, InterfaceIndex(std::string(interface)));
  }
  const std::string what = "join multicast group " + FormatSockaddr(group);
  if (group.storage.ss_family == AF_INET) {
    // By default Linux gives a socket every group that any process on the host has joined.
    SALIUS_RETURN_IF_ERROR(SetOption(fd(), IPPROTO_IP, IP_MULTICAST_ALL, int{0}, what));
    ip_mreqn request{};
    request.imr_multiaddr = reinterpret_cast<const sockaddr_in*>(&group.storage)->sin_addr;
    request.imr_ifindex = static_cast<int>(index);
    return SetOption(fd(), IPPROTO_IP, IP_ADD_MEMBERSHIP, request, what);
  }
  SALIUS_RETURN_IF_ERROR(SetOption(fd(), IPPROTO_IPV6, IPV6_MULTICAST_ALL, int{0}, what));
  ipv6_mreq request{};
  request.ipv6mr_multiaddr = reinterpret_cast<const sockaddr_in6*>(&group.storage)->sin6_addr;
  request.ipv6mr_interface = index;
  return SetOption(fd(), IPPROTO_IPV6, IPV6_JOIN_GROUP, request, what);
}

absl::Status UdpSocket::PrepareMulticastSend(const SocketAddress& group, bool loop,
                                             std::string_view interface) {
  SALIUS_RETURN_IF_ERROR(CheckMulticast(group));
  SALIUS_ASSIGN_OR_RETURN(const SocketAddress self, local());
  std::string name(interface);
  if (name.empty() && !IsAny(self)) {
    SALIUS_ASSIGN_OR_RETURN(name, InterfaceOf(self));
  }
  unsigned index = 0;
  if (!name.empty()) {
    SALIUS_ASSIGN_OR_RETURN(index, InterfaceIndex(name));
  }
  const std::string what = "send to multicast group " + FormatSockaddr(group);
  const int loop_option = loop ? 1 : 0;
  const int hops = 1;  // replicas share the primary's network; nothing leaves it by accident
  if (group.storage.ss_family == AF_INET) {
    if (index != 0) {
      ip_mreqn request{};
      request.imr_ifindex = static_cast<int>(index);
      SALIUS_RETURN_IF_ERROR(SetOption(fd(), IPPROTO_IP, IP_MULTICAST_IF, request, what));
    }
    SALIUS_RETURN_IF_ERROR(SetOption(fd(), IPPROTO_IP, IP_MULTICAST_TTL, hops, what));
    return SetOption(fd(), IPPROTO_IP, IP_MULTICAST_LOOP, loop_option, what);
  }
  if (index != 0) {
    SALIUS_RETURN_IF_ERROR(SetOption(fd(), IPPROTO_IPV6, IPV6_MULTICAST_IF, index, what));
  }
  SALIUS_RETURN_IF_ERROR(SetOption(fd(), IPPROTO_IPV6, IPV6_MULTICAST_HOPS, hops, what));
  return SetOption(fd(), IPPROTO_IPV6, IPV6_MULTICAST_LOOP, loop_option, what);
}

absl::StatusOr<SocketAddress> UdpSocket::local() const {
  SocketAddress address;
  address.length = sizeof(address.storage);
  if (getsockname(fd(), address.get(), &address.length) != 0) {
    return ErrnoStatus(errno, "getsockname");
  }
  return address;
}

int UdpSocket::receive_buffer_bytes() const {
  int bytes = 0;
  socklen_t length = sizeof(bytes);
  if (getsockopt(fd(), SOL_SOCKET, SO_RCVBUF, &bytes, &length) != 0) return 0;
  return bytes;
}

absl::Status UdpSocket::SetReceiveTimeout(int64_t micros) {
  const timeval limit{micros / 1'000'000, micros % 1'000'000};
  return SetOption(fd(), SOL_SOCKET, SO_RCVTIMEO, limit, "SO_RCVTIMEO");
}

uint64_t UdpSocket::send_errors() const { return __atomic_load_n(&send_errors_, __ATOMIC_RELAXED); }

absl::Status UdpSocket::SetFilter(absl::Span<const sock_filter> program) {
  if (!bound_here_) return absl::UnimplementedError("a socket that was taken over has no filters");
  if (program.empty()) {
    const int none = 0;
    // ENOENT: it had none.
    if (setsockopt(fd(), SOL_SOCKET, SO_DETACH_FILTER, &none, sizeof(none)) != 0 && errno != ENOENT) {
      return ErrnoStatus(errno, "SO_DETACH_FILTER");
    }
    if (coalesce_) SetJoining(fd(), true);
    return absl::OkStatus();
  }
  // The program would judge joined datagrams by the first of them.
  if (coalesce_) SetJoining(fd(), false);
  const sock_fprog code{static_cast<unsigned short>(program.size()),
                        const_cast<sock_filter*>(program.data())};
  return SetOption(fd(), SOL_SOCKET, SO_ATTACH_FILTER, code, "SO_ATTACH_FILTER");
}

uint32_t UdpSocket::dropped() const {
  std::array<uint32_t, SK_MEMINFO_VARS> memory{};
  socklen_t length = sizeof(memory);
  if (getsockopt(fd(), SOL_SOCKET, SO_MEMINFO, memory.data(), &length) != 0) return 0;
  return memory[SK_MEMINFO_DROPS];
}

absl::StatusOr<uint32_t> PathDatagramBytes(const SocketAddress& to) {
  SALIUS_ASSIGN_OR_RETURN(UniqueFd fd, Connected(to));
  const bool v4 = to.storage.ss_family == AF_INET;
  int mtu = 0;
  socklen_t length = sizeof(mtu);
  if (getsockopt(fd.get(), v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_MTU : IPV6_MTU, &mtu, &length) !=
      0) {
    return ErrnoStatus(errno, "MTU of the route to " + FormatSockaddr(to));
  }
  const int headers = (v4 ? 20 : 40) + 8;
  if (mtu <= headers) {
    return absl::InternalError(
        absl::StrFormat("MTU of the route to %s is %d", FormatSockaddr(to), mtu));
  }
  return static_cast<uint32_t>(
      std::min<size_t>(static_cast<size_t>(mtu - headers), kDatagramPayloadLoopback));
}

absl::StatusOr<std::string> InterfaceTowards(const SocketAddress& to) {
  SALIUS_ASSIGN_OR_RETURN(UniqueFd fd, Connected(to));
  SALIUS_ASSIGN_OR_RETURN(const SocketAddress local, UdpSocket::Adopt(std::move(fd)).local());
  SALIUS_ASSIGN_OR_RETURN(std::string name, InterfaceOf(local));
  // A host may have its address on the loopback interface and route by other interfaces.
  if (name == "lo" && !IsLoopback(to)) {
    return absl::NotFoundError("the way to " + FormatSockaddr(to) + " has an address of lo");
  }
  return name;
}

absl::StatusOr<std::string> InterfaceOf(const SocketAddress& local) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return ErrnoStatus(errno, "getifaddrs");
  const absl::Cleanup free_list = [list] { freeifaddrs(list); };
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != local.storage.ss_family) continue;
    SocketAddress candidate;
    candidate.length = local.length;
    std::memcpy(&candidate.storage, i->ifa_addr,
                local.storage.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    candidate.set_port(local.port());
    if (candidate == local) return std::string(i->ifa_name);
  }
  return absl::NotFoundError("no network interface has the address " + FormatSockaddr(local));
}

}  // namespace salius
