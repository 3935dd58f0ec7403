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

// A replica's port, where no other is given: TCP and UDP.
inline constexpr uint16_t kDefaultPort = 7400;

struct HostPort {
  std::string host;
  uint16_t port = 0;

  // Returns "host:port", with brackets around an IPv6 address.
  std::string ToString() const;

  friend bool operator==(const HostPort&, const HostPort&) = default;
};

// A socket address of any family with its length.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  // Returns the port of an IPv4 or IPv6 address, in host order; 0 for other families.
  uint16_t port() const;
  void set_port(uint16_t port);
  // Whether it is an IPv6 address that is valid only on one of this host's links.
  bool has_scope() const;

  // Same family, address and port (and scope).
  friend bool operator==(const SocketAddress& a, const SocketAddress& b);
};

// Whether it is an address itself (without a scope), which needs no resolver.
bool IsNumeric(const std::string& host);

// Parses "host", "host:port", "[::1]:port", "[::1]" or a bare IPv6 address. Without a port it is
// `default_port`. Port 0 is accepted (any free port, when listening). INVALID_ARGUMENT otherwise.
absl::StatusOr<HostPort> ParseHostPort(std::string_view text, uint16_t default_port);

// Returns the address of a replica as "host:port", with kDefaultPort when `text` names no port.
// Errors: as ParseHostPort.
absl::StatusOr<std::string> ReplicaAddress(std::string_view text);

// Returns the addresses of the host, at least one, by getaddrinfo(3). Blocks as long as the
// resolver does. `family`: AF_INET or AF_INET6 for those alone. NOT_FOUND when there is no such
// host or it has no such address, UNAVAILABLE when the resolver cannot answer now. Both name the
// host.
absl::StatusOr<std::vector<SocketAddress>> ResolveAll(const HostPort& host_port,
                                                      int family = AF_UNSPEC);
// Returns the first of them.
absl::StatusOr<SocketAddress> Resolve(const HostPort& host_port);

// The treatment of a name that has no address now.
enum class Unresolved { kIsAnError, kIsLeftEmpty };

// Returns the addresses of a volume's replicas, each "host:port", in their order. For each it takes
// the first address of a family that all replicas have, and that no earlier replica has.
//
//   INVALID_ARGUMENT      one has no port, two are the same, or they are not all of one family
//                         (one socket sends to all of them)
//   FAILED_PRECONDITION   the same, where it is so by the present addresses of a name
//
// A name that has no address gives the error of Resolve for the first such name. With kIsLeftEmpty
// it gives an error only when no name has an address; otherwise the length of its address is 0.
// Every error names the replica.
absl::StatusOr<std::vector<SocketAddress>> ResolveReplicas(
    const std::vector<std::string>& replicas, Unresolved unresolved = Unresolved::kIsAnError);

// Returns every address of each replica. The first is the one that ResolveReplicas returns; then
// come the others, those of its family first. `family`: AF_INET or AF_INET6 for those alone.
absl::StatusOr<std::vector<std::vector<SocketAddress>>> ResolveAllOfReplicas(
    const std::vector<std::string>& replicas, Unresolved unresolved, int family = AF_UNSPEC);

// Convert an IPv4 address to the form of an IPv6 socket of both families, and back. Other addresses
// stay.
SocketAddress MapToIpv6(const SocketAddress& address);
SocketAddress UnmapFromIpv6(const SocketAddress& address);

// Returns "1.2.3.4:7400", "[::1]:7400", or "family N" for anything else.
std::string FormatSockaddr(const sockaddr* address, socklen_t length);
std::string FormatSockaddr(const SocketAddress& address);

// Returns "1.2.3.4", also for one mapped into IPv6, or "::1"; without a port. "" for other
// families.
std::string FormatHost(const SocketAddress& address);

// Returns the addresses of this host's interfaces, as FormatHost() writes them.
std::vector<std::string> InterfaceHosts();

// Whether it is in 127.0.0.0/8, ::1, or either mapped into IPv6.
bool IsLoopback(const SocketAddress& address);

// Whether it is in 224.0.0.0/4 or ff00::/8.
bool IsMulticast(const SocketAddress& address);

}  // namespace salius

#endif  // SALIUS_COMMON_NET_H_
