#include "recovery/recover_if_open.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/log.h"
#include "common/strings.h"
#include "log/state_file.h"
#include "recovery/recovery.h"

namespace salius {
namespace {

absl::StatusOr<bool> IsOpen(const VolumeDir& dir) {
  SALIUS_ASSIGN_OR_RETURN(const StateFile state,
                          StateFile::Open(*dir.backing, dir.salius_fd, kStateFileName));
  return state.state().open;
}

}  // namespace

absl::StatusOr<std::optional<RecoveryReport>> RecoverIfOpen(VolumeDir& dir,
                                                            std::string_view refusal,
                                                            std::shared_ptr<Credentials> keys) {
  SALIUS_ASSIGN_OR_RETURN(const bool open, IsOpen(dir));
  if (!open) return std::nullopt;
  const std::string found = absl::StrCat(
      dir.path, dir.config.kind == VolumeKind::kDirect ? " was not closed cleanly"
                                                       : " was not unmounted cleanly");
  if (!refusal.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(found, " and ", Av(refusal),
                                                      " was given; run \"salius-recover ",
                                                      ShellQuote(dir.path), "\" first"));
  }
  SLOG_INFO("{}: recovering", found);
  RecoveryReport partial;
  RecoveryOptions options;
  options.partial_report = &partial;
  options.keys = std::move(keys);
  absl::StatusOr<RecoveryReport> report = Recover(dir, options);
  if (!report.ok()) {
    const absl::Status& error = report.status();
    // An error of the file system that means "invalid" is no wrong option.
    const bool code_misleads = absl::IsInvalidArgument(error) || absl::IsUnimplemented(error);
    return absl::Status(
        code_misleads ? absl::StatusCode::kFailedPrecondition : error.code(),
        absl::StrCat("recovery of ", dir.path, " failed: ",
                     Printable(std::string(error.message()), NewLines::kReplace), "; ",
                     RecoveryAdvice(partial.outcome), ", salius-recover(8)"));
  }
  SLOG_INFO("recovered:\n{}", RecoveryReportText(*report));
  return *std::move(report);
}

}  // namespace salius
