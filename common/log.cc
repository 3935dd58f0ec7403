#include "common/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"

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

// Returns the journal's priority prefix, see sd-daemon(3).
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

  void Put(spdlog::log_clock::time_point when, LogLevel level, std::string_view line) {
    logger.log(when, spdlog::source_loc{}, SpdlogLevel(level),
               spdlog::string_view_t(line.data(), line.size()));
  }

  const bool journal;
  spdlog::logger logger;
  Sink* previous = nullptr;
};

// The lines that wait for stderr. Never destroyed: its thread may hang in a write for ever.
class Background {
 public:
  Background() {
    std::thread([this] { Run(); }).detach();
  }

  void Add(Sink& sink, LogLevel level, std::string line) {
    const std::lock_guard<std::mutex> lock(mu_);
    if (lines_.size() >= kLogQueueLines) {
      ++lost_;
      return;
    }
    ReportLost(sink);
    lines_.push_back({&sink, spdlog::log_clock::now(), level, std::move(line)});
    more_.notify_one();
  }

  bool Flush(std::chrono::milliseconds bound) {
    std::unique_lock<std::mutex> lock(mu_);
    return written_.wait_until(lock, std::chrono::steady_clock::now() + bound,
                               [this] { return lines_.empty() && !writing_; });
  }

 private:
  struct Line {
    Sink* sink;
    spdlog::log_clock::time_point when;
    LogLevel level;
    std::string text;
  };

  // Queues, at the place of the lost lines, a line with their number. Under mu_.
  void ReportLost(Sink& sink) {
    if (lost_ == 0) return;
    std::string notice = sink.journal ? std::string(JournalPrefix(LogLevel::kWarn)) : "";
    notice += absl::StrFormat("%d lines of the log are lost: it could not be written", lost_);
    lines_.push_back({&sink, spdlog::log_clock::now(), LogLevel::kWarn, std::move(notice)});
    lost_ = 0;
  }

  void Run() {
    std::unique_lock<std::mutex> lock(mu_);
    while (true) {
      more_.wait(lock, [this] { return !lines_.empty(); });
      const Line line = std::move(lines_.front());
      lines_.pop_front();
      writing_ = true;
      lock.unlock();
      line.sink->Put(line.when, line.level, line.text);
      lock.lock();
      writing_ = false;
      if (lines_.empty()) ReportLost(*line.sink);
      if (lines_.empty()) written_.notify_all();
    }
  }

  std::mutex mu_;  // innermost; never held over a write
  std::condition_variable more_, written_;
  std::deque<Line> lines_;
  bool writing_ = false;
  uint64_t lost_ = 0;
};

std::atomic<Background*> g_background{nullptr};

// Replaced by InitLogging(). Old sinks stay, chained, since another thread may be writing through
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
  // In the journal each line has a priority of its own.
  for (size_t end = line.find('\n'); sink.journal && end != std::string::npos;) {
    line.insert(end + 1, JournalPrefix(level));
    end = line.find('\n', end + 1);
  }
  if (Background* background = g_background.load(std::memory_order_acquire)) {
    background->Add(sink, level, std::move(line));
    return;
  }
  sink.Put(spdlog::log_clock::now(), level, line);
}

}  // namespace log_internal

void LogInBackground() {
  static Background* const background = new Background();
  g_background.store(background, std::memory_order_release);
  BeforeCheckFails([] { return FlushLog(); });
}

bool FlushLog(std::chrono::milliseconds bound) {
  Background* background = g_background.load(std::memory_order_acquire);
  return background == nullptr || background->Flush(bound);
}

// Compares stderr with JOURNAL_STREAM, which systemd sets to "device:inode" of the stream that it
// gave as stderr. Children inherit the variable even when their stderr is another.
bool StderrIsJournal() {
  const char* stream = std::getenv("JOURNAL_STREAM");
  struct stat st;
  if (stream == nullptr || fstat(fileno(stderr), &st) != 0) return false;
  return absl::StrFormat("%d:%d", st.st_dev, st.st_ino) == stream;
}

std::string_view LinePrefix(LogLevel level) {
  return StderrIsJournal() ? JournalPrefix(level) : std::string_view();
}

std::string LogPlace() {
  if (StderrIsJournal()) return "journal";
  char path[4096];
  const ssize_t size = readlink("/proc/self/fd/2", path, sizeof(path));
  return size > 0 ? std::string(path, static_cast<size_t>(size)) : "closed";
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
