#include "common/metrics.h"

#include <prometheus/check_names.h>
#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <utility>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "common/check.h"
#include "common/file.h"
#include "common/net.h"

namespace salius {
namespace {

template <typename T>
struct Family {
  std::string help;
  std::map<MetricLabels, std::unique_ptr<T>> metrics;
};

using AnyFamily = std::variant<Family<Counter>, Family<Gauge>, Family<Histogram>>;

void Fill(const Counter& from, prometheus::ClientMetric& to) {
  to.counter.value = static_cast<double>(from.value());
}

void Fill(const Gauge& from, prometheus::ClientMetric& to) {
  to.gauge.value = static_cast<double>(from.value());
}

void Fill(const Histogram& from, prometheus::ClientMetric& to) {
  uint64_t cumulative = 0;
  for (size_t i = 0; i <= from.bounds().size(); ++i) {
    cumulative += from.BucketCount(i);
    if (i < from.bounds().size()) to.histogram.bucket.push_back({cumulative, from.bounds()[i]});
  }
  to.histogram.sample_count = cumulative;
  to.histogram.sample_sum = from.Sum();
}

constexpr prometheus::MetricType TypeOf(const Counter*) { return prometheus::MetricType::Counter; }
constexpr prometheus::MetricType TypeOf(const Gauge*) { return prometheus::MetricType::Gauge; }
constexpr prometheus::MetricType TypeOf(const Histogram*) {
  return prometheus::MetricType::Histogram;
}

class Registry : public prometheus::Collectable {
 public:
  template <typename T, typename... Args>
  T& Get(std::string_view name, std::string_view help, const MetricLabels& labels, Args&&... args) {
    SALIUS_CHECK(prometheus::CheckMetricName(std::string(name)), "metric name") << name;
    for (const auto& [label, unused] : labels) {
      SALIUS_CHECK(prometheus::CheckLabelName(label), "label name") << label;
    }
    absl::MutexLock lock(&mutex_);
    const auto [entry, is_new] = families_.try_emplace(std::string(name), Family<T>{});
    auto* family = std::get_if<Family<T>>(&entry->second);
    SALIUS_CHECK(family != nullptr, "metric exists with another type") << name;
    if (is_new) family->help = help;
    std::unique_ptr<T>& metric = family->metrics[labels];
    if (metric == nullptr) metric = std::make_unique<T>(std::forward<Args>(args)...);
    return *metric;
  }

  std::vector<prometheus::MetricFamily> Collect() const override {
    absl::MutexLock lock(&mutex_);
    std::vector<prometheus::MetricFamily> result;
    for (const auto& entry : families_) {
      std::visit([&](const auto& family) { result.push_back(Export(entry.first, family)); },
                 entry.second);
    }
    return result;
  }

 private:
  template <typename T>
  static prometheus::MetricFamily Export(const std::string& name, const Family<T>& family) {
    prometheus::MetricFamily out;
    out.name = name;
    out.help = family.help;
    out.type = TypeOf(static_cast<T*>(nullptr));
    for (const auto& [labels, metric] : family.metrics) {
      prometheus::ClientMetric& to = out.metric.emplace_back();
      for (const auto& [label, value] : labels) to.label.push_back({label, value});
      Fill(*metric, to);
    }
    return out;
  }

  // Guards the maps, not the metrics; a leaf: nothing else is locked under it.
  mutable absl::Mutex mutex_;
  std::map<std::string, AnyFamily> families_ ABSL_GUARDED_BY(mutex_);
};

const std::shared_ptr<Registry>& TheRegistry() {
  // Never destroyed: metrics are counted by threads that outlive main().
  static auto* const registry = new std::shared_ptr<Registry>(std::make_shared<Registry>());
  return *registry;
}

}  // namespace

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)), counts_(new std::atomic<uint64_t>[bounds_.size() + 1]()) {
  SALIUS_CHECK(std::is_sorted(bounds_.begin(), bounds_.end()), "histogram bounds");
}

void Histogram::Observe(double value) {
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  counts_[static_cast<size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

uint64_t Histogram::Count() const {
  uint64_t total = 0;
  for (size_t i = 0; i <= bounds_.size(); ++i) total += BucketCount(i);
  return total;
}

Counter& GetCounter(std::string_view name, std::string_view help, const MetricLabels& labels) {
  return TheRegistry()->Get<Counter>(name, help, labels);
}

Gauge& GetGauge(std::string_view name, std::string_view help, const MetricLabels& labels) {
  return TheRegistry()->Get<Gauge>(name, help, labels);
}

Histogram& GetHistogram(std::string_view name, std::string_view help, std::vector<double> bounds,
                        const MetricLabels& labels) {
  return TheRegistry()->Get<Histogram>(name, help, labels, std::move(bounds));
}

std::vector<double> LatencyBounds() {
  return {5e-6, 10e-6,  20e-6, 35e-6, 50e-6, 75e-6, 100e-6, 150e-6, 250e-6, 500e-6,
          1e-3, 2.5e-3, 5e-3,  10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 1,      10};
}

std::string MetricsText() {
  return prometheus::TextSerializer().Serialize(TheRegistry()->Collect());
}

struct MetricsServer::Impl {
  explicit Impl(const std::string& address) : exposer(address) {}
  prometheus::Exposer exposer;
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

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(std::string_view address) {
  absl::StatusOr<HostPort> host_port = ParseHostPort(address, 0);
  if (!host_port.ok()) return host_port.status();
  const absl::StatusOr<SocketAddress> resolved = Resolve(*host_port);
  const absl::Status free = resolved.ok() ? TryToListen(*resolved) : resolved.status();
  if (!free.ok()) {
    return absl::UnavailableError(absl::StrFormat(
        "cannot serve metrics at %s: %s. Give an address of this host that no other process "
        "serves at, or end that process (ss -ltnp shows it)",
        address, free.message()));
  }
  try {
    auto impl = std::make_unique<Impl>(FormatSockaddr(*resolved));
    impl->exposer.RegisterCollectable(TheRegistry());
    return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(impl)));
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrFormat("cannot serve metrics at %s: %s", address, error.what()));
  }
}

int MetricsServer::port() const { return impl_->exposer.GetListeningPorts().front(); }

}  // namespace salius
