#include "client/fuse/raw_request.h"

#include <sys/uio.h>

#include <cerrno>
#include <cstring>

#include "client/fuse/kernel_order.h"

namespace salius {

ssize_t SendAnswer(int fd, const iovec* parts, int count, AnswerFilter* filter) {
  if (filter != nullptr && filter->Take(fd, parts, count)) {
    ssize_t bytes = 0;
    for (int i = 0; i < count; ++i) bytes += static_cast<ssize_t>(parts[i].iov_len);
    return bytes;
  }
  return ::writev(fd, parts, count);
}

std::optional<RawRequest> RawRequest::Parse(int fd, absl::Span<const uint8_t> bytes,
                                            AnswerFilter* filter) {
  if (bytes.size() < sizeof(fuse_in_header)) return std::nullopt;
  const auto* header = reinterpret_cast<const fuse_in_header*>(bytes.data());
  if (header->len < sizeof(fuse_in_header) || header->len > bytes.size()) return std::nullopt;
  return RawRequest(fd, header,
                    bytes.subspan(sizeof(fuse_in_header), header->len - sizeof(fuse_in_header)),
                    filter);
}

absl::Span<const uint8_t> RawRequest::rest(size_t offset) const {
  return offset >= body_.size() ? absl::Span<const uint8_t>() : body_.subspan(offset);
}

std::optional<std::string_view> RawRequest::name(size_t offset) const {
  const absl::Span<const uint8_t> bytes = rest(offset);
  const void* end = bytes.empty() ? nullptr : std::memchr(bytes.data(), 0, bytes.size());
  if (end == nullptr) return std::nullopt;
  const char* begin = reinterpret_cast<const char*>(bytes.data());
  return std::string_view(begin, static_cast<size_t>(static_cast<const char*>(end) - begin));
}

int RawAnswer::Error(int err) const {
  fuse_out_header out{};
  out.len = sizeof(out);
  out.error = -err;
  out.unique = unique_;
  KernelOrder::Pass(nodeid_);
  const iovec part{&out, sizeof(out)};
  return SendAnswer(fd_, &part, 1, filter_) < 0 ? errno : 0;
}

int RawAnswer::Payload(absl::Span<const uint8_t> payload) const {
  fuse_out_header out{};
  out.len = static_cast<uint32_t>(sizeof(out) + payload.size());
  out.unique = unique_;
  KernelOrder::Pass(nodeid_);
  const iovec parts[2] = {{&out, sizeof(out)},
                          {const_cast<uint8_t*>(payload.data()), payload.size()}};
  return SendAnswer(fd_, parts, 2, filter_) < 0 ? errno : 0;
}

}  // namespace salius
