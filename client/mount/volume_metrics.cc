#include "client/mount/volume_metrics.h"

#include <chrono>

namespace salius {
namespace {

constexpr std::chrono::seconds kRefreshInterval{1};

void Set(const char* name, const char* help, uint64_t value, const MetricLabels& labels = {}) {
  GetGauge(name, help, labels).Set(static_cast<int64_t>(value));
}

}  // namespace

void ExportStatus(const SessionStatus& status) {
  Set("salius_volume_epoch", "Epoch of the session.", status.epoch);
  for (const char* mode : {"replicated", "local", "failed"}) {
    Set("salius_volume_mode", "1 for the mode the volume is really in.", status.mode == mode,
        {{"mode", mode}});
  }
  Set("salius_volume_checkpoint_seq", "Watermark: checkpointed.", status.marks.checkpoint);
  Set("salius_volume_applied_seq", "Watermark: applied.", status.marks.applied);
  Set("salius_volume_durable_seq", "Watermark: durable.", status.marks.durable);
  Set("salius_volume_issued_seq", "Watermark: issued.", status.marks.issued);
  Set("salius_volume_uncheckpointed_bytes", "Record bytes above the checkpoint.",
      status.uncheckpointed_bytes);
  Set("salius_volume_oldest_uncheckpointed_ms", "Age of the oldest record above the checkpoint.",
      status.oldest_uncheckpointed_ms);
  Set("salius_volume_stable_log_used_bytes", "Bytes in use in the stable log.",
      status.stable_log_used_bytes);
  Set("salius_volume_stable_log_capacity_bytes", "Bytes that the stable log can take.",
      status.stable_log_capacity_bytes);
  for (const ReplicaReport& replica : status.replicas) {
    const MetricLabels labels{{"replica", replica.address}};
    Set("salius_replica_member", "1 when its acknowledgements count.", replica.member, labels);
    Set("salius_replica_connected", "1 when it answers.", replica.connected, labels);
    Set("salius_replica_lag_records", "Records it has not acknowledged.", replica.lag_records,
        labels);
    Set("salius_replica_lag_bytes", "Bytes it has not acknowledged.", replica.lag_bytes, labels);
    Set("salius_replica_rtt_us", "Smoothed round trip time.", replica.rtt_us, labels);
    Set("salius_replica_free_bytes", "Memory that it reports as free.", replica.free_bytes, labels);
    Set("salius_replica_resent", "Records sent to it again.", replica.resent, labels);
    Set("salius_replica_datagram_bytes", "Largest datagram of first transmissions to it.",
        replica.datagram_bytes, labels);
    Set("salius_replica_route_bytes",
        "Largest datagram that its route carries, as the kernel reports.", replica.route_bytes,
        labels);
    Set("salius_replica_group_unheard", "1 when the multicast group does not reach it.",
        replica.group_unheard, labels);
    Set("salius_replica_control_failing",
        "1 when its control port does not answer: nothing could be recovered from it.",
        !replica.control_problem.empty(), labels);
  }
}

absl::StatusOr<std::unique_ptr<VolumeMetrics>> VolumeMetrics::Start(const std::string& address,
                                                                    const RecordStream& stream,
                                                                    uint32_t acks) {
  absl::StatusOr<std::unique_ptr<MetricsServer>> server = MetricsServer::Start(address);
  if (!server.ok()) return server.status();
  return std::unique_ptr<VolumeMetrics>(new VolumeMetrics(*std::move(server), stream, acks));
}

VolumeMetrics::VolumeMetrics(std::unique_ptr<MetricsServer> server, const RecordStream& stream,
                             uint32_t acks)
    : server_(std::move(server)), thread_([this, &stream, acks] {
        Set("salius_volume_acks", "Acknowledgements that make a record durable (f).", acks);
        do {
          ExportStatus(stream.status());
        } while (!stop_.WaitFor(kRefreshInterval));
      }) {}

VolumeMetrics::~VolumeMetrics() {
  stop_.Set();
  thread_.join();
}

}  // namespace salius
