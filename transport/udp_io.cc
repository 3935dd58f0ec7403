// What goes through a UDP socket: batches of datagrams, joined where the kernel cuts and joins
// them.
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "common/clock.h"
#include "common/strings.h"
#include "transport/udp_socket.h"

namespace salius {
namespace {

// Messages per system call: more gains nothing, the call's own cost is spread thin by then.
constexpr size_t kBatch = 64;
constexpr int64_t kOneByOneNs = 1'000'000'000;
// Receives of a single message after a batch that was no more. The kernel's look for a second one
// is a good part of what receiving costs.
constexpr int kLone = 7;

int64_t NowNs() { return SystemClock().MonotonicNanos(); }

size_t BytesOf(const OutDatagram& datagram) {
  size_t bytes = 0;
  for (const iovec& part : datagram.parts) bytes += part.iov_len;
  return bytes;
}

// How many of the first datagrams can be one message that is cut into them on its way.
size_t RunLength(absl::Span<const OutDatagram> batch) {
  if (batch.size() < 2 || batch[1].to != batch[0].to) return 1;
  const size_t each = BytesOf(batch[0]);
  size_t bytes = each;
  size_t parts = batch[0].parts.size();
  size_t run = 1;
  while (each > 0 && run < std::min(batch.size(), kMaxSegments) && batch[run].to == batch[0].to) {
    const size_t next = BytesOf(batch[run]);
    bytes += next;
    parts += batch[run].parts.size();
    if (next == 0 || next > each || bytes > kMaxSegmentedBytes || parts > kMaxParts) break;
    ++run;
    if (next < each) break;  // only the last one may be shorter
  }
  return run;
}

// Messages of one system call, each of one or more datagrams.
struct OutMessages {
  union Control {
    char bytes[CMSG_SPACE(sizeof(uint16_t))];
    cmsghdr align;
  };

  // The first messages of `batch`. The object must not move until they are sent.
  void Fill(absl::Span<const OutDatagram> batch, bool segment) {
    count = 0;
    joined.clear();
    while (count < kBatch && !batch.empty()) {
      const size_t run = segment ? RunLength(batch) : 1;
      messages[count] = mmsghdr{};
      msghdr& header = messages[count].msg_hdr;
      header.msg_name = const_cast<sockaddr*>(batch[0].to->get());
      header.msg_namelen = batch[0].to->length;
      header.msg_iov = const_cast<iovec*>(batch[0].parts.data());
      header.msg_iovlen = batch[0].parts.size();
      if (run > 1) Join(batch.first(run), header);
      datagrams[count++] = run;
      batch.remove_prefix(run);
    }
    // Where `joined` lies is known only now.
    size_t at = 0;
    for (size_t i = 0; i < count; ++i) {
      if (datagrams[i] < 2) continue;
      messages[i].msg_hdr.msg_iov = joined.data() + at;
      at += messages[i].msg_hdr.msg_iovlen;
    }
  }

  std::array<mmsghdr, kBatch> messages;
  std::array<size_t, kBatch> datagrams;
  size_t count = 0;

 private:
  void Join(absl::Span<const OutDatagram> run, msghdr& header) {
    const size_t before = joined.size();
    for (const OutDatagram& one : run) {
      joined.insert(joined.end(), one.parts.begin(), one.parts.end());
    }
    header.msg_iovlen = joined.size() - before;
    Control& control = controls[count];
    header.msg_control = control.bytes;
    header.msg_controllen = sizeof(control.bytes);
    cmsghdr* const c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_UDP;
    c->cmsg_type = UDP_SEGMENT;
    c->cmsg_len = CMSG_LEN(sizeof(uint16_t));
    const auto each = static_cast<uint16_t>(BytesOf(run[0]));
    std::memcpy(CMSG_DATA(c), &each, sizeof(each));
  }

  std::array<Control, kBatch> controls;
  std::vector<iovec> joined;
};

OutMessages& ThreadMessages() {
  thread_local OutMessages messages;
  return messages;
}

// Length of the datagrams that the kernel joined into one message; 0: it is one datagram.
size_t JoinedLength(const msghdr& message) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr;
       c = CMSG_NXTHDR(const_cast<msghdr*>(&message), c)) {
    int each = 0;
    if (c->cmsg_level != SOL_UDP || c->cmsg_type != UDP_GRO) continue;
    std::memcpy(&each, CMSG_DATA(c), sizeof(each));
    return static_cast<size_t>(std::max(each, 0));
  }
  return 0;
}

}  // namespace

bool UdpSocket::segments() const {
  const int64_t from = __atomic_load_n(&segments_from_ns_, __ATOMIC_RELAXED);
  return from == 0 || (from > 0 && NowNs() >= from);
}

size_t UdpSocket::Send(absl::Span<const OutDatagram> batch) {
  OutMessages& out = ThreadMessages();
  size_t done = 0;
  while (done < batch.size()) {
    out.Fill(batch.subspan(done), segments());
    const int sent =
        sendmmsg(fd(), out.messages.data(), static_cast<unsigned>(out.count), MSG_DONTWAIT);
    for (int i = 0; i < sent; ++i) done += out.datagrams[static_cast<size_t>(i)];
    if (sent > 0 || errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) break;
    const bool cannot = errno == EINVAL || errno == EIO || errno == EMSGSIZE || errno == EOPNOTSUPP;
    if (out.datagrams[0] > 1 && cannot) {
      // No checksums in hardware, datagrams larger than a packet, a kernel that never could: one by
      // one for a while. The cause may pass, as a wrong route does.
      __atomic_store_n(&segments_from_ns_, NowNs() + kOneByOneNs, __ATOMIC_RELAXED);
      continue;
    }
    // The error is that of the first message (or one that an earlier datagram left on the socket).
    __atomic_fetch_add(&send_errors_, out.datagrams[0], __ATOMIC_RELAXED);
    done += out.datagrams[0];
  }
  return done;
}

InBatch::InBatch(size_t messages, size_t buffer_bytes)
    : buffer_bytes_(buffer_bytes),
      storage_(messages * buffer_bytes),
      from_(messages),
      parts_(messages),
      controls_(messages),
      messages_(messages) {
  in_.reserve(messages);
  for (size_t i = 0; i < messages; ++i) {
    parts_[i] = iovec{storage_.data() + i * buffer_bytes, buffer_bytes};
    messages_[i].msg_hdr.msg_name = &from_[i].storage;
    messages_[i].msg_hdr.msg_iov = &parts_[i];
    messages_[i].msg_hdr.msg_iovlen = 1;
    messages_[i].msg_hdr.msg_control = controls_[i].bytes;
    Reset(i);
  }
}

void InBatch::Reset(size_t i) {
  messages_[i].msg_hdr.msg_namelen = sizeof(from_[i].storage);
  messages_[i].msg_hdr.msg_controllen = sizeof(controls_[i].bytes);
  messages_[i].msg_hdr.msg_flags = 0;
}

void InBatch::Take(size_t i) {
  const mmsghdr& message = messages_[i];
  from_[i].length = message.msg_hdr.msg_namelen;
  absl::Span<const uint8_t> bytes(static_cast<const uint8_t*>(parts_[i].iov_base),
                                  std::min<size_t>(message.msg_len, buffer_bytes_));
  const bool truncated = (message.msg_hdr.msg_flags & MSG_TRUNC) != 0;
  const size_t each = truncated ? 0 : JoinedLength(message.msg_hdr);
  for (; each > 0 && bytes.size() > each; bytes.remove_prefix(each)) {
    in_.push_back({bytes.first(each), false, &from_[i]});
  }
  in_.push_back({bytes, truncated, &from_[i]});
  Reset(i);
}

absl::StatusOr<size_t> UdpSocket::Receive(InBatch& batch, bool wait) {
  const bool lone = wait && batch.lone_ > 0;
  const size_t messages = lone ? 1 : std::min(kBatch, batch.messages_.size());
  batch.in_.clear();
  batch.full_ = false;
  const int flags = wait ? MSG_WAITFORONE : MSG_DONTWAIT;
  for (;;) {
    const int got =
        recvmmsg(fd(), batch.messages_.data(), static_cast<unsigned>(messages), flags, nullptr);
    if (got >= 0) {
      for (size_t i = 0; i < static_cast<size_t>(got); ++i) batch.Take(i);
      batch.full_ = !lone && static_cast<size_t>(got) == messages;
      batch.lone_ = lone ? batch.lone_ - 1 : (got <= 1 ? kLone : 0);
      return batch.in_.size();
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return size_t{0};
    // ICMP's answers to datagrams sent earlier; each is reported once.
    const bool answer = errno == ECONNREFUSED || errno == EHOSTUNREACH || errno == ENETUNREACH;
    if (errno != EINTR && !answer) return ErrnoStatus(errno, "recvmmsg");
  }
}

}  // namespace salius
