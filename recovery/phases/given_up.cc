#include "recovery/phases/given_up.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/log.h"

namespace salius::recovery {
namespace {

constexpr int64_t kNanosPerMs = 1'000'000;

}  // namespace

void GivenUp::Take(const MergeResult& merged, const std::string& shortfall) {
  RecoveryReport& report = run_.report();
  Seq last = merged.durable_mark;
  if (!shortfall.empty()) {
    report.overridden.push_back(shortfall);
    last = std::max(last, merged.highest);
  }
  if (report.dropped.has_value()) last = std::max(last, report.dropped->second);
  if (last > merged.last) note_.given_up = {{merged.last + 1, last}};
  note_.overridden = report.overridden;
  report.given_up = GivenUpText(note_);
}

absl::Status GivenUp::NoteBeforePin() {
  if (!note_.GaveUp()) return absl::OkStatus();
  return WithSpace(run_.context(), [this] { return Write(); });
}

absl::Status GivenUp::NoteBeforeCommit() {
  RecoveryReport& report = run_.report();
  if (report.already_decided) {
    const absl::StatusOr<RecoveryNotes> notes =
        ReadRecoveryNotes(*run_.dir().backing, run_.dir().salius_fd);
    const RecoveryNote* const begun = notes.ok() ? notes->Find(epoch_) : nullptr;
    if (begun != nullptr) note_ = *begun;
  }
  if (!report.missing.empty()) {
    note_.overridden.push_back(absl::StrFormat("%d files or directories were missing: %s%s",
                                               report.missing.size(), report.missing.front(),
                                               report.missing.size() > 1 ? ", ..." : ""));
    note_.acknowledged = false;
  }
  note_.next_epoch = report.next_epoch;
  report.given_up = GivenUpText(note_);
  const absl::Status noted = WithSpace(run_.context(), [this] { return Write(); });
  if (noted.ok() || note_.GaveUp()) return noted;
  SLOG_WARN("{}: the recovery is not noted for `salius status`: {}", run_.dir().path,
            noted.ToString());
  return absl::OkStatus();
}

absl::Status GivenUp::Write() {
  note_.at_unix_ms = static_cast<uint64_t>(run_.clock().RealtimeNanos() / kNanosPerMs);
  note_.epoch = epoch_;
  note_.decided = run_.report().decided;
  note_.records = run_.report().records;
  Backing& backing = *run_.dir().backing;
  absl::StatusOr<RecoveryNotes> notes = ReadRecoveryNotes(backing, run_.dir().salius_fd);
  if (absl::IsDataLoss(notes.status()) || absl::IsInvalidArgument(notes.status())) {
    // They may have named records that earlier recoveries gave up.
    note_.overridden.push_back(
        absl::StrFormat("the notes of earlier recoveries cannot be read (%s/%s/%s)",
                        run_.dir().path, kSaliusDir, kRecoveriesFileName));
    notes = RecoveryNotes();
  }
  SALIUS_RETURN_IF_ERROR(notes.status());
  notes->Put(note_);
  return WriteRecoveryNotes(backing, run_.dir().salius_fd, *notes);
}

}  // namespace salius::recovery
