#include "client/direct/window/acks.h"

#include <algorithm>
#include <cstring>

#include "client/direct/window/robust_lock.h"
#include "client/direct/window/sealing.h"
#include "client/direct/window/stamp.h"

namespace salius::direct {
namespace {

static_assert(kMailBytes >= kFrameHeaderBytes + kMaxAckBytes);

bool SameAddress(const sockaddr* a, const Peer& peer) {
  if (peer.address_bytes == 0 || a->sa_family != peer.address.sin6_family) return false;
  if (a->sa_family == AF_INET) {
    const auto* x = reinterpret_cast<const sockaddr_in*>(a);
    const auto* y = reinterpret_cast<const sockaddr_in*>(&peer.address);
    return x->sin_port == y->sin_port && x->sin_addr.s_addr == y->sin_addr.s_addr;
  }
  const auto* x = reinterpret_cast<const sockaddr_in6*>(a);
  return x->sin6_port == peer.address.sin6_port &&
         std::memcmp(&x->sin6_addr, &peer.address.sin6_addr, sizeof(in6_addr)) == 0;
}

// Returns the replica with this address, or -1.
int ReplicaAt(const Header& header, const sockaddr* from) {
  for (uint32_t i = 0; i < header.replicas; ++i) {
    if (SameAddress(from, header.peers[i])) return static_cast<int>(i);
  }
  return -1;
}

void Post(Mail& mail, const uint8_t* datagram, size_t size, int64_t now) {
  mail.bytes = static_cast<uint32_t>(std::min(size, kMailBytes));
  std::memcpy(mail.datagram, datagram, mail.bytes);
  mail.received_ns = now;
  ++mail.count;
}

// Returns whether the acknowledgement names less than one that was heard before its frame was sent.
bool WentBack(const Heard& heard, int64_t sent_ns, const AckBytes& ack) {
  if (sent_ns > heard.contiguous_ns && ack.contiguous < heard.contiguous) return true;
  return sent_ns > heard.marks_ns &&
         (ack.trimmed < heard.trimmed || ack.promise_epoch < heard.promise);
}

void Remember(Heard& heard, const AckBytes& ack, int64_t now) {
  if (ack.trimmed > heard.trimmed || ack.promise_epoch > heard.promise) {
    heard.marks_ns = now;
    heard.trimmed = std::max(heard.trimmed, ack.trimmed);
    heard.promise = std::max(heard.promise, ack.promise_epoch);
  }
  if (ack.contiguous > heard.contiguous) {
    heard.contiguous_ns = now;
    heard.contiguous = ack.contiguous;
  }
}

constexpr int kAnyReplica = -1;

// Opens the datagram of a sealed session in place, and sets all to its frame and replica. Returns
// false when there is none. Takes the window lock.
bool Open(const SharedWindow& window, const sockaddr* from, uint8_t** datagram, size_t* size,
          int* replica) {
  Opened opened;
  {
    WindowLock lock(window);
    *replica = ReplicaAt(window.header(), from);
    if (*replica >= 0) {
      opened = OpenDatagram(window, static_cast<uint32_t>(*replica), *datagram, *size);
    }
  }
  if (*replica < 0) {
    window.header().counters.foreign_datagrams.fetch_add(1, std::memory_order_relaxed);
  }
  if (opened.notice) Kick(window, kTroubleNoKey);
  *datagram = opened.frame;
  *size = opened.bytes;
  return opened.frame != nullptr;
}

}  // namespace

AckVerdict TakeAck(const SharedWindow& window, uint32_t replica, int64_t sent_ns,
                   const AckBytes& ack, int64_t now) {
  Header& header = window.header();
  const Peer& peer = header.peers[replica];
  Heard& heard = header.heard[replica];
  Window& slots = window.window();
  if (ack.incarnation == peer.incarnation && peer.incarnation != 0 &&
      sent_ns < peer.counts_from_ns) {
    return AckVerdict::kTooOld;
  }
  // I5: an ack counts only for the life of the memory that the session was opened with.
  if ((ack.flags & ~kAckOverdue) != 0 || peer.incarnation == 0 ||
      ack.incarnation != peer.incarnation || ack.contiguous > slots.issued()) {
    return AckVerdict::kOdd;
  }
  if (heard.incarnation != ack.incarnation) {
    heard.Forget(ack.incarnation);
    heard.contiguous_ns = heard.marks_ns = now;
  }
  if (heard.lost != 0) return AckVerdict::kOdd;
  if (WentBack(heard, sent_ns, ack)) {
    heard.lost = 1;
    return AckVerdict::kWentBack;
  }
  const Seq held_before = std::max(heard.contiguous, peer.base - 1);
  if (ack.contiguous > held_before) {
    slots.Hold(held_before + 1, ack.contiguous, ReplicaBit(replica));
  }
  // After the marks of holding: a process that is killed in between leaves them to be set again.
  Remember(heard, ack, now);
  const int64_t rtt = now - sent_ns;
  if (sent_ns > 0 && rtt > 0 && rtt < 1'000'000'000) {
    const int64_t smoothed = heard.rtt_ns == 0 ? rtt : heard.rtt_ns + (rtt - heard.rtt_ns) / 8;
    __atomic_store_n(&heard.rtt_ns, smoothed, __ATOMIC_RELAXED);
  }
  return AckVerdict::kCounted;
}

AckVerdict TakeDatagram(const SharedWindow& window, uint8_t* datagram, size_t size,
                        const sockaddr* from, int64_t now, Advanced* advanced) {
  Header& header = window.header();
  int opened_by = kAnyReplica;
  if (IsSealed(window) && !Open(window, from, &datagram, &size, &opened_by)) {
    return AckVerdict::kRefused;
  }
  FrameHeader frame;
  AckBytes ack;
  if (DecodeFrameHeader(datagram, size, &frame) != FrameFault::kNone ||
      frame.type != FrameType::kAck) {
    header.counters.foreign_datagrams.fetch_add(1, std::memory_order_relaxed);
    return AckVerdict::kMalformed;
  }
  if (frame.volume != header.volume || frame.epoch != header.epoch ||
      frame.session != header.session) {
    header.counters.foreign_datagrams.fetch_add(1, std::memory_order_relaxed);
    return AckVerdict::kForeign;
  }
  if (DecodeAck(datagram + kFrameHeaderBytes, size - kFrameHeaderBytes, &ack) !=
      FrameFault::kNone) {
    return AckVerdict::kMalformed;
  }
  AckVerdict verdict = AckVerdict::kForeign;
  {
    WindowLock lock(window);
    const int replica = ReplicaAt(header, from);
    if (replica < 0 || (opened_by != kAnyReplica && replica != opened_by)) return verdict;
    const auto sent_ns = static_cast<int64_t>(frame.send_time_ns);
    verdict = TakeAck(window, static_cast<uint32_t>(replica), sent_ns, ack, now);
    const bool plain = verdict == AckVerdict::kCounted;
    Mailbox& mailbox = header.mail[replica];
    if (verdict != AckVerdict::kTooOld) {
      Post(plain ? mailbox.good : mailbox.odd, datagram, size, now);
    }
    if (plain) *advanced = AdvanceDurable(window);
  }
  header.counters.acks.fetch_add(1, std::memory_order_relaxed);
  if (verdict == AckVerdict::kOdd) Kick(window, kTroubleOdd);
  if (verdict == AckVerdict::kWentBack) Kick(window, kTroubleOdd | kTroubleWentBack);
  return verdict;
}

Advanced AdvanceDurable(const SharedWindow& window) {
  Header& header = window.header();
  const Seq before = header.durable.load();
  if (header.counting == 0 || window.phase().phase() != Phase::kReplicated) {
    return {before, before};
  }
  const Seq from = std::max(before, window.window().checkpoint());
  const Seq after = header.rule.Advance(window.window(), from);
  header.durable.store(after);
  return {before, after};
}

Advanced PublishCheckpoint(const SharedWindow& window, Seq checkpoint) {
  Header& header = window.header();
  Window& slots = window.window();
  if (checkpoint > slots.checkpoint()) {
    slots.CutTo(checkpoint);
    NoteUse(window);
  }
  const Seq before = header.durable.load();
  const Seq after = std::max(before, checkpoint);
  header.durable.store(after);
  return {before, after};
}

}  // namespace salius::direct
