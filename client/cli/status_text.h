// The forms of a status: lines for people, and JSON with the field names of proto/control.proto.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "client/cli/health.h"
#include "log/recovery_notes.h"
#include "log/state_file.h"
#include "proto/control.pb.h"
#include "storage/volume_config.h"

namespace salius::cli {

// The facts about a volume that is not mounted.
struct OfflineStatus {
  std::string backing;
  VolumeConfig config;
  VolumeState state;
  std::string in_use_by;  // "pid N" when a process holds the volume's lock without answering
  bool stuck = false;     // the holder is stopped, or it listens at the socket and does not answer
  RecoveryNotes recoveries;
};

// Returns the size as text, such as "1.5 MiB"; a whole number below 1 KiB.
std::string FormatBytes(uint64_t bytes);

Verdict JudgeOffline(const OfflineStatus& status);

std::string MountedText(const control::VolumeStatusResponse& status);
std::string MountedJson(const control::VolumeStatusResponse& status);
std::string OfflineText(const OfflineStatus& status);
std::string OfflineJson(const OfflineStatus& status);
// Returns the JSON that takes the place of a status: the reason why there is none. It has the same
// fields for every error.
std::string ErrorJson(std::string_view health, int exit_code, std::string_view error);
std::string ReplicaText(const std::string& address, const control::ReplicaStatusResponse& status);
std::string ReplicaJson(const std::string& address, const control::ReplicaStatusResponse& status);

}  // namespace salius::cli
