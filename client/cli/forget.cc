#include "client/cli/forget.h"

#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/exit_code.h"
#include "client/cli/rpc.h"
#include "client/cli/status.h"
#include "client/cli/status_text.h"
#include "common/check.h"
#include "common/ids.h"
#include "common/net.h"
#include "common/options.h"
#include "common/strings.h"
#include "transport/credentials.h"

namespace salius::cli {
namespace {

struct ForgetPlan {
  std::vector<std::string> replicas;
  std::optional<std::string> keys;
  bool force = false;
};

Options ForgetOptions(ForgetPlan& plan) {
  Options options(
      "salius forget", "UUID|DIR",
      "Has replicas forget a volume that is no longer used: its records, its place, and\n"
      "the promises to its recoveries. Given its directory, all that it names are\n"
      "asked, or those that --replica names.");
  options.List("replica", "HOST[:PORT],...", &plan.replicas, "the replicas that are to forget it");
  options.Text("keys", "FILE", &plan.keys,
               "this host's key and certificate, of `salius keys`, in place of the\n"
               "volume's; '': none");
  options.Switch("force", &plan.force,
                 "also when it is in use, or holds records that may be nowhere else");
  options.Note(
      "A replica that forgot a promise would serve a primary that a recovery has fenced: forget a\n"
      "volume only when no primary of it stands still somewhere, to go on later.\n"
      "Exit codes: 0 forgotten by all, or unknown to them, 2 usage, 3 no such directory or volume,\n"
      "5 refused, with the reason, 7 a replica does not answer, 9 another identity owns it.\n"
      "The first error counts.");
  return options;
}

// The volume to forget, and the replicas that shall forget it.
struct Target {
  VolumeId volume;
  std::vector<std::string> replicas;
  std::shared_ptr<Credentials> keys;
};

absl::StatusOr<Target> FindTarget(const std::string& given, const ForgetPlan& plan) {
  Target target;
  std::string keys;
  if (const absl::StatusOr<VolumeId> volume = ParseVolumeId(given); volume.ok()) {
    target.volume = *volume;
  } else {
    SALIUS_ASSIGN_OR_RETURN(const std::string backing, BackingDirectoryOf(given));
    SALIUS_ASSIGN_OR_RETURN(const OfflineStatus status, ReadOfflineStatus(backing));
    target.volume = status.config.volume;
    target.replicas = status.config.replicas;
    keys = status.config.keys;
  }
  SALIUS_ASSIGN_OR_RETURN(target.keys, Credentials::Load(plan.keys.value_or(keys)));
  if (!plan.replicas.empty()) target.replicas.clear();
  for (const std::string& replica : plan.replicas) {
    SALIUS_ASSIGN_OR_RETURN(target.replicas.emplace_back(), ReplicaAddress(replica));
  }
  if (target.replicas.empty()) {
    return absl::InvalidArgumentError(
        "no replica is named: give --replica HOST[:PORT] (see salius forget --help)");
  }
  if (!plan.force && CallVolumeStatus(StatusSocketOf(target.volume)).ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("volume ", target.volume.ToString(),
                     " is in use here: unmount it, or end its salius-run, first"));
  }
  return target;
}

absl::Status ForgetAt(const Target& target, const std::string& replica, bool force) {
  SALIUS_ASSIGN_OR_RETURN(const control::ForgetVolumeResponse forgotten,
                          CallForgetVolume(replica, target.volume, force, target.keys));
  std::string what = "did not know it";
  if (forgotten.known()) {
    what = absl::StrCat("forgot it, ", FormatBytes(forgotten.bytes_freed()), " of records");
    if (forgotten.promised_epoch() > 0) {
      absl::StrAppend(&what, " and its promise of epoch ", forgotten.promised_epoch());
    }
  }
  std::printf("%s: %s\n", replica.c_str(), what.c_str());
  return absl::OkStatus();
}

}  // namespace

int RunForget(absl::Span<const std::string> words) {
  ForgetPlan plan;
  Options options = ForgetOptions(plan);
  if (const absl::Status parsed = options.Parse(words, 1, 1); !parsed.ok()) {
    return Report("forget", parsed);
  }
  if (options.answer().has_value()) {
    std::printf("%s", options.answer()->c_str());
    return kExitOk;
  }
  const absl::StatusOr<Target> target = FindTarget(options.places()[0], plan);
  if (!target.ok()) return Report("forget", target.status());
  int first_error = kExitOk;
  for (const std::string& replica : target->replicas) {
    const absl::Status status = ForgetAt(*target, replica, plan.force);
    if (status.ok()) continue;
    const int code = Report("forget", status);
    if (first_error == kExitOk) first_error = code;
  }
  return first_error;
}

}  // namespace salius::cli
