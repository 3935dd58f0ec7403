// The pipeline's replicas: their addresses, and the sessions with them.
#include <netinet/in.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/session/pipeline_impl.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/strings.h"

namespace salius {
namespace {

constexpr int64_t kOpenDeadlineMs = 2000;
// How long a waiter sleeps in one receive of acknowledgements.
constexpr int64_t kLeadMicros = 2000;
// How often the resolver is asked about a silent replica, about one without any address,
constexpr int64_t kLookUpSilentNs = 5'000'000'000;
constexpr int64_t kLookUpUnknownNs = 1'000'000'000;
// and about one that answers: another replica's name may lead to its address by now.
constexpr int64_t kLookUpHeardNs = 60'000'000'000;
// How long a replica that has a session may be silent before its name's next address is tried.
constexpr int64_t kNextAddressNs = 3'000'000'000;
constexpr int64_t kTellAgainNs = 60'000'000'000;

// Returns the address for gRPC. The numeric address, because gRPC resolves names itself, maybe to
// another of a name's addresses; the name where our text has no place for an IPv6 scope.
std::string ControlAddress(const SocketAddress& address, const HostPort& host) {
  return address.has_scope() ? host.ToString() : FormatSockaddr(address);
}

}  // namespace

absl::Status Pipeline::BeginPeers() {
  if (config.replicas.empty()) return absl::OkStatus();
  std::optional<SocketAddress> group;
  if (!config.multicast.empty()) {
    SALIUS_ASSIGN_OR_RETURN(const HostPort host_port, ParseHostPort(config.multicast, 7401));
    SALIUS_ASSIGN_OR_RETURN(group, ResolveAddress(host_port));
  }
  SALIUS_ASSIGN_OR_RETURN(
      std::vector<std::vector<SocketAddress>> all,
      ResolveAllOfReplicas(config.replicas, Unresolved::kIsLeftEmpty,
                           group.has_value() ? group->storage.ss_family : AF_UNSPEC));
  SALIUS_ASSIGN_OR_RETURN(UdpSocket socket, BindSocket(all));
  std::vector<SocketAddress> addresses;
  for (const auto& of_one : all) {
    addresses.push_back(of_one.empty() ? SocketAddress() : of_one.front());
  }
  {
    absl::MutexLock lock(&mu);
    SALIUS_RETURN_IF_ERROR(places.Begin(addresses));
    for (size_t i = 0; i < all.size(); ++i) places.Know(static_cast<int>(i), all[i]);
    if (both_families) places.AllowBothFamilies();
  }
  for (size_t i = 0; i < addresses.size(); ++i) {
    Peer peer;
    peer.address = config.replicas[i];
    SALIUS_ASSIGN_OR_RETURN(peer.host, ParseHostPort(peer.address, 0));
    peer.control = std::make_unique<SessionClient>(peer.address);
    if (addresses[i].length != 0) {
      peer.looked_up_ns = clock.MonotonicNanos();
      peer.look_up_at_ns = peer.looked_up_ns + kLookUpSilentNs;
    }
    peers.push_back(std::move(peer));
    if (addresses[i].length == 0) {
      SLOG_WARN("{}: replica {} has no address yet", options.session_name, config.replicas[i]);
    }
  }
  // A waiter that receives acknowledgements itself must also notice time: never sleep longer.
  SALIUS_RETURN_IF_ERROR(socket.SetReceiveTimeout(kLeadMicros));
  size_t datagram = config.datagram_bytes != 0 ? config.datagram_bytes : kDatagramPayloadLoopback;
  if (group.has_value()) {
    // Multicast leaves by the interface towards the replicas; the group's own route may be another
    // one, or missing.
    const auto known =
        std::find_if(addresses.begin(), addresses.end(),
                     [](const SocketAddress& address) { return address.length != 0; });
    const absl::StatusOr<std::string> interface = InterfaceTowards(*known);
    if (interface.ok()) {
      group_interface = *interface;
    } else {
      SLOG_WARN("{}: multicast goes by the system's default route: {}", options.session_name,
                Sv(interface.status().message()));
    }
    SALIUS_RETURN_IF_ERROR(socket.PrepareMulticastSend(*group, true, group_interface));
    // Without that interface the routes to the replicas do not show which size multicast carries.
    if (config.datagram_bytes == 0 && !interface.ok()) {
      datagram = std::min(datagram, kDatagramPayloadDefault);
    }
  }
  most_datagram = static_cast<uint32_t>(datagram);
  channel = WithLayer(options.channel_layer, std::make_unique<UdpSocket>(std::move(socket)));
  sender.emplace(*channel, most_datagram, group);
  for (size_t i = 0; i < peers.size(); ++i) {
    if (addresses[i].length != 0) Settle(static_cast<int>(i));
  }
  return absl::OkStatus();
}

absl::StatusOr<UdpSocket> Pipeline::BindSocket(std::vector<std::vector<SocketAddress>>& addresses) {
  SocketAddress local;
  bool v4 = false, v6 = false;
  for (const auto& of_one : addresses) {
    for (const SocketAddress& address : of_one) {
      (address.storage.ss_family == AF_INET ? v4 : v6) = true;
      if (local.length != 0) continue;
      local.storage.ss_family = address.storage.ss_family;
      local.length = address.length;
    }
  }
  UdpSocket::Options options;
  if (v4 && v6) {
    SocketAddress both;
    both.storage.ss_family = AF_INET6;
    both.length = sizeof(sockaddr_in6);
    options.both_families = true;
    absl::StatusOr<UdpSocket> bound = UdpSocket::Bind(both, options);
    if (bound.ok()) {
      both_families = true;
      return bound;
    }
    // This host has no IPv6.
    SLOG_WARN("{}: replicas are sent to by IPv4 only: {}", this->options.session_name,
              Sv(bound.status().message()));
    for (auto& of_one : addresses) {
      std::erase_if(of_one, [](const SocketAddress& address) {
        return address.storage.ss_family != AF_INET;
      });
    }
    local.storage.ss_family = AF_INET;
    local.length = sizeof(sockaddr_in);
    options.both_families = false;
  }
  return UdpSocket::Bind(local, options);
}

uint32_t Pipeline::DatagramBytesTo(const SocketAddress& address) const {
  if (config.datagram_bytes != 0) return config.datagram_bytes;
  // A missing route (the replica's network is down) must not prevent the start.
  const absl::StatusOr<uint32_t> path = PathDatagramBytes(address);
  return path.ok() ? *path : kDatagramPayloadDefault;
}

void Pipeline::Settle(int index) {
  absl::MutexLock one(&settle_mu);
  SocketAddress address;
  {
    absl::MutexLock lock(&mu);
    if (!places.known(index)) return;
    address = places.at(index);
  }
  bool in_group = true;
  if (!group_interface.empty()) {
    const absl::StatusOr<std::string> interface = InterfaceTowards(address);
    in_group = !interface.ok() || *interface == group_interface;
  }
  const uint32_t bytes = DatagramBytesTo(address);
  sender->SetPeer(static_cast<size_t>(index), both_families ? MapToIpv6(address) : address);
  {
    absl::MutexLock lock(&mu);
    peers[index].path.SetRoute(std::clamp<uint32_t>(bytes, kDatagramPayloadMin, most_datagram),
                               !config.multicast.empty() && in_group);
  }
  peers[index].control->SetAddress(ControlAddress(address, peers[index].host));
}

void Pipeline::TryNextAddress(int index) {
  SocketAddress from, to;
  {
    absl::MutexLock lock(&mu);
    from = places.at(index);
    if (!places.TryNext(index)) return;
    to = places.at(index);
  }
  Settle(index);
  SLOG_INFO("{}: replica {} does not answer at {}: {} is tried", options.session_name,
            peers[index].address, FormatSockaddr(from), FormatSockaddr(to));
}

void Pipeline::TakeAnswer(int index, const Lookup::Answer& answer) {
  Places::Change change;
  absl::Status problem;
  SocketAddress at;
  Work work;
  const int64_t now = clock.MonotonicNanos();
  {
    absl::MutexLock lock(&mu);
    uint8_t connected = 0;
    for (size_t i = 0; i < peers.size(); ++i) {
      if (core.replica(static_cast<int>(i), now).connected) connected |= 1u << i;
    }
    change = places.OnAnswer(index, answer, connected);
    problem = places.problem(index);
    at = places.at(index);
    if (change.gave_up >= 0) core.OnNowhere(now, change.gave_up);
    Collect(&work);
  }
  Perform(work);
  if (change.gave_up >= 0) {
    {
      absl::MutexLock one(&settle_mu);
      sender->ClearPeer(static_cast<size_t>(change.gave_up));
    }
    peers[change.gave_up].control->SetAddress("");
    peers[change.gave_up].look_up_at_ns = now;
  }
  Peer& peer = peers[index];
  if (change.moved) {
    Settle(index);
    SLOG_INFO("{}: replica {} is at {} now{}", options.session_name, peer.address,
              FormatSockaddr(at),
              change.gave_up >= 0
                  ? absl::StrCat(", and replica ", peers[change.gave_up].address, " no more")
                  : "");
  }
  if (!problem.ok() && now >= peer.tell_at_ns) {
    peer.tell_at_ns = now + kTellAgainNs;
    SLOG_WARN("{}: {}", options.session_name, Sv(problem.message()));
  }
}

void Pipeline::TendPlaces() {
  const int64_t now = clock.MonotonicNanos();
  for (size_t i = 0; i < peers.size(); ++i) {
    const int index = static_cast<int>(i);
    Peer& peer = peers[i];
    if (IsNumeric(peer.host.host)) continue;
    if (peer.lookup != nullptr) {
      const std::optional<Lookup::Answer> answer = peer.lookup->answer();
      if (!answer) continue;
      peer.lookup.reset();
      TakeAnswer(index, *answer);
    }
    if (now < peer.look_up_at_ns) continue;
    bool known = false, heard = false;
    int family = 0;
    {
      absl::MutexLock lock(&mu);
      known = places.known(index);
      heard = core.replica(index, now).connected;
      family = places.family();
    }
    if (heard && now < peer.looked_up_ns + kLookUpHeardNs) {
      peer.look_up_at_ns = now + kLookUpUnknownNs;  // look again soon: it may fall silent
      continue;
    }
    peer.looked_up_ns = now;
    peer.look_up_at_ns = now + (known ? kLookUpSilentNs : kLookUpUnknownNs);
    peer.lookup = Lookup::Start(peer.host, family);
  }
}

void Pipeline::TendSilence() {
  const int64_t now = clock.MonotonicNanos();
  for (size_t i = 0; i < peers.size(); ++i) {
    const int index = static_cast<int>(i);
    bool silent = false;
    {
      absl::MutexLock lock(&mu);
      silent = (core.connected() >> i & 1) != 0 && !core.replica(index, now).connected;
    }
    int64_t& since = peers[i].silent_since_ns;
    if (!silent) {
      since = -1;
    } else if (since < 0) {
      since = now;
    } else if (now - since >= kNextAddressNs) {
      since = now;
      TryNextAddress(index);
    }
  }
}

void Pipeline::TendControl() {
  const int64_t now = clock.MonotonicNanos();
  absl::MutexLock lock(&mu);
  for (size_t i = 0; i < peers.size(); ++i) {
    Peer& peer = peers[i];
    // A replica that does not answer by UDP either is reported as silent.
    if (!core.replica(static_cast<int>(i), now).connected || !peer.control_check.Due(now)) continue;
    peer.check_wanted = true;
    session_cv.SignalAll();
  }
}

void Pipeline::CheckControl(int index) {
  Peer& peer = peers[index];
  const absl::StatusOr<HeldSession> held = peer.control->Ask(config.volume, kOpenDeadlineMs);
  absl::MutexLock lock(&mu);
  const int64_t now = clock.MonotonicNanos();
  const Replicator::ReplicaView view = core.replica(index, now);
  absl::Status outcome = held.status();
  if (held.ok() && view.connected && held->incarnation != view.incarnation) {
    outcome = absl::UnavailableError(absl::StrFormat(
        "at %s another replica answers by TCP (incarnation %016x) than by UDP (%016x)",
        FormatSockaddr(places.at(index)), held->incarnation, view.incarnation));
  } else if (held.ok() && view.connected && !(held->epoch == epoch && held->session == session)) {
    outcome = absl::UnavailableError("it does not know this session");
  }
  if (!peer.control_check.Took(now, outcome)) return;
  if (peer.control_check.failing()) {
    SLOG_WARN("{}: replica {}: {}", options.session_name, peer.address,
              peer.control_check.problem(now));
  } else {
    SLOG_INFO("{}: replica {}: its control port answers again", options.session_name,
              peer.address);
  }
}

void Pipeline::SessionLoop(int index) {
  Peer& peer = peers[index];
  while (true) {
    Seq base = 0;
    bool check = false;
    absl::Status place;
    {
      absl::MutexLock lock(&mu);
      while (!stopping && !peer.open_base && !peer.check_wanted) session_cv.Wait(&mu);
      if (stopping) return;
      check = !peer.open_base;
      if (check) peer.check_wanted = false;
      if (!check) base = *std::exchange(peer.open_base, std::nullopt);
      if (!places.known(index)) place = places.problem(index);
    }
    if (check) {
      CheckControl(index);
      continue;
    }
    const absl::StatusOr<OpenedSession> opened_session =
        place.ok() ? peer.control->Open(config, epoch, session, base, kOpenDeadlineMs)
                   : absl::StatusOr<OpenedSession>(place);
    Work work;
    {
      absl::MutexLock lock(&mu);
      const int64_t now = clock.MonotonicNanos();
      if (opened_session.ok()) {
        peer.control_check.Start(now);
        peer.host_id = opened_session->host;
        core.OnOpened(now, index, opened_session->incarnation, opened_session->store, base,
                      opened_session->free_bytes);
      } else {
        core.OnOpenFailed(now, index, std::string(opened_session.status().message()),
                          place.ok() && absl::IsFailedPrecondition(opened_session.status()));
      }
      Collect(&work);
    }
    Perform(work);
    // The replica may listen at another address of its name.
    if (absl::IsUnavailable(opened_session.status()) ||
        absl::IsDeadlineExceeded(opened_session.status())) {
      TryNextAddress(index);
    }
  }
}

}  // namespace salius
