// The record stream of a mount: stamp -> replicate -> DURABLE -> apply -> checkpoint -> trim
// (docs/protocol.md).
//
// A pure core takes all decisions (client/session/replicator.h, a state machine without threads,
// sockets or clocks); the pipeline is the threads, sockets and files around it. A caller that waits
// for durability also receives acknowledgements itself (leader and followers), so that the
// acknowledgement's datagram alone wakes a lone synchronous writer.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "client/session/record_stream.h"

namespace salius {

// Starts a session (a StartRecordStream). Notes it first (open, epoch + 1, mode local), then opens
// sessions at the replicas in the background and heals to mode replicated.
absl::StatusOr<std::unique_ptr<RecordStream>> StartPipeline(const VolumeDir& dir, StateFile state,
                                                            StableLog stable, ApplySink& sink,
                                                            StreamOptions options);

}  // namespace salius
