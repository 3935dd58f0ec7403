// Logging: one line to stderr per event.
//
//   SLOG_INFO("volume {} is {} (epoch {})", id.ToString(), mode, epoch);
//
// The compiler checks the fmt format strings. Under systemd (stderr is the journal) a line begins
// with its syslog priority and the journal adds the time. Elsewhere it begins with UTC time, name
// and level. Thread-safe. Until InitLogging() the level is info.
//
// A thread that logs waits for stderr, which may be an unread pipe, a stuck journal or a hanging
// disk. After LogInBackground() only a thread of the log's own waits.
#ifndef SALIUS_COMMON_LOG_H_
#define SALIUS_COMMON_LOG_H_

#include <fmt/core.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"

namespace salius {

enum class LogLevel : int { kDebug = 0, kInfo = 1, kWarn = 2, kError = 3, kOff = 4 };

// Sets the program's name and the lowest level shown: "debug", "info", "warn", "error" or "off".
// INVALID_ARGUMENT for another level, and then nothing has changed. Call it first in main().
absl::Status InitLogging(std::string_view name, std::string_view level);

// Makes lines join a queue in memory, which a thread writes. Lines that find it full
// (kLogQueueLines) are lost, and their number is logged once there is room. It holds for the rest
// of the process: call it after the last fork, and FlushLog before the end. A second call does
// nothing.
void LogInBackground();
inline constexpr size_t kLogQueueLines = 1000;

// Waits until all earlier lines are written, for `bound` at most (of the monotonic clock). Returns
// whether they are. After false the end of the process must be _exit: stderr's lock is taken.
bool FlushLog(std::chrono::milliseconds bound = std::chrono::seconds(1));

// Whether stderr is the stream to the journal that systemd gave.
bool StderrIsJournal();

// Returns the prefix of a line that is written to stderr beside the log. It is the priority ("<3>"
// for an error) when stderr is the journal, and "" otherwise.
std::string_view LinePrefix(LogLevel level);

// Returns where stderr leads: "journal", the path of a file, or else the text of /proc/self/fd/2.
std::string LogPlace();

namespace log_internal {
extern std::atomic<int> g_level;
void Write(LogLevel level, fmt::string_view format, fmt::format_args args);

inline bool Enabled(LogLevel level) {
  return static_cast<int>(level) >= g_level.load(std::memory_order_relaxed);
}

template <typename... Args>
void Log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  Write(level, format, fmt::make_format_args(args...));
}
}  // namespace log_internal

}  // namespace salius

// The arguments are evaluated only when the level is shown.
#define SALIUS_LOG_AT(level, ...)                                            \
  (::salius::log_internal::Enabled(::salius::LogLevel::level)                \
       ? ::salius::log_internal::Log(::salius::LogLevel::level, __VA_ARGS__) \
       : static_cast<void>(0))

#define SLOG_DEBUG(...) SALIUS_LOG_AT(kDebug, __VA_ARGS__)
#define SLOG_INFO(...) SALIUS_LOG_AT(kInfo, __VA_ARGS__)
#define SLOG_WARN(...) SALIUS_LOG_AT(kWarn, __VA_ARGS__)
#define SLOG_ERROR(...) SALIUS_LOG_AT(kError, __VA_ARGS__)

#endif  // SALIUS_COMMON_LOG_H_
