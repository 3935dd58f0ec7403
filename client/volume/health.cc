#include "client/volume/health.h"

#include <errno.h>

#include "common/check.h"
#include "common/file.h"
#include "common/log.h"
#include "common/strings.h"

namespace salius {

absl::Status AsNameError(const absl::Status& status) {
  return status.ok() ? status : ErrnoStatus(EROFS, Sv(status.message()));
}

absl::Status AsDataError(const absl::Status& status) {
  return status.ok() ? status : ErrnoStatus(EIO, Sv(status.message()));
}

absl::Status Health::Data() const {
  SALIUS_RETURN_IF_ERROR(AsDataError(stream_->health()));
  return failed_.load() ? AsDataError(failure()) : absl::OkStatus();
}

absl::Status Health::failure() const {
  absl::MutexLock lock(&mu_);
  return failure_;
}

void Health::Fail(const absl::Status& why) {
  absl::MutexLock lock(&mu_);
  if (!failure_.ok()) return;
  failure_ = why;
  failed_.store(true);
  if (gate_page_ != nullptr) gate_page_->EndGrants();
  SLOG_ERROR("the volume is read-only from now on: {}", why.ToString());
}

}  // namespace salius
