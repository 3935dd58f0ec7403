#include "client/run/supervisor.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/gate/descriptor_kind.h"
#include "common/check.h"

// A kernel from 6.6 on can hand the CPU over to the supervisor and back.
#ifndef SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP
#define SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP (1UL << 0)
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#endif
#ifndef MSG_ZEROCOPY
#define MSG_ZEROCOPY 0x4000000
#endif

namespace salius::run {
namespace {

using gate::Kind;
using gate::OutputCall;
using gate::Where;

constexpr absl::string_view kDescriptors = "/proc/self/fd/";
constexpr int kMostMessages = 64;  // of one sendmmsg(2) that are looked at

struct CloseDir {
  void operator()(DIR* dir) const { ::closedir(dir); }
};
using Directory = std::unique_ptr<DIR, CloseDir>;

std::string DescriptorPath(int thread, int64_t fd) {
  return absl::StrCat("/proc/", thread, "/fd/", fd);
}

// The type and identity of a file.
struct Seen {
  mode_t mode = 0;  // the type; its other bits may be old
  dev_t device = 0, device_number = 0;
  uint64_t inode = 0;
};

// Looks at a file without a question to the daemon of a mount, but for its name. `flags`: of
// statx(2). Returns false with errno.
bool LookAt(int directory, const std::string& path, int flags, Seen* seen) {
  struct statx st {};
  if (::statx(directory, path.c_str(), flags | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_INO, &st) !=
      0) {
    return false;
  }
  *seen = {st.stx_mode, makedev(st.stx_dev_major, st.stx_dev_minor),
           makedev(st.stx_rdev_major, st.stx_rdev_minor), st.stx_ino};
  return true;
}

bool LookAt(const std::string& path, Seen* seen) { return LookAt(AT_FDCWD, path, 0, seen); }

bool IsStream(const Seen& seen) {
  return S_ISFIFO(seen.mode) || S_ISSOCK(seen.mode) || S_ISCHR(seen.mode);
}

bool IsNamed(const Seen& seen) { return S_ISREG(seen.mode) || S_ISDIR(seen.mode); }

std::pair<uint64_t, uint64_t> Identity(const Seen& seen) { return {seen.device, seen.inode}; }

std::string LinkOf(const std::string& path) {
  char text[PATH_MAX];
  const ssize_t size = ::readlink(path.c_str(), text, sizeof(text));
  return size > 0 ? std::string(text, static_cast<size_t>(size)) : std::string();
}

// Reads the memory of another process. It may change at any time. Returns false if it cannot.
template <typename Value>
bool ReadFrom(int thread, uint64_t address, Value* value) {
  const iovec here = {value, sizeof(*value)};
  const iovec there = {reinterpret_cast<void*>(address), sizeof(*value)};
  return ::process_vm_readv(thread, &here, 1, &there, 1, 0) == sizeof(*value);
}

bool ReadPath(int thread, uint64_t address, std::string* path) {
  path->clear();
  while (path->size() < PATH_MAX) {
    // A page at a time: the next one may not be there.
    char part[256];
    const size_t size = std::min<size_t>(sizeof(part), 4096 - (address & 4095));
    const iovec here = {part, size};
    const iovec there = {reinterpret_cast<void*>(address), size};
    const ssize_t got = ::process_vm_readv(thread, &here, 1, &there, 1, 0);
    if (got <= 0) return false;
    const size_t length = strnlen(part, static_cast<size_t>(got));
    path->append(part, length);
    if (length < static_cast<size_t>(got)) return true;
    address += static_cast<uint64_t>(got);
  }
  return false;
}

// Returns the number behind `name` in the status of a thread; -1: there is none.
int StatusNumber(int thread, const char* name) {
  const UniqueFd fd(
      ::open(absl::StrCat("/proc/", thread, "/status").c_str(), O_RDONLY | O_CLOEXEC));
  char text[1024];
  const ssize_t size = fd.valid() ? ::read(fd.get(), text, sizeof(text) - 1) : -1;
  if (size <= 0) return -1;
  text[size] = '\0';
  const char* const found = std::strstr(text, name);
  return found == nullptr ? -1 : std::atoi(found + std::strlen(name));
}

// Returns whether a signal does not end a process that has no handler for it, or is used within
// one by its runtime.
bool IsPlain(int signal) {
  return signal == 0 || signal == SIGURG || signal == SIGCHLD || signal == SIGWINCH ||
         signal == SIGCONT || signal == SIGUSR1 || signal == SIGUSR2 || signal >= 32;
}

}  // namespace

std::set<std::pair<uint64_t, uint64_t>> OpenStreams() {
  std::set<std::pair<uint64_t, uint64_t>> streams;
  const Directory directory(::opendir("/proc/self/fd"));
  while (directory != nullptr) {
    const dirent* const entry = ::readdir(directory.get());
    if (entry == nullptr) break;
    Seen seen;
    int fd = -1;
    if (absl::SimpleAtoi(entry->d_name, &fd) && LookAt(fd, "", AT_EMPTY_PATH, &seen) &&
        IsStream(seen)) {
      streams.insert(Identity(seen));
    }
  }
  return streams;
}

std::string HeldText(const std::set<std::pair<uint64_t, uint64_t>>& held) {
  std::string text;
  for (const auto& [device, inode] : held) {
    absl::StrAppend(&text, absl::Hex(device), ":", absl::Hex(inode), ",");
  }
  return text;
}

Supervisor::Supervisor(UniqueFd listener, gate::Gate& gate, Surroundings surroundings)
    : listener_(std::move(listener)),
      stop_(::eventfd(0, EFD_CLOEXEC)),
      gate_(gate),
      surroundings_(std::move(surroundings)) {
  SALIUS_CHECK(stop_.valid());
  // Not there: calls are answered a little later.
  static_cast<void>(!::ioctl(listener_.get(), SECCOMP_IOCTL_NOTIF_SET_FLAGS,
                             SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP));
  judge_ = std::thread([this] { Judge(); });
  waiter_ = std::thread([this] { WaitLoop(); });
}

Supervisor::~Supervisor() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  const uint64_t one = 1;
  static_cast<void>(!::write(stop_.get(), &one, sizeof(one)));
  judge_.join();
  waiter_.join();
}

bool Supervisor::AwaitLast(int timeout_ms) const {
  pollfd look{listener_.get(), 0, 0};  // POLLHUP is always reported
  int ready = 0;
  while ((ready = ::poll(&look, 1, timeout_ms)) < 0) SALIUS_CHECK(errno == EINTR, "poll");
  return ready > 0;
}

void Supervisor::Judge() {
  while (true) {
    pollfd fds[] = {{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    if (::poll(fds, 2, -1) < 0) {
      SALIUS_CHECK(errno == EINTR, "poll");
      continue;
    }
    if (fds[0].revents != 0) return;
    if ((fds[1].revents & POLLIN) == 0) {
      // The last process with the filter has ended. Waits for the destructor.
      if (fds[1].revents != 0) ::poll(fds, 1, -1);
      continue;
    }
    seccomp_notif call{};
    if (::ioctl(listener_.get(), SECCOMP_IOCTL_NOTIF_RECV, &call) == 0) Take(call);
  }
}

void Supervisor::Take(const seccomp_notif& call) {
  const OutputCall* const what = gate::FindOutputCall(call.data.nr);
  const bool ends = call.data.nr == SYS_exit_group || call.data.nr == SYS_exit;
  const Stopped stopped{call.id, ends};
  // The thread's call before this one has been made.
  if (changing_.erase(call.pid) != 0) gate_.Owe();
  if (what != nullptr && ChangesVolume(*what, call)) {
    changing_.insert(call.pid);
    gate_.Notice();
    if (what->where == Where::kDescriptor) return Answer(stopped, 0);
  }
  // Some calls take effect on later ones, so each is judged even if nothing is pending.
  const bool lasting = what != nullptr && (what->where == Where::kMap || what->where == Where::kLend ||
                                           what->where == Where::kAttach ||
                                           what->where == Where::kSendMessage ||
                                           call.data.nr == SYS_sendto);
  if (!lasting && !gate_.Pending()) return Answer(stopped, 0);
  if (what != nullptr && !IsOutput(*what, call)) return Answer(stopped, 0);
  absl::MutexLock lock(&mu_);
  waiting_.push_back(stopped);
}

void Supervisor::WaitLoop() {
  const auto wanted = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stopping_ || !waiting_.empty();
  };
  while (true) {
    std::vector<Stopped> calls;
    {
      absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(&wanted));
      if (stopping_) return;
      calls.swap(waiting_);
    }
    const int error = gate_.Pending() ? gate_.Await() : 0;
    for (const Stopped& call : calls) Answer(call, error);
  }
}

void Supervisor::Answer(const Stopped& call, int error) {
  seccomp_notif_resp answer{};
  answer.id = call.id;
  if (error == 0 || call.ends) {
    answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
  } else {
    answer.error = -error;
  }
  // It fails when the process has ended, or a signal has interrupted the call.
  static_cast<void>(!::ioctl(listener_.get(), SECCOMP_IOCTL_NOTIF_SEND, &answer));
}

bool Supervisor::IsOutput(const OutputCall& what, const seccomp_notif& call) {
  const auto thread = static_cast<int>(call.pid);
  const auto argument = [&](int index) { return call.data.args[index]; };
  const auto descriptor = [&](int index) { return static_cast<int>(argument(index)); };
  if (thread == 0) return true;  // of another PID namespace: not visible
  switch (what.where) {
    case Where::kAlways:
      return true;
    case Where::kDescriptor:
      if (call.data.nr == SYS_sendto && (argument(3) & MSG_ZEROCOPY) != 0 &&
          LeadsOutside(thread, descriptor(what.a))) {
        gate_.EndEarly(gate::kLentPages);
      }
      return LeadsOutside(thread, descriptor(what.a));
    case Where::kSendMessage:
      return SendsOutside(call);
    case Where::kLend:
      if (!LeadsOutside(thread, descriptor(what.a))) return false;
      gate_.EndEarly(gate::kLentPages);
      return true;
    case Where::kClose:
      return ShowsEnd(thread, descriptor(what.a));
    case Where::kScan:
      // The end of one thread of several closes nothing.
      if (call.data.nr == SYS_exit && StatusNumber(thread, "Threads:") > 1) return false;
      return AnyShowsEnd(thread, call.data.nr == SYS_execve || call.data.nr == SYS_execveat);
    case Where::kPath: {
      const auto outside = [&](int directory, int path) {
        return NameIsOutside(thread, directory < 0 ? AT_FDCWD : descriptor(directory),
                             argument(path));
      };
      return outside(what.a, what.b) || (what.d >= 0 && outside(what.c, what.d));
    }
    case Where::kSignal:
      return SignalsOutside(call, what);
    case Where::kMap:
      return MapsOutside(call, descriptor(what.a));
    case Where::kAttach:
      gate_.EndEarly(gate::kSharedMemory);
      return true;
  }
  return true;
}

bool Supervisor::ChangesVolume(const OutputCall& what, const seccomp_notif& call) const {
  if (surroundings_.root.empty()) return false;  // the daemons see it
  const auto thread = static_cast<int>(call.pid);
  const auto argument = [&](int index) { return call.data.args[index]; };
  switch (call.data.nr) {
    case SYS_fcntl:
    case SYS_flock:
    case SYS_ioctl:
      return false;  // locks and questions
    default:
      break;
  }
  if (what.where == Where::kDescriptor) return IsOfVolume(thread, static_cast<int>(argument(what.a)));
  if (what.where != Where::kPath) return false;
  const auto of_volume = [&](int directory, int path) {
    return !NameIsOutside(thread, directory < 0 ? AT_FDCWD : static_cast<int>(argument(directory)),
                          argument(path));
  };
  return of_volume(what.a, what.b) || (what.d >= 0 && of_volume(what.c, what.d));
}

bool Supervisor::IsOfVolume(int thread, int fd) const {
  Seen seen;
  return LookAt(DescriptorPath(thread, fd), &seen) && IsNamed(seen) &&
         InVolume(seen.device, DescriptorPath(thread, fd));
}

bool Supervisor::InVolume(uint64_t device, const std::string& link) const {
  return surroundings_.devices.count(device) != 0 &&
         (surroundings_.root.empty() || IsBelowRoot(LinkOf(link)));
}

bool Supervisor::IsBelowRoot(const std::string& path) const {
  const std::string& root = surroundings_.root;
  if (path == root) return true;
  if (!absl::StartsWith(path, root) || (root != "/" && path[root.size()] != '/')) return false;
  return !absl::StartsWith(path.substr(root == "/" ? 0 : root.size()), "/.salius/");
}

bool Supervisor::LeadsOutside(int thread, int fd) const {
  const std::string path = DescriptorPath(thread, fd);
  Seen seen;
  // Without a look (the process has changed its user, or the number is wrong) it is outside.
  if (!LookAt(path, &seen)) return true;
  if (surroundings_.window == Identity(seen)) return false;
  const bool named = IsNamed(seen);
  const bool in_volume = named && InVolume(seen.device, path);
  if (S_ISDIR(seen.mode)) return !in_volume;  // its attributes
  const bool inside = !named && gate_.Inside(seen.device, seen.inode);
  return gate::KindOf(seen.mode, seen.device_number, in_volume, inside) != Kind::kInside;
}

bool Supervisor::ShowsEnd(int thread, int fd) const {
  Seen seen;
  if (!LookAt(DescriptorPath(thread, fd), &seen)) return errno != ENOENT;  // nothing is open there
  return gate::KindOf(seen.mode, seen.device_number, false,
                      gate_.Inside(seen.device, seen.inode)) == Kind::kStream &&
         surroundings_.held.count(Identity(seen)) == 0;
}

bool Supervisor::AnyShowsEnd(int thread, bool at_exec) const {
  const Directory directory(::opendir(absl::StrCat("/proc/", thread, "/fd").c_str()));
  if (directory == nullptr) return true;
  while (const dirent* const entry = ::readdir(directory.get())) {
    int fd = -1;
    if (!absl::SimpleAtoi(entry->d_name, &fd) || !ShowsEnd(thread, fd)) continue;
    if (!at_exec) return true;
    // Only what has close-on-exec is closed.
    const UniqueFd info(::open(absl::StrCat("/proc/", thread, "/fdinfo/", fd).c_str(),
                               O_RDONLY | O_CLOEXEC));
    char text[256];
    const ssize_t size = info.valid() ? ::read(info.get(), text, sizeof(text) - 1) : -1;
    if (size <= 0) return true;
    text[size] = '\0';
    const char* const flags = std::strstr(text, "flags:");
    if (flags == nullptr || (std::strtoul(flags + 6, nullptr, 8) & O_CLOEXEC) != 0) return true;
  }
  return false;
}

bool Supervisor::NameIsOutside(int thread, int64_t directory, uint64_t address) const {
  std::string path;
  if (address == 0) return LeadsOutside(thread, static_cast<int>(directory));  // utimensat(2)
  if (!ReadPath(thread, address, &path)) return true;
  const std::string process = absl::StrCat("/proc/", thread);
  // The C library changes the mode of what may be a link by this name of a descriptor.
  int fd = -1;
  Seen own, theirs;
  if (absl::StartsWith(path, kDescriptors) &&
      absl::SimpleAtoi(path.substr(kDescriptors.size()), &fd) && LookAt("/proc", &own) &&
      LookAt(absl::StrCat(process, "/root/proc"), &theirs) && Identity(own) == Identity(theirs)) {
    return LeadsOutside(thread, fd);
  }
  std::string base;
  if (!path.empty() && path[0] == '/') {
    base = absl::StrCat(process, "/root");
  } else if (directory == AT_FDCWD) {
    base = absl::StrCat(process, "/cwd/");
  } else {
    base = absl::StrCat(DescriptorPath(thread, directory), "/");
  }
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const size_t slash = path.rfind('/');
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  if (name == "." || name == ".." || name.empty()) return true;
  const std::string parent =
      absl::StrCat(base, slash == std::string::npos ? "" : path.substr(0, slash), "/");
  const UniqueFd folder(::open(parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return errno != ENOENT && errno != ENOTDIR;  // the call fails
  Seen parent_seen, seen;
  if (!LookAt(folder.get(), "", AT_EMPTY_PATH, &parent_seen) ||
      !InVolume(parent_seen.device, absl::StrCat("/proc/self/fd/", folder.get()))) {
    return true;
  }
  // The call may follow a link that leads outside.
  return LookAt(folder.get(), name, AT_SYMLINK_NOFOLLOW, &seen) &&
         (S_ISLNK(seen.mode) || surroundings_.devices.count(seen.device) == 0);
}

bool Supervisor::SendsOutside(const seccomp_notif& call) {
  const auto thread = static_cast<int>(call.pid);
  if (!LeadsOutside(thread, static_cast<int>(call.data.args[0]))) return false;
  const bool several = call.data.nr == SYS_sendmmsg;
  const uint64_t count = several ? call.data.args[2] : 1;
  bool passes = count > kMostMessages;
  for (uint64_t i = 0; i < count && !passes; ++i) {
    msghdr message{};
    const size_t size = several ? sizeof(mmsghdr) : 0;
    // An unreadable message may pass anything.
    passes = !ReadFrom(thread, call.data.args[1] + i * size, &message) ||
             message.msg_controllen > 0;
  }
  if (passes) gate_.Passed();
  if ((call.data.args[several ? 3 : 2] & MSG_ZEROCOPY) != 0) gate_.EndEarly(gate::kLentPages);
  return true;
}

bool Supervisor::SignalsOutside(const seccomp_notif& call, const OutputCall& what) const {
  const auto target = static_cast<int>(call.data.args[what.a]);
  const auto signal = static_cast<int>(call.data.args[what.b]);
  if (signal == 0) return false;
  // A signal that ends a process closes what it has open.
  if (!IsPlain(signal) || target <= 0) return true;
  const int own = StatusNumber(static_cast<int>(call.pid), "Tgid:");
  // `target` is of the caller's PID namespace, which must be this one to be compared.
  return own < 0 || StatusNumber(target, "Tgid:") != own ||
         LinkOf(absl::StrCat("/proc/", call.pid, "/ns/pid")) != LinkOf("/proc/self/ns/pid");
}

bool Supervisor::MapsOutside(const seccomp_notif& call, int fd) {
  const auto thread = static_cast<int>(call.pid);
  if (!LeadsOutside(thread, fd)) return false;
  const UniqueFd info(::open(absl::StrCat("/proc/", thread, "/fdinfo/", fd).c_str(),
                             O_RDONLY | O_CLOEXEC));
  char text[256];
  const ssize_t size = info.valid() ? ::read(info.get(), text, sizeof(text) - 1) : -1;
  if (size > 0) {
    text[size] = '\0';
    const char* const flags = std::strstr(text, "flags:");
    // Only a descriptor for both can have a writable shared map, now or by mprotect(2).
    if (flags != nullptr && (std::strtoul(flags + 6, nullptr, 8) & O_ACCMODE) != O_RDWR) {
      return false;
    }
  }
  gate_.EndEarly(gate::kSharedMap);
  return true;
}

}  // namespace salius::run
