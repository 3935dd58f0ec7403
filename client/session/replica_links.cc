#include "client/session/replica_links.h"

#include <netinet/in.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/strings.h"
#include "transport/sealed_channel.h"

namespace salius {
namespace {

constexpr int64_t kDropDeadlineMs = 1000;
// How long a waiter sleeps in one receive of acknowledgements.
constexpr int64_t kLeadMicros = 2000;
// How often the resolver is asked about a silent replica, about one without any address,
constexpr int64_t kLookUpSilentNs = 5'000'000'000;
constexpr int64_t kLookUpUnknownNs = 1'000'000'000;
// and about one that answers: another replica's name may lead to its address by now.
constexpr int64_t kLookUpHeardNs = 60'000'000'000;
// How long a replica that has a session may be silent before its name's next address is tried.
constexpr int64_t kNextAddressNs = 3'000'000'000;
constexpr int64_t kLogAgainNs = 60'000'000'000;

// Returns the address for gRPC. The numeric address, because gRPC resolves names itself, maybe to
// another of a name's addresses; the name where our text has no place for an IPv6 scope.
std::string ControlAddress(const SocketAddress& address, const HostPort& host) {
  return address.has_scope() ? host.ToString() : FormatSockaddr(address);
}

}  // namespace

absl::Status ReplicaLinks::Begin() {
  if (config_.replicas.empty()) return absl::OkStatus();
  std::optional<SocketAddress> group;
  if (!config_.multicast.empty()) {
    SALIUS_ASSIGN_OR_RETURN(const HostPort host_port, ParseHostPort(config_.multicast, 7401));
    SALIUS_ASSIGN_OR_RETURN(group, ResolveAddress(host_port));
  }
  SALIUS_ASSIGN_OR_RETURN(
      std::vector<std::vector<SocketAddress>> all,
      ResolveAllOfReplicas(config_.replicas, Unresolved::kIsLeftEmpty,
                           group.has_value() ? group->storage.ss_family : AF_UNSPEC));
  SALIUS_ASSIGN_OR_RETURN(UdpSocket socket, BindSocket(all));
  std::vector<SocketAddress> addresses;
  for (const auto& of_one : all) {
    addresses.push_back(of_one.empty() ? SocketAddress() : of_one.front());
  }
  {
    absl::MutexLock lock(&shared_.mu);
    SALIUS_RETURN_IF_ERROR(places_.Begin(addresses));
    for (size_t i = 0; i < all.size(); ++i) places_.Know(static_cast<int>(i), all[i]);
    if (both_families_) places_.AllowBothFamilies();
  }
  for (size_t i = 0; i < addresses.size(); ++i) {
    Peer peer;
    peer.address = config_.replicas[i];
    SALIUS_ASSIGN_OR_RETURN(peer.host, ParseHostPort(peer.address, 0));
    peer.control = std::make_unique<SessionClient>(peer.address, shared_.options.keys, peer.host.host,
                                                   shared_.options.insecure);
    if (addresses[i].length != 0) {
      peer.looked_up_ns = shared_.clock.MonotonicNanos();
      peer.look_up_at_ns = peer.looked_up_ns + kLookUpSilentNs;
    }
    peers_.push_back(std::move(peer));
    if (addresses[i].length == 0) {
      SLOG_WARN("{}: replica {} has no address yet", shared_.options.session_name,
                config_.replicas[i]);
    }
  }
  // A waiter that receives acknowledgements itself must also notice time: never sleep longer.
  SALIUS_RETURN_IF_ERROR(socket.SetReceiveTimeout(kLeadMicros));
  size_t datagram = config_.datagram_bytes != 0 ? config_.datagram_bytes : kDatagramPayloadLoopback;
  if (group.has_value()) {
    // Multicast leaves by the interface towards the replicas; the group's own route may be another
    // one, or missing.
    const auto known =
        std::find_if(addresses.begin(), addresses.end(),
                     [](const SocketAddress& address) { return address.length != 0; });
    const absl::StatusOr<std::string> interface = InterfaceTowards(*known);
    if (interface.ok()) {
      group_interface_ = *interface;
    } else {
      SLOG_WARN("{}: multicast goes by the system's default route: {}",
                shared_.options.session_name, Sv(interface.status().message()));
    }
    SALIUS_RETURN_IF_ERROR(socket.PrepareMulticastSend(*group, true, group_interface_));
    // Without that interface the routes to the replicas do not show which size multicast carries.
    if (config_.datagram_bytes == 0 && !interface.ok()) {
      datagram = std::min(datagram, kDatagramPayloadDefault);
    }
  }
  most_datagram_ = static_cast<uint32_t>(datagram);
  channel_ =
      WithLayer(shared_.options.channel_layer, std::make_unique<UdpSocket>(std::move(socket)));
  wire_ = channel_.get();
  if (sealed()) {
    SealedChannel::Options sealing;
    sealing.on_notice = [this](const SocketAddress& from) { OnNoKey(from); };
    sealing.clock = &shared_.clock;
    channel_ = std::make_unique<SealedChannel>(std::move(channel_), ring_, std::move(sealing));
  }
  {
    absl::MutexLock lock(&shared_.mu);
    shared_.core.paths().SetOverhead(channel_->overhead());
  }
  sender_.emplace(*channel_, most_datagram_, group);
  shared_.sender = &*sender_;
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (addresses[i].length != 0) Settle(static_cast<int>(i));
  }
  return absl::OkStatus();
}

absl::StatusOr<UdpSocket> ReplicaLinks::BindSocket(
    std::vector<std::vector<SocketAddress>>& addresses) {
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
      both_families_ = true;
      return bound;
    }
    // This host has no IPv6.
    SLOG_WARN("{}: replicas are sent to by IPv4 only: {}", shared_.options.session_name,
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

uint32_t ReplicaLinks::DatagramBytesTo(const SocketAddress& address) const {
  if (config_.datagram_bytes != 0) return config_.datagram_bytes;
  // A missing route (the replica's network is down) must not prevent the start.
  const absl::StatusOr<uint32_t> path = PathDatagramBytes(address);
  return path.ok() ? *path : kDatagramPayloadDefault;
}

void ReplicaLinks::Settle(int index) {
  absl::MutexLock one(&settle_mu_);
  SocketAddress address;
  {
    absl::MutexLock lock(&shared_.mu);
    if (!places_.known(index)) return;
    address = places_.at(index);
  }
  bool in_group = true;
  if (!group_interface_.empty()) {
    const absl::StatusOr<std::string> interface = InterfaceTowards(address);
    in_group = !interface.ok() || *interface == group_interface_;
  }
  const uint32_t bytes = DatagramBytesTo(address);
  sender_->SetPeer(static_cast<size_t>(index), both_families_ ? MapToIpv6(address) : address);
  {
    absl::MutexLock lock(&shared_.mu);
    shared_.core.paths()[index].SetRoute(
        std::clamp<uint32_t>(bytes, kDatagramPayloadMin, most_datagram_),
        !config_.multicast.empty() && in_group);
  }
  peers_[index].control->SetAddress(ControlAddress(address, peers_[index].host));
}

void ReplicaLinks::TryNextAddress(int index) {
  SocketAddress from, to;
  {
    absl::MutexLock lock(&shared_.mu);
    from = places_.at(index);
    if (!places_.TryNext(index)) return;
    to = places_.at(index);
  }
  Settle(index);
  SLOG_INFO("{}: replica {} does not answer at {}: {} is tried", shared_.options.session_name,
            peers_[index].address, FormatSockaddr(from), FormatSockaddr(to));
}

void ReplicaLinks::TakeAnswer(int index, const Lookup::Answer& answer) {
  Places::Change change;
  absl::Status problem;
  SocketAddress at;
  const int64_t now = shared_.clock.MonotonicNanos();
  {
    SharedCore::Turn turn(shared_);
    uint8_t connected = 0;
    for (size_t i = 0; i < peers_.size(); ++i) {
      if (shared_.core.policy().replica(static_cast<int>(i), now).connected) connected |= 1u << i;
    }
    change = places_.OnAnswer(index, answer, connected);
    problem = places_.problem(index);
    at = places_.at(index);
    if (change.gave_up >= 0) turn.Feed(now, input::AddressTaken{change.gave_up});
  }
  if (change.gave_up >= 0) {
    {
      absl::MutexLock one(&settle_mu_);
      sender_->ClearPeer(static_cast<size_t>(change.gave_up));
    }
    peers_[change.gave_up].control->SetAddress("");
    peers_[change.gave_up].look_up_at_ns = now;
  }
  Peer& peer = peers_[index];
  if (change.moved) {
    Settle(index);
    SLOG_INFO("{}: replica {} is at {} now{}", shared_.options.session_name, peer.address,
              FormatSockaddr(at),
              change.gave_up >= 0
                  ? absl::StrCat(", and replica ", peers_[change.gave_up].address, " no more")
                  : "");
  }
  if (!problem.ok() && now >= peer.log_at_ns) {
    peer.log_at_ns = now + kLogAgainNs;
    SLOG_WARN("{}: {}", shared_.options.session_name, Sv(problem.message()));
  }
}

void ReplicaLinks::RefreshAddresses() {
  const int64_t now = shared_.clock.MonotonicNanos();
  for (size_t i = 0; i < peers_.size(); ++i) {
    const int index = static_cast<int>(i);
    Peer& peer = peers_[i];
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
      absl::MutexLock lock(&shared_.mu);
      known = places_.known(index);
      heard = shared_.core.policy().replica(index, now).connected;
      family = places_.family();
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

void ReplicaLinks::TryNextAddresses() {
  const int64_t now = shared_.clock.MonotonicNanos();
  for (size_t i = 0; i < peers_.size(); ++i) {
    const int index = static_cast<int>(i);
    bool silent = false;
    {
      absl::MutexLock lock(&shared_.mu);
      silent = (shared_.core.policy().connected() >> i & 1) != 0 &&
               !shared_.core.policy().replica(index, now).connected;
    }
    int64_t& since = peers_[i].silent_since_ns;
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

void ReplicaLinks::AskControlPorts() {
  const int64_t now = shared_.clock.MonotonicNanos();
  absl::MutexLock lock(&shared_.mu);
  for (size_t i = 0; i < peers_.size(); ++i) {
    Peer& peer = peers_[i];
    // A replica that does not answer by UDP either is reported as silent.
    if (!shared_.core.policy().replica(static_cast<int>(i), now).connected ||
        !peer.control_check.Due(now))
      continue;
    peer.check_wanted = true;
    shared_.session_cv.SignalAll();
  }
}

void ReplicaLinks::CheckControl(int index) {
  Peer& peer = peers_[index];
  const absl::StatusOr<HeldSession> held = peer.control->Ask(config_.volume, kOpenDeadlineMs);
  absl::MutexLock lock(&shared_.mu);
  const int64_t now = shared_.clock.MonotonicNanos();
  const Replicator::ReplicaView view = shared_.core.policy().replica(index, now);
  const SessionKey& key = shared_.core.key();
  absl::Status outcome = held.status();
  if (held.ok() && view.connected && held->incarnation != view.incarnation) {
    outcome = absl::UnavailableError(absl::StrFormat(
        "at %s another replica answers by TCP (incarnation %016x) than by UDP (%016x)",
        FormatSockaddr(places_.at(index)), held->incarnation, view.incarnation));
  } else if (held.ok() && view.connected &&
             !(held->epoch == key.epoch && held->session == key.session)) {
    outcome = absl::UnavailableError("it does not know this session");
  }
  if (!peer.control_check.Took(now, outcome)) return;
  if (peer.control_check.failing()) {
    SLOG_WARN("{}: replica {}: {}", shared_.options.session_name, peer.address,
              peer.control_check.problem(now));
  } else {
    SLOG_INFO("{}: replica {}: its control port answers again", shared_.options.session_name,
              peer.address);
  }
}

void ReplicaLinks::SessionLoop(int index) {
  Peer& peer = peers_[index];
  while (true) {
    std::optional<Seq> base;
    bool key = false;
    absl::Status place;
    {
      absl::MutexLock lock(&shared_.mu);
      std::optional<Seq>& wanted = shared_.open_wanted[index];
      while (!shared_.core.stopping() && !wanted && !peer.check_wanted && !peer.key_wanted) {
        shared_.session_cv.Wait(&shared_.mu);
      }
      if (shared_.core.stopping()) return;
      base = std::exchange(wanted, std::nullopt);
      key = !base && std::exchange(peer.key_wanted, false);
      if (!base && !key) peer.check_wanted = false;
      if (!places_.known(index)) place = places_.problem(index);
    }
    if (base) {
      OpenSession(index, *base, place);
    } else if (key) {
      GiveKey(index);
    } else {
      CheckControl(index);
    }
  }
}

void ReplicaLinks::OpenSession(int index, Seq base, const absl::Status& place) {
  Peer& peer = peers_[index];
  const SessionKey key = shared_.key();
  std::optional<KeyOffer> offer;
  if (sealed()) offer = KeyForOpening(index);
  const absl::StatusOr<OpenedSession> opened =
      place.ok() ? peer.control->Open(config_, key.epoch, key.session, base, kOpenDeadlineMs,
                                      offer ? &*offer : nullptr, shared_.options.plain)
                 : absl::StatusOr<OpenedSession>(place);
  {
    SharedCore::Turn turn(shared_);
    const int64_t now = shared_.clock.MonotonicNanos();
    if (opened.ok()) {
      peer.control_check.Start(now);
      peer.host_id = opened->host;
      shared_.core.paths().SetCompact(static_cast<size_t>(index), opened->compact_records);
      // Before records are sent: the acknowledgements are sealed.
      if (offer && opened->ack_key) {
        TookKey(index, *offer, *opened->ack_key, now);
      } else if (offer) {
        TookNoKey(index);
      }
      turn.Feed(now,
                input::Opened{index, opened->incarnation, opened->store, base, opened->free_bytes});
    } else {
      if (offer && absl::IsAlreadyExists(opened.status())) {
        keys_.Refused(*offer);
        PublishKeys();
      }
      turn.Feed(now, input::OpenFailed{index, std::string(opened.status().message()),
                                       place.ok() && absl::IsFailedPrecondition(opened.status())});
    }
  }
  // The replica may listen at another address of its name.
  if (absl::IsUnavailable(opened.status()) || absl::IsDeadlineExceeded(opened.status())) {
    TryNextAddress(index);
  }
}

void ReplicaLinks::StopOpening() {
  for (Peer& peer : peers_) peer.control->StopOpening();
}

void ReplicaLinks::Refresh() {
  for (Peer& peer : peers_) peer.control->EndOverdueCalls();
  RefreshAddresses();
  TryNextAddresses();
  AskControlPorts();
  if (sealed()) RefreshKeys();
}

// It names the session: a replica may hold records of another copy of the volume that were
// acknowledged under the same epoch and are not recovered yet.
void ReplicaLinks::DropLogs() {
  const SessionKey key = shared_.key();
  std::vector<std::future<absl::Status>> drops;
  for (Peer& peer : peers_) {
    drops.push_back(std::async(std::launch::async, [this, &peer, &key] {
      return peer.control->Drop(config_.volume, key.epoch, key.session, kDropDeadlineMs);
    }));
  }
  for (size_t i = 0; i < drops.size(); ++i) {
    while (drops[i].wait_for(std::chrono::milliseconds(50)) != std::future_status::ready) {
      for (Peer& peer : peers_) peer.control->EndOverdueCalls();
    }
    const absl::Status dropped = drops[i].get();
    if (!dropped.ok()) {
      SLOG_INFO("{}: replica {} keeps its log until the next session: {}",
                shared_.options.session_name, peers_[i].address, Sv(dropped.message()));
    }
  }
}

std::vector<ReplicaReport> ReplicaLinks::Reports(int64_t now) const {
  shared_.mu.AssertReaderHeld();
  const Replicator& policy = shared_.core.policy();
  std::vector<ReplicaReport> reports;
  for (size_t i = 0; i < peers_.size(); ++i) {
    const int index = static_cast<int>(i);
    const Replicator::ReplicaView view = policy.replica(index, now);
    const Peer& peer = peers_[i];
    ReplicaReport report;
    report.address = peer.address;
    report.member = view.member && policy.counting_acks();
    report.connected = view.connected;
    report.incarnation = view.incarnation;
    report.base = view.base;
    report.contiguous = view.contiguous;
    const Seq acked = std::max(view.contiguous, policy.checkpoint());
    report.lag_records = view.connected ? policy.issued() - std::min(acked, policy.issued()) : 0;
    report.lag_bytes = view.lag_bytes;
    report.rtt_us = static_cast<uint64_t>(view.srtt_ns) / 1000;
    report.free_bytes = view.free_bytes;
    report.resent = view.resent;
    const absl::Status& place = places_.problem(index);
    report.problem = place.ok() || view.connected ? view.problem : std::string(place.message());
    if (view.connected) report.control_problem = peer.control_check.problem(now);
    if (report.problem.empty()) report.problem = report.control_problem;
    const PeerPath& path = shared_.core.paths()[i];
    report.datagram_bytes = path.datagram_bytes();
    report.route_bytes = path.route_bytes();
    report.group_unheard = path.group_unheard();
    if (view.same_as >= 0) {
      report.problem = absl::StrCat("it is replica ", peers_[view.same_as].address,
                                    " under another address, and counts once");
    }
    report.host = peer.host_id;
    if (places_.known(index)) report.ip = FormatHost(places_.at(index));
    reports.push_back(std::move(report));
  }
  return reports;
}

}  // namespace salius
