// Messages for the user who mounts, a sentence each. They go to the log too.
//
// Threads: any.
#pragma once

#include <string>
#include <vector>

#include "client/session/record_stream.h"
#include "client/status/placement.h"
#include "client/status/recovery_history.h"
#include "storage/volume_config.h"

namespace salius {

using Notices = std::vector<std::string>;

// Waits up to two seconds until the volume is replicated. Adds a notice if it is not: with its
// mode, and why each replica is not connected.
void AwaitFirstMode(RecordStream& stream, bool has_replicas, Notices* notices);

// Warns of replicas that fail with this host or with each other, as far as is known by now.
void WarnOfSharedHosts(const VolumeConfig& config, const RecordStream& stream,
                       const PrimaryHost& host, Notices* notices);

// Warns of records that forced recoveries gave up and that no operator has acknowledged.
void WarnOfLosses(const RecoveryHistory& history, const std::string& backing, Notices* notices);

}  // namespace salius
