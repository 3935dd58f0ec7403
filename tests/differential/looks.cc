#include "tests/differential/looks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "tests/differential/known.h"

namespace salius::differential {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
// The kernel's clock for files goes in steps of 1 to 10 ms.
constexpr int64_t kGrainNs = 11'000'000;
// Operations whose begin is remembered.
constexpr size_t kRemembered = 1000;
// A file that is compared while the bare one is asked: what one call may allocate beyond the data.
constexpr uint64_t kExtraBlocks = 1024;

int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * kSecond + now.tv_nsec;
}

int64_t NsOf(const statx_timestamp& time) { return time.tv_sec * kSecond + time.tv_nsec; }

std::string Text(const statx_timestamp& time) {
  char text[64];
  snprintf(text, sizeof(text), "%lld.%09u", static_cast<long long>(time.tv_sec), time.tv_nsec);
  return text;
}

bool Same(const statx_timestamp& one, const statx_timestamp& other) {
  return one.tv_sec == other.tv_sec && one.tv_nsec == other.tv_nsec;
}

template <typename Value>
std::optional<std::string> Unequal(const char* what, Value mount, Value bare) {
  if (mount == bare) return std::nullopt;
  char text[128];
  snprintf(text, sizeof(text), "%s: mount %llu (0%llo), bare %llu (0%llo)", what,
           static_cast<unsigned long long>(mount), static_cast<unsigned long long>(mount),
           static_cast<unsigned long long>(bare), static_cast<unsigned long long>(bare));
  return text;
}

}  // namespace

std::string HandleOf(int fd, const std::string& path) {
  struct {
    file_handle header;
    unsigned char bytes[MAX_HANDLE_SZ];
  } handle;
  handle.header.handle_bytes = MAX_HANDLE_SZ;
  int mount_id;
  if (name_to_handle_at(fd, path.c_str(), &handle.header, &mount_id,
                        path.empty() ? AT_EMPTY_PATH : 0) != 0) {
    return "";
  }
  return std::string(reinterpret_cast<const char*>(handle.header.f_handle),
                     handle.header.handle_bytes);
}

int StatOf(int fd, const std::string& path, bool force, struct statx* st) {
  const int flags =
      AT_SYMLINK_NOFOLLOW | (path.empty() ? AT_EMPTY_PATH : 0) | (force ? AT_STATX_FORCE_SYNC : 0);
  return statx(fd, path.c_str(), flags, STATX_BASIC_STATS, st) == 0 ? 0 : errno;
}

Looks::Looks(TimeRule rule, int64_t since) : rule_(rule), start_ns_((since - 1) * kSecond) {}

std::optional<std::string> Looks::Compare(const Subject& subject, bool force) {
  struct statx mount;
  struct statx bare;
  const int mount_error = StatOf(subject.mount_fd, subject.path, force, &mount);
  const int bare_error = StatOf(subject.bare_fd, subject.path, force, &bare);
  if (mount_error != bare_error) {
    return std::string("stat: mount ") + strerrorname_np(mount_error) + ", bare " +
           strerrorname_np(bare_error);
  }
  if (mount_error != 0) return std::nullopt;
  return CompareStats(mount, bare, HandleOf(subject.bare_fd, subject.path));
}

std::optional<std::string> Looks::CompareStats(const struct statx& mount, const struct statx& bare,
                                               const std::string& handle) {
  std::optional<std::string> found = Unequal("mode", mount.stx_mode, bare.stx_mode);
  if (!found) found = Unequal("links", mount.stx_nlink, bare.stx_nlink);
  if (!found) found = Unequal("uid", mount.stx_uid, bare.stx_uid);
  if (!found) found = Unequal("gid", mount.stx_gid, bare.stx_gid);
  if (!found) found = Unequal("device, major", mount.stx_rdev_major, bare.stx_rdev_major);
  if (!found) found = Unequal("device, minor", mount.stx_rdev_minor, bare.stx_rdev_minor);
  if (!found && !S_ISDIR(bare.stx_mode)) found = Unequal("size", mount.stx_size, bare.stx_size);
  if (!found && S_ISREG(bare.stx_mode) &&
      (mount.stx_blocks > bare.stx_blocks + kExtraBlocks ||
       bare.stx_blocks > mount.stx_blocks + kExtraBlocks)) {
    found = Unequal("blocks, loosely", mount.stx_blocks, bare.stx_blocks);
  }
  if (found) return found;
  const auto known = seen_.find(handle);
  const Seen* const before = known == seen_.end() ? nullptr : &known->second;
  if (before != nullptr) found = Unequal<uint64_t>("inode", mount.stx_ino, before->mount_inode);
  if (found) return "the same object on the bare side; " + *found + " before";
  const Times of_mount = {mount.stx_mtime, mount.stx_ctime, mount.stx_atime};
  const Times of_bare = {bare.stx_mtime, bare.stx_ctime, bare.stx_atime};
  if (HasTimes(bare.stx_mode)) found = CompareTimes(of_mount, of_bare, before);
  if (found && before != nullptr) {
    *found += "; last look: operation " + std::to_string(before->number);
  }
  seen_[handle] = {mount.stx_ino, of_mount, of_bare, number_};
  return found;
}

void Looks::NoteOperation(uint64_t number) {
  number_ = number;
  if (began_ns_.size() == kRemembered) began_ns_.pop_front();
  began_ns_.push_back(NowNs());
}

std::optional<int64_t> Looks::BeganBefore(int64_t bare_ns) const {
  const auto after = std::upper_bound(began_ns_.begin(), began_ns_.end(), bare_ns);
  if (after == began_ns_.begin()) return std::nullopt;
  return *std::prev(after);
}

std::optional<std::string> Looks::CompareTimes(const Times& mount, const Times& bare,
                                               const Seen* before) {
  if (auto found = CompareTime(&Times::modified, mount, bare, before)) return "mtime: " + *found;
  if (auto found = CompareTime(&Times::accessed, mount, bare, before)) return "atime: " + *found;
  if (auto found = CompareTime(&Times::changed, mount, bare, before)) return "ctime: " + *found;
  if (before == nullptr || rule_ == TimeRule::kNone) return std::nullopt;
  const int64_t back_ns = NsOf(before->mount.changed) - NsOf(mount.changed);
  if (back_ns <= (rule_ == TimeRule::kLateCtime ? kGrainNs : 0)) return std::nullopt;
  return "ctime went back: from " + Text(before->mount.changed) + " to " + Text(mount.changed);
}

std::optional<std::string> Looks::CompareTime(statx_timestamp Times::*which, const Times& mount,
                                              const Times& bare, const Seen* before) {
  const statx_timestamp& here = mount.*which;
  const statx_timestamp& there = bare.*which;
  const std::string values = "mount " + Text(here) + ", bare " + Text(there);
  const int64_t now = NowNs();
  const auto was_set = [&](const statx_timestamp& time) {
    return NsOf(time) < start_ns_ || NsOf(time) > now + kSecond;
  };
  if (was_set(there) || was_set(here)) {
    if (Same(here, there)) return std::nullopt;
    return values;
  }
  if (before == nullptr || rule_ == TimeRule::kNone) return std::nullopt;
  const bool here_changed = !Same(here, before->mount.*which);
  const bool there_changed = !Same(there, before->bare.*which);
  if (here_changed == there_changed) return std::nullopt;
  if (there_changed) {
    // A second change within one step of the clock does not show. The mount made it some time
    // after its operation began, and the bare side after that operation had returned.
    const int64_t made_ns = BeganBefore(NsOf(there)).value_or(NsOf(there));
    if (made_ns - NsOf(here) < kGrainNs) {
      ++unclear_times_;
      return std::nullopt;
    }
    return values + "; changed on the bare side only, from " + Text(before->bare.*which);
  }
  if (rule_ == TimeRule::kLateCtime && which == &Times::changed) {
    ++late_ctimes_;
    return std::nullopt;
  }
  return values + "; changed in the mount only, from " + Text(before->mount.*which);
}

std::optional<std::string> Looks::CompareXattrs(const Subject& subject) {
  std::string names[2];
  const int fds[2] = {subject.mount_fd, subject.bare_fd};
  const auto path = [&](int side) { return std::string(ProcPath(fds[side], subject.path)); };
  for (int side = 0; side < 2; ++side) {
    names[side].resize(4000);
    const ssize_t got = llistxattr(path(side).c_str(), names[side].data(), names[side].size());
    names[side] = got < 0 ? std::string("errno ") + strerrorname_np(errno)
                          : SortedNames(names[side].substr(0, static_cast<size_t>(got)));
  }
  // The backing directory at rest has the volume's own too.
  constexpr std::string_view kFileId = "trusted.salius.id ";
  if (const size_t own = names[0].find(kFileId); own != std::string::npos) {
    names[0].erase(own, kFileId.size());
  }
  if (names[0] != names[1]) return "xattrs: mount " + names[0] + ", bare " + names[1];
  if (names[1].starts_with("errno ")) return std::nullopt;
  for (size_t at = 0; at < names[1].size();) {
    const size_t end = names[1].find(' ', at);
    const std::string name = names[1].substr(at, end - at);
    at = end + 1;
    Result values[2];
    for (int side = 0; side < 2; ++side) {
      std::string& value = values[side].data;
      value.resize(4000);
      const ssize_t got = lgetxattr(path(side).c_str(), name.c_str(), value.data(), value.size());
      values[side].error = got < 0 ? errno : 0;
      value.resize(got < 0 ? 0 : static_cast<size_t>(got));
    }
    if (values[0] != values[1]) {
      return "xattr " + name + ": mount " + TextOf(values[0]) + ", bare " + TextOf(values[1]);
    }
  }
  return std::nullopt;
}

}  // namespace salius::differential
