#include "tests/bench/driver/floor_target.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace salius::bench {

absl::StatusOr<std::unique_ptr<FloorTarget>> FloorTarget::Make(Plan plan) {
  plan.span = std::max(plan.size, plan.span / plan.size * plan.size);
  std::unique_ptr<FloorTarget> target(new FloorTarget(std::move(plan)));
  const Plan& made = target->plan_;
  for (uint64_t i = 0; i < made.writers; ++i) {
    SALIUS_ASSIGN_OR_RETURN(cli::QuorumPing ping,
                            cli::QuorumPing::Connect(made.servers, made.acks));
    Writer& writer = target->writers_.emplace_back(std::move(ping), made.keep);
    if (made.backing.empty()) continue;
    const std::string path = absl::StrCat(made.backing, "/floor.", i);
    SALIUS_ASSIGN_OR_RETURN(writer.fd, OpenAt(AT_FDCWD, path, O_RDWR | O_CREAT | O_EXCL, 0600));
    writer.path = path;
    // Overwritten, never grown: as the mount's own floor.
    for (uint64_t at = 0; at < made.span; at += made.size) {
      SALIUS_RETURN_IF_ERROR(PwriteFull(writer.fd.get(), target->data_, static_cast<int64_t>(at)));
    }
    SALIUS_RETURN_IF_ERROR(FdatasyncFd(writer.fd.get()));
  }
  return target;
}

FloorTarget::~FloorTarget() {
  for (const Writer& writer : writers_) {
    if (!writer.path.empty()) unlink(writer.path.c_str());
  }
}

absl::Status FloorTarget::Operate(size_t index) {
  Writer& writer = writers_[index];
  writer.ring.Keep(data_);
  SALIUS_RETURN_IF_ERROR(writer.ping.ExchangeAll(data_, [&] {
    if (!writer.fd.valid()) return absl::OkStatus();
    return PwriteFull(writer.fd.get(), data_, static_cast<int64_t>(writer.position));
  }));
  writer.position += data_.size();
  if (writer.position >= plan_.span) writer.position = 0;
  return absl::OkStatus();
}

}  // namespace salius::bench
