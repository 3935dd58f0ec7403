#include "client/cli/exit_code.h"

#include <cstdio>
#include <string>

namespace salius::cli {

ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    case absl::StatusCode::kNotFound:
      return kExitNotFound;
    case absl::StatusCode::kAlreadyExists:
      return kExitExists;
    case absl::StatusCode::kFailedPrecondition:
      return kExitUnsuitable;
    case absl::StatusCode::kResourceExhausted:
      return kExitNoSpace;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return kExitUnreachable;
    case absl::StatusCode::kDataLoss:
      return kExitDamaged;
    case absl::StatusCode::kPermissionDenied:
      return kExitPermission;
    default:
      return kExitFailed;
  }
}

int Report(const char* command, const absl::Status& status) {
  if (!status.ok()) {
    std::fprintf(stderr, "salius %s: %s\n", command, std::string(status.message()).c_str());
  }
  return ExitCodeOf(status);
}

}  // namespace salius::cli
