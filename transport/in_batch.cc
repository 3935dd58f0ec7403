// The datagrams of each message that was received, and the facts that the kernel adds to it.
#include <netinet/in.h>
#include <netinet/udp.h>

#include <algorithm>
#include <cstring>

#include "transport/datagram_channel.h"

namespace salius {
namespace {

// Facts that the kernel adds to a message, beside its bytes.
struct About {
  size_t joined = 0;  // length of each datagram that it joined into this one; 0: it is one
  bool at = false;    // the address it was sent to is known
};

About ReadControl(const msghdr& message, SocketAddress* at) {
  About about;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr;
       c = CMSG_NXTHDR(const_cast<msghdr*>(&message), c)) {
    if (c->cmsg_level == SOL_UDP && c->cmsg_type == UDP_GRO) {
      int each = 0;
      std::memcpy(&each, CMSG_DATA(c), sizeof(each));
      about.joined = static_cast<size_t>(std::max(each, 0));
    } else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
      in_pktinfo info;
      std::memcpy(&info, CMSG_DATA(c), sizeof(info));
      auto* const v4 = reinterpret_cast<sockaddr_in*>(&at->storage);
      v4->sin_family = AF_INET;
      v4->sin_addr = info.ipi_spec_dst;  // one of ours, also for a broadcast
      at->length = sizeof(*v4);
      about.at = true;
    } else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
      in6_pktinfo info;
      std::memcpy(&info, CMSG_DATA(c), sizeof(info));
      auto* const v6 = reinterpret_cast<sockaddr_in6*>(&at->storage);
      v6->sin6_family = AF_INET6;
      v6->sin6_addr = info.ipi6_addr;
      v6->sin6_scope_id = IN6_IS_ADDR_LINKLOCAL(&info.ipi6_addr) ? info.ipi6_ifindex : 0;
      at->length = sizeof(*v6);
      about.at = !IN6_IS_ADDR_MULTICAST(&info.ipi6_addr);
    }
  }
  return about;
}

}  // namespace

InBatch::InBatch(size_t messages, size_t buffer_bytes)
    : buffer_bytes_(buffer_bytes),
      storage_(messages * buffer_bytes),
      from_(messages),
      at_(messages),
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
  const About about = ReadControl(message.msg_hdr, &at_[i]);
  const SocketAddress* const at = about.at ? &at_[i] : nullptr;
  const size_t each = truncated ? 0 : about.joined;
  for (; each > 0 && bytes.size() > each; bytes.remove_prefix(each)) {
    in_.push_back({bytes.first(each), false, &from_[i], at});
  }
  in_.push_back({bytes, truncated, &from_[i], at});
  Reset(i);
}

}  // namespace salius
