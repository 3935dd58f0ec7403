// The ioctls of a volume (client/api/ioctl.h). All others are refused, FS_IOC_GETFLAGS among them.
// No worker waits for durability: the answer is sent when the record is durable.
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "client/api/ioctl.h"
#include "client/fuse/front.h"
#include "client/gate/rule.h"
#include "common/check.h"
#include "common/file.h"

namespace salius {
namespace {

// Answers with `size` bytes of data, which the kernel copies to the caller.
void ReplyIoctl(const RawAnswer& answer, const void* data, size_t size) {
  const fuse_ioctl_out out{};
  std::string payload(reinterpret_cast<const char*>(&out), sizeof(out));
  payload.append(static_cast<const char*>(data), size);
  answer.Payload({reinterpret_cast<const uint8_t*>(payload.data()), payload.size()});
}

// Reads the arguments. Returns false when they have another size.
template <typename Args>
bool ReadArgs(std::string_view bytes, Args* args) {
  if (bytes.size() != sizeof(*args)) return false;
  std::memcpy(args, bytes.data(), sizeof(*args));
  return true;
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

void Front::AnswerMarks(const RawAnswer& answer) {
  const Watermarks marks = volume_.stream().watermarks();
  const struct salius_watermarks shown = {.checkpoint = marks.checkpoint,
                                          .applied = marks.applied,
                                          .durable = marks.durable,
                                          .issued = marks.issued};
  ReplyIoctl(answer, &shown, sizeof(shown));
}

void Front::AnswerDsync(const RawAnswer& answer, Handle& file) {
  const absl::StatusOr<Ticket> ticket = volume_.files().StartDsync(file);
  if (!ticket.ok()) return static_cast<void>(answer.Error(Errno(ticket.status())));
  AnswerWhenDurable(*ticket, [this, answer](const absl::Status& status) {
    if (status.ok()) return ReplyIoctl(answer, nullptr, 0);
    answer.Error(Errno(status));
  });
}

absl::Status Front::StartNotify(Handle& file, uint32_t tid, salius_ioc_notify& args,
                                UniqueFd* event) {
  if (args.flags != 0) return ErrnoStatus(EINVAL, "flags");
  SALIUS_RETURN_IF_ERROR(signals_.Open());
  SALIUS_ASSIGN_OR_RETURN(*event, TakeEventFd(tid, args.eventfd));
  SALIUS_ASSIGN_OR_RETURN(const Ticket ticket, volume_.files().StartDsync(file));
  args.ticket = ticket.durable_first;
  return absl::OkStatus();
}

void Front::AnswerNotify(const RawAnswer& answer, Handle& file, uint32_t tid,
                         std::string_view bytes) {
  salius_ioc_notify args;
  if (!ReadArgs(bytes, &args)) return static_cast<void>(answer.Error(EINVAL));
  const auto event = std::make_shared<UniqueFd>();
  const absl::Status started = StartNotify(file, tid, args, event.get());
  if (!started.ok()) return static_cast<void>(answer.Error(Errno(started)));
  ReplyIoctl(answer, &args, sizeof(args));
  const Ticket ticket{0, args.ticket};
  NotifyWhenDurable(ticket, [this, event](const absl::Status&) { signals_.Signal(event->get()); });
}

void Front::AnswerWait(const RawAnswer& answer, std::string_view bytes) {
  salius_ioc_wait args;
  const Watermarks marks = volume_.stream().watermarks();
  if (!ReadArgs(bytes, &args) || args.ticket > marks.issued) {
    return static_cast<void>(answer.Error(EINVAL));
  }
  if (args.ticket <= marks.durable) return ReplyIoctl(answer, nullptr, 0);
  const auto done = [this, answer](const absl::Status& status) {
    if (status.ok()) return ReplyIoctl(answer, nullptr, 0);
    answer.Error(Errno(status));
  };
  const Ticket ticket{0, args.ticket};
  if (args.timeout_ns < 0) return AnswerWhenDurable(ticket, done);
  if (args.timeout_ns == 0) {
    const absl::Status health = volume_.health();
    return done(health.ok() ? ErrnoStatus(ETIMEDOUT, "not durable yet") : health);
  }
  timed_waits_.Run(args.ticket, args.timeout_ns, done, [this, &ticket] {
    NotifyWhenDurable(ticket, [this, seq = ticket.durable_first](const absl::Status& outcome) {
      timed_waits_.End(seq, outcome);
    });
  });
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
      ReplyIoctl(request.answer(), nullptr, 0);
    }
    return;
  }
  if (in->cmd == SALIUS_IOC_GATE) {
    if (external_ == nullptr) return static_cast<void>(request.ReplyError(ENOTSUP));
    salius_ioc_gate gate{};
    external_->gate_path.copy(gate.path, sizeof(gate.path) - 1);
    ReplyIoctl(request.answer(), &gate, sizeof(gate));
    return;
  }
  const RawAnswer answer = request.answer();
  const std::string_view args(reinterpret_cast<const char*>(data.data()), in->in_size);
  switch (in->cmd) {
    case SALIUS_IOC_WATERMARKS:
      return AnswerMarks(answer);
    case SALIUS_IOC_OSYNC: {
      const absl::Status ordered = volume_.files().Osync();
      if (ordered.ok()) return ReplyIoctl(answer, nullptr, 0);
      return static_cast<void>(answer.Error(Errno(ordered)));
    }
    case SALIUS_IOC_DSYNC:
      return AnswerDsync(answer, *file);
    case SALIUS_IOC_NOTIFY:
      return AnswerNotify(answer, *file, request.header().pid, args);
    case SALIUS_IOC_WAIT:
      return AnswerWait(answer, args);
    default:
      request.ReplyError(ENOTTY);
  }
}

}  // namespace salius
