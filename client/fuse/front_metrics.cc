#include "client/fuse/front_metrics.h"

#include <utility>

namespace salius {

std::vector<prometheus::MetricFamily> FrontMetrics::Collect() const {
  MetricSamples out;
  out.AddCounter("salius_fuse_read_bytes_total", "Bytes read through the mount.",
                 read_bytes.load(std::memory_order_relaxed));
  out.AddCounter("salius_fuse_written_bytes_total", "Bytes written through the mount.",
                 written_bytes.load(std::memory_order_relaxed));
  out.AddCounter("salius_fuse_sync_writes_total", "Writes that waited to be durable.",
                 sync_writes.load(std::memory_order_relaxed));
  out.AddCounter("salius_fuse_io_errors_total", "Requests answered with an input/output error.",
                 errors.load(std::memory_order_relaxed));
  out.AddHistogram("salius_fuse_sync_write_seconds",
                   "Time in the daemon of a write that waited to be durable.", sync_write_seconds);
  out.AddHistogram("salius_fuse_fsync_seconds", "Time in the daemon of an fsync.", fsync_seconds);
  return std::move(out).Take();
}

}  // namespace salius
