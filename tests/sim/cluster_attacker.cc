// Sealed lifetimes: their keys, and the attacker. The attacker hears every datagram, can send any to
// any end, and knows all of a session but its keys.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/bytes.h"
#include "proto/frame.h"
#include "tests/sim/cluster_seat.h"
#include "tests/sim/cluster_sim.h"

namespace salius::sim {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr size_t kKept = 64;  // datagrams that the attacker keeps

uint8_t* Data(std::string& text) { return reinterpret_cast<uint8_t*>(text.data()); }

}  // namespace

void ClusterSim::DrawSealing() {
  if (!seal_random_.Chance(options_.sealed)) return;
  Count("datagrams sealed");
  judge_ = std::make_unique<SealJudge>();
  plain_too_ = seal_random_.Chance(options_.plain_too);
  if (plain_too_) Count("replicas that open plain frames too");
  if (!seal_random_.Chance(options_.key_changes)) return;
  Count("keys that change");
  key_rotation_ns_ = seal_random_.Between(static_cast<int64_t>(options_.key_least_ms),
                                          static_cast<int64_t>(options_.key_most_ms)) *
                     kMs;
}

absl::StatusOr<Opening> ClusterSim::GiveKeyAt(int replica, const Primary& primary,
                                              const KeyOffer& offer) {
  ReplicaHost& host = *replicas_[replica];
  if (!host.Reachable(now_) || now_ < host.stuck_until ||
      SealFault("call about a key fails", options_.open_fails)) {
    return absl::UnavailableError("unreachable");
  }
  SessionParams params;
  params.volume = config_.volume;
  params.epoch = primary.epoch();
  params.session = primary.session();
  params.base = primary.core().base(replica);
  params.existing_only = true;
  params.sealed = true;
  const Inventory held = host.acceptor().GetInventory(host.Clock(now_), config_.volume);
  const auto given = host.Open(now_, params, &offer);
  if (absl::IsNotFound(given.status()) && held.known && held.epoch == primary.epoch()) {
    Break(absl::StrCat("I5: replica ", replica, " has no key, and that counts as a lost memory"));
  }
  return given;
}

// ---- the attacker

void ClusterSim::Overhear(int replica, bool to_replica, const std::string& bytes,
                          const std::function<void(const std::string&)>& arrives) {
  if (judge_ == nullptr) return;
  Overheard one{replica, to_replica, bytes, arrives};
  if (overheard_.size() < kKept) {
    overheard_.push_back(std::move(one));
  } else {
    overheard_[seal_random_.Below(kKept)] = std::move(one);
  }
}

// Has a datagram arrive soon where `to` arrives, whatever the network does.
void ClusterSim::Inject(const Overheard& to, std::string bytes) {
  const auto delay = static_cast<int64_t>(seal_random_.Below(20 * kMs));
  At(delay,
     [this, to = to.to_replica ? to.replica : -1, arrives = to.arrives, bytes = std::move(bytes)] {
       if (to < 0 || now_ >= replicas_[to]->deaf_until) arrives(bytes);
     });
}

// Returns a frame of this session that says what was never said: a replica acknowledges all records
// that were issued, or the primary trims them.
std::string ClusterSim::ForgedFrame(const Overheard& like) {
  FrameHeader header;
  header.volume = config_.volume;
  header.epoch = primary_->epoch();
  header.session = primary_->session();
  header.send_time_ns = static_cast<uint64_t>(PrimaryClock());
  const Seq issued = primary_->core().issued();
  std::string frame(kFrameHeaderBytes + kMaxAckBytes, '\0');
  size_t size = 0;
  if (like.to_replica) {
    header.type = FrameType::kProbe;
    header.trim_mark = header.durable_mark = header.issued_mark = issued;
  } else {
    header.type = FrameType::kAck;
    AckPayload ack;
    ack.incarnation = replicas_[like.replica]->acceptor().incarnation();
    ack.base = primary_->core().base(like.replica);
    ack.contiguous = std::max(issued, ack.base - 1);
    ack.free_bytes = 1 << 20;
    size = EncodeAckPayload(ack, Data(frame) + kFrameHeaderBytes);
  }
  header.payload_bytes = static_cast<uint32_t>(size);
  EncodeFrameHeader(header, Data(frame));
  frame.resize(kFrameHeaderBytes + size);
  return frame;
}

// Returns a forged frame, sealed with a key of the attacker's own: under the prefix of a datagram
// that was overheard, with a later counter.
std::string ClusterSim::Forged(const Overheard& like) {
  SealPrefix prefix;
  static_cast<void>(DecodeSealPrefix(reinterpret_cast<const uint8_t*>(like.bytes.data()),
                                     like.bytes.size(), &prefix));
  prefix.kind = SealKind::kSealed;
  prefix.counter += 1 + seal_random_.Below(seal_random_.Chance(0.5) ? 10 : 1'000'000);
  const std::string frame = ForgedFrame(like);
  std::string datagram(frame.size() + kSealBytes, '\0');
  const iovec part{const_cast<char*>(frame.data()), frame.size()};
  Sealer(NewSealKey()).Seal(prefix, absl::MakeConstSpan(&part, 1), Data(datagram));
  return datagram;
}

void ClusterSim::Attack() {
  if (overheard_.empty() || !faults_ || !seal_random_.Chance(options_.attack)) return;
  const Overheard& one = overheard_[seal_random_.Below(overheard_.size())];
  const Overheard& other = overheard_[seal_random_.Below(overheard_.size())];
  std::string bytes = one.bytes;
  switch (seal_random_.Below(7)) {
    case 0:
      if (Happens("datagram replayed")) Inject(one, std::move(bytes));
      break;
    case 1:
      if (Happens("datagram sent to another end")) Inject(other, std::move(bytes));
      break;
    case 2:
      bytes[seal_random_.Below(bytes.size())] ^= static_cast<char>(1 << seal_random_.Below(8));
      if (Happens("bit of a datagram flipped")) Inject(one, std::move(bytes));
      break;
    case 3:
      bytes.resize(seal_random_.Below(bytes.size()));
      if (Happens("datagram cut short")) Inject(one, std::move(bytes));
      break;
    case 4:
      if (Happens("datagram forged under another key")) Inject(one, Forged(one));
      break;
    case 5:
      if (Happens("datagram forged without a key")) Inject(one, ForgedFrame(one));
      break;
    default:
      // About a datagram of the primary's: a forged notice that its replica has no key.
      if (!one.to_replica || other.to_replica || !Happens("notice forged")) break;
      bytes.resize(kSealPrefixBytes);
      SealPrefix prefix;
      static_cast<void>(DecodeSealPrefix(reinterpret_cast<const uint8_t*>(one.bytes.data()),
                                         one.bytes.size(), &prefix));
      prefix.kind = SealKind::kNoKey;
      EncodeSealPrefix(prefix, Data(bytes));
      Inject(other, std::move(bytes));
  }
}

}  // namespace salius::sim
