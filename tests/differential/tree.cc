#include "tests/differential/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <utility>

namespace salius::differential {
namespace {

class Fd {
 public:
  Fd(int at, const std::string& name, int flags)
      : fd_(openat(at, name.c_str(), flags | O_NOFOLLOW | O_CLOEXEC)) {}
  ~Fd() { close(fd_); }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

bool IsDirectory(int at, const std::string& name) {
  struct stat st;
  return fstatat(at, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

bool IsFile(int at, const std::string& name) {
  struct stat st;
  return fstatat(at, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

std::optional<std::string> Below(const std::string& name, std::optional<std::string> found) {
  if (found) found = name + "/" + *found;
  return found;
}

}  // namespace

std::optional<std::string> Trees::CompareEntry(int mount_fd, int bare_fd, const std::string& name,
                                               uint64_t mount_inode, uint64_t bare_inode,
                                               bool xattrs) {
  struct statx mount;
  struct statx bare;
  const int mount_error = StatOf(mount_fd, name, false, &mount);
  const int bare_error = StatOf(bare_fd, name, false, &bare);
  if (mount_error != 0 || bare_error != 0) {
    return std::string(": stat of a listed name: mount ") + strerrorname_np(mount_error) +
           ", bare " + strerrorname_np(bare_error);
  }
  if (mount.stx_ino != mount_inode || bare.stx_ino != bare_inode) {
    return ": the inode number of the entry is another than stat's: mount " +
           std::to_string(mount_inode) + " and " + std::to_string(mount.stx_ino) + ", bare " +
           std::to_string(bare_inode) + " and " + std::to_string(bare.stx_ino);
  }
  std::optional<std::string> found = looks_.CompareStats(mount, bare, HandleOf(bare_fd, name));
  if (!found && xattrs) found = Looks::CompareXattrs({mount_fd, bare_fd, name});
  if (found) found = ": " + *found;
  return found;
}

std::optional<std::string> Trees::CompareDirectory(int mount_fd, int bare_fd, bool xattrs,
                                                   const std::string& hidden) {
  std::map<std::string, ListedEntry> mount;
  std::map<std::string, ListedEntry> bare;
  const int mount_error = ListDirectory(mount_fd, &mount);
  const int bare_error = ListDirectory(bare_fd, &bare);
  if (mount_error != bare_error) {
    return std::string("listing: mount ") + strerrorname_np(mount_error) + ", bare " +
           strerrorname_np(bare_error);
  }
  mount.erase(hidden);
  for (const auto& [name, entry] : bare) {
    const auto same = mount.find(name);
    if (same == mount.end()) return "\"" + name + "\" is not listed in the mount";
    if (same->second.type != entry.type) return "\"" + name + "\" is listed with another type";
    if (auto found =
            CompareEntry(mount_fd, bare_fd, name, same->second.inode, entry.inode, xattrs)) {
      return "\"" + name + "\"" + *found;
    }
    mount.erase(same);
  }
  if (!mount.empty()) return "\"" + mount.begin()->first + "\" is listed in the mount only";
  return std::nullopt;
}

std::optional<std::string> Trees::CompareContent(int mount_fd, int bare_fd,
                                                 const std::string& name) {
  const Fd mount(mount_fd, name, O_RDONLY);
  const Fd bare(bare_fd, name, O_RDONLY);
  if (mount.get() < 0 || bare.get() < 0) {
    return std::string(": cannot be opened: ") + strerrorname_np(errno);
  }
  static char buffers[2][1 << 17];
  for (off_t at = 0;;) {
    const ssize_t got = pread(bare.get(), buffers[1], sizeof(buffers[1]), at);
    if (pread(mount.get(), buffers[0], sizeof(buffers[0]), at) != got ||
        memcmp(buffers[0], buffers[1], static_cast<size_t>(got < 0 ? 0 : got)) != 0) {
      return ": other content from " + std::to_string(at) + " on";
    }
    if (got <= 0) return std::nullopt;
    at += got;
  }
}

std::optional<std::string> Trees::CompareAll(int mount_fd, int bare_fd, const std::string& hidden) {
  if (auto found = CompareDirectory(mount_fd, bare_fd, true, hidden)) return found;
  std::map<std::string, ListedEntry> entries;
  ListDirectory(bare_fd, &entries);
  for (const auto& [name, entry] : entries) {
    ++objects_;
    if (IsFile(bare_fd, name)) {
      if (auto found = CompareContent(mount_fd, bare_fd, name)) return "\"" + name + "\"" + *found;
    } else if (IsDirectory(bare_fd, name)) {
      const Fd mount(mount_fd, name, O_RDONLY | O_DIRECTORY);
      const Fd bare(bare_fd, name, O_RDONLY | O_DIRECTORY);
      if (auto found = Below(name, CompareAll(mount.get(), bare.get()))) return found;
    }
  }
  return std::nullopt;
}

}  // namespace salius::differential
