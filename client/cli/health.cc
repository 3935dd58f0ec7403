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

std::string_view HealthName(Health health) {
  switch (health) {
    case Health::kHealthy:
      return "healthy";
    case Health::kBusy:
      return "busy";
    case Health::kNotMounted:
      return "not-mounted";
    case Health::kDegraded:
      return "degraded";
    case Health::kGivenUp:
      return "given-up";
    case Health::kLocal:
      return "local";
    case Health::kNoPermission:
      return "no-permission";
    case Health::kHung:
      return "hung";
    case Health::kNeedsRecovery:
      return "needs-recovery";
    case Health::kFailed:
      return "failed";
  }
  return "unknown";
}

ExitCode ExitCodeOf(Health health) {
  switch (health) {
    case Health::kHealthy:
      return kExitOk;
    case Health::kBusy:
      return kExitBusy;
    case Health::kNotMounted:
      return kExitNotMounted;
    case Health::kDegraded:
      return kExitDegraded;
    case Health::kGivenUp:
      return kExitGivenUp;
    case Health::kLocal:
      return kExitLocal;
    case Health::kNoPermission:
      return kExitPermission;
    case Health::kHung:
      return kExitUnreachable;
    case Health::kNeedsRecovery:
      return kExitNeedsRecovery;
    case Health::kFailed:
      return kExitFailed;
  }
  return kExitFailed;
}

std::string VerdictText(const Verdict& verdict) {
  return absl::StrCat(Av(HealthName(verdict.health)), verdict.why.empty() ? "" : ": ", verdict.why);
}

Verdict JudgeMounted(const control::VolumeStatusResponse& status) {
  if (!status.failure().empty() || status.mode() == "failed") {
    return {Health::kFailed, "read-only; " + status.failure()};
  }
  if (!status.serving()) return {Health::kBusy, "unmounted, and being drained"};
  const int replicas = status.replicas_size();
  if (status.mode() != "replicated" && replicas > 0) {
    return {Health::kLocal, "synchronous writes wait for this host's disk, which is all there is"};
  }
  size_t given_up = 0;
  for (const auto& recovery : status.recoveries()) {
    if (recovery.forced() && !recovery.acknowledged()) ++given_up;
  }
  if (given_up > 0) return {Health::kGivenUp, GivenUpHint(given_up)};
  const std::string members = absl::StrFormat("%u of %d replicas count", status.members(), replicas);
  if (status.members() < static_cast<uint32_t>(replicas)) return {Health::kDegraded, members};
  int closed = 0;
  for (const auto& replica : status.replicas()) closed += replica.control_problem().empty() ? 0 : 1;
  if (closed > 0) {
    return {Health::kDegraded,
            absl::StrFormat("nothing could be recovered from %d of %d replicas, whose control port "
                            "(TCP) does not answer",
                            closed, replicas)};
  }
  return {Health::kHealthy, replicas > 0 ? members : "without replicas, as configured"};
}

Verdict JudgeUnmounted(const VolumeState& state, const RecoveryNotes& notes,
                       std::string_view holder, bool stuck) {
  if (!holder.empty()) {
    if (stuck) return {Health::kHung, absl::StrCat(Av(holder), " does not answer")};
    return {Health::kBusy, absl::StrCat(Av(holder), " starts, recovers or drains it")};
  }
  if (state.open) {
    return {Health::kNeedsRecovery,
            "its process has died: salius-mount or salius-recover brings it back"};
  }
  const size_t given_up = notes.Unacknowledged().size();
  if (given_up > 0) return {Health::kGivenUp, GivenUpHint(given_up)};
  return {Health::kNotMounted, "clean"};
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
