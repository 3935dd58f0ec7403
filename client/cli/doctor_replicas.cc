#include <poll.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/doctor.h"
#include "client/cli/rpc.h"
#include "client/cli/status_text.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/limits.h"
#include "common/net.h"
#include "common/random.h"
#include "common/runbook.h"
#include "proto/frame.h"
#include "proto/sealed_frame.h"
#include "transport/credentials.h"
#include "transport/handshake_probe.h"
#include "transport/packer.h"
#include "transport/udp_socket.h"

namespace salius::cli {
namespace {

// A probe may be lost once or twice; a replica on the same continent answers within the time.
constexpr int kProbes = 3;
constexpr int kProbeWaitMs = 300;
// Share of a replica's places, memory or promises above which the next volume or two may find no
// room.
constexpr uint64_t kFullPercent = 80;

// Returns the bytes that a replica reserves for a session: log-max, 26% more, and one segment. The
// 26% hold headers and the ends of segments that cannot be filled to the last byte. The segment is
// the one that is being filled.
uint64_t ReservedBytes(const VolumeConfig& config) {
  return config.log_max_bytes + config.log_max_bytes / 100 * 26 + kSegmentBytes;
}

// A datagram of an unknown session, and the test of its answer.
class PlainProbe {
 public:
  PlainProbe() {
    header_.volume = VolumeId::Random();
    header_.epoch = 1;
    header_.session = SecureRandom64();
  }
  absl::Span<const iovec> At(int64_t sent_ns) {
    header_.send_time_ns = static_cast<uint64_t>(sent_ns);
    packer_.Pack(header_, {}, kDatagramPayloadMin);
    return packer_[0];
  }
  bool IsAnswer(const InDatagram& in) const {
    const auto answer = DecodeFrameHeader(in.bytes);
    return answer.ok() && answer->type == FrameType::kAck && answer->session == header_.session;
  }

 private:
  FrameHeader header_;
  Packer packer_;
};

// One that is sealed with an unknown key: a replica with keys answers no plain one.
class SealedProbe {
 public:
  absl::Span<const iovec> At(int64_t) {
    prefix_.key_id = static_cast<uint32_t>(SecureRandom64()) | 1;
    prefix_.sender = static_cast<uint32_t>(SecureRandom64()) | 1;
    prefix_.counter = 1;
    EncodeSealPrefix(prefix_, bytes_.data());
    part_ = {bytes_.data(), bytes_.size()};
    return absl::MakeConstSpan(&part_, 1);
  }
  bool IsAnswer(const InDatagram& in) const {
    SealPrefix answer;
    const SealFault fault = DecodeSealPrefix(in.bytes.data(), in.bytes.size(), &answer);
    return fault == SealFault::kNone && answer.kind == SealKind::kNoKey &&
           answer.key_id == prefix_.key_id && answer.sender == prefix_.sender;
  }

 private:
  SealPrefix prefix_;
  std::array<uint8_t, kSealBytes + kFrameHeaderBytes> bytes_ = {};
  iovec part_ = {};
};

// Sends probes. The replica answers that it does not know their session or key, which shows that
// datagrams pass both ways. As a mount does, accepts an answer only from the address that was asked.
// Returns the round trip in microseconds.
template <typename Probe>
absl::StatusOr<int64_t> ProbeUdp(const SocketAddress& to, Probe probe) {
  SocketAddress local;
  local.storage.ss_family = to.storage.ss_family;
  local.length = to.length;
  SALIUS_ASSIGN_OR_RETURN(UdpSocket socket, UdpSocket::Bind(local, UdpSocket::Options()));
  InBatch in(1, kDatagramPayloadLoopback);
  std::string other;
  for (int attempt = 0; attempt < kProbes; ++attempt) {
    const int64_t sent_ns = SystemClock().MonotonicNanos();
    const OutDatagram out{&to, probe.At(sent_ns)};
    if (socket.Send(absl::MakeConstSpan(&out, 1)) != 1) {
      return absl::UnavailableError("a datagram cannot be sent there");
    }
    pollfd wait{socket.fd(), POLLIN, 0};
    if (poll(&wait, 1, kProbeWaitMs) <= 0) continue;
    SALIUS_ASSIGN_OR_RETURN(const size_t count, socket.Receive(in, false));
    if (count == 0) continue;
    if (!probe.IsAnswer(in[0])) continue;
    if (*in[0].from == to) return (SystemClock().MonotonicNanos() - sent_ns) / 1000;
    other = FormatSockaddr(*in[0].from);
  }
  if (!other.empty()) {
    return absl::FailedPreconditionError(
        absl::StrFormat("answers come from %s, not from the address that was asked, %s: a mount "
                        "takes them for a stranger's",
                        other, FormatSockaddr(to)));
  }
  return absl::DeadlineExceededError(
      absl::StrFormat("no answer to %d datagrams within %d ms each", kProbes, kProbeWaitMs));
}

// Asks the replica for its status and, with keys, for what they need.
void AskStatus(const std::shared_ptr<Credentials>& keys, const VolumeId* volume,
               ReplicaFacts& facts) {
  const int64_t before_ms = SystemClock().RealtimeNanos() / 1'000'000;
  facts.status = CallReplicaStatus(facts.address, kCallTimeout, keys, volume);
  const int64_t after_ms = SystemClock().RealtimeNanos() / 1'000'000;
  const CallTarget target = {.address = facts.address, .host = "", .keys = keys};
  if (!facts.status.ok()) facts.refused = !WhyRefused(target).empty();
  if (!facts.status.ok() || keys == nullptr) return;
  if (facts.status->now_unix_ms() != 0) {
    facts.clock_ahead_ms =
        static_cast<int64_t>(facts.status->now_unix_ms()) - (before_ms + after_ms) / 2;
  }
  const auto chain = keys::ReadCertificates(PeerCertificates(target));
  if (chain.ok()) facts.certificate = chain->front();
}

void JudgeDatagrams(const VolumeConfig& config, const ReplicaFacts& replica, Findings& findings) {
  const std::string name = absl::StrCat("route to ", replica.address);
  if (!replica.datagram_bytes.ok()) {
    findings.Fail(name, std::string(replica.datagram_bytes.status().message()),
                  "look at routes and firewalls");
    return;
  }
  const uint32_t bytes = *replica.datagram_bytes;
  if (config.datagram_bytes > bytes) {
    findings.Warn(name,
                  absl::StrFormat("carries datagrams of %u bytes, %u are configured", bytes,
                                  config.datagram_bytes),
                  absl::StrCat("lower datagram, or they are split by IP and lost more often; ",
                               SeeRunbook("large-datagrams-lost")));
  } else if (bytes < kDatagramPayloadDefault) {
    findings.Warn(name, absl::StrFormat("carries datagrams of %u bytes", bytes),
                  "less than Ethernet: is there a tunnel on the way?");
  } else {
    findings.Ok(name, absl::StrFormat("carries datagrams of %u bytes", bytes));
  }
}

// Judges how full the replica is, and names the volumes out of use that fill it.
void JudgeFill(const std::string& name, const control::ReplicaStatusResponse& status,
               bool holds_it, Findings& findings) {
  constexpr uint64_t kSilentS = 24 * 3600;
  uint64_t silent = 0, silent_bytes = 0;
  for (const auto& volume : status.volumes()) {
    if (volume.silent_s() < kSilentS || volume.memory_bytes() == 0) continue;  // a promise alone
    ++silent;
    silent_bytes += volume.memory_bytes();
  }
  const uint64_t memory = status.granted_bytes() + status.free_bytes();
  const auto percent = [](uint64_t used, uint64_t of) { return of == 0 ? 0 : used * 100 / of; };
  const uint64_t full = std::max({percent(status.slots_used(), status.slots()),
                                  percent(status.granted_bytes(), memory),
                                  percent(status.promises(), status.promises_most())});
  const std::string detail = absl::StrFormat(
      "%u of %u places, %s of %s granted, %u of %u promises; %u volumes with %s silent for a day",
      status.slots_used(), status.slots(), FormatBytes(status.granted_bytes()),
      FormatBytes(memory), status.promises(), status.promises_most(), silent,
      FormatBytes(silent_bytes));
  const std::string fill = absl::StrCat(name, " fill");
  const std::string advice = absl::StrCat(
      "`salius forget` volumes that are no longer used (salius status --replica shows them); ",
      SeeRunbook("log-left-at-replica"));
  const bool no_place = status.slots_used() >= status.slots() ||
                        status.promises() >= status.promises_most();
  if (no_place && !holds_it && status.slots() > 0) {
    findings.Fail(fill, detail, advice);
  } else if (full >= kFullPercent || silent > 0) {
    findings.Warn(fill, detail, advice);
  } else {
    findings.Ok(fill, detail);
  }
}

// Returns whether the replica can serve the volume.
bool JudgeReplica(const VolumeConfig& config, const ReplicaFacts& replica, Findings& findings) {
  const std::string name = absl::StrCat("replica ", replica.address);
  if (!replica.resolved.ok()) {
    findings.Fail(name, std::string(replica.resolved.message()),
                  absl::StrCat("look at DNS or /etc/hosts; ", SeeRunbook("name-does-not-resolve")));
    return false;
  }
  JudgeDatagrams(config, replica, findings);
  bool good = true;
  if (replica.status.ok()) {
    findings.Ok(name, absl::StrFormat("answers over TCP: %s, %s of memory, %s free",
                                      replica.status->version(),
                                      FormatBytes(replica.status->memory_bytes()),
                                      FormatBytes(replica.status->free_bytes())));
    bool held = false;
    for (const auto& volume : replica.status->volumes()) {
      const std::string own(config.volume.bytes.begin(), config.volume.bytes.end());
      held = held || (volume.volume() == own && volume.memory_bytes() > 0);
    }
    JudgeFill(name, *replica.status, held, findings);
    if (!held && replica.status->free_bytes() < ReservedBytes(config)) {
      findings.Fail(
          absl::StrCat(name, " memory"),
          absl::StrCat("less than the volume reserves, ", FormatBytes(ReservedBytes(config))),
          absl::StrCat(
              "give salius-replica more memory, or `salius forget` volumes that are no longer "
              "used; ",
              SeeRunbook("replica-has-no-room")));
      good = false;
    }
  } else {
    findings.Fail(name, std::string(replica.status.status().message()),
                  replica.refused
                      ? absl::StrCat("compare `salius keys show` and `date` on both ends; ",
                                     SeeRunbook("keys-refused"))
                      : absl::StrCat("is salius-replica running there, and its TCP port open? ",
                                     SeeRunbook("control-port-closed")));
    good = false;
  }
  const std::string udp = absl::StrCat(name, " UDP");
  if (replica.udp_rtt_us.ok()) {
    const uint64_t rtt = static_cast<uint64_t>(*replica.udp_rtt_us);
    const std::string detail = absl::StrFormat("answers in %u us", rtt);
    if (rtt > config.delta_us) {
      findings.Warn(udp, detail, "more than delta: the volume would go to mode local; raise delta");
    } else {
      findings.Ok(udp, detail);
    }
  } else {
    const bool stranger = absl::IsFailedPrecondition(replica.udp_rtt_us.status());
    findings.Fail(udp, std::string(replica.udp_rtt_us.status().message()),
                  stranger
                      ? absl::StrCat("name the replica by that address, or look at what rewrites "
                                     "addresses on the way (NAT, a load balancer); ",
                                     SeeRunbook("acknowledgements-ignored"))
                      : "open the UDP port of the same number, in both directions");
    good = false;
  }
  return good;
}

}  // namespace

ReplicaFacts GatherReplicaFacts(const std::string& address,
                                const std::shared_ptr<Credentials>& keys, const VolumeId* volume) {
  ReplicaFacts facts;
  facts.address = address;
  const absl::StatusOr<HostPort> host_port = ParseHostPort(address, 0);
  facts.resolved = host_port.status();
  if (!host_port.ok()) return facts;
  const absl::StatusOr<std::vector<SocketAddress>> all = ResolveAll(*host_port);
  facts.resolved = all.status();
  if (!all.ok()) return facts;
  facts.ip = FormatHost(all->front());
  AskStatus(keys, volume, facts);
  // As a mount does, tries the name's next address when one does not answer.
  for (size_t i = 0; i < all->size() && (i == 0 || !facts.udp_rtt_us.ok()); ++i) {
    const absl::StatusOr<int64_t> rtt = keys == nullptr ? ProbeUdp((*all)[i], PlainProbe())
                                                        : ProbeUdp((*all)[i], SealedProbe());
    if (i > 0 && !rtt.ok()) continue;
    facts.udp_rtt_us = rtt;
    facts.datagram_bytes = PathDatagramBytes((*all)[i]);
    facts.ip = FormatHost((*all)[i]);
  }
  return facts;
}

void JudgePlacement(const VolumeConfig& config, absl::Span<const ReplicaFacts> replicas,
                    const PrimaryHost& host, Findings& findings) {
  std::vector<PlacedReplica> placed;
  for (const ReplicaFacts& replica : replicas) {
    placed.push_back(
        {replica.address, replica.ip, replica.status.ok() ? replica.status->host() : ""});
  }
  const std::vector<std::string> warnings = SharedHostWarnings(placed, host);
  for (const std::string& warning : warnings) {
    if (config.allow_same_host) {
      findings.Ok("hosts", absl::StrCat(warning, " (allow_same_host)"));
    } else {
      findings.Warn("hosts", warning,
                    absl::StrCat(kSharedHostAdvice, "; ", SeeRunbook("replicas-share-a-host")));
    }
  }
  if (warnings.empty() && !replicas.empty()) {
    findings.Ok("hosts", "no replica is known to share a host with another, or with the primary");
  }
}

void JudgeReplicas(const VolumeConfig& config, absl::Span<const ReplicaFacts> replicas,
                   Findings& findings) {
  if (replicas.empty()) {
    findings.Warn("replicas", "none are configured", "every sync call waits for the local disk");
    return;
  }
  size_t good = 0;
  std::map<uint64_t, std::string> by_incarnation;
  for (const ReplicaFacts& replica : replicas) {
    if (JudgeReplica(config, replica, findings)) ++good;
    if (!replica.status.ok()) continue;
    const auto [at, added] =
        by_incarnation.try_emplace(replica.status->incarnation(), replica.address);
    if (!added) {
      findings.Fail(
          "replicas",
          absl::StrCat(at->second, " and ", replica.address, " are one and the same process"),
          "its death would lose both copies: name different hosts");
    }
  }
  const std::string detail = absl::StrFormat("%u of %u can serve; %u must hold a record", good,
                                             replicas.size(), config.acks);
  if (good < config.acks) {
    findings.Fail("replicas", detail,
                  absl::StrCat("the volume would run in mode local; ", SeeRunbook("mode-local")));
  } else if (good == config.acks && good < replicas.size()) {
    findings.Warn(
        "replicas", detail,
        absl::StrCat("one more lost and the volume goes to mode local; ", SeeRunbook("degraded")));
  } else {
    findings.Ok("replicas", detail);
  }
}

}  // namespace salius::cli
