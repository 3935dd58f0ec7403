#include "client/cli/health.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/strings.h"

namespace salius::cli {
namespace {

std::string GivenUpHint(size_t recoveries) {
  return absl::StrFormat("%d forced recoveries gave records up; see them below, then run salius "
                         "acknowledge",
                         recoveries);
}

}  // namespace

std::string_view HealthName(HealthLevel health) {
  switch (health) {
    case HealthLevel::kHealthy:
      return "healthy";
    case HealthLevel::kBusy:
      return "busy";
    case HealthLevel::kNotMounted:
      return "not-mounted";
    case HealthLevel::kDegraded:
      return "degraded";
    case HealthLevel::kGivenUp:
      return "given-up";
    case HealthLevel::kLocal:
      return "local";
    case HealthLevel::kNoPermission:
      return "no-permission";
    case HealthLevel::kHung:
      return "hung";
    case HealthLevel::kNeedsRecovery:
      return "needs-recovery";
    case HealthLevel::kFailed:
      return "failed";
  }
  return "unknown";
}

ExitCode ExitCodeOf(HealthLevel health) {
  switch (health) {
    case HealthLevel::kHealthy:
      return kExitOk;
    case HealthLevel::kBusy:
      return kExitBusy;
    case HealthLevel::kNotMounted:
      return kExitNotMounted;
    case HealthLevel::kDegraded:
      return kExitDegraded;
    case HealthLevel::kGivenUp:
      return kExitGivenUp;
    case HealthLevel::kLocal:
      return kExitLocal;
    case HealthLevel::kNoPermission:
      return kExitPermission;
    case HealthLevel::kHung:
      return kExitUnreachable;
    case HealthLevel::kNeedsRecovery:
      return kExitNeedsRecovery;
    case HealthLevel::kFailed:
      return kExitFailed;
  }
  return kExitFailed;
}

std::string VerdictText(const Verdict& verdict) {
  return absl::StrCat(Av(HealthName(verdict.health)), verdict.why.empty() ? "" : ": ", verdict.why);
}

Verdict JudgeMounted(const control::VolumeStatusResponse& status) {
  if (!status.failure().empty() || status.mode() == "failed") {
    return {HealthLevel::kFailed, "read-only; " + status.failure()};
  }
  if (!status.serving()) return {HealthLevel::kBusy, "unmounted, and being drained"};
  const int replicas = status.replicas_size();
  if (status.mode() != "replicated" && replicas > 0) {
    return {HealthLevel::kLocal,
            "synchronous writes wait for this host's disk, which is all there is"};
  }
  size_t given_up = 0;
  for (const auto& recovery : status.recoveries()) {
    if (recovery.forced() && !recovery.acknowledged()) ++given_up;
  }
  if (given_up > 0) return {HealthLevel::kGivenUp, GivenUpHint(given_up)};
  const std::string members = absl::StrFormat("%u of %d replicas count", status.members(), replicas);
  if (status.members() < static_cast<uint32_t>(replicas)) return {HealthLevel::kDegraded, members};
  int closed = 0;
  for (const auto& replica : status.replicas()) closed += replica.control_problem().empty() ? 0 : 1;
  if (closed > 0) {
    return {HealthLevel::kDegraded,
            absl::StrFormat("nothing could be recovered from %d of %d replicas, whose control port "
                            "(TCP) does not answer",
                            closed, replicas)};
  }
  return {HealthLevel::kHealthy, replicas > 0 ? members : "without replicas, as configured"};
}

Verdict JudgeUnmounted(const VolumeState& state, const RecoveryNotes& notes,
                       std::string_view holder, bool stuck) {
  if (!holder.empty()) {
    if (stuck) return {HealthLevel::kHung, absl::StrCat(Av(holder), " does not answer")};
    return {HealthLevel::kBusy, absl::StrCat(Av(holder), " starts, recovers or drains it")};
  }
  if (state.open) {
    return {HealthLevel::kNeedsRecovery,
            "its process has died: salius-mount or salius-recover brings it back"};
  }
  const size_t given_up = notes.Unacknowledged().size();
  if (given_up > 0) return {HealthLevel::kGivenUp, GivenUpHint(given_up)};
  return {HealthLevel::kNotMounted, "clean"};
}

std::string_view ErrorName(ExitCode code) {
  switch (code) {
    case kExitNotFound:
      return "not-found";
    case kExitUnreachable:
      return "unreachable";
    case kExitDamaged:
      return "damaged";
    case kExitPermission:
      return "no-permission";
    case kExitUnsuitable:
      return "unsuitable";
    default:
      return "error";
  }
}

}  // namespace salius::cli
