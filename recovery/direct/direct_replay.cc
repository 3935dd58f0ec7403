#include "recovery/direct/direct_replay.h"

#include <errno.h>
#include <fcntl.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/file.h"
#include "common/strings.h"
#include "recovery/direct/direct_files.h"
#include "recovery/replay/refusal.h"
#include "storage/apply.h"

namespace salius::recovery {
namespace {

absl::Status Scan(const ReplayContext& context, const DirectPlan& plan, DirectFiles* files) {
  RecoveryReport& report = *context.report;
  report.tree_scanned = true;
  report.records_skipped = plan.on_disk;
  SALIUS_RETURN_IF_ERROR(files->Scan(plan, context.force, [&](uint64_t seen) {
    context.progress({"locate", seen, 0, "objects"});
  }));
  report.missing = files->problems();
  for (const auto& [id, file] : plan.files) {
    if (files->Has(id)) continue;
    ++report.files_gone;  // R90
    report.records_skipped += file.ops.size();
  }
  return absl::OkStatus();
}

// R94, R95: returns the error of opening or changing a file, with the remedy.
absl::Status ExplainDirect(Backing& backing, const absl::Status& error, const std::string& path) {
  if (StatusErrno(error) == EACCES) {
    return absl::PermissionDeniedError(
        absl::StrFormat("\"%s\" cannot be opened for writing: nothing is lost; make it writable "
                        "(chmod u+w) and run this again",
                        Printable(path, NewLines::kReplace)));
  }
  const absl::Status explained = Explain(
      backing, error, absl::StrCat("\"", Printable(path, NewLines::kReplace), "\""), /*fd=*/-1);
  if (StatusErrno(error) != ENOSPC) return explained;
  return absl::ResourceExhaustedError(absl::StrCat(
      explained.message(), "; nothing is lost: free space on the disk and run this again"));
}

absl::Status ReplayFile(const ReplayContext& context, const DirectFiles& files, FileId id,
                        const DirectFile& file) {
  Backing& backing = *context.backing;
  const absl::StatusOr<BackingFd> fd = files.Open(id, O_WRONLY);
  if (!fd.ok()) return ExplainDirect(backing, fd.status(), files.PathOf(id));
  for (const RecordView* record : file.ops) {
    const absl::Status applied = ApplyData(backing, fd->get(), record->header, record->body());
    if (!applied.ok()) return ExplainDirect(backing, applied, files.PathOf(id));
  }
  ++context.report->files_changed;
  context.report->bytes_written += file.bytes;
  return context.step(RecoveryStep::kReplayData);
}

}  // namespace

absl::Status ReplayDirect(const ReplayContext& context, const VolumeId& volume,
                          const DirectPlan& plan) {
  context.report->records_skipped = plan.on_disk;
  if (plan.files.empty()) return absl::OkStatus();
  DirectFiles files(*context.backing, context.root_fd, volume);
  SALIUS_RETURN_IF_ERROR(Scan(context, plan, &files));
  const uint64_t total = plan.bytes();
  for (const auto& [id, file] : plan.files) {
    if (!files.Has(id)) continue;
    SALIUS_RETURN_IF_ERROR(ReplayFile(context, files, id, file));
    context.progress({"replay", context.report->bytes_written, total, "bytes"});
  }
  return absl::OkStatus();
}

absl::Status DescribeDirect(const ReplayContext& context, const VolumeId& volume,
                            const DirectPlan& plan) {
  DirectFiles files(*context.backing, context.root_fd, volume);
  SALIUS_RETURN_IF_ERROR(Scan(context, plan, &files));
  for (const auto& [id, file] : plan.files) {
    const bool found = files.Has(id);
    if (found) {
      ++context.report->files_changed;
      context.report->bytes_written += file.bytes;
    }
    context.report->plan.push_back(
        absl::StrFormat("file %d (%s): %d records, %d bytes", id,
                        found ? absl::StrCat("\"", files.PathOf(id), "\"") : "gone: skipped",
                        file.ops.size(), file.bytes));
  }
  return absl::OkStatus();
}

}  // namespace salius::recovery
