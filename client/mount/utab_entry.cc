#include "client/mount/utab_entry.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/fuse/mount_calls.h"
#include "client/fuse/mount_table.h"
#include "common/log.h"

namespace salius {
namespace {

// mount(8) writes a new file and renames it, so only the directory can be watched.
constexpr char kDirectory[] = "/run/mount";
constexpr char kFile[] = "utab";

}  // namespace

UtabEntry::UtabEntry(std::string source, std::string mountpoint)
    : source_(std::move(source)), mountpoint_(std::move(mountpoint)) {
  if (!IsThere() && !AddUtabEntry(source_, mountpoint_)) return;
  if (!Watch()) {
    SLOG_WARN(
        "{} cannot be watched: after an umount of {} in another mount namespace, umount here will "
        "return before "
        "the volume is drained",
        kDirectory, mountpoint_);
    return;
  }
  keeper_ = std::thread([this] { Keep(); });
}

UtabEntry::~UtabEntry() {
  if (keeper_.joinable()) {
    const uint64_t one = 1;
    static_cast<void>(!::write(stop_.get(), &one, sizeof(one)));
    keeper_.join();
  }
  if (IsThere()) RemoveUtabEntry(mountpoint_);
}

bool UtabEntry::Watch() {
  stop_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
  inotify_ = UniqueFd(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  return stop_.valid() && inotify_.valid() &&
         ::inotify_add_watch(inotify_.get(), kDirectory,
                             IN_MOVED_TO | IN_CLOSE_WRITE | IN_DELETE | IN_ONLYDIR) >= 0;
}

void UtabEntry::Keep() {
  do {
    Restore();
  } while (AwaitChange());
}

bool UtabEntry::AwaitChange() {
  for (;;) {
    pollfd fds[] = {{inotify_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    if (::poll(fds, 2, -1) < 0 && errno != EINTR) return false;
    if (fds[1].revents != 0) return false;
    alignas(inotify_event) char buffer[4096];
    const ssize_t size = ::read(inotify_.get(), buffer, sizeof(buffer));
    bool changed = false;
    for (ssize_t at = 0; at < size;) {
      const auto* const event = reinterpret_cast<const inotify_event*>(buffer + at);
      if ((event->mask & IN_IGNORED) != 0) return false;  // the directory is gone
      changed = changed || (event->mask & IN_Q_OVERFLOW) != 0 ||
                (event->len > 0 && std::string(event->name) == kFile);
      at += static_cast<ssize_t>(sizeof(*event) + event->len);
    }
    if (changed) return true;
  }
}

bool UtabEntry::IsThere() const {
  const absl::StatusOr<std::string> table = ReadWholeFile(absl::StrCat(kDirectory, "/", kFile));
  return table.ok() && UserTableHas(*table, source_, mountpoint_);
}

void UtabEntry::Restore() const {
  if (IsThere()) return;
  // The mount was moved within this namespace, and its entry moved along.
  if (!IsSaliusMount(mountpoint_, source_) && IsMountedAnywhere(source_)) return;
  if (AddUtabEntry(source_, mountpoint_)) {
    SLOG_INFO("the entry of {} in /run/mount/utab was removed; it is restored", mountpoint_);
  }
}

}  // namespace salius
