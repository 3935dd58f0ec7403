#include "client/cli/acknowledge.h"

#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/exit_code.h"
#include "client/cli/rpc.h"
#include "client/cli/status.h"
#include "client/status/status_reader.h"
#include "common/check.h"
#include "common/options.h"
#include "log/recovery_notes.h"
#include "storage/volume_config.h"

namespace salius::cli {
namespace {

// Acknowledges the recoveries of a volume that no daemon serves.
absl::StatusOr<uint32_t> AcknowledgeOnDisk(const std::string& backing) {
  SALIUS_ASSIGN_OR_RETURN(const VolumeDir dir, VolumeDir::Open(backing, /*lock=*/true));
  SALIUS_ASSIGN_OR_RETURN(RecoveryNotes notes, ReadRecoveryNotes(*dir.backing, dir.salius_fd));
  const uint32_t count = notes.AcknowledgeAll();
  if (count > 0) {
    SALIUS_RETURN_IF_ERROR(WriteRecoveryNotes(*dir.backing, dir.salius_fd, notes));
  }
  return count;
}

absl::StatusOr<uint32_t> AcknowledgeAt(const std::string& place) {
  SALIUS_ASSIGN_OR_RETURN(const std::string backing, BackingDirectoryOf(place));
  std::string socket;
  {
    SALIUS_ASSIGN_OR_RETURN(const VolumeDir dir, VolumeDir::Open(backing, /*lock=*/false));
    socket = StatusSocketOf(dir.config.volume);
  }
  const SocketState state = ProbeSocket(socket).state;
  if (state == SocketState::kListening || state == SocketState::kBusy) {
    return SendAcknowledge(socket, kCallTimeout);
  }
  return AcknowledgeOnDisk(backing);
}

}  // namespace

int RunAcknowledge(absl::Span<const std::string> words) {
  Options options("salius acknowledge", "DIR|MOUNTPOINT",
                  "Notes durably that you know of the records that forced recoveries of this\n"
                  "volume gave up. Until then `salius status` shows them, ends with code 15, and\n"
                  "each mount logs a warning.");
  options.Note(
      "Exit codes: 0 acknowledged, or there was nothing to acknowledge, 2 usage, 3 no volume\n"
      "there, 7 the mount does not answer, or another process holds the volume, 8 the notes\n"
      "cannot be read, 9 no permission.");
  if (const absl::Status parsed = options.Parse(words, 1, 1); !parsed.ok()) {
    return Report("acknowledge", parsed);
  }
  if (options.answer().has_value()) {
    std::printf("%s", options.answer()->c_str());
    return kExitOk;
  }
  const absl::StatusOr<uint32_t> count = AcknowledgeAt(options.places()[0]);
  if (!count.ok()) return Report("acknowledge", count.status());
  if (*count == 0) {
    std::printf("no recovery gave anything up that was not acknowledged\n");
  } else {
    std::printf("acknowledged: what %u forced recoveries gave up\n", *count);
  }
  return kExitOk;
}

}  // namespace salius::cli
