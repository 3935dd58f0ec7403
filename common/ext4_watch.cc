#include "common/ext4_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/deadline.h"
#include "common/log.h"
#include "common/strings.h"

namespace salius {
namespace {

// The largest record of its log that the kernel gives; it gives one at a time.
constexpr size_t kLogRecordBytes = 8192;
// The level "critical" of syslog(2); lower numbers are worse. ext4 reports a failure that costs
// data at this level at least. A remount, a resize and a count of yesterday's errors are "notice"
// and the like.
constexpr unsigned kCritical = 2;
constexpr unsigned kLevels = 8;  // a level, plus this times the facility, which is 0 for the kernel
// How long Check waits for a message that was counted.
constexpr int64_t kLogLateNs = 1'000'000'000;
constexpr int kLogPollMs = 50;

// Returns the name of the device that `fd` is on, as ext4 uses it: /sys/fs/ext4/NAME,
// "EXT4-fs (NAME): ".
absl::StatusOr<std::string> DeviceName(int fd) {
  struct stat st;
  if (fstat(fd, &st) != 0) return ErrnoStatus(errno, "fstat");
  const absl::StatusOr<std::string> device = ReadWholeFile(
      absl::StrFormat("/sys/dev/block/%d:%d/uevent", major(st.st_dev), minor(st.st_dev)));
  std::string name;
  if (device.ok()) {
    for (const absl::string_view line : absl::StrSplit(*device, '\n')) {
      if (absl::StartsWith(line, "DEVNAME=")) name = std::string(line.substr(8));
    }
  }
  if (name.empty()) return absl::UnimplementedError("no block device, or no /sys");
  std::replace(name.begin(), name.end(), '/', '!');
  return name;
}

std::string CounterPath(absl::string_view device, absl::string_view what) {
  return absl::StrFormat("/sys/fs/ext4/%s/%s_count", device, what);
}

absl::StatusOr<uint64_t> ReadCounter(int fd) {
  std::array<char, 32> text;
  SALIUS_ASSIGN_OR_RETURN(const size_t size, PreadFull(fd, text.data(), text.size(), 0));
  uint64_t count = 0;
  if (!absl::SimpleAtoi(absl::string_view(text.data(), size), &count)) {
    return absl::InternalError("a counter in /sys/fs/ext4 is no number");
  }
  return count;
}

absl::StatusOr<uint64_t> CounterOf(int fd, absl::string_view what) {
  SALIUS_ASSIGN_OR_RETURN(const std::string device, DeviceName(fd));
  const absl::StatusOr<std::string> text = ReadWholeFile(CounterPath(device, what));
  uint64_t count = 0;
  if (!text.ok() || !absl::SimpleAtoi(*text, &count)) {
    return absl::UnimplementedError("the kernel does not count complaints here (ext4 does)");
  }
  return count;
}

bool IsExt4(int fd) {
  struct statfs kind;
  return fstatfs(fd, &kind) == 0 && kind.f_type == EXT4_SUPER_MAGIC;
}

}  // namespace

absl::StatusOr<uint64_t> Ext4Complaints(int fd) {
  uint64_t sum = 0;
  for (const char* what : {"errors", "warning", "msg"}) {
    SALIUS_ASSIGN_OR_RETURN(const uint64_t count, CounterOf(fd, what));
    sum += count;
  }
  return sum;
}

absl::StatusOr<uint64_t> Ext4Errors(int fd) { return CounterOf(fd, "errors"); }

Ext4Watch::Ext4Watch(int fd) {
  if (!IsExt4(fd)) return;
  const auto begin = [&]() -> absl::Status {
    SALIUS_ASSIGN_OR_RETURN(const std::string device, DeviceName(fd));
    // Open the log first: a message that comes meanwhile is then among its lines, if not counted.
    absl::StatusOr<UniqueFd> log = OpenAt(AT_FDCWD, "/dev/kmsg", O_RDONLY | O_NONBLOCK);
    if (log.ok() && lseek(log->get(), 0, SEEK_END) >= 0) {
      log_ = *std::move(log);
    } else {
      constexpr char kText[] =
          "/dev/kmsg cannot be read: any message of ext4 (a remount, a resize) will be taken "
          "for a failure of the disk";
      // For ordinary users that is the normal case (docs/direct.md).
      if (geteuid() == 0) {
        SLOG_WARN("{}", kText);
      } else {
        SLOG_INFO("{}", kText);
      }
    }
    SALIUS_ASSIGN_OR_RETURN(errors_, OpenAt(AT_FDCWD, CounterPath(device, "errors"), O_RDONLY));
    SALIUS_ASSIGN_OR_RETURN(messages_, OpenAt(AT_FDCWD, CounterPath(device, "msg"), O_RDONLY));
    SALIUS_ASSIGN_OR_RETURN(errors_before_, ReadCounter(errors_.get()));
    SALIUS_ASSIGN_OR_RETURN(messages_before_, ReadCounter(messages_.get()));
    device_ = device;
    return absl::OkStatus();
  };
  if (const absl::Status begun = begin(); !begun.ok()) {
    SLOG_WARN("a loss of data by errors in the metadata of ext4 would go unnoticed: {}",
              begun.ToString());
  }
}

std::optional<Ext4Message> ParseExt4Message(std::string_view record, std::string_view device) {
  const size_t end = record.find(';');
  if (end == record.npos) return std::nullopt;
  const absl::string_view text = Av(record.substr(end + 1));
  unsigned level = 0;
  if (!absl::StartsWith(text, absl::StrCat("EXT4-fs (", Av(device), "): ")) ||
      !absl::SimpleAtoi(Av(record.substr(0, record.find(','))), &level) || level >= kLevels) {
    return std::nullopt;
  }
  return Ext4Message{level <= kCritical,
                     std::string(absl::StripAsciiWhitespace(text.substr(0, text.find('\n'))))};
}

void Ext4Watch::ReadLog() {
  std::array<char, kLogRecordBytes> buffer;
  while (log_.valid()) {
    const ssize_t size = read(log_.get(), buffer.data(), buffer.size());
    if (size < 0 && (errno == EINTR || errno == EPIPE)) continue;  // EPIPE: some were overwritten
    if (size == 0) log_.Reset();  // not the kernel's log, which has no end
    if (size <= 0) break;
    const std::optional<Ext4Message> message =
        ParseExt4Message({buffer.data(), static_cast<size_t>(size)}, device_);
    if (!message.has_value()) continue;
    ++lines_;
    if (message->severe && severe_.empty()) severe_ = message->text;
  }
}

absl::Status Ext4Watch::Look() {
  SALIUS_ASSIGN_OR_RETURN(const uint64_t errors, ReadCounter(errors_.get()));
  SALIUS_ASSIGN_OR_RETURN(const uint64_t messages, ReadCounter(messages_.get()));
  ReadLog();
  // A message is counted just before it is in the log.
  const uint64_t counted = messages - messages_before_;
  Clock& clock = SystemClock();
  const Deadline end = Deadline::After(clock, kLogLateNs);
  while (severe_.empty() && lines_ < counted && log_.valid() && !end.Expired(clock)) {
    pollfd log{log_.get(), POLLIN, 0};
    if (poll(&log, 1, kLogPollMs) < 0 && errno != EINTR) break;
    ReadLog();
  }
  std::string why;
  if (!severe_.empty()) {
    why = severe_;
  } else if (errors > errors_before_) {
    why = absl::StrCat(errors - errors_before_, " errors counted");
  } else if (lines_ < counted) {
    why = "a message that is not in the kernel's log any more, or cannot be read there";
  } else {
    // Some lines (a daily summary) are not counted. They must not pass for others later.
    SALIUS_ASSIGN_OR_RETURN(const uint64_t now, ReadCounter(messages_.get()));
    lines_ = std::min(lines_, now - messages_before_);
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat(
      "ext4 on ", device_, " may have thrown data away without an error of any sync: ", why,
      ". See dmesg(1); unmount, let `e2fsck -f` repair it, and mount again"));
}

absl::Status Ext4Watch::Check() {
  if (device_.empty()) return absl::OkStatus();
  absl::MutexLock lock(&mutex_);
  if (verdict_.ok()) verdict_ = Look();
  return verdict_;
}

void Ext4Watch::KeepUp() {
  if (device_.empty() || !mutex_.TryLock()) return;  // a Check is at it
  ReadLog();
  mutex_.Unlock();
}

}  // namespace salius
