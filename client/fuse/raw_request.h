// One FUSE request that is decoded here and not by libfuse, and its answer.
//
// The kernel is trusted, but every length is checked all the same: a request that is too short for
// its operation is answered EIO, never read beyond its end.
//
// Threads: a RawRequest belongs to the worker that received it.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/types/span.h"
#include "client/fuse/kernel_abi.h"

namespace salius {

// Sees every answer before it is sent.
class AnswerFilter {
 public:
  virtual ~AnswerFilter() = default;
  // Takes the answer over, to send it later, and returns true; else the caller sends it. The parts
  // are good during the call.
  virtual bool Take(int fd, const iovec* parts, int count) = 0;
};

// Sends an answer in `count` parts, unless `filter` (null: none) takes it. Returns the number of its
// bytes, or -1 with errno.
ssize_t SendAnswer(int fd, const iovec* parts, int count, AnswerFilter* filter);

// Where the answer to a request goes; outlives the request's bytes.
class RawAnswer {
 public:
  RawAnswer(int fd, const fuse_in_header& request, AnswerFilter* filter)
      : fd_(fd), unique_(request.unique), nodeid_(request.nodeid), filter_(filter) {}

  // Send the one answer. Return 0, or the errno of the write: ENOENT when the request was aborted
  // meanwhile; then the kernel keeps nothing that the answer granted.
  int Error(int err) const;
  int Payload(absl::Span<const uint8_t> payload) const;
  template <typename Out>
  int Struct(const Out& out) const {
    return Payload({reinterpret_cast<const uint8_t*>(&out), sizeof(out)});
  }

 private:
  int fd_;
  uint64_t unique_;
  uint64_t nodeid_;
  AnswerFilter* filter_;  // may be null
};

class RawRequest {
 public:
  // Parses `bytes`, one whole message as read from the fuse device `fd`, and borrows them. Its
  // answer goes through `filter`, if there is one. Returns nothing when the message is shorter than
  // its header says.
  static std::optional<RawRequest> Parse(int fd, absl::Span<const uint8_t> bytes,
                                         AnswerFilter* filter = nullptr);

  const fuse_in_header& header() const { return *header_; }
  uint32_t opcode() const { return header_->opcode; }

  // Returns the operation's fixed arguments, or null when the message is too short for them.
  template <typename Args>
  const Args* args() const {
    return body_.size() < sizeof(Args) ? nullptr : reinterpret_cast<const Args*>(body_.data());
  }
  // Returns the bytes that follow `offset` bytes of arguments.
  absl::Span<const uint8_t> rest(size_t offset) const;
  // Returns the NUL-terminated name that follows `offset` bytes of arguments; nothing when it is
  // cut off.
  std::optional<std::string_view> name(size_t offset) const;

  RawAnswer answer() const { return RawAnswer(fd_, *header_, filter_); }
  int ReplyError(int err) const { return answer().Error(err); }
  int Reply(absl::Span<const uint8_t> payload) const { return answer().Payload(payload); }
  template <typename Out>
  int ReplyStruct(const Out& out) const {
    return answer().Struct(out);
  }

 private:
  RawRequest(int fd, const fuse_in_header* header, absl::Span<const uint8_t> body,
             AnswerFilter* filter)
      : fd_(fd), header_(header), body_(body), filter_(filter) {}

  int fd_;
  const fuse_in_header* header_;
  absl::Span<const uint8_t> body_;
  AnswerFilter* filter_;  // may be null
};

}  // namespace salius
