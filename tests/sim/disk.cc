#include "tests/sim/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>

#include <algorithm>
#include <cstring>

#include "common/check.h"

namespace salius::sim {
namespace {

Disk* g_current = nullptr;

int Fail(int err) {
  errno = err;
  return -1;
}

bool AllZero(const char* data, uint64_t size) {
  return size == 0 || (data[0] == 0 && std::memcmp(data, data + 1, size - 1) == 0);
}

}  // namespace

Disk* Disk::current() { return g_current; }

Disk::Disk() {
  SALIUS_CHECK(g_current == nullptr, "one disk at a time");
  g_current = this;
}
Disk::~Disk() { g_current = nullptr; }

void Disk::Bytes::Write(uint64_t off, const char* data, uint64_t n) {
  size = std::max(size, off + n);
  while (n > 0) {
    const uint64_t at = off % kPage;
    const uint64_t part = std::min(n, kPage - at);
    auto found = pages.find(off / kPage);
    if (found == pages.end()) {
      if (!AllZero(data, part)) {
        auto page = std::make_shared<Page>();
        page->fill(0);
        std::memcpy(page->data() + at, data, part);
        pages.emplace(off / kPage, std::move(page));
      }
    } else {
      // Pages are shared between states and images; never change one that somebody else sees.
      if (found->second.use_count() > 1) found->second = std::make_shared<Page>(*found->second);
      std::memcpy(found->second->data() + at, data, part);
    }
    off += part;
    data += part;
    n -= part;
  }
}

void Disk::Bytes::Read(uint64_t off, char* out, uint64_t n) const {
  std::memset(out, 0, n);
  for (auto at = pages.lower_bound(off / kPage); at != pages.end() && at->first * kPage < off + n;
       ++at) {
    const uint64_t begin = std::max(off, at->first * kPage);
    const uint64_t end = std::min(off + n, (at->first + 1) * kPage);
    std::memcpy(out + (begin - off), at->second->data() + begin % kPage, end - begin);
  }
}

Disk::Job Disk::BeginJob() {
  SALIUS_CHECK(job_ == 0);
  return job_ = next_job_++;
}

bool Disk::Change() {
  if (dead_ || (++changes_ == dies_at_)) {
    dead_ = true;
    errno = EIO;
    return false;
  }
  return true;
}

void Disk::Do(State& state, const Op& op) const {
  switch (op.kind) {
    case Op::kWrite:
      state.files[op.inode].Write(op.off, op.data.data(), op.data.size());
      break;
    case Op::kCreate:
      state.names[op.data] = op.inode;
      state.files[op.inode];
      break;
    case Op::kTruncate:
      state.files[op.inode] = Bytes();
      break;
    case Op::kRename:
      state.names[op.to] = op.inode;
      state.names.erase(op.data);
      break;
    case Op::kBarrier:
      break;
  }
}

void Disk::DoPart(State& state, const Op& op, Random& random) const {
  if (op.kind != Op::kWrite) {
    if (random.Chance(0.5)) Do(state, op);
    return;
  }
  for (uint64_t at = 0; at < op.data.size();) {
    const uint64_t part = std::min(op.data.size() - at, kSector - (op.off + at) % kSector);
    if (random.Chance(0.5)) state.files[op.inode].Write(op.off + at, op.data.data() + at, part);
    at += part;
  }
}

void Disk::Note(Op op) {
  op.job = job_;
  Do(now_, op);
  log_.push_back(std::move(op));
}

void Disk::Persist(Job job) {
  size_t end = 0;  // behind the last sync
  for (size_t i = 0; i < log_.size(); ++i) {
    if (log_[i].job == job && log_[i].kind == Op::kBarrier) end = i + 1;
  }
  std::vector<Op> rest;
  for (size_t i = 0; i < log_.size(); ++i) {
    Op& op = log_[i];
    if (op.job != job) {
      rest.push_back(std::move(op));
    } else if (i < end) {
      Do(disk_, op);
    } else {
      op.job = 0;
      rest.push_back(std::move(op));
    }
  }
  log_ = std::move(rest);
}

void Disk::Crash(Random& random, bool power) {
  if (!power) {
    for (const Op& op : log_) Do(disk_, op);
  } else {
    std::map<Job, uint64_t> barriers;
    for (const Op& op : log_) barriers[op.job] += op.kind == Op::kBarrier ? 1 : 0;
    std::map<Job, uint64_t> last;  // the sync after which only parts arrived
    for (const auto& [job, count] : barriers) last[job] = random.Below(count + 1);
    std::map<Job, uint64_t> passed;
    for (const Op& op : log_) {
      uint64_t& behind = passed[op.job];
      if (op.kind == Op::kBarrier) {
        ++behind;
      } else if (behind < last[op.job]) {
        Do(disk_, op);
      } else if (behind == last[op.job]) {
        DoPart(disk_, op, random);
      }
    }
  }
  now_ = disk_;
  log_.clear();
  fds_.clear();
  positions_.clear();
  job_ = 0;
  dies_at_ = 0;
  dead_ = fail_sync_ = false;
}

std::shared_ptr<const Disk::Image> Disk::TakeImage() const {
  return std::make_shared<Image>(Image{now_, next_inode_});
}

void Disk::SetImage(const Image& image) {
  now_ = disk_ = image.state;
  next_inode_ = image.next_inode;
}

int Disk::Open(const char* name, int flags) {
  if (dead_) return Fail(EIO);
  if (std::strcmp(name, ".") == 0) {
    fds_[next_fd_] = 0;
    return next_fd_++;
  }
  const auto found = now_.names.find(name);
  Inode inode;
  if (found == now_.names.end()) {
    if ((flags & O_CREAT) == 0) return Fail(ENOENT);
    if (!Change()) return -1;
    inode = next_inode_++;
    Note({Op::kCreate, 0, inode, 0, name, ""});
  } else {
    if ((flags & O_EXCL) != 0) return Fail(EEXIST);
    inode = found->second;
    if ((flags & O_TRUNC) != 0) {
      if (!Change()) return -1;
      Note({Op::kTruncate, 0, inode, 0, "", ""});
    }
  }
  fds_[next_fd_] = inode;
  return next_fd_++;
}

int Disk::Close(int fd) { return fds_.erase(fd) > 0 ? 0 : Fail(EBADF); }

ssize_t Disk::Pread(int fd, void* buf, size_t n, off_t off) {
  const auto found = fds_.find(fd);
  if (found == fds_.end()) return Fail(EBADF);
  if (dead_) return Fail(EIO);
  const Bytes& bytes = now_.files[found->second];
  const auto at = static_cast<uint64_t>(off);
  if (at >= bytes.size) return 0;
  const uint64_t got = std::min<uint64_t>(n, bytes.size - at);
  bytes.Read(at, static_cast<char*>(buf), got);
  return static_cast<ssize_t>(got);
}

ssize_t Disk::Read(int fd, void* buf, size_t n) {
  const ssize_t got = Pread(fd, buf, n, positions_[fd]);
  if (got > 0) positions_[fd] += got;
  return got;
}

ssize_t Disk::Pwritev(int fd, const iovec* parts, int count, off_t off, int flags) {
  const auto found = fds_.find(fd);
  if (found == fds_.end()) return Fail(EBADF);
  if (dead_) return Fail(EIO);
  const bool dies = !Change();  // then any part of it may still arrive
  std::string data;
  for (int i = 0; i < count; ++i) {
    data.append(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
  }
  const size_t size = data.size();
  Note({Op::kWrite, 0, found->second, static_cast<uint64_t>(off), std::move(data), ""});
  if (dies) return Fail(EIO);
  if ((flags & (RWF_DSYNC | RWF_SYNC)) != 0 && Sync(fd) != 0) return -1;
  return static_cast<ssize_t>(size);
}

int Disk::Sync(int fd) {
  if (fd != kFirstFd && fds_.count(fd) == 0) return Fail(EBADF);
  if (dead_) return Fail(EIO);
  if (std::exchange(fail_sync_, false)) return Fail(EIO);
  log_.push_back({Op::kBarrier, job_, 0, 0, "", ""});
  if (job_ == 0) Persist(0);
  return 0;
}

int Disk::Stat(int fd, struct stat* st) {
  const auto found = fds_.find(fd);
  if (found == fds_.end()) return Fail(EBADF);
  std::memset(st, 0, sizeof(*st));
  st->st_mode = S_IFREG | 0600;
  st->st_size = static_cast<off_t>(now_.files[found->second].size);
  return 0;
}

int Disk::Rename(const char* from, const char* to) {
  const auto found = now_.names.find(from);
  if (found == now_.names.end()) return Fail(ENOENT);
  if (!Change()) return -1;
  Note({Op::kRename, 0, found->second, 0, from, to});
  return 0;
}

}  // namespace salius::sim

// The linker sends every call of these functions here.
using salius::sim::Disk;

namespace {
bool Ours(int fd) { return fd >= Disk::kFirstFd && Disk::current() != nullptr; }
}  // namespace

extern "C" {
int __real_openat(int, const char*, int, ...);
int __real_close(int);
ssize_t __real_pread(int, void*, size_t, off_t);
ssize_t __real_read(int, void*, size_t);
ssize_t __real_pwritev2(int, const iovec*, int, off_t, int);
int __real_fsync(int);
int __real_fdatasync(int);
int __real_fstat(int, struct stat*);
int __real_renameat(int, const char*, int, const char*);
int __real_posix_fadvise(int, off_t, off_t, int);

int __wrap_openat(int dirfd, const char* path, int flags, ...) {
  if (Ours(dirfd)) return Disk::current()->Open(path, flags);
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = va_arg(arguments, mode_t);
  va_end(arguments);
  return __real_openat(dirfd, path, flags, mode);
}
int __wrap_close(int fd) { return Ours(fd) ? Disk::current()->Close(fd) : __real_close(fd); }
ssize_t __wrap_pread(int fd, void* buf, size_t n, off_t off) {
  return Ours(fd) ? Disk::current()->Pread(fd, buf, n, off) : __real_pread(fd, buf, n, off);
}
ssize_t __wrap___pread_chk(int fd, void* buf, size_t n, off_t off, size_t) {
  return __wrap_pread(fd, buf, n, off);
}
ssize_t __wrap_read(int fd, void* buf, size_t n) {
  return Ours(fd) ? Disk::current()->Read(fd, buf, n) : __real_read(fd, buf, n);
}
ssize_t __wrap___read_chk(int fd, void* buf, size_t n, size_t) { return __wrap_read(fd, buf, n); }
ssize_t __wrap_pwritev2(int fd, const iovec* parts, int count, off_t off, int flags) {
  return Ours(fd) ? Disk::current()->Pwritev(fd, parts, count, off, flags)
                  : __real_pwritev2(fd, parts, count, off, flags);
}
int __wrap_fsync(int fd) { return Ours(fd) ? Disk::current()->Sync(fd) : __real_fsync(fd); }
int __wrap_fdatasync(int fd) { return Ours(fd) ? Disk::current()->Sync(fd) : __real_fdatasync(fd); }
int __wrap_fstat(int fd, struct stat* st) {
  return Ours(fd) ? Disk::current()->Stat(fd, st) : __real_fstat(fd, st);
}
int __wrap_renameat(int fromfd, const char* from, int tofd, const char* to) {
  return Ours(fromfd) ? Disk::current()->Rename(from, to) : __real_renameat(fromfd, from, tofd, to);
}
int __wrap_posix_fadvise(int fd, off_t off, off_t size, int advice) {
  return Ours(fd) ? 0 : __real_posix_fadvise(fd, off, size, advice);
}
}  // extern "C"
