#include "replica/replica_metrics.h"

#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/metrics.h"

namespace salius {
namespace {

// The acceptor's numbers at one moment, under its lock.
struct Snapshot {
  AcceptorCounters counters;
  uint64_t memory_bytes = 0, used_bytes = 0, free_bytes = 0, granted_bytes = 0;
  size_t volumes = 0, overdue = 0, slots = 0, promises = 0, most_promises = 0;
  size_t plain_sessions = 0;
};

Snapshot SnapshotOf(const Acceptor& acceptor, int64_t now_ns) {
  return {.counters = acceptor.counters(),
          .memory_bytes = acceptor.memory_bytes(),
          .used_bytes = acceptor.used_bytes(),
          .free_bytes = acceptor.free_bytes(),
          .granted_bytes = acceptor.granted_bytes(),
          .volumes = acceptor.volume_count(),
          .overdue = acceptor.overdue_count(now_ns),
          .slots = acceptor.slot_count(),
          .promises = acceptor.promise_count(),
          .most_promises = acceptor.most_promises(),
          .plain_sessions = acceptor.plain_sessions()};
}

Snapshot TakeSnapshot(SharedAcceptor& shared, int64_t now_ns) {
  absl::MutexLock lock(&shared.mutex);
  return SnapshotOf(shared.acceptor, now_ns);
}

}  // namespace

ReplicaMetrics::ReplicaMetrics(SharedAcceptor& acceptor, Clock& clock, Incarnation incarnation,
                               uint64_t process_starts, bool sealed, const KeyRing& ring)
    : acceptor_(acceptor),
      clock_(clock),
      incarnation_(incarnation),
      process_starts_(process_starts),
      sealed_(sealed),
      ring_(ring) {}

std::vector<prometheus::MetricFamily> ReplicaMetrics::Collect() const {
  const Snapshot s = TakeSnapshot(acceptor_, clock_.MonotonicNanos());
  MetricSamples out;
  out.AddCounter("salius_replica_frames_total", "Frames with a valid header", s.counters.frames);
  out.AddCounter("salius_replica_records_total", "Records stored", s.counters.records);
  out.AddCounter("salius_replica_record_bytes_total", "Bytes of the records stored",
                 s.counters.bytes);
  out.AddCounter("salius_replica_trims_total", "Trim marks that dropped something",
                 s.counters.trims);
  out.AddCounter("salius_replica_acks_total", "Acknowledgements sent",
                 acks_.load(std::memory_order_relaxed));
  out.AddCounter("salius_replica_receive_errors_total", "Failed receive calls on a socket",
                 receive_errors_.load(std::memory_order_relaxed));
  out.AddCounter("salius_replica_send_errors_total",
                 "Acknowledgements that the kernel refused to send",
                 send_errors_.load(std::memory_order_relaxed));
  for (size_t i = 0; i < kDropReasons; ++i) {
    out.AddCounter("salius_replica_drops_total",
                   "Datagrams and records that had no effect, by reason", s.counters.drops[i],
                   {{"reason", std::string(DropName(static_cast<Drop>(i)))}});
  }
  const size_t plain = !sealed_ || ring_.all_plain() ? s.plain_sessions : ring_.plain_sessions();
  out.AddGauge("salius_replica_sealed",
               "1 when the datagrams of all sessions are sealed, and plain ones refused",
               sealed_ && plain == 0 ? 1 : 0);
  out.AddGauge("salius_replica_plain_sessions", "Sessions whose datagrams are not sealed", plain);
  for (size_t i = 1; sealed_ && i < kSealRefusals; ++i) {
    const auto refusal = static_cast<SealRefusal>(i);
    out.AddCounter("salius_replica_refused_datagrams_total",
                   "Datagrams refused before their frame was read, by reason",
                   ring_.refused(refusal), {{"reason", std::string(SealRefusalName(refusal))}});
  }
  if (sealed_) {
    out.AddCounter("salius_replica_filtered_datagrams_total",
                   "Datagrams that the kernel dropped during floods", ring_.filtered());
  }
  out.AddGauge("salius_replica_memory_bytes", "Size of the arena", s.memory_bytes);
  out.AddGauge("salius_replica_memory_used_bytes", "Segments in use", s.used_bytes);
  out.AddGauge("salius_replica_memory_free_bytes", "Memory not granted to any session",
               s.free_bytes);
  out.AddGauge("salius_replica_memory_granted_bytes", "Memory granted to sessions",
               s.granted_bytes);
  out.AddGauge("salius_replica_volumes", "Volumes with a log; each takes a slot", s.volumes);
  out.AddGauge("salius_replica_overdue_volumes",
               "Volumes with a record older than k*tau that no trim covered", s.overdue);
  out.AddGauge("salius_replica_slots", "Volumes that can have a log here", s.slots);
  out.AddGauge("salius_replica_promises",
               "Volumes of which something is promised, to a recovery or a session", s.promises);
  out.AddGauge("salius_replica_promises_most", "Promises that can be kept", s.most_promises);
  out.AddGauge("salius_replica_incarnation", "Always 1; the label names this life of the memory", 1,
               {{"incarnation", absl::StrFormat("%016x", incarnation_)}});
  out.AddGauge("salius_replica_process_starts", "Processes that attached to this arena so far",
               process_starts_);
  return std::move(out).Take();
}

}  // namespace salius
