#include "client/mount/notices.h"

#include <chrono>
#include <cstddef>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "client/status/status_server.h"
#include "common/clock.h"
#include "common/deadline.h"
#include "common/log.h"
#include "common/strings.h"
#include "log/state_file.h"

namespace salius {
namespace {

// How long a mount waits for its replicas before it reports that it began without them.
constexpr std::chrono::seconds kFirstHealBound{2};
constexpr std::chrono::milliseconds kPollInterval{10};

}  // namespace

void AwaitFirstMode(RecordStream& stream, bool has_replicas, Notices* notices) {
  if (!has_replicas) return;
  const Deadline bound = Deadline::After(SystemClock(), kFirstHealBound);
  SessionStatus status = stream.status();
  while (status.mode != ModeName(Mode::kReplicated) && !bound.Expired(SystemClock())) {
    std::this_thread::sleep_for(kPollInterval);
    status = stream.status();
  }
  if (status.mode == ModeName(Mode::kReplicated)) return;
  std::string notice = absl::StrCat("mounted, but in mode ", status.mode,
                                    ": synchronous writes wait for the local disk");
  for (const ReplicaReport& replica : status.replicas) {
    if (!replica.connected) {
      // Some reasons begin with the replica's name.
      const std::string name = absl::StrCat("replica ", replica.address, ": ");
      absl::StrAppend(&notice, "; ", name,
                      replica.problem.empty() ? "does not answer"
                                              : absl::StrReplaceAll(replica.problem, {{name, ""}}));
    }
  }
  SLOG_WARN("{}", notice);
  notices->push_back(std::move(notice));
}

void WarnOfSharedHosts(const VolumeConfig& config, const RecordStream& stream,
                       const PrimaryHost& host, Notices* notices) {
  if (config.allow_same_host) return;
  for (const std::string& warning : SharedHostWarnings(PlacedReplicas(stream.status()), host)) {
    const std::string notice = absl::StrCat(warning, "; ", kSharedHostAdvice);
    SLOG_WARN("{}", notice);
    notices->push_back(notice);
  }
}

void WarnOfLosses(const RecoveryHistory& history, const std::string& backing, Notices* notices) {
  history.LogUnacknowledged();
  const size_t count = history.notes().Unacknowledged().size();
  if (count == 0) return;
  notices->push_back(absl::StrFormat(
      "%d forced recoveries of this volume gave records up: see \"salius status %s\", and then run "
      "\"salius acknowledge %s\"",
      count, ShellQuote(backing), ShellQuote(backing)));
}

}  // namespace salius
