// The pipeline's replicas: where they are, and sessions with them.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/engine/pipeline_impl.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/strings.h"

namespace salius {
namespace {

constexpr int64_t kOpenDeadlineMs = 2000;
// How long a waiter sleeps in one receive of acknowledgements.
constexpr int64_t kLeadMicros = 2000;

}  // namespace

absl::Status Pipeline::Impl::BeginPeers() {
  if (config.replicas.empty()) return absl::OkStatus();
  SALIUS_ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses,
                          ResolveReplicas(config.replicas, Unresolved::kIsLeftEmpty));
  size_t datagram = config.datagram_bytes != 0 ? config.datagram_bytes : kDatagramPayloadLoopback;
  const SocketAddress* known = nullptr;
  for (size_t i = 0; i < addresses.size(); ++i) {
    Peer peer;
    peer.address = config.replicas[i];
    SALIUS_ASSIGN_OR_RETURN(peer.host, ParseHostPort(peer.address, 0));
    peer.control = std::make_unique<SessionClient>(peer.host.ToString());
    peer.udp = addresses[i];
    if (addresses[i].length == 0) {
      SLOG_WARN("{}: replica {} has no address yet; its name is asked for again and again",
                options.session_name, peer.address);
    } else {
      if (known == nullptr) known = &addresses[i];
      datagram = std::min<size_t>(datagram, DatagramBytesTo(addresses[i]));
    }
    peers.push_back(std::move(peer));
  }
  SocketAddress local;
  local.storage.ss_family = known->storage.ss_family;
  local.length = known->length;
  SALIUS_ASSIGN_OR_RETURN(UdpSocket bound, UdpSocket::Bind(local, UdpSocket::Options()));
  socket.emplace(std::move(bound));
  // A waiter that receives acknowledgements itself must also notice time: never sleep longer.
  SALIUS_RETURN_IF_ERROR(socket->SetReceiveTimeout(kLeadMicros));
  std::optional<SocketAddress> group;
  if (!config.multicast.empty()) {
    SALIUS_ASSIGN_OR_RETURN(const HostPort host_port, ParseHostPort(config.multicast, 7401));
    SALIUS_ASSIGN_OR_RETURN(group, ResolveAddress(host_port));
    // By the way that leads to the replicas; the route to the group itself may be another, or
    // none.
    const absl::StatusOr<std::string> interface = InterfaceTowards(*known);
    if (!interface.ok()) {
      SLOG_WARN("{}: multicast goes by the system's default route: {}", options.session_name,
                Sv(interface.status().message()));
    }
    SALIUS_RETURN_IF_ERROR(
        socket->PrepareMulticastSend(*group, true, interface.ok() ? *interface : ""));
    // Only then the routes to the replicas tell what the way carries.
    if (config.datagram_bytes == 0 && !interface.ok()) {
      datagram = std::min(datagram, kDatagramPayloadDefault);
    }
  }
  // Of a way that carries less the network cuts datagrams.
  datagram = std::max(datagram, kDatagramPayloadMin);
  sender.emplace(*socket, addresses, static_cast<uint32_t>(datagram), group);
  return absl::OkStatus();
}

uint32_t Pipeline::Impl::DatagramBytesTo(const SocketAddress& address) const {
  if (config.datagram_bytes != 0) return config.datagram_bytes;
  // No route now (the replica's network is down) is no reason not to start.
  const absl::StatusOr<uint32_t> path = PathDatagramBytes(address);
  return path.ok() ? std::max<uint32_t>(*path, kDatagramPayloadMin) : kDatagramPayloadDefault;
}

absl::Status Pipeline::Impl::CheckPlace(int index, const SocketAddress& address) const {
  const auto refuse = [&](std::string_view why) {
    return absl::UnavailableError(absl::StrCat("replica ", peers[index].address, " is at ",
                                               FormatSockaddr(address), " now", Av(why)));
  };
  if (!options.insecure && !IsLoopback(address)) {
    return refuse(
        ", another host, and records travel unencrypted; if the network is trusted, mount with the "
        "option \"insecure\"");
  }
  for (const Peer& other : peers) {
    if (other.udp.length == 0 || &other == &peers[index]) continue;
    if (other.udp == address) return refuse(absl::StrCat(", as replica ", other.address, " is"));
    if (other.udp.storage.ss_family != address.storage.ss_family) {
      return refuse(": give all replicas addresses of IPv4, or all of IPv6");
    }
  }
  return absl::OkStatus();
}

void Pipeline::Impl::Locate(int index) {
  Peer& peer = peers[index];
  const absl::StatusOr<SocketAddress> found = Resolve(peer.host);
  const uint32_t datagram = found.ok() ? DatagramBytesTo(*found) : 0;
  bool moved = false;
  absl::Status now_located, before;
  {
    absl::MutexLock lock(&mu);
    if (!found.ok()) {  // it may still be where it was
      if (peer.udp.length == 0) now_located = found.status();
    } else if (*found != peer.udp) {
      now_located = CheckPlace(index, *found);
      moved = now_located.ok();
    }
    if (moved) {
      peer.udp = *found;
      sender->SetPeer(static_cast<size_t>(index), *found, datagram);
    }
    before = std::exchange(peer.located, now_located);
  }
  if (moved) {
    SLOG_INFO("{}: replica {} is at {} now", options.session_name, peer.address,
              FormatSockaddr(*found));
  } else if (!now_located.ok() && now_located != before) {  // once, not whenever it is asked for
    SLOG_WARN("{}: {}", options.session_name, Sv(now_located.message()));
  }
}

void Pipeline::Impl::LocateSilent(int64_t now) {
  for (size_t i = 0; i < peers.size(); ++i) {
    if (core.replica(static_cast<int>(i), now).connected) continue;
    peers[i].locate = true;
    session_cv.SignalAll();
  }
}

void Pipeline::Impl::SessionLoop(int index) {
  Peer& peer = peers[index];
  while (true) {
    std::optional<Seq> base;
    {
      absl::MutexLock lock(&mu);
      while (!stopping && !peer.open_base && !peer.locate) session_cv.Wait(&mu);
      if (stopping) return;
      base = std::exchange(peer.open_base, std::nullopt);
      peer.locate = false;
    }
    // Before each opening too: the call goes to where the name leads by then.
    Locate(index);
    if (!base) continue;
    absl::Status located;
    {
      absl::MutexLock lock(&mu);
      located = peer.located;
    }
    const absl::StatusOr<SessionClient::Opened> opened_session =
        located.ok() ? peer.control->Open(config, epoch, session, *base, kOpenDeadlineMs)
                     : absl::StatusOr<SessionClient::Opened>(located);
    Work work;
    {
      absl::MutexLock lock(&mu);
      const int64_t now = clock.MonotonicNanos();
      if (opened_session.ok()) {
        core.OnOpened(now, index, opened_session->incarnation, *base, opened_session->free_bytes);
      } else {
        core.OnOpenFailed(now, index, std::string(opened_session.status().message()),
                          absl::IsFailedPrecondition(opened_session.status()));
      }
      Collect(&work);
    }
    Perform(work);
  }
}

}  // namespace salius
