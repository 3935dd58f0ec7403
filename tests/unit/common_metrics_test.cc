#include "common/metrics.h"

#include <arpa/inet.h>
#include <prometheus/text_serializer.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace salius {
namespace {

using ::testing::HasSubstr;

// Returns the answer that a plain HTTP client gets from localhost.
std::string HttpGet(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string text;
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
    constexpr std::string_view kRequest = "GET /metrics HTTP/1.0\r\n\r\n";
    EXPECT_EQ(write(fd, kRequest.data(), kRequest.size()), static_cast<ssize_t>(kRequest.size()));
    char buffer[4096];
    for (ssize_t n; (n = read(fd, buffer, sizeof(buffer))) > 0;) {
      text.append(buffer, static_cast<size_t>(n));
    }
  }
  close(fd);
  return text;
}

class Numbers : public prometheus::Collectable {
 public:
  std::vector<prometheus::MetricFamily> Collect() const override {
    MetricSamples out;
    out.AddCounter("test_events_total", "events", 3, {{"kind", "a"}});
    out.AddGauge("test_size", "size", 7);
    out.AddCounter("test_events_total", "events", 4, {{"kind", "b"}});
    out.AddHistogram("test_wait_seconds", "wait", wait);
    return std::move(out).Take();
  }
  LatencyHistogram wait;
};

TEST(MetricsTest, SameNameAndLabelsAreTheSameMetric) {
  Counter& a = GetCounter("test_same_total", "help", {{"volume", "a"}});
  Counter& b = GetCounter("test_same_total", "help", {{"volume", "b"}});
  EXPECT_EQ(&a, &GetCounter("test_same_total", "other help", {{"volume", "a"}}));
  EXPECT_NE(&a, &b);
}

TEST(MetricsTest, SamplesOfOneNameAreOneFamily) {
  const std::string text = prometheus::TextSerializer().Serialize(Numbers().Collect());
  EXPECT_THAT(text, HasSubstr("test_events_total{kind=\"a\"} 3\n"
                              "test_events_total{kind=\"b\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("# HELP test_size size\n# TYPE test_size gauge\ntest_size 7\n"));
}

TEST(MetricsTest, HistogramBucketsIncludeTheirBoundAndAreCumulative) {
  LatencyHistogram histogram;
  for (const double value : {5e-6, 6e-6, 10e-6, 10.0, 11.0}) histogram.Observe(value);
  const prometheus::ClientMetric metric = histogram.Collect();
  ASSERT_EQ(metric.histogram.bucket.size(), kLatencyBounds.size());
  EXPECT_EQ(metric.histogram.bucket[0].cumulative_count, 1u);
  EXPECT_EQ(metric.histogram.bucket[1].cumulative_count, 3u);
  EXPECT_EQ(metric.histogram.bucket.back().upper_bound, 10.0);
  EXPECT_EQ(metric.histogram.bucket.back().cumulative_count, 4u);
  EXPECT_EQ(metric.histogram.sample_count, 5u);
  EXPECT_DOUBLE_EQ(metric.histogram.sample_sum, 21.000021);
}

TEST(MetricsTest, NoObservationIsLostBetweenThreads) {
  LatencyHistogram histogram;
  const auto work = [&] {
    for (int i = 0; i < 10000; ++i) histogram.Observe(1.0);
  };
  std::thread other(work);
  work();
  other.join();
  EXPECT_EQ(histogram.Collect().histogram.sample_count, 20000u);
  EXPECT_EQ(histogram.Collect().histogram.sample_sum, 20000.0);
}

TEST(MetricsDeathTest, MisuseIsABug) {
  EXPECT_DEATH(GetCounter("bad name", "help"), "[Ii]nvalid metric name");
  EXPECT_DEATH(GetCounter("good_name", "help", {{"bad-label", "x"}}), "[Ii]nvalid label name");
  GetCounter("test_typed", "help");
  EXPECT_DEATH(GetLatencyHistogram("test_typed", "help"), "already exists");
}

TEST(MetricsServerTest, ServesRegistryAndSourcesUntilDestroyed) {
  GetCounter("test_served_total", "help").Increment(3);
  const auto numbers = std::make_shared<Numbers>();
  auto server = MetricsServer::Start("127.0.0.1:0", {numbers});
  ASSERT_TRUE(server.ok()) << server.status();
  const int port = (*server)->port();
  EXPECT_GT(port, 0);
  EXPECT_THAT(HttpGet(port), HasSubstr("test_served_total 3\n"));
  EXPECT_THAT(HttpGet(port), HasSubstr("test_wait_seconds_count 0\n"));
  numbers->wait.Observe(1.0);
  EXPECT_THAT(HttpGet(port), HasSubstr("test_wait_seconds_count 1\n"));
  server->reset();
  EXPECT_EQ(HttpGet(port), "");
}

TEST(MetricsServerTest, TakenOrBadAddressIsAnErrorThatNamesIt) {
  auto first = MetricsServer::Start("127.0.0.1:0");
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string taken = "127.0.0.1:" + std::to_string((*first)->port());
  for (const std::string& address : {taken, std::string("nonsense")}) {
    const auto second = MetricsServer::Start(address);
    EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(second.status().message()), HasSubstr(address));
  }
  EXPECT_THAT(std::string(MetricsServer::Start(taken).status().message()),
              HasSubstr("Address already in use"));
}

}  // namespace
}  // namespace salius
