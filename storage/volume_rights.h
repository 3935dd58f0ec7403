// The capabilities(7) with which a process of root uses a volume's files: a mount, a recovery, and
// the coordinator of a direct volume. Files belong to any user, so most rights over files stay.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/capabilities.h"

namespace salius {

struct VolumeRights {
  // A mount takes the eventfd of a caller of salius_notify, and with commit=external it compares the
  // programs of callers, whose memory it reads.
  bool reads_callers = false;
  // salius-run passes signals to its command, which may have become another user.
  bool signals_command = false;
  // The port of the metrics, 0: none. A port below 1024 is privileged.
  int metrics_port = 0;
  // Directory in which proc and its sysctls are looked up; for tests.
  std::string proc = "/proc";
};

// Returns the capabilities to keep, with the reason of each.
std::vector<Capability> NeededForVolume(const VolumeRights& rights);

// Keeps only those for the calling thread, and for the threads and programs that it starts. Call it
// before threads are made. Returns a line for the log: "capabilities kept: ...", with reasons; "" for a
// process that had none. Errors: those of KeepOnly.
absl::StatusOr<std::string> KeepRightsForVolume(const VolumeRights& rights);

}  // namespace salius
