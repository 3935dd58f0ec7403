// The watermarks and the mode of the volume as Prometheus metrics, refreshed once a second (option
// metrics=host:port).
//
// Threads: one of its own; the stream's status is thread-safe.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "client/session/record_stream.h"
#include "common/event.h"
#include "common/metrics.h"

namespace salius {

// Sets every metric of the volume from one status.
void ExportStatus(const SessionStatus& status);

class VolumeMetrics {
 public:
  // Serves all metrics of the process at `address`, `acks` (f) among them. `stream` must outlive
  // it. UNAVAILABLE when the address cannot be bound.
  static absl::StatusOr<std::unique_ptr<VolumeMetrics>> Start(const std::string& address,
                                                              const RecordStream& stream,
                                                              uint32_t acks);
  ~VolumeMetrics();

  int port() const { return server_->port(); }

 private:
  VolumeMetrics(std::unique_ptr<MetricsServer> server, const RecordStream& stream, uint32_t acks);

  std::unique_ptr<MetricsServer> server_;
  Event stop_;
  std::thread thread_;
};

}  // namespace salius
