#include "client/session/peer_paths.h"

#include <bit>

namespace salius {
namespace {

constexpr uint8_t Bit(size_t replica) { return static_cast<uint8_t>(1u << replica); }

}  // namespace

void PeerPaths::SetCompact(size_t replica, bool compact) {
  compact_ = static_cast<uint8_t>(compact ? compact_ | Bit(replica) : compact_ & ~Bit(replica));
}

void PeerPaths::Choose(SendJob& job, ReplicaMask connected) {
  const auto now = static_cast<int64_t>(job.header.send_time_ns);
  const bool first = job.first_time && !job.records.empty();
  uint64_t bytes = kFrameHeaderBytes + overhead_;
  uint64_t bodies = bytes;  // the least size of a compact frame
  if (first) {
    uint8_t in_group = 0;  // the replicas that each first transmission to the group reaches
    uint8_t wants = 0;
    for (size_t i = 0; i < paths_.size(); ++i) {
      if ((connected & Bit(i)) != 0 && paths_[i].group()) in_group |= Bit(i);
      if ((job.targets & Bit(i)) != 0 && paths_[i].WantsGroup(now)) wants |= Bit(i);
    }
    // One datagram for all that are in the group, or one for each.
    if (std::popcount(wants) > 1 && (in_group & ~wants) == 0) job.grouped = wants;
    for (const RecordRef& record : job.records) {
      bytes += record->header().total_bytes();
      bodies += record->header().body_bytes;
    }
    // A re-send goes by what every version takes, and a single record at the least cost.
    if (job.records.size() > 1) job.compact = job.targets & compact_;
  }
  for (size_t i = 0; i < paths_.size(); ++i) {
    if ((job.targets & Bit(i)) == 0) continue;
    PeerPath& path = paths_[i];
    job.datagram_bytes[i] =
        first ? path.Send(now, job.records.front()->seq(), job.records.back()->seq(),
                          (job.compact & Bit(i)) != 0 ? bodies : bytes,
                          (job.grouped & Bit(i)) != 0)
              : path.datagram_bytes();
  }
}

}  // namespace salius
