#include "common/metrics.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>

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

TEST(MetricsTest, SameNameAndLabelsAreTheSameMetric) {
  Counter& a = GetCounter("test_same_total", "help", {{"volume", "a"}});
  Counter& b = GetCounter("test_same_total", "help", {{"volume", "b"}});
  EXPECT_EQ(&a, &GetCounter("test_same_total", "other help", {{"volume", "a"}}));
  EXPECT_NE(&a, &b);
  a.Increment();
  a.Increment(4);
  EXPECT_EQ(a.value(), 5u);
  const std::string text = MetricsText();
  EXPECT_THAT(text, HasSubstr("# HELP test_same_total help\n"));
  EXPECT_THAT(text, HasSubstr("test_same_total{volume=\"a\"} 5\n"));
  EXPECT_THAT(text, HasSubstr("test_same_total{volume=\"b\"} 0\n"));
}

TEST(MetricsTest, GaugeGoesBothWays) {
  Gauge& gauge = GetGauge("test_gauge", "help");
  gauge.Set(10);
  gauge.Add(-15);
  EXPECT_THAT(MetricsText(), HasSubstr("test_gauge -5\n"));
}

TEST(MetricsTest, HistogramBucketsIncludeTheirBoundAndAreCumulative) {
  Histogram& histogram = GetHistogram("test_seconds", "help", {1, 2});
  for (const double value : {0.5, 1.0, 1.5, 9.0}) histogram.Observe(value);
  EXPECT_EQ(histogram.BucketCount(0), 2u);
  EXPECT_EQ(histogram.BucketCount(1), 1u);
  EXPECT_EQ(histogram.BucketCount(2), 1u);
  EXPECT_EQ(histogram.Count(), 4u);
  EXPECT_EQ(histogram.Sum(), 12.0);
  const std::string text = MetricsText();
  EXPECT_THAT(text, HasSubstr("test_seconds_bucket{le=\"1\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("test_seconds_bucket{le=\"2\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("test_seconds_bucket{le=\"+Inf\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("test_seconds_count 4\n"));
}

TEST(MetricsTest, NoIncrementIsLostBetweenThreads) {
  Counter& counter = GetCounter("test_threads_total", "help");
  Histogram& histogram = GetHistogram("test_threads_seconds", "help", LatencyBounds());
  const auto work = [&] {
    for (int i = 0; i < 10000; ++i) {
      counter.Increment();
      histogram.Observe(1.0);
    }
  };
  std::thread other(work);
  work();
  other.join();
  EXPECT_EQ(counter.value(), 20000u);
  EXPECT_EQ(histogram.Count(), 20000u);
  EXPECT_EQ(histogram.Sum(), 20000.0);
}

TEST(MetricsDeathTest, MisuseIsABug) {
  EXPECT_DEATH(GetCounter("bad name", "help"), "metric name");
  EXPECT_DEATH(GetCounter("good_name", "help", {{"bad-label", "x"}}), "label name");
  GetCounter("test_typed", "help");
  EXPECT_DEATH(GetGauge("test_typed", "help"), "another type");
  EXPECT_DEATH(Histogram({2, 1}), "bounds");
}

TEST(MetricsServerTest, ServesTheTextUntilDestroyed) {
  GetCounter("test_served_total", "help").Increment(3);
  auto server = MetricsServer::Start("127.0.0.1:0");
  ASSERT_TRUE(server.ok()) << server.status();
  const int port = (*server)->port();
  EXPECT_GT(port, 0);
  EXPECT_THAT(HttpGet(port), HasSubstr("test_served_total 3\n"));
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
