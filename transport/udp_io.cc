// Sending and receiving on a UDP socket: batches of datagrams, joined where the kernel cuts and
// joins them.
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

// Messages per system call. More gain nothing: the call's own cost is spread thin by then.
constexpr size_t kBatch = 64;
constexpr int64_t kOneByOneNs = 1'000'000'000;
// Receives of a single message after a batch that had no more than one. The kernel's look for a
// second one is a good part of the cost of receiving.
constexpr int kLone = 7;

int64_t NowNs() { return SystemClock().MonotonicNanos(); }

size_t BytesOf(const OutDatagram& datagram) {
  size_t bytes = 0;
  for (const iovec& part : datagram.parts) bytes += part.iov_len;
  return bytes;
}

// Returns how many of the first datagrams can be one message that is cut into them on its way.
size_t RunLength(absl::Span<const OutDatagram> batch) {
  const auto together = [](const OutDatagram& a, const OutDatagram& b) {
    return a.to == b.to && a.from == b.from;
  };
  if (batch.size() < 2 || !together(batch[1], batch[0])) return 1;
  const size_t each = BytesOf(batch[0]);
  size_t bytes = each;
  size_t parts = batch[0].parts.size();
  size_t run = 1;
  while (each > 0 && run < std::min(batch.size(), kMaxSegments) &&
         together(batch[run], batch[0])) {
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
    char bytes[CMSG_SPACE(sizeof(uint16_t)) + CMSG_SPACE(sizeof(in6_pktinfo))];
    cmsghdr align;
  };

  // Fills in the first messages of `batch`. The object must not move until they are sent.
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
      if (batch[0].from != nullptr) LeaveFrom(*batch[0].from, header);
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
    AddControl(header, SOL_UDP, UDP_SEGMENT, static_cast<uint16_t>(BytesOf(run[0])));
  }

  // Sets the source address. The route decides about the interface, unless the address belongs to
  // one link only.
  void LeaveFrom(const SocketAddress& from, msghdr& header) {
    if (from.storage.ss_family == AF_INET) {
      in_pktinfo info{};
      info.ipi_spec_dst = reinterpret_cast<const sockaddr_in*>(&from.storage)->sin_addr;
      return AddControl(header, IPPROTO_IP, IP_PKTINFO, info);
    }
    const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(&from.storage);
    in6_pktinfo info{};
    info.ipi6_addr = v6->sin6_addr;
    info.ipi6_ifindex = v6->sin6_scope_id;
    AddControl(header, IPPROTO_IPV6, IPV6_PKTINFO, info);
  }

  template <typename T>
  void AddControl(msghdr& header, int level, int type, const T& value) {
    Control& control = controls[count];
    header.msg_control = control.bytes;
    auto* const c = reinterpret_cast<cmsghdr*>(control.bytes + header.msg_controllen);
    c->cmsg_level = level;
    c->cmsg_type = type;
    c->cmsg_len = CMSG_LEN(sizeof(value));
    std::memcpy(CMSG_DATA(c), &value, sizeof(value));
    header.msg_controllen += CMSG_SPACE(sizeof(value));
  }

  std::array<Control, kBatch> controls;
  std::vector<iovec> joined;
};

OutMessages& ThreadMessages() {
  thread_local OutMessages messages;
  return messages;
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
      // Checksums are not made in hardware, datagrams exceed a packet, or the kernel never could
      // segment. Send one by one for a while: the cause may pass, as a wrong route does.
      __atomic_store_n(&segments_from_ns_, NowNs() + kOneByOneNs, __ATOMIC_RELAXED);
      continue;
    }
    // The error belongs to the first message (or an earlier datagram left it on the socket).
    __atomic_fetch_add(&send_errors_, out.datagrams[0], __ATOMIC_RELAXED);
    done += out.datagrams[0];
  }
  return done;
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
    // ICMP answers to datagrams sent earlier; each is reported once.
    const bool answer = errno == ECONNREFUSED || errno == EHOSTUNREACH || errno == ENETUNREACH;
    if (errno != EINTR && !answer) return ErrnoStatus(errno, "recvmmsg");
  }
}

}  // namespace salius
