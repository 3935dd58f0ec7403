// The replicator's sending: records that are new to a replica, and re-sends of records that it
// lacks (docs/protocol.md). pure, as replicator.h says.
#include <algorithm>
#include <limits>

#include "client/session/replicator.h"

namespace salius {
namespace {

// The most bytes that are sent to one replica and not acknowledged: the receiver's socket buffer
// holds that many.
constexpr uint64_t kInFlightBytes = 2u << 20;
// A re-send repeats at most this much at a time: the acknowledgement tells what is still missing.
constexpr int kResendRecords = 64;
constexpr uint64_t kResendBytes = 256u << 10;

}  // namespace

int64_t Replicator::AnswersNs() const {
  const ReplicaMask members = configurations_.members();
  int64_t least = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < replicas_.size(); ++i) {
    const int64_t time = replicas_[i].rtt.srtt_ns();
    int by_then = 0;
    for (size_t k = 0; k < replicas_.size(); ++k) {
      const bool member = (members & ReplicaBit(k)) != 0;
      if (member && replicas_[k].rtt.srtt_ns() <= time) ++by_then;
    }
    if (by_then >= options_.acks) least = std::min(least, time);
  }
  return least;
}

void Replicator::Send(int64_t now, SendWhen when) {
  if (!gathering_.Release(now, when, durable_)) return;
  for (size_t i = 0; i < replicas_.size(); ++i) SendNew(now, static_cast<int>(i));
}

void Replicator::SendNew(int64_t now, int index) {
  Replica& replica = replicas_[index];
  if (replica.link != Link::kOpen || replica.memory_full) return;
  replica.sent = std::max({replica.sent, checkpoint(), replica.base - 1});
  const Seq acked = std::max(replica.contiguous, checkpoint());
  const Seq sendable = gathering_.sendable();
  if (replica.sent >= sendable) return;
  if (replica.sent <= acked) replica.progress_ns = now;
  const Seq first = replica.sent + 1;
  const uint64_t acked_bytes = window_.BytesUpTo(acked);
  while (replica.sent < sendable) {
    const bool nothing_out = replica.sent <= acked;
    if (!nothing_out && window_.BytesUpTo(replica.sent + 1) - acked_bytes > kInFlightBytes) break;
    ++replica.sent;
  }
  if (replica.sent < first) return;
  if (replica.waiting_ns < 0) replica.waiting_ns = now;
  out_.sends.push_back({index, first, replica.sent, false});
}

Seq Replicator::Resend(int64_t now, int index, Seq from, Seq upto, int most) {
  Replica& replica = replicas_[index];
  Seq seq = std::max(from, std::max({replica.contiguous, checkpoint(), replica.base - 1}) + 1);
  int records = 0;
  uint64_t bytes = 0;
  for (; seq <= std::min(upto, replica.sent) && records < most && bytes < kResendBytes; ++seq) {
    if (window_.At(seq).held & ReplicaBit(index)) continue;
    ++records;
    bytes += window_.BytesUpTo(seq) - window_.BytesUpTo(seq - 1);
    if (!out_.sends.empty() && out_.sends.back().again && out_.sends.back().replica == index &&
        out_.sends.back().last + 1 == seq) {
      out_.sends.back().last = seq;
    } else {
      out_.sends.push_back({index, seq, seq, true});
    }
  }
  replica.resent += records;
  if (records > 0) replica.progress_ns = now;
  return seq;
}

void Replicator::ResendFirst(int64_t now, int index) {
  Replica& replica = replicas_[index];
  replica.asked_ns = now;
  replica.asked_from = 0;
  replica.asked_upto = replica.sent;
  Resend(now, index, replica.asked_from, replica.asked_upto, 1);
}

void Replicator::ResendLost(int64_t now, int index, int64_t sent, const AckPayload& ack,
                            bool grew) {
  Replica& replica = replicas_[index];
  if (replica.asked_ns >= 0 && sent >= replica.asked_ns) {
    // Everything sent before has arrived, or is lost.
    replica.asked_ns = -1;
    const Seq upto = std::min(replica.asked_upto, replica.sent);
    replica.asked_from = Resend(now, index, replica.asked_from, upto, kResendRecords);
    // More is lost: the answer to these asks for the next ones.
    if (replica.asked_from <= upto) replica.asked_ns = now;
  } else if (!grew && !ack.ranges.empty() && now - replica.progress_ns > replica.rtt.base_ns()) {
    // Only the holes are missing: do not wait for the time-out.
    Resend(now, index, 0, ack.ranges.back().first - 1, kResendRecords);
  }
}

}  // namespace salius
