#include "common/metrics.h"

#include <prometheus/exposer.h>
#include <prometheus/registry.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <exception>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/file.h"
#include "common/net.h"
#include "common/runbook.h"

namespace salius {
namespace {

const std::shared_ptr<prometheus::Registry>& ProcessRegistry() {
  // Never destroyed: metrics are counted by threads that outlive main().
  static auto* const registry =
      new std::shared_ptr<prometheus::Registry>(std::make_shared<prometheus::Registry>());
  return *registry;
}

// Returns the metric that `make` makes. The library throws when it is misused, which is a bug.
template <typename Make>
auto& MadeOrDie(Make make) {
  try {
    return make();
  } catch (const std::exception& error) {
    SALIUS_CHECK(false, "metric") << error.what();
    std::abort();
  }
}

}  // namespace

Counter& GetCounter(std::string_view name, std::string_view help,
                    const MetricLabels& labels) noexcept {
  return MadeOrDie([&]() -> Counter& {
    return prometheus::BuildCounter()
        .Name(std::string(name))
        .Help(std::string(help))
        .Register(*ProcessRegistry())
        .Add(labels);
  });
}

Histogram& GetLatencyHistogram(std::string_view name, std::string_view help,
                               const MetricLabels& labels) noexcept {
  return MadeOrDie([&]() -> Histogram& {
    return prometheus::BuildHistogram()
        .Name(std::string(name))
        .Help(std::string(help))
        .Register(*ProcessRegistry())
        .Add(labels, Histogram::BucketBoundaries(kLatencyBounds.begin(), kLatencyBounds.end()));
  });
}

void LatencyHistogram::Observe(double seconds) {
  const auto bucket = std::lower_bound(kLatencyBounds.begin(), kLatencyBounds.end(), seconds);
  counts_[static_cast<size_t>(bucket - kLatencyBounds.begin())].fetch_add(
      1, std::memory_order_relaxed);
  sum_.fetch_add(seconds, std::memory_order_relaxed);
}

prometheus::ClientMetric LatencyHistogram::Collect() const {
  prometheus::ClientMetric metric;
  uint64_t cumulative = 0;
  for (size_t i = 0; i < kLatencyBounds.size(); ++i) {
    cumulative += counts_[i].load(std::memory_order_relaxed);
    metric.histogram.bucket.push_back({cumulative, kLatencyBounds[i]});
  }
  metric.histogram.sample_count = cumulative + counts_.back().load(std::memory_order_relaxed);
  metric.histogram.sample_sum = sum_.load(std::memory_order_relaxed);
  return metric;
}

prometheus::ClientMetric& MetricSamples::Add(prometheus::MetricType type, std::string_view name,
                                             std::string_view help, const MetricLabels& labels) {
  auto family = std::find_if(families_.begin(), families_.end(),
                             [&](const auto& candidate) { return candidate.name == name; });
  if (family == families_.end()) {
    family = families_.insert(family, {std::string(name), std::string(help), type, {}});
  }
  prometheus::ClientMetric& metric = family->metric.emplace_back();
  for (const auto& [label, value] : labels) metric.label.push_back({label, value});
  return metric;
}

void MetricSamples::AddCounter(std::string_view name, std::string_view help, uint64_t value,
                               const MetricLabels& labels) {
  Add(prometheus::MetricType::Counter, name, help, labels).counter.value =
      static_cast<double>(value);
}

void MetricSamples::AddGauge(std::string_view name, std::string_view help, uint64_t value,
                             const MetricLabels& labels) {
  Add(prometheus::MetricType::Gauge, name, help, labels).gauge.value = static_cast<double>(value);
}

void MetricSamples::AddHistogram(std::string_view name, std::string_view help,
                                 const LatencyHistogram& histogram) {
  Add(prometheus::MetricType::Histogram, name, help, {}) = histogram.Collect();
}

struct MetricsServer::Impl {
  Impl(const std::string& address, Sources from) : sources(std::move(from)), exposer(address) {
    exposer.RegisterCollectable(ProcessRegistry());
    for (const auto& source : sources) exposer.RegisterCollectable(source);
  }

  const Sources sources;
  prometheus::Exposer exposer;  // last: its destructor ends the calls of `sources`
};

MetricsServer::MetricsServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MetricsServer::~MetricsServer() = default;

namespace {

// Finds out whether a server can listen there: the library reports only that it cannot.
absl::Status TryToListen(const SocketAddress& address) {
  const UniqueFd socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return ErrnoStatus(errno, "socket");
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(socket.get(), address.get(), address.length) != 0 || ::listen(socket.get(), 1) != 0) {
    return ErrnoStatus(errno, FormatSockaddr(address));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(std::string_view address,
                                                                    Sources sources) {
  absl::StatusOr<HostPort> host_port = ParseHostPort(address, 0);
  if (!host_port.ok()) return host_port.status();
  const absl::StatusOr<SocketAddress> resolved = Resolve(*host_port);
  const absl::Status free = resolved.ok() ? TryToListen(*resolved) : resolved.status();
  if (!free.ok()) {
    return absl::UnavailableError(absl::StrFormat(
        "cannot serve metrics at %s: %s. Give an address of this host that no other process "
        "serves at, or end that process (ss -ltnp shows it); %s",
        address, free.message(), SeeRunbook("metrics-address")));
  }
  try {
    return std::unique_ptr<MetricsServer>(
        new MetricsServer(std::make_unique<Impl>(FormatSockaddr(*resolved), std::move(sources))));
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrFormat("cannot serve metrics at %s: %s", address, error.what()));
  }
}

int MetricsServer::port() const { return impl_->exposer.GetListeningPorts().front(); }

}  // namespace salius
