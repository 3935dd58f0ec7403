#include "client/mount/volume_metrics.h"

#include <utility>

#include "client/volume/lane_sink.h"
#include "common/metrics.h"

namespace salius {

std::vector<prometheus::MetricFamily> VolumeMetrics::Collect() const {
  const SessionStatus status = volume_.stream().status();
  MetricSamples out;
  out.AddGauge("salius_volume_acks", "Acknowledgements that make a record durable (f).", acks_);
  out.AddGauge("salius_volume_epoch", "Epoch of the session.", status.epoch);
  for (const char* mode : {"replicated", "local", "failed"}) {
    out.AddGauge("salius_volume_mode", "1 for the mode the volume is really in.",
                 status.mode == mode, {{"mode", mode}});
  }
  out.AddGauge("salius_volume_checkpoint_seq", "Watermark: checkpointed.", status.marks.checkpoint);
  out.AddGauge("salius_volume_applied_seq", "Watermark: applied.", status.marks.applied);
  out.AddGauge("salius_volume_durable_seq", "Watermark: durable.", status.marks.durable);
  out.AddGauge("salius_volume_issued_seq", "Watermark: issued.", status.marks.issued);
  out.AddGauge("salius_volume_uncheckpointed_bytes", "Record bytes above the checkpoint.",
               status.uncheckpointed_bytes);
  out.AddGauge("salius_volume_oldest_uncheckpointed_ms",
               "Age of the oldest record above the checkpoint.", status.oldest_uncheckpointed_ms);
  out.AddGauge("salius_volume_stable_log_used_bytes", "Bytes in use in the stable log.",
               status.stable_log_used_bytes);
  out.AddGauge("salius_volume_stable_log_capacity_bytes", "Bytes that the stable log can take.",
               status.stable_log_capacity_bytes);
  const PendingNames::Size names = volume_.pending_names().size();
  out.AddGauge("salius_volume_pending_names", "Names whose records are not applied yet.",
               names.entries);
  out.AddGauge("salius_volume_pending_names_bytes", "Memory that these names occupy, estimated.",
               names.bytes);
  const LaneSink::Figures lanes = volume_.lanes().figures();
  out.AddGauge("salius_volume_patch_bytes", "Data that is written and not applied yet.",
               volume_.patch_memory().used());
  out.AddGauge("salius_volume_patch_memory_bytes", "Bytes of such data at which writers wait.",
               volume_.patch_memory().limit());
  out.AddGauge("salius_volume_put_off_bytes",
               "Of this data, that of pages whose fetch is put off (fetch=lazy).",
               lanes.put_off_bytes);
  out.AddCounter("salius_volume_fetched_pages_total", "Pages that workers fetched for writes.",
                 lanes.fetched_pages);
  out.AddCounter("salius_volume_elided_pages_total",
                 "Pages that need not be fetched: filled by later writes, cut off, or of removed "
                 "files.",
                 lanes.elided_pages);
  out.AddGauge("salius_sealed",
               "1 when the datagrams to all replicas are sealed, and plain ones refused.",
               status.sealing.has_value());
  if (status.sealing.has_value()) {
    out.AddCounter("salius_key_changes_total", "Changes of the key of the datagrams.",
                   status.sealing->key_changes);
    for (const SealingUse::Refusal& refusal : status.sealing->refusals) {
      out.AddCounter("salius_refused_datagrams_total",
                     "Datagrams refused before their frame was read, by reason.", refusal.datagrams,
                     {{"reason", refusal.reason}});
    }
  }
  for (const ReplicaReport& replica : status.replicas) {
    const MetricLabels labels{{"replica", replica.address}};
    out.AddGauge("salius_replica_member", "1 when its acknowledgements count.", replica.member,
                 labels);
    out.AddGauge("salius_replica_connected", "1 when it answers.", replica.connected, labels);
    out.AddGauge("salius_replica_lag_records", "Records it has not acknowledged.",
                 replica.lag_records, labels);
    out.AddGauge("salius_replica_lag_bytes", "Bytes it has not acknowledged.", replica.lag_bytes,
                 labels);
    out.AddGauge("salius_replica_rtt_us", "Smoothed round trip time.", replica.rtt_us, labels);
    out.AddGauge("salius_replica_free_bytes", "Memory that it reports as free.", replica.free_bytes,
                 labels);
    out.AddGauge("salius_replica_resent", "Records sent to it again.", replica.resent, labels);
    out.AddGauge("salius_replica_datagram_bytes", "Largest datagram of first transmissions to it.",
                 replica.datagram_bytes, labels);
    out.AddGauge("salius_replica_route_bytes",
                 "Largest datagram that its route carries, as the kernel reports.",
                 replica.route_bytes, labels);
    out.AddGauge("salius_replica_group_unheard", "1 when the multicast group does not reach it.",
                 replica.group_unheard, labels);
    out.AddGauge("salius_replica_control_failing",
                 "1 when its control port does not answer: nothing could be recovered from it.",
                 !replica.control_problem.empty(), labels);
  }
  return std::move(out).Take();
}

}  // namespace salius
