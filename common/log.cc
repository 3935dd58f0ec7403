#include "common/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <string>

#include "absl/strings/str_format.h"

namespace salius {
namespace {

constexpr std::array<std::string_view, 5> kLevelNames = {"debug", "info", "warn", "error", "off"};

spdlog::level::level_enum SpdlogLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      break;
  }
  return spdlog::level::off;
}

// The journal's priority prefix, see sd-daemon(3).
std::string_view JournalPrefix(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "<7>";
    case LogLevel::kInfo:
      return "<6>";
    case LogLevel::kWarn:
      return "<4>";
    default:
      return "<3>";
  }
}

struct Sink {
  explicit Sink(std::string name)
      : journal(StderrIsJournal()),
        logger(std::move(name), std::make_shared<spdlog::sinks::stderr_sink_mt>()) {
    logger.set_level(spdlog::level::trace);
    logger.flush_on(spdlog::level::trace);
    if (journal) {
      logger.set_pattern("%v");
    } else {
      logger.set_pattern("%Y-%m-%dT%H:%M:%S.%fZ %n[%P] %L %v", spdlog::pattern_time_type::utc);
    }
  }

  const bool journal;
  spdlog::logger logger;
  Sink* previous = nullptr;
};

// Replaced by InitLogging(). Old ones stay, chained, since another thread may be writing through
// them.
std::atomic<Sink*> g_sink{nullptr};

Sink& CurrentSink() {
  if (Sink* sink = g_sink.load(std::memory_order_acquire); sink != nullptr) return *sink;
  static Sink* const fallback = new Sink("salius");
  return *fallback;
}

}  // namespace

namespace log_internal {

std::atomic<int> g_level{static_cast<int>(LogLevel::kInfo)};

void Write(LogLevel level, fmt::string_view format, fmt::format_args args) {
  Sink& sink = CurrentSink();
  std::string line;
  if (sink.journal) line = JournalPrefix(level);
  fmt::vformat_to(std::back_inserter(line), format, args);
  sink.logger.log(SpdlogLevel(level), spdlog::string_view_t(line));
}

}  // namespace log_internal

// systemd sets JOURNAL_STREAM to "device:inode" of the stream that it gave as stderr; children
// inherit the variable even when their stderr is another.
bool StderrIsJournal() {
  const char* stream = std::getenv("JOURNAL_STREAM");
  struct stat st;
  if (stream == nullptr || fstat(fileno(stderr), &st) != 0) return false;
  return absl::StrFormat("%d:%d", st.st_dev, st.st_ino) == stream;
}

absl::Status InitLogging(std::string_view name, std::string_view level) {
  for (size_t i = 0; i < kLevelNames.size(); ++i) {
    if (kLevelNames[i] != level) continue;
    auto* const sink = new Sink(std::string(name));
    sink->previous = g_sink.load(std::memory_order_acquire);
    g_sink.store(sink, std::memory_order_release);
    log_internal::g_level.store(static_cast<int>(i), std::memory_order_relaxed);
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("log level \"%s\": expected debug, info, warn, error or off", level));
}

}  // namespace salius
