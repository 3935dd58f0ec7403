#include "common/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"

namespace salius {
namespace {

// Parses decimal digits only: from_chars and the like take signs or stop early.
bool ParsePort(std::string_view text, uint16_t* port) {
  if (text.empty() || text.size() > 5) return false;
  uint32_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return false;
    value = value * 10 + static_cast<uint32_t>(c - '0');
  }
  if (value > 65535) return false;
  *port = static_cast<uint16_t>(value);
  return true;
}

const sockaddr_in& AsV4(const SocketAddress& address) {
  return *reinterpret_cast<const sockaddr_in*>(&address.storage);
}

const sockaddr_in6& AsV6(const SocketAddress& address) {
  return *reinterpret_cast<const sockaddr_in6*>(&address.storage);
}

}  // namespace

std::string HostPort::ToString() const {
  const bool brackets = host.find(':') != std::string::npos;
  return brackets ? absl::StrFormat("[%s]:%d", host, port) : absl::StrFormat("%s:%d", host, port);
}

uint16_t SocketAddress::port() const {
  if (storage.ss_family == AF_INET) return ntohs(AsV4(*this).sin_port);
  if (storage.ss_family == AF_INET6) return ntohs(AsV6(*this).sin6_port);
  return 0;
}

void SocketAddress::set_port(uint16_t port) {
  if (storage.ss_family == AF_INET) {
    reinterpret_cast<sockaddr_in*>(&storage)->sin_port = htons(port);
  } else if (storage.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port = htons(port);
  }
}

bool SocketAddress::has_scope() const {
  return storage.ss_family == AF_INET6 && AsV6(*this).sin6_scope_id != 0;
}

bool operator==(const SocketAddress& a, const SocketAddress& b) {
  if (a.storage.ss_family != b.storage.ss_family) return false;
  if (a.storage.ss_family == AF_INET) {
    return AsV4(a).sin_port == AsV4(b).sin_port &&
           AsV4(a).sin_addr.s_addr == AsV4(b).sin_addr.s_addr;
  }
  if (a.storage.ss_family == AF_INET6) {
    return AsV6(a).sin6_port == AsV6(b).sin6_port &&
           AsV6(a).sin6_scope_id == AsV6(b).sin6_scope_id &&
           std::memcmp(&AsV6(a).sin6_addr, &AsV6(b).sin6_addr, sizeof(in6_addr)) == 0;
  }
  return a.length == b.length && std::memcmp(&a.storage, &b.storage, a.length) == 0;
}

absl::StatusOr<HostPort> ParseHostPort(std::string_view text, uint16_t default_port) {
  const auto invalid = [&](const char* why) {
    return absl::InvalidArgumentError(
        absl::StrFormat("\"%s\" is not an address (host:port): %s", text, why));
  };
  HostPort result;
  result.port = default_port;
  std::string_view port;
  bool has_port = false;
  if (!text.empty() && text.front() == '[') {
    const size_t close = text.find(']');
    if (close == std::string_view::npos) return invalid("no closing bracket");
    result.host = text.substr(1, close - 1);
    const std::string_view rest = text.substr(close + 1);
    if (!rest.empty() && rest.front() != ':') return invalid("text after the bracket");
    has_port = !rest.empty();
    if (has_port) port = rest.substr(1);
  } else if (std::count(text.begin(), text.end(), ':') > 1) {
    result.host = text;  // An IPv6 address without brackets has no port.
    in6_addr address;
    const std::string number = result.host.substr(0, result.host.find('%'));  // without its scope
    if (inet_pton(AF_INET6, number.c_str(), &address) != 1) {
      return invalid("more than one colon, and no IPv6 address");
    }
  } else {
    const size_t colon = text.find(':');
    result.host = text.substr(0, colon);
    has_port = colon != std::string_view::npos;
    if (has_port) port = text.substr(colon + 1);
  }
  if (result.host.empty()) return invalid("no host");
  if (has_port && !ParsePort(port, &result.port)) return invalid("the port is not 0 to 65535");
  return result;
}

absl::StatusOr<std::string> ReplicaAddress(std::string_view text) {
  const absl::StatusOr<HostPort> address = ParseHostPort(text, kDefaultPort);
  if (!address.ok()) return address.status();
  return address->ToString();
}

bool IsNumeric(const std::string& host) {
  in6_addr any{};
  return inet_pton(AF_INET, host.c_str(), &any) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &any) == 1;
}

absl::StatusOr<std::vector<SocketAddress>> ResolveAll(const HostPort& host_port, int family) {
  addrinfo hints = {};
  hints.ai_family = family;
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = AI_NUMERICSERV;
  const std::string port = absl::StrFormat("%d", host_port.port);
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host_port.host.c_str(), port.c_str(), &hints, &list);
  if (error != 0) {
    const char* text = error == EAI_SYSTEM ? strerrordesc_np(errno) : gai_strerror(error);
    const std::string message =
        absl::StrFormat("cannot resolve host \"%s\": %s", host_port.host, text);
    const bool none = error == EAI_NONAME || error == EAI_NODATA || error == EAI_ADDRFAMILY;
    return none ? absl::NotFoundError(message) : absl::UnavailableError(message);
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, &freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* i = list; i != nullptr; i = i->ai_next) {
    SocketAddress& address = addresses.emplace_back();
    std::memcpy(&address.storage, i->ai_addr, i->ai_addrlen);
    address.length = i->ai_addrlen;
  }
  return addresses;
}

absl::StatusOr<SocketAddress> Resolve(const HostPort& host_port) {
  const absl::StatusOr<std::vector<SocketAddress>> addresses = ResolveAll(host_port);
  if (!addresses.ok()) return addresses.status();
  return addresses->front();
}

namespace {

using Found = absl::StatusOr<std::vector<SocketAddress>>;

// Returns the addresses of each host, in order. It asks for all names at once: each takes 10 to 20
// seconds where the name server is gone.
std::vector<Found> ResolveEach(const std::vector<HostPort>& hosts, int family) {
  std::vector<Found> found(hosts.size(), absl::UnknownError("not asked"));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (IsNumeric(hosts[i].host)) {
      found[i] = ResolveAll(hosts[i], family);
    } else {
      threads.emplace_back([&, i] { found[i] = ResolveAll(hosts[i], family); });
    }
  }
  for (std::thread& thread : threads) thread.join();
  return found;
}

bool Has(const std::vector<SocketAddress>& addresses, int family) {
  return std::any_of(addresses.begin(), addresses.end(), [family](const SocketAddress& address) {
    return address.storage.ss_family == family;
  });
}

// Puts the addresses of one family first everywhere. It is the family of the first address there
// is, unless only the other family has an address of every host that has any.
void OrderByCommonFamily(std::vector<Found>& found) {
  int family = AF_UNSPEC;
  for (const Found& addresses : found) {
    if (addresses.ok() && family == AF_UNSPEC) family = addresses->front().storage.ss_family;
  }
  const auto all_have = [&found](int wanted) {
    return std::all_of(found.begin(), found.end(), [wanted](const Found& addresses) {
      return !addresses.ok() || Has(*addresses, wanted);
    });
  };
  const int other = family == AF_INET ? AF_INET6 : AF_INET;
  if (!all_have(family) && all_have(other)) family = other;
  for (Found& addresses : found) {
    if (!addresses.ok()) continue;
    std::stable_partition(
        addresses->begin(), addresses->end(),
        [family](const SocketAddress& address) { return address.storage.ss_family == family; });
  }
}

// Puts one of `addresses` at the front: the first that has the family of the first one and is not
// the first of any of `before`. When there is none they stay.
void PutFreeOneFirst(const std::vector<std::vector<SocketAddress>>& before,
                     std::vector<SocketAddress>& addresses) {
  for (auto it = addresses.begin(); it != addresses.end(); ++it) {
    if (it->storage.ss_family != addresses.front().storage.ss_family) continue;
    const bool taken = std::any_of(before.begin(), before.end(), [&it](const auto& others) {
      return !others.empty() && others.front() == *it;
    });
    if (taken) continue;
    std::rotate(addresses.begin(), it, it + 1);
    return;
  }
}

}  // namespace

absl::StatusOr<std::vector<std::vector<SocketAddress>>> ResolveAllOfReplicas(
    const std::vector<std::string>& replicas, Unresolved unresolved, int family) {
  std::vector<std::vector<SocketAddress>> result;
  absl::Status first_error;
  size_t first = replicas.size();  // index of the first replica that has an address
  std::vector<HostPort> hosts;
  for (const std::string& name : replicas) {
    absl::StatusOr<HostPort> host_port = ParseHostPort(name, 0);
    if (!host_port.ok() || host_port->port == 0) {
      return absl::InvalidArgumentError(absl::StrFormat("replica \"%s\": must be HOST:PORT", name));
    }
    hosts.push_back(*std::move(host_port));
  }
  // A name may have another address later.
  const auto clash = [&](size_t a, size_t b, const std::string& message) {
    const bool stays = IsNumeric(hosts[a].host) && IsNumeric(hosts[b].host);
    return stays ? absl::InvalidArgumentError(message) : absl::FailedPreconditionError(message);
  };
  std::vector<Found> found = ResolveEach(hosts, family);
  OrderByCommonFamily(found);
  for (size_t i = 0; i < replicas.size(); ++i) {
    const std::string& name = replicas[i];
    Found& addresses = found[i];
    if (!addresses.ok()) {
      if (first_error.ok()) {
        first_error =
            absl::Status(addresses.status().code(),
                         absl::StrFormat("replica %s: %s", name, addresses.status().message()));
      }
      if (unresolved == Unresolved::kIsAnError) return first_error;
      result.emplace_back();
      continue;
    }
    PutFreeOneFirst(result, *addresses);
    const SocketAddress& address = addresses->front();
    for (size_t other = 0; other < result.size(); ++other) {
      if (result[other].empty() || !(result[other].front() == address)) continue;
      return clash(other, i,
                   absl::StrFormat("replicas %s and %s are the same: %s", replicas[other], name,
                                   FormatSockaddr(address)));
    }
    first = std::min(first, result.size());
    result.push_back(*std::move(addresses));
    const SocketAddress& one = result[first].front();
    if (result.back().front().storage.ss_family != one.storage.ss_family) {
      return clash(
          first, i,
          absl::StrFormat("replica %s is at %s and replica %s at %s: give all of them addresses of "
                          "IPv4, or all of IPv6",
                          replicas[first], FormatSockaddr(one), name,
                          FormatSockaddr(result.back().front())));
    }
  }
  if (first == replicas.size() && !first_error.ok()) return first_error;
  return result;
}

absl::StatusOr<std::vector<SocketAddress>> ResolveReplicas(const std::vector<std::string>& replicas,
                                                           Unresolved unresolved) {
  const auto all = ResolveAllOfReplicas(replicas, unresolved);
  if (!all.ok()) return all.status();
  std::vector<SocketAddress> firsts;
  for (const auto& addresses : *all) {
    firsts.push_back(addresses.empty() ? SocketAddress() : addresses.front());
  }
  return firsts;
}

SocketAddress MapToIpv6(const SocketAddress& address) {
  if (address.storage.ss_family != AF_INET) return address;
  SocketAddress mapped;
  mapped.length = sizeof(sockaddr_in6);
  auto& to = *reinterpret_cast<sockaddr_in6*>(&mapped.storage);
  to.sin6_family = AF_INET6;
  to.sin6_port = AsV4(address).sin_port;
  to.sin6_addr.s6_addr[10] = to.sin6_addr.s6_addr[11] = 0xff;
  std::memcpy(&to.sin6_addr.s6_addr[12], &AsV4(address).sin_addr, sizeof(in_addr));
  return mapped;
}

SocketAddress UnmapFromIpv6(const SocketAddress& address) {
  if (address.storage.ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&AsV6(address).sin6_addr)) {
    return address;
  }
  SocketAddress plain;
  plain.length = sizeof(sockaddr_in);
  auto& to = *reinterpret_cast<sockaddr_in*>(&plain.storage);
  to.sin_family = AF_INET;
  to.sin_port = AsV6(address).sin6_port;
  std::memcpy(&to.sin_addr, &AsV6(address).sin6_addr.s6_addr[12], sizeof(in_addr));
  return plain;
}

std::string FormatSockaddr(const sockaddr* address, socklen_t length) {
  SocketAddress copy;
  if (length > sizeof(copy.storage)) return "address too long";
  std::memcpy(&copy.storage, address, length);
  copy.length = length;
  return FormatSockaddr(copy);
}

std::string FormatSockaddr(const SocketAddress& address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address.storage.ss_family == AF_INET) {
    inet_ntop(AF_INET, &AsV4(address).sin_addr, text, sizeof(text));
    return absl::StrFormat("%s:%d", text, address.port());
  }
  if (address.storage.ss_family == AF_INET6) {
    inet_ntop(AF_INET6, &AsV6(address).sin6_addr, text, sizeof(text));
    return absl::StrFormat("[%s]:%d", text, address.port());
  }
  return absl::StrFormat("family %d", address.storage.ss_family);
}

std::string FormatHost(const SocketAddress& address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address.storage.ss_family == AF_INET) {
    inet_ntop(AF_INET, &AsV4(address).sin_addr, text, sizeof(text));
  } else if (address.storage.ss_family == AF_INET6) {
    const in6_addr& ip = AsV6(address).sin6_addr;
    // One host has one text, whichever socket its address is for.
    const bool mapped = IN6_IS_ADDR_V4MAPPED(&ip);
    inet_ntop(mapped ? AF_INET : AF_INET6, ip.s6_addr + (mapped ? 12 : 0), text, sizeof(text));
  }
  return text;
}

std::vector<std::string> InterfaceHosts() {
  std::vector<std::string> hosts;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return hosts;
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr) continue;
    SocketAddress address;
    const int family = at->ifa_addr->sa_family;
    if (family == AF_INET) {
      address.length = sizeof(sockaddr_in);
    } else if (family == AF_INET6) {
      address.length = sizeof(sockaddr_in6);
    } else {
      continue;
    }
    std::memcpy(&address.storage, at->ifa_addr, address.length);
    hosts.push_back(FormatHost(address));
  }
  freeifaddrs(list);
  return hosts;
}

bool IsLoopback(const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET) {
    return ntohl(AsV4(address).sin_addr.s_addr) >> 24 == 127;
  }
  if (address.storage.ss_family == AF_INET6) {
    const in6_addr& ip = AsV6(address).sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(&ip) || (IN6_IS_ADDR_V4MAPPED(&ip) && ip.s6_addr[12] == 127);
  }
  return false;
}

bool IsMulticast(const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET)
    return IN_MULTICAST(ntohl(AsV4(address).sin_addr.s_addr));
  if (address.storage.ss_family == AF_INET6) return AsV6(address).sin6_addr.s6_addr[0] == 0xff;
  return false;
}

}  // namespace salius
