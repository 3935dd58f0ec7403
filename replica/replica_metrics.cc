#include "replica/replica_metrics.h"

#include <string>

#include "absl/strings/str_format.h"

namespace salius {

ReplicaSnapshot TakeSnapshot(const Acceptor& acceptor, int64_t now_ns) {
  ReplicaSnapshot s;
  s.counters = acceptor.counters();
  s.memory_bytes = acceptor.memory_bytes();
  s.used_bytes = acceptor.used_bytes();
  s.free_bytes = acceptor.free_bytes();
  s.granted_bytes = acceptor.granted_bytes();
  s.volumes = acceptor.volume_count();
  s.slots = acceptor.slot_count();
  s.promises = acceptor.promise_count();
  s.most_promises = acceptor.most_promises();
  s.overdue = acceptor.overdue_count(now_ns);
  return s;
}

ReplicaMetrics::ReplicaMetrics(Incarnation incarnation, uint64_t process_starts)
    : frames_(GetCounter("salius_replica_frames_total", "Frames with a valid header")),
      records_(GetCounter("salius_replica_records_total", "Records stored")),
      bytes_(GetCounter("salius_replica_record_bytes_total", "Bytes of the records stored")),
      trims_(GetCounter("salius_replica_trims_total", "Trim marks that dropped something")),
      acks_(GetCounter("salius_replica_acks_total", "Acknowledgements sent")),
      receive_errors_(
          GetCounter("salius_replica_receive_errors_total", "Failed receive calls on a socket")),
      send_errors_(GetCounter("salius_replica_send_errors_total",
                              "Acknowledgements that the kernel refused to send")),
      memory_(GetGauge("salius_replica_memory_bytes", "Size of the arena")),
      used_(GetGauge("salius_replica_memory_used_bytes", "Segments in use")),
      free_(GetGauge("salius_replica_memory_free_bytes", "Memory not granted to any session")),
      granted_(GetGauge("salius_replica_memory_granted_bytes", "Memory granted to sessions")),
      volumes_(GetGauge("salius_replica_volumes", "Volumes with a log; each takes a slot")),
      overdue_(GetGauge("salius_replica_overdue_volumes",
                        "Volumes with a record older than k*tau that no trim covered")),
      slots_(GetGauge("salius_replica_slots", "Volumes that can have a log here")),
      promises_(GetGauge("salius_replica_promises",
                         "Volumes of which something is promised, to a recovery or a session")),
      most_promises_(GetGauge("salius_replica_promises_most", "Promises that can be kept")) {
  for (size_t i = 0; i < kDropReasons; ++i) {
    drops_.push_back(&GetCounter("salius_replica_drops_total",
                                 "Datagrams and records that had no effect, by reason",
                                 {{"reason", std::string(DropName(static_cast<Drop>(i)))}}));
  }
  GetGauge("salius_replica_incarnation", "Always 1; the label names this life of the memory",
           {{"incarnation", absl::StrFormat("%016x", incarnation)}})
      .Set(1);
  GetGauge("salius_replica_process_starts", "Processes that attached to this arena so far")
      .Set(static_cast<int64_t>(process_starts));
}

void ReplicaMetrics::Export(const ReplicaSnapshot& s) {
  frames_.Increment(s.counters.frames - shown_.frames);
  records_.Increment(s.counters.records - shown_.records);
  bytes_.Increment(s.counters.bytes - shown_.bytes);
  trims_.Increment(s.counters.trims - shown_.trims);
  for (size_t i = 0; i < kDropReasons; ++i) {
    drops_[i]->Increment(s.counters.drops[i] - shown_.drops[i]);
  }
  shown_ = s.counters;
  memory_.Set(static_cast<int64_t>(s.memory_bytes));
  used_.Set(static_cast<int64_t>(s.used_bytes));
  free_.Set(static_cast<int64_t>(s.free_bytes));
  granted_.Set(static_cast<int64_t>(s.granted_bytes));
  slots_.Set(static_cast<int64_t>(s.slots));
  promises_.Set(static_cast<int64_t>(s.promises));
  most_promises_.Set(static_cast<int64_t>(s.most_promises));
  volumes_.Set(static_cast<int64_t>(s.volumes));
  overdue_.Set(static_cast<int64_t>(s.overdue));
}

void ReplicaMetrics::SetSendErrors(uint64_t errors) {
  send_errors_.Increment(errors - shown_send_errors_);
  shown_send_errors_ = errors;
}

}  // namespace salius
