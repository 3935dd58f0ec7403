// The ioctls of a volume (client/api/ioctl.h). All others are refused, FS_IOC_GETFLAGS among them.
#include <cerrno>
#include <cstring>
#include <string>

#include "client/api/ioctl.h"
#include "client/fuse/front.h"
#include "client/gate/rule.h"

namespace salius {
namespace {

// Answers with `size` bytes of data, which the kernel copies to the caller.
void ReplyIoctl(const RawRequest& request, const void* data, size_t size) {
  const fuse_ioctl_out out{};
  std::string payload(reinterpret_cast<const char*>(&out), sizeof(out));
  payload.append(static_cast<const char*>(data), size);
  request.Reply({reinterpret_cast<const uint8_t*>(payload.data()), payload.size()});
}

}  // namespace

bool Front::MayReturnEarly(const Handle& file, uint32_t tid) const {
  const OpenState state = StateOf(file.node);
  return external_ != nullptr &&
         gate::ReturnsEarly(external_->insiders.Contains(tid),
                            /*mapped=*/state.stored() || state.MayHaveDirtyPages());
}

int Front::GrantEarly(Handle& file, uint32_t tid, bool on) const {
  if (on && !MayReturnEarly(file, tid)) return EPERM;
  file.early.store(on, std::memory_order_relaxed);
  return 0;
}

void Front::RawIoctl(const RawRequest& request) {
  const auto* in = request.args<fuse_ioctl_in>();
  const absl::Span<const uint8_t> data = request.rest(sizeof(fuse_ioctl_in));
  if (in == nullptr || data.size() < in->in_size) {
    request.ReplyError(EIO);
    return;
  }
  Handle* file = nullptr;
  if ((in->flags & FUSE_IOCTL_DIR) != 0) {
    OpenDirectory* const directory = FindDirectory(in->fh);
    if (directory != nullptr) file = &directory->handle;
  } else {
    file = FindFile(in->fh);
  }
  if (file == nullptr) {
    request.ReplyError(EBADF);
    return;
  }
  if (in->cmd == SALIUS_IOC_EARLY) {
    uint32_t on = 0;
    if (in->in_size != sizeof(on)) return static_cast<void>(request.ReplyError(EINVAL));
    std::memcpy(&on, data.data(), sizeof(on));
    if (on > 1) return static_cast<void>(request.ReplyError(EINVAL));
    const int error = GrantEarly(*file, request.header().pid, on == 1);
    if (error != 0) {
      request.ReplyError(error);
    } else {
      ReplyIoctl(request, nullptr, 0);
    }
    return;
  }
  if (in->cmd == SALIUS_IOC_GATE) {
    if (external_ == nullptr) return static_cast<void>(request.ReplyError(ENOTSUP));
    salius_ioc_gate gate{};
    external_->gate_path.copy(gate.path, sizeof(gate.path) - 1);
    ReplyIoctl(request, &gate, sizeof(gate));
    return;
  }
  request.ReplyError(ENOTTY);
}

}  // namespace salius
