// Recovery before a session, for the programs that open a volume.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "recovery/report.h"
#include "storage/volume_config.h"

namespace salius {

class Credentials;  // transport/credentials.h

// Recovers the volume, whose lock is held, if its last session has not closed it. `refusal`: the
// option of the caller that forbids that; empty: it is allowed. Returns the report, or nothing when
// the volume was clean. `keys`: of this process; null: none. Errors say what to do;
// FAILED_PRECONDITION if it is forbidden.
absl::StatusOr<std::optional<RecoveryReport>> RecoverIfOpen(VolumeDir& dir,
                                                            std::string_view refusal,
                                                            std::shared_ptr<Credentials> keys);

}  // namespace salius
