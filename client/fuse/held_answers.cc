#include "client/fuse/held_answers.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "client/fuse/kernel_order.h"
#include "client/gate/rule.h"
#include "common/check.h"
#include "common/file.h"
#include "common/strings.h"

namespace salius {

bool Shows(uint32_t opcode) {
  switch (opcode) {
    case FUSE_LOOKUP:
    case FUSE_GETATTR:
    case kFuseStatx:
    case FUSE_READ:
    case FUSE_READLINK:
    case FUSE_GETXATTR:
    case FUSE_LISTXATTR:
    case FUSE_READDIR:
    case FUSE_READDIRPLUS:
    case FUSE_LSEEK:
      return true;
    default:
      return false;
  }
}

bool FillsCache(const RawRequest& request) {
  if (request.opcode() == FUSE_READ) {
    // The kernel names the owner of locks when it reads past its cache.
    const auto* const in = request.args<fuse_read_in>();
    return in == nullptr || (in->read_flags & FUSE_READ_LOCKOWNER) == 0;
  }
  if (request.opcode() != FUSE_GETXATTR) return false;
  const std::optional<std::string_view> name = request.name(sizeof(fuse_getxattr_in));
  return name.has_value() && absl::StartsWith(Av(*name), "system.posix_acl_");
}

HeldAnswers::~HeldAnswers() {
  absl::MutexLock lock(&mu_);
  SALIUS_CHECK(counts_.waiting == 0, "answers are held back");
}

void HeldAnswers::Begin(const RawRequest& request) {
  if (!Shows(request.opcode())) return;
  const fuse_in_header& header = request.header();
  const Asked asked{header.pid, header.nodeid, FillsCache(request)};
  absl::MutexLock lock(&mu_);
  asked_[header.unique] = asked;
}

bool HeldAnswers::Take(int fd, const iovec* parts, int count) {
  fuse_out_header header;
  if (count < 1 || parts[0].iov_len < sizeof(header)) return false;
  std::memcpy(&header, parts[0].iov_base, sizeof(header));
  Asked asked;
  {
    absl::MutexLock lock(&mu_);
    const auto found = asked_.find(header.unique);
    if (found == asked_.end()) return false;
    asked = found->second;
    asked_.erase(found);
  }
  // The answer is made, and shows no record that is issued from here on. The look for the caller
  // takes longer than the one at the page.
  if (page_.AwaitedByOutput() == 0) return false;
  gate::Asker asker;
  asker.inside = insiders_.Contains(asked.tid);  // not answered yet, so its thread is alive
  asker.fills_cache = asked.fills;
  if (asker.inside && asked.fills) asker.last_change = last_change_(asked.nodeid);
  const Seq seq = gate::AnswerWaitsFor(page_, asker);
  if (seq == 0) return false;
  std::string answer;
  for (int i = 0; i < count; ++i) {
    answer.append(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
  }
  {
    absl::MutexLock lock(&mu_);
    ++counts_.waiting;
    ++counts_.waited;
  }
  stream_.NotifyDurable(seq, [this, fd, nodeid = asked.nodeid,
                              answer = std::move(answer)](const absl::Status& durable) {
    Send(fd, answer, nodeid, durable);
  });
  return true;
}

void HeldAnswers::Send(int fd, const std::string& answer, uint64_t nodeid,
                       const absl::Status& durable) {
  KernelOrder::Pass(nodeid);
  std::string bytes = answer;
  if (!durable.ok()) {
    // The volume has failed, and the content of the answer may be lost.
    fuse_out_header header;
    std::memcpy(&header, answer.data(), sizeof(header));
    header.len = sizeof(header);
    header.error = -EIO;
    bytes.assign(reinterpret_cast<const char*>(&header), sizeof(header));
  }
  // An error means that the connection has ended, and the kernel keeps nothing.
  static_cast<void>(!::write(fd, bytes.data(), bytes.size()));
  absl::MutexLock lock(&mu_);
  --counts_.waiting;
}

HeldAnswers::Counts HeldAnswers::counts() const {
  absl::MutexLock lock(&mu_);
  return counts_;
}

void HeldAnswers::AwaitAll() {
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(+[](uint64_t* waiting) { return *waiting == 0; }, &counts_.waiting));
}

}  // namespace salius
