// Names and addresses of hosts.
#ifndef SALIUS_COMMON_NET_H_
#define SALIUS_COMMON_NET_H_

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace salius {

// Of a replica, where no other is given: TCP and UDP.
inline constexpr uint16_t kDefaultPort = 7400;

struct HostPort {
  std::string host;
  uint16_t port = 0;

  // "host:port", with brackets around an IPv6 address.
  std::string ToString() const;

  friend bool operator==(const HostPort&, const HostPort&) = default;
};

// A socket address of any family with its length.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  // Of an IPv4 or IPv6 address, in host order; 0 for other families.
  uint16_t port() const;
  void set_port(uint16_t port);
  // An IPv6 address that means something only on one of this host's links.
  bool has_scope() const;

  // Same family, address and port (and scope).
  friend bool operator==(const SocketAddress& a, const SocketAddress& b);
};

// Whether it is an address itself (without a scope), to which no resolver has anything to say.
bool IsNumeric(const std::string& host);

// "host", "host:port", "[::1]:port", "[::1]" or a bare IPv6 address. Without a port it is
// `default_port`. Port 0 is accepted (any free port, when listening). INVALID_ARGUMENT otherwise.
absl::StatusOr<HostPort> ParseHostPort(std::string_view text, uint16_t default_port);

// The addresses of the host, at least one, by getaddrinfo(3); blocks as long as the resolver does.
// `family`: AF_INET or AF_INET6 for those alone. NOT_FOUND when there is no such host or it has no
// such address, UNAVAILABLE when the resolver cannot tell now; both name the host.
absl::StatusOr<std::vector<SocketAddress>> ResolveAll(const HostPort& host_port,
                                                      int family = AF_UNSPEC);
// The first of them.
absl::StatusOr<SocketAddress> Resolve(const HostPort& host_port);

// What becomes of a name that has no address now.
enum class Unresolved { kIsAnError, kIsLeftEmpty };

// The addresses of a volume's replicas, each "host:port", in their order: the first of each that is
// of a family of which all have one, and not another's before. INVALID_ARGUMENT when one
// has no port, two are the same, or they are not all of one family: one socket sends to all of
// them; FAILED_PRECONDITION when that is so by what a name leads to now. Else what Resolve says of
// the first name that has no address, or, with kIsLeftEmpty, only when none has one: then the
// others' length is 0. Every error names the replica.
absl::StatusOr<std::vector<SocketAddress>> ResolveReplicas(
    const std::vector<std::string>& replicas, Unresolved unresolved = Unresolved::kIsAnError);

// The same, with every address of each: first the one that ResolveReplicas gives, then the others,
// those of its family first. `family`: AF_INET or AF_INET6 for those alone.
absl::StatusOr<std::vector<std::vector<SocketAddress>>> ResolveAllOfReplicas(
    const std::vector<std::string>& replicas, Unresolved unresolved, int family = AF_UNSPEC);

// An IPv4 address as an IPv6 socket of both families names it, and back; others stay.
SocketAddress MapToIpv6(const SocketAddress& address);
SocketAddress UnmapFromIpv6(const SocketAddress& address);

// "1.2.3.4:7400", "[::1]:7400", or "family N" for anything else.
std::string FormatSockaddr(const sockaddr* address, socklen_t length);
std::string FormatSockaddr(const SocketAddress& address);

// "1.2.3.4", also for one mapped into IPv6, or "::1"; without a port. "" for other families.
std::string FormatHost(const SocketAddress& address);

// The addresses of this host's interfaces, as FormatHost() writes them.
std::vector<std::string> InterfaceHosts();

// 127.0.0.0/8, ::1, or either mapped into IPv6.
bool IsLoopback(const SocketAddress& address);

// 224.0.0.0/4 or ff00::/8.
bool IsMulticast(const SocketAddress& address);

}  // namespace salius

#endif  // SALIUS_COMMON_NET_H_
