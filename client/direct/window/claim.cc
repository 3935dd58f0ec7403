#include "client/direct/window/claim.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "client/direct/window/sealing.h"
#include "client/direct/window/stamp.h"
#include "client/direct/window/system.h"
#include "common/limits.h"
#include "log/record_header.h"

namespace salius::direct {
namespace {

// The most messages of one system call, and pieces of one frame.
constexpr unsigned kMessages = 16;
constexpr unsigned kParts = 16;
// Gathered records are sent when they fill a large datagram, or when the first has waited for this.
constexpr uint64_t kGatherBytes = 56u << 10;
constexpr int64_t kGatherNs = 1'000'000;
// Many writers are remembered for the next 64 records.
constexpr Seq kManyRecords = 64;

struct Piece {
  const uint8_t* bytes = nullptr;  // null: the record is gone
  uint32_t size = 0;
};

// Returns the bytes of a record. They may change at any time, so the sizes are checked.
Piece BytesOf(const SharedWindow& window, Seq seq) {
  const Header& header = window.header();
  const uint32_t size = window.record(seq).bytes;
  const uint64_t end = window.window().At(seq).bytes_upto;
  const uint64_t padded = SharedWindow::Padded(size);
  if (size < kRecordHeaderBytes || size > kRecordHeaderBytes + kMaxRecordBody || end < padded) {
    return {};
  }
  const uint64_t start = (end - padded) % header.ring_bytes;
  if (start + padded > header.ring_bytes) return {};
  return {reinterpret_cast<const uint8_t*>(&header) + header.ring_at + start, size};
}

// Sends frames of at most `datagram_bytes` to the peers with this size.
class Sender {
 public:
  // `sealer`: null in a session that is not sealed.
  Sender(const SharedWindow& window, int socket, const Claimed& claimed, int64_t now,
         uint32_t datagram_bytes, FrameSealer* sealer)
      : window_(window),
        socket_(socket),
        claimed_(claimed),
        datagram_bytes_(datagram_bytes),
        sealer_(sealer) {
    const Header& shared = window.header();
    header_.volume = shared.volume;
    header_.epoch = shared.epoch;
    header_.session = shared.session;
    header_.send_time_ns = static_cast<uint64_t>(now);
    header_.trim_mark = claimed.checkpoint;
    header_.durable_mark = claimed.durable;
    header_.issued_mark = claimed.last;
  }

  void Send() {
    const uint32_t sealing = sealer_ != nullptr ? kSealBytes : 0;
    const uint32_t room = datagram_bytes_ - kFrameHeaderBytes - sealing;
    for (Seq seq = claimed_.first; seq <= claimed_.last;) {
      const Piece record = BytesOf(window_, seq);
      if (record.bytes == nullptr) {
        ++seq;
      } else if (record.size > room) {
        SendFragments(seq, record, room);
        ++seq;
      } else {
        seq = SendWhole(seq, room);
      }
    }
    Flush();
  }

 private:
  struct Frame {
    uint8_t head[kFrameHeaderBytes + kFragmentHeaderBytes];
    iovec parts[1 + kParts];
    unsigned part_count;
    uint32_t payload_bytes;
  };

  Frame& Begin(uint32_t head_bytes) {
    if (frame_count_ == kMessages) Flush();
    if (sealer_ != nullptr && (frame_count_ + 1) * datagram_bytes_ > kSealRoomBytes) Flush();
    Frame& frame = frames_[frame_count_++];
    frame.parts[0] = {frame.head, head_bytes};
    frame.part_count = 1;
    frame.payload_bytes = head_bytes - kFrameHeaderBytes;
    return frame;
  }
  // Adds bytes to the frame. Returns false when it has too many pieces.
  static bool Add(Frame& frame, const uint8_t* bytes, uint32_t size) {
    iovec& last = frame.parts[frame.part_count - 1];
    if (frame.part_count > 1 && static_cast<uint8_t*>(last.iov_base) + last.iov_len == bytes) {
      last.iov_len += size;
    } else if (frame.part_count <= kParts) {
      frame.parts[frame.part_count++] = {const_cast<uint8_t*>(bytes), size};
    } else {
      return false;
    }
    frame.payload_bytes += size;
    return true;
  }
  void End(Frame& frame, FrameType type, uint16_t count) {
    header_.type = type;
    header_.count = count;
    header_.payload_bytes = frame.payload_bytes;
    EncodeFrameHeader(header_, frame.head);
  }

  // Sends whole records from `seq` on in one frame. Returns the next one.
  Seq SendWhole(Seq seq, uint32_t room) {
    Frame& frame = Begin(kFrameHeaderBytes);
    uint16_t count = 0;
    for (; seq <= claimed_.last; ++seq, ++count) {
      const Piece record = BytesOf(window_, seq);
      if (record.bytes == nullptr || frame.payload_bytes + record.size > room) break;
      if (!Add(frame, record.bytes, record.size)) break;
    }
    if (count == 0) {  // the record changed since it was measured
      --frame_count_;
      return seq + 1;
    }
    End(frame, FrameType::kRecords, count);
    return seq;
  }

  void SendFragments(Seq seq, Piece record, uint32_t room) {
    const uint32_t piece_bytes = room - kFragmentHeaderBytes;
    for (uint32_t offset = 0; offset < record.size; offset += piece_bytes) {
      Frame& frame = Begin(kFrameHeaderBytes + kFragmentHeaderBytes);
      EncodeFragmentHeader({seq, record.size, offset}, frame.head + kFrameHeaderBytes);
      Add(frame, record.bytes + offset, std::min(piece_bytes, record.size - offset));
      End(frame, FrameType::kFragment, 0);
    }
  }

  // Puts the sealed form of each frame in its place.
  void SealFrames() {
    uint8_t* datagram = sealer_->bytes();
    for (unsigned k = 0; k < frame_count_; ++k) {
      Frame& frame = frames_[k];
      // Copied first: the ring may be reused meanwhile.
      uint8_t* to = datagram + kSealPrefixBytes;
      for (unsigned i = 0; i < frame.part_count; ++i) {
        std::memcpy(to, frame.parts[i].iov_base, frame.parts[i].iov_len);
        to += frame.parts[i].iov_len;
      }
      const size_t bytes = static_cast<size_t>(to - datagram) - kSealPrefixBytes;
      frame.parts[0] = {datagram, sealer_->Seal(datagram, bytes)};
      frame.part_count = 1;
      datagram += datagram_bytes_;
    }
  }

  // Sends all frames to all peers, with one system call: each frame to one after the other.
  void Flush() {
    if (sealer_ != nullptr) SealFrames();
    mmsghdr messages[kMessages * kMaxReplicas];
    unsigned count = 0;
    for (unsigned k = 0; k < frame_count_; ++k) {
      for (uint32_t i = 0; i < claimed_.replicas; ++i) {
        const Peer& peer = claimed_.peers[i];
        if (peer.address_bytes == 0 || peer.datagram_bytes != datagram_bytes_) continue;
        msghdr& message = messages[count++].msg_hdr;
        message = {};
        message.msg_name = const_cast<sockaddr_in6*>(&peer.address);
        message.msg_namelen = peer.address_bytes;
        message.msg_iov = frames_[k].parts;
        message.msg_iovlen = frames_[k].part_count;
      }
    }
    SendAll(messages, count);
    window_.header().counters.frames.fetch_add(frame_count_, std::memory_order_relaxed);
    frame_count_ = 0;
  }

  void SendAll(mmsghdr* messages, unsigned count) const {
    unsigned sent = 0;
    while (sent < count) {
      const int now = RawSendmmsg(socket_, messages + sent, count - sent);
      if (now == -EINTR) continue;
      // An error is of the first one only: an earlier datagram was refused by its receiver, or this
      // one does not fit. It is left out.
      sent += now > 0 ? static_cast<unsigned>(now) : 1;
    }
  }

  const SharedWindow window_;
  const int socket_;
  const Claimed& claimed_;
  const uint32_t datagram_bytes_;
  FrameSealer* const sealer_;
  FrameHeader header_;
  Frame frames_[kMessages];
  unsigned frame_count_ = 0;
};

// Returns whether the complete records after `sent` wait for others. Remembers many writers.
bool Gathers(const SharedWindow& window, Seq sent, Seq ready, Seq durable, int64_t now) {
  Header& header = window.header();
  const Window& slots = window.window();
  const Seq issued = slots.issued();
  if (issued - durable > header.few) header.gather_upto = issued + kManyRecords;
  if (sent <= durable || issued > header.gather_upto) return false;
  const uint64_t bytes = slots.BytesUpTo(ready) - slots.BytesUpTo(sent);
  return bytes < kGatherBytes && now - slots.At(sent + 1).issued_ns < kGatherNs;
}

}  // namespace

Claimed Claim(const SharedWindow& window, int64_t now) {
  Header& header = window.header();
  const Window& slots = window.window();
  Claimed claimed;
  const Seq ready = AdvanceReady(window);
  const Seq checkpoint = slots.checkpoint();
  const Seq sent = std::max(header.sent.load(), checkpoint);
  const Seq durable = std::max(header.durable.load(), checkpoint);
  claimed.first = sent + 1;
  claimed.last = ready;
  const uint64_t durable_bytes = slots.BytesUpTo(durable);
  while (claimed.last > sent && (claimed.last > sent + 1 || sent > durable) &&
         slots.BytesUpTo(claimed.last) - durable_bytes > header.in_flight_bytes) {
    --claimed.last;
  }
  if (!claimed.any()) return claimed;
  if (Gathers(window, sent, ready, durable, now)) return {};
  claimed.replicas = header.replicas;
  claimed.durable = durable;
  claimed.checkpoint = checkpoint;
  std::memcpy(claimed.peers, header.peers, sizeof(claimed.peers));
  if (IsSealed(window)) claimed.key = header.seal.record_key;
  window.record(claimed.first).first_of_claim = 1;
  header.last_claim_ns.store(now);
  header.sent.store(claimed.last);
  return claimed;
}

namespace {

void Send(const SharedWindow& window, int socket, const Claimed& claimed, int64_t now,
          FrameSealer* sealer) {
  uint32_t done = 0;  // the replicas, as bits
  for (uint32_t i = 0; i < claimed.replicas; ++i) {
    const uint32_t bytes = claimed.peers[i].datagram_bytes;
    if ((done >> i & 1) != 0 || claimed.peers[i].address_bytes == 0) continue;
    if (bytes < kDatagramPayloadMin || bytes > kDatagramPayloadLoopback) continue;
    for (uint32_t k = i; k < claimed.replicas; ++k) {
      if (claimed.peers[k].datagram_bytes == bytes) done |= 1u << k;
    }
    Sender(window, socket, claimed, now, bytes, sealer).Send();
  }
}

}  // namespace

void SendClaimed(const SharedWindow& window, int socket, const Claimed& claimed, int64_t now) {
  if (!claimed.any()) return;
  if (!IsSealed(window)) {
    Send(window, socket, claimed, now, nullptr);
    return;
  }
  FrameSealer sealer(window, claimed.key);
  if (sealer.valid()) Send(window, socket, claimed, now, &sealer);
}

}  // namespace salius::direct
