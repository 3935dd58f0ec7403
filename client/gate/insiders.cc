#include "client/gate/insiders.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/strings.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77  // Linux 6.5
#endif

namespace salius::gate {
namespace {

bool IsReady(int fd, short events) {
  pollfd look{fd, events, 0};
  return ::poll(&look, 1, 0) != 0;
}

bool HungUp(int connection) { return IsReady(connection, POLLRDHUP); }

// Returns whether the process that made the connection has ended, where the kernel can say.
bool PeerEnded(int connection) {
  int pidfd = -1;
  socklen_t length = sizeof(pidfd);
  if (::getsockopt(connection, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) != 0) {
    return errno != ENOPROTOOPT;  // an older kernel; else the process has been reaped
  }
  const UniqueFd held(pidfd);
  return IsReady(pidfd, POLLIN);
}

}  // namespace

pid_t ParseTgid(std::string_view status) {
  constexpr absl::string_view kField = "Tgid:";
  for (absl::string_view line : absl::StrSplit(Av(status), '\n')) {
    if (!absl::StartsWith(line, kField)) continue;
    int32_t tgid = 0;
    return absl::SimpleAtoi(line.substr(kField.size()), &tgid) && tgid > 0 ? tgid : 0;
  }
  return 0;
}

absl::StatusOr<pid_t> Insiders::Add(int connection, uint32_t session) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return ErrnoStatus(errno, "SO_PEERCRED");
  }
  if (peer.pid <= 0) {
    return absl::UnavailableError("the process is in another PID namespace than the mount");
  }
  auto process = std::make_shared<Process>();
  process->tgid = peer.pid;
  process->session = session;
  process->connection.Reset(::fcntl(connection, F_DUPFD_CLOEXEC, 0));
  if (!process->connection.valid()) return ErrnoStatus(errno, "F_DUPFD_CLOEXEC");
  const std::string place = absl::StrCat("/proc/", peer.pid);
  process->tasks.Reset(
      ::open(absl::StrCat(place, "/task").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  process->memory.Reset(::open(absl::StrCat(place, "/mem").c_str(), O_RDONLY | O_CLOEXEC));
  if (!process->tasks.valid() || !process->memory.valid()) {
    return absl::UnavailableError(absl::StrCat(place, " cannot be opened"));
  }
  // Now it is known whose descriptors these are: a process that lives had its number all the time.
  if (HungUp(connection) || PeerEnded(connection)) {
    return absl::UnavailableError("the process has ended");
  }
  absl::MutexLock lock(&mu_);
  for (const auto& [other, known] : by_connection_) {
    if (session != 0 && known->session == session && known->outside) process->outside = true;
  }
  by_connection_[connection] = std::move(process);
  return peer.pid;
}

void Insiders::Remove(int connection) {
  absl::MutexLock lock(&mu_);
  const auto found = by_connection_.find(connection);
  if (found == by_connection_.end()) return;
  absl::erase_if(by_thread_, [&](const auto& known) { return known.second == found->second; });
  by_connection_.erase(found);
}

void Insiders::EndSession(int connection) {
  absl::MutexLock lock(&mu_);
  const auto found = by_connection_.find(connection);
  if (found == by_connection_.end()) return;
  const uint32_t session = found->second->session;
  found->second->outside = true;
  for (const auto& [other, known] : by_connection_) {
    if (session != 0 && known->session == session) known->outside = true;
  }
}

size_t Insiders::size() const {
  absl::ReaderMutexLock lock(&mu_);
  return by_connection_.size();
}

bool Insiders::IsThread(const Process& process, uint32_t tid) {
  if (process.outside || HungUp(process.connection.get())) return false;
  // No program has a page at address 0 (vm.mmap_min_addr), so a live one gives an error.
  char byte = 0;
  if (::pread(process.memory.get(), &byte, 1, 0) == 0) return false;
  char name[16];
  std::snprintf(name, sizeof(name), "%u", tid);
  return ::faccessat(process.tasks.get(), name, F_OK, 0) == 0;
}

std::vector<Insiders::ProcessRef> Insiders::Find(pid_t tgid) const {
  std::vector<ProcessRef> found;
  absl::ReaderMutexLock lock(&mu_);
  for (const auto& [connection, process] : by_connection_) {
    if (process->tgid == tgid) found.push_back(process);
  }
  return found;
}

bool Insiders::Contains(uint32_t tid) {
  if (tid == 0) return false;
  ProcessRef known;
  {
    absl::ReaderMutexLock lock(&mu_);
    if (by_connection_.empty()) return false;
    if (const auto found = by_thread_.find(tid); found != by_thread_.end()) known = found->second;
  }
  if (known != nullptr && IsThread(*known, tid)) return true;
  const absl::StatusOr<std::string> status = ReadWholeFile(absl::StrCat("/proc/", tid, "/status"));
  const pid_t tgid = status.ok() ? ParseTgid(*status) : 0;
  for (const ProcessRef& process : Find(tgid)) {
    if (!IsThread(*process, tid)) continue;
    absl::MutexLock lock(&mu_);
    if (by_thread_.size() >= kMaxKnown) by_thread_.clear();
    by_thread_[tid] = process;
    return true;
  }
  return false;
}

}  // namespace salius::gate
