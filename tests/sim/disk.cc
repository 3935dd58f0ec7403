#include "tests/sim/disk.h"

#include <errno.h>
#include <fcntl.h>

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

Disk::Disk(uint64_t seed, double sector) : random_(seed), sector_(sector) {
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
      // Pages are shared between states and images: copy a shared page before a change.
      if (found->second.use_count() > 1) found->second = std::make_shared<Page>(*found->second);
      std::memcpy(found->second->data() + at, data, part);
    }
    off += part;
    data += part;
    n -= part;
  }
}

void Disk::Bytes::Read(uint64_t off, char* out, uint64_t n) const {
  uint64_t zeros = off;  // positions without a page
  for (auto at = pages.lower_bound(off / kPage); at != pages.end() && at->first * kPage < off + n;
       ++at) {
    const uint64_t begin = std::max(off, at->first * kPage);
    const uint64_t end = std::min(off + n, (at->first + 1) * kPage);
    std::memset(out + (zeros - off), 0, begin - zeros);
    std::memcpy(out + (begin - off), at->second->data() + begin % kPage, end - begin);
    zeros = end;
  }
  std::memset(out + (zeros - off), 0, off + n - zeros);
}

Disk::Job Disk::BeginJob() {
  SALIUS_CHECK(job_ == 0);
  return job_ = next_job_++;
}

bool Disk::Change(bool needs_room) {
  if (dead_ || (++changes_ == dies_at_)) {
    if (!dead_) EndMappings();
    dead_ = true;
    errno = EIO;
    return false;
  }
  if (needs_room && changes_ >= full_at_) {
    errno = ENOSPC;
    return false;
  }
  return true;
}

void Disk::Mend() {
  HasRoom();
  dies_at_ = 0;
  fail_sync_ = fail_write_ = 0;
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
    case Op::kUnlink:
      state.names.erase(op.data);
      break;
    case Op::kBarrier:
      break;
  }
}

void Disk::DoPart(State& state, const Op& op) {
  if (op.kind != Op::kWrite) {
    if (random_.Chance(sector_)) Do(state, op);
    return;
  }
  for (uint64_t at = 0; at < op.data.size();) {
    const uint64_t part = std::min(op.data.size() - at, kSector - (op.off + at) % kSector);
    if (random_.Chance(sector_))
      state.files[op.inode].Write(op.off + at, op.data.data() + at, part);
    at += part;
  }
}

void Disk::Note(Op op) {
  op.job = job_;
  Do(now_, op);
  log_.push_back(std::move(op));
}

class Disk::Synced {
 public:
  void Add(Inode inode) {
    names_ = true;  // a journal commits all of them
    if (inode == kEverything) {
      all_ = true;
    } else if (!Has(inode)) {
      inodes_.push_back(inode);
    }
  }
  bool Covers(const Op& op) const { return all_ || (op.names() ? names_ : Has(op.inode)); }

 private:
  bool Has(Inode inode) const {
    return std::find(inodes_.begin(), inodes_.end(), inode) != inodes_.end();
  }
  bool all_ = false, names_ = false;
  std::vector<Inode> inodes_;
};

void Disk::Persist(Job job) {
  Synced synced;
  std::vector<bool> sure(log_.size());
  for (size_t i = log_.size(); i-- > 0;) {
    if (log_[i].job != job) continue;
    if (log_[i].kind == Op::kBarrier) {
      synced.Add(log_[i].inode);
    } else {
      sure[i] = synced.Covers(log_[i]);
    }
  }
  size_t kept = 0;
  for (size_t i = 0; i < log_.size(); ++i) {
    Op& op = log_[i];
    if (op.job == job) {
      if (op.kind == Op::kBarrier) continue;
      if (sure[i]) {
        Do(disk_, op);
        continue;
      }
      op.job = 0;
    }
    if (kept != i) log_[kept] = std::move(op);
    ++kept;
  }
  log_.resize(kept);
}

void Disk::Lose(Inode inode) {
  std::erase_if(log_, [&](const Op& op) {
    if (op.kind != Op::kWrite || op.inode != inode || (op.job != job_ && op.job != 0)) return false;
    DoPart(disk_, op);
    return true;
  });
  if (std::find(lost_.begin(), lost_.end(), inode) == lost_.end()) lost_.push_back(inode);
}

void Disk::PowerCut() {
  // Each job reached one of its syncs, and a part of the way to the next.
  std::map<Job, uint64_t> syncs, done;
  for (const Op& op : log_) syncs[op.job] += op.kind == Op::kBarrier ? 1 : 0;
  for (const auto& [job, count] : syncs) done[job] = random_.Below(count + 1);
  std::vector<uint64_t> behind(log_.size());  // number of syncs of its job before it
  std::map<Job, uint64_t> passed;
  for (size_t i = 0; i < log_.size(); ++i) {
    behind[i] = passed[log_[i].job];
    if (log_[i].kind == Op::kBarrier) ++passed[log_[i].job];
  }
  std::map<Job, Synced> synced;
  std::vector<bool> sure(log_.size());
  for (size_t i = log_.size(); i-- > 0;) {
    const Op& op = log_[i];
    if (op.kind != Op::kBarrier) {
      sure[i] = synced[op.job].Covers(op);
    } else if (behind[i] < done[op.job]) {
      synced[op.job].Add(op.inode);
    }
  }
  for (size_t i = 0; i < log_.size(); ++i) {
    const Op& op = log_[i];
    if (op.kind == Op::kBarrier) continue;
    if (sure[i]) {
      Do(disk_, op);
    } else if (behind[i] <= done[op.job]) {
      DoPart(disk_, op);
    }
  }
}

void Disk::Crash(Death death) {
  EndMappings();
  std::erase_if(log_,
                [&](const Op& op) { return death != Death::kPower && op.kind == Op::kBarrier; });
  if (death == Death::kProcess) {
    for (Op& op : log_) op.job = 0;
  } else {
    if (death == Death::kPower) {
      PowerCut();
    } else {
      for (const Op& op : log_) Do(disk_, op);
    }
    now_ = disk_;
    log_.clear();
    lost_.clear();
    ++mount_;
  }
  if (death == Death::kPower) NewBoot();
  fds_.clear();
  positions_.clear();
  job_ = 0;
  Mend();
  dead_ = false;
}

void Disk::NewBoot() {
  ++boot_;
  mount_ = 1;  // ids start again
  std::string id = "boot 00000000000000000000000000000000\n";
  for (uint64_t n = boot_, at = id.size() - 2; n > 0; n /= 10, --at) {
    id[at] = static_cast<char>('0' + n % 10);
  }
  for (State* state : {&now_, &disk_}) {
    state->files[kBootIdFile] = Bytes();
    state->files[kBootIdFile].Write(0, id.data(), id.size());
  }
}

std::shared_ptr<const Disk::Image> Disk::TakeImage() const {
  return std::make_shared<Image>(Image{now_, next_inode_});
}

void Disk::SetImage(const Image& image) {
  now_ = disk_ = image.state;
  next_inode_ = image.next_inode;
  NewBoot();
}

int Disk::OpenBootId() {
  fds_[next_fd_] = kBootIdFile;
  return next_fd_++;
}

int Disk::OpenKernelFile(const std::string& path) {
  std::string text = "0\n";
  if (path.ends_with("/uevent")) text = "MAJOR=0\nDEVNAME=sim\n";
  if (path.ends_with("/warning_count")) text = std::to_string(complaints_) + "\n";
  now_.files[kKernelFile] = Bytes();
  now_.files[kKernelFile].Write(0, text.data(), text.size());
  fds_[next_fd_] = kKernelFile;
  return next_fd_++;
}

int Disk::Open(const char* name, int flags) {
  if (dead_) return Fail(EIO);
  if (std::strcmp(name, ".") == 0) {
    fds_[next_fd_] = kDirectory;
    return next_fd_++;
  }
  const auto found = now_.names.find(name);
  Inode inode;
  if (found == now_.names.end()) {
    if ((flags & O_CREAT) == 0) return Fail(ENOENT);
    if (!Change(true)) return -1;
    inode = next_inode_++;
    Note({Op::kCreate, 0, inode, 0, name, ""});
  } else {
    if ((flags & O_EXCL) != 0) return Fail(EEXIST);
    inode = found->second;
    if ((flags & O_TRUNC) != 0) {
      if (!Change(false)) return -1;
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
  const bool goes = Change(true);  // if it dies during the call, any part may still arrive
  const bool full = !goes && errno == ENOSPC;
  const bool breaks = goes && fail_write_ > 0 && --fail_write_ == 0;
  std::string data;
  for (int i = 0; i < count; ++i) {
    data.append(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
  }
  const size_t whole = data.size();
  if (full || breaks) data.resize(random_.Below(whole));
  const size_t size = data.size();
  if (size > 0) {
    Note({Op::kWrite, 0, found->second, static_cast<uint64_t>(off), std::move(data), ""});
  }
  if (breaks || (!goes && !full)) return Fail(EIO);
  if (size == 0 && whole > 0) return Fail(ENOSPC);
  // A full disk takes a part and returns its size; the next call gets the error.
  if ((flags & (RWF_DSYNC | RWF_SYNC)) != 0 && Sync(fd) != 0) return -1;
  return static_cast<ssize_t>(size);
}

int Disk::Sync(int fd) {
  const auto found = fds_.find(fd);
  if (fd != kFirstFd && found == fds_.end()) return Fail(EBADF);
  if (dead_) return Fail(EIO);
  const Inode inode = fd == kFirstFd ? kDirectory : found->second;
  if (fail_sync_ > 0 && --fail_sync_ == 0) {
    Lose(inode);
    return Fail(EIO);
  }
  log_.push_back({Op::kBarrier, job_, inode, 0, "", ""});
  if (job_ == 0) Persist(0);
  return 0;
}

int Disk::SyncFs() {
  if (dead_) return Fail(EIO);
  if (!Change(false)) {
    if (last_sync_fails_ && on_syncfs_) on_syncfs_(true);
    return Fail(EIO);
  }
  const bool fails = fail_sync_ > 0 && --fail_sync_ == 0;
  if (on_syncfs_) on_syncfs_(fails);
  if (fails) return Fail(EIO);
  for (const auto& [address, mapping] : mapped_) NoteMapped(mapping.second, mapping.first);
  log_.push_back({Op::kBarrier, job_, kEverything, 0, "", ""});
  if (job_ == 0) Persist(0);
  return 0;
}

void Disk::DropCache(int fd) {
  const auto found = fds_.find(fd);
  if (found == fds_.end() || std::erase(lost_, found->second) == 0) return;
  // Clean data goes; unsynced data stays.
  now_.files[found->second] = disk_.files[found->second];
  for (const Op& op : log_) {
    if (op.inode == found->second && (op.kind == Op::kWrite || op.kind == Op::kTruncate)) {
      Do(now_, op);
    }
  }
}

void* Disk::Map(int fd, size_t size) {
  const auto found = fds_.find(fd);
  SALIUS_CHECK(found != fds_.end() && size == kPage);
  auto page = std::make_shared<Page>();
  now_.files[found->second].Read(0, page->data(), kPage);
  void* const address = page->data();
  mapped_[address] = {found->second, std::move(page)};
  return address;
}

bool Disk::Unmap(void* address) {
  const auto found = mapped_.find(address);
  if (found == mapped_.end()) return false;
  NoteMapped(found->second.second, found->second.first);
  mapped_.erase(found);
  return true;
}

// Notes that a store into a mapping is in the page cache, like a write.
void Disk::NoteMapped(const std::shared_ptr<Page>& page, Inode inode) {
  if (inode == kEverything) return;
  Note({Op::kWrite, 0, inode, 0, std::string(page->data(), kPage), ""});
}

// Ends the mappings of a process that dies: its later stores have no effect.
void Disk::EndMappings() {
  for (auto& [address, mapping] : mapped_) {
    NoteMapped(mapping.second, mapping.first);
    mapping.first = kEverything;
  }
}

int Disk::Stat(int fd, struct stat* st) {
  std::memset(st, 0, sizeof(*st));
  st->st_mode = S_IFDIR | 0700;
  if (fd == dirfd()) return 0;
  const auto found = fds_.find(fd);
  if (found == fds_.end()) return Fail(EBADF);
  st->st_mode = S_IFREG | 0600;
  st->st_size = static_cast<off_t>(now_.files[found->second].size);
  return 0;
}

int Disk::Rename(const char* from, const char* to) {
  const auto found = now_.names.find(from);
  if (found == now_.names.end()) return Fail(ENOENT);
  if (!Change(true)) return -1;
  Note({Op::kRename, 0, found->second, 0, from, to});
  return 0;
}

int Disk::Unlink(const char* name) {
  if (dead_) return Fail(EIO);
  const auto found = now_.names.find(name);
  if (found == now_.names.end()) return Fail(ENOENT);
  if (!Change(false)) return -1;
  Note({Op::kUnlink, 0, found->second, 0, name, ""});
  return 0;
}

}  // namespace salius::sim
