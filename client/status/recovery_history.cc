#include "client/status/recovery_history.h"

#include <fcntl.h>

#include <utility>

#include "common/check.h"
#include "common/log.h"
#include "common/strings.h"

namespace salius {

absl::StatusOr<std::unique_ptr<RecoveryHistory>> RecoveryHistory::Load(Files& files, int salius_fd,
                                                                       std::string path) {
  SALIUS_ASSIGN_OR_RETURN(BackingFd own, files.OpenAt(salius_fd, ".", O_RDONLY | O_DIRECTORY));
  absl::StatusOr<RecoveryNotes> notes = ReadRecoveryNotes(files, own.get());
  if (!notes.ok()) {
    // The notes describe the past, and nothing depends on them.
    SLOG_WARN("{}/.salius/{}: what earlier recoveries did is not known: {}", path,
              kRecoveriesFileName, Sv(notes.status().message()));
    notes = RecoveryNotes();
  }
  return std::unique_ptr<RecoveryHistory>(
      new RecoveryHistory(files, std::move(own), std::move(path), *std::move(notes)));
}

RecoveryHistory::RecoveryHistory(Files& files, BackingFd salius_fd, std::string path,
                                 RecoveryNotes notes)
    : files_(files),
      salius_fd_(std::move(salius_fd)),
      path_(std::move(path)),
      notes_(std::move(notes)) {}

RecoveryNotes RecoveryHistory::notes() const {
  const absl::MutexLock lock(&mu_);
  return notes_;
}

absl::StatusOr<uint32_t> RecoveryHistory::Acknowledge() {
  const absl::MutexLock writing(&writing_);
  RecoveryNotes next = notes();
  const uint32_t count = next.AcknowledgeAll();
  if (count == 0) return count;
  SALIUS_RETURN_IF_ERROR(WriteRecoveryNotes(files_, salius_fd_.get(), next));
  {
    const absl::MutexLock lock(&mu_);
    notes_ = std::move(next);
  }
  SLOG_INFO("{}: what {} recoveries gave up was acknowledged", path_, count);
  return count;
}

void RecoveryHistory::LogUnacknowledged() const {
  for (const RecoveryNote& note : notes().Unacknowledged()) {
    SLOG_WARN(
        "{}: a forced recovery of epoch {} went only to record {} and gave up: {}. This is "
        "repeated until \"salius acknowledge {}\"",
        path_, note.epoch, note.decided, GivenUpText(note), ShellQuote(path_));
  }
}

}  // namespace salius
