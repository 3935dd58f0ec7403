#include "client/preload/library.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/preload/look.h"
#include "client/preload/raw_call.h"
#include "client/preload/real_calls.h"
#include "client/preload/section.h"

extern "C" {
constinit std::atomic<int> salius_preload_borrowers{0};
constinit std::atomic<int> salius_preload_started{0};
int __register_atfork(void (*prepare)(), void (*parent)(), void (*child)(), void* handle);
extern void* __dso_handle;
}

namespace salius::preload {
namespace {

using direct::Reason;

// A descriptor whose O_SYNC the kernel does not have says so to every process that gets it: by
// fork, exec or a socket. The sign is the signal of fcntl(F_SETSIG), which belongs to the open file
// description and means nothing for a file without O_ASYNC.
constexpr int kDataSyncSign = 62;
constexpr int kFullSyncSign = 63;

// Depth of this thread's sections.
__attribute__((tls_model("initial-exec"))) thread_local int depth = 0;

constexpr unsigned long SignalBit(int signal) { return 1UL << (signal - 1); }
// All signals but those that a fault raises in the faulting thread.
constexpr unsigned long kBlockable = ~(SignalBit(SIGSEGV) | SignalBit(SIGBUS) | SignalBit(SIGFPE) |
                                       SignalBit(SIGILL) | SignalBit(SIGTRAP) | SignalBit(SIGSYS));

bool Writable(int flags) { return (flags & O_ACCMODE) != O_RDONLY; }

uint8_t MarksOf(int flags) {
  if ((flags & O_SYNC) == O_SYNC) return Descriptor::kDataSync | Descriptor::kFullSync;
  return (flags & O_DSYNC) != 0 ? Descriptor::kDataSync : 0;
}

// Returns the marks that another process, or an earlier program of this one, left at `fd`.
uint8_t MarksLeftAt(int fd) {
  switch (Raw(SYS_fcntl, fd, F_GETSIG)) {
    case kDataSyncSign:
      return Descriptor::kDataSync;
    case kFullSyncSign:
      return Descriptor::kDataSync | Descriptor::kFullSync;
    default:
      return 0;
  }
}

bool SameFile(int one, int other) {
  struct stat first, second;
  return Raw(SYS_fstat, one, &first) == 0 && Raw(SYS_fstat, other, &second) == 0 &&
         first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

// Returns whether a process has a record lock on the file of `fd`, which itself has none.
bool IsLocked(int fd) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (Raw(SYS_fcntl, fd, F_OFD_GETLK, &lock) == 0) return lock.l_type != F_UNLCK;
  // A write lock is refused for a descriptor that only reads; the question is not.
  return true;
}

// Stores "/proc/self/fd/FD" at `path`, which has 32 bytes.
void DescriptorPath(int fd, char* path) {
  constexpr char kFolder[] = "/proc/self/fd/";
  char digits[12];
  int count = 0;
  do {
    digits[count++] = static_cast<char>('0' + fd % 10);
    fd /= 10;
  } while (fd != 0);
  char* at = path;
  for (const char* from = kFolder; *from != '\0';) *at++ = *from++;
  while (count > 0) *at++ = digits[--count];
  *at = '\0';
}

}  // namespace

constinit Library library;

bool Section::Inside() { return depth > 0; }

Section::Section() : whole_(depth == 0 && !library.Borrowed()) {
  if (!whole_) return;
  // Before `depth` changes: a handler in between would find a section that holds nothing yet.
  if (library.handlers()) {
    const unsigned long all = kBlockable;
    blocked_ = Raw(SYS_rt_sigprocmask, SIG_BLOCK, &all, &signals_, sizeof(all)) == 0;
  }
  ++depth;
}

Section::~Section() {
  if (whole_) {
    --depth;
    if (blocked_) Raw(SYS_rt_sigprocmask, SIG_SETMASK, &signals_, nullptr, sizeof(signals_));
  }
  errno = errno_;
}

void Library::Load() { FindRealCalls(); }

void Library::Start(direct::Files& files, char** environment, bool logs) {
  files_ = &files;
  logs_ = logs;
  environment_.Keep(environment);
  process_.store(static_cast<int>(Raw(SYS_getpid)), std::memory_order_relaxed);
  __register_atfork(
      nullptr, nullptr, [] { library.AfterFork(); }, &__dso_handle);
  salius_preload_started.store(1, std::memory_order_release);
  // The streams of stdio write to these unseen.
  for (int fd = 0; fd <= STDERR_FILENO; ++fd) Look(fd);
}

bool Library::IsOtherProcess() const {
  return Raw(SYS_getpid) != process_.load(std::memory_order_relaxed);
}

void Library::AfterFork() {
  process_.store(static_cast<int>(Raw(SYS_getpid)), std::memory_order_relaxed);
  salius_preload_borrowers.store(0, std::memory_order_relaxed);
  unknown_fork_.store(false, std::memory_order_relaxed);
  const int before = errno;
  files_->AfterFork();
  errno = before;
}

void Library::AfterUnknownFork() {
  if (!logs_) return AfterFork();  // no lock is taken for mounts
  unknown_fork_.store(true, std::memory_order_relaxed);
  salius_preload_borrowers.store(1, std::memory_order_relaxed);
  const int before = errno;
  files_->AfterFork();
  errno = before;
}

Descriptor Library::Look(int fd) {
  if (on() && Borrowed()) return LookAsBorrower(fd);
  const Descriptor known = descriptors_.Get(fd);
  if (known.state != Descriptor::State::kUnknown || fd < 0) return known;
  Section section;
  return section.whole() ? Resolve(fd, known) : known;
}

Descriptor Library::LookAsBorrower(int fd) {
  Descriptor found;
  Seen seen;
  if (!LookAt(fd, &seen)) return found;
  found.state = Descriptor::State::kOther;
  found.file = Known(seen);
  if (!found.file.tracked()) return found;
  found.state = Descriptor::State::kTracked;
  found.marks = MarksLeftAt(fd);
  return found;
}

Descriptor Library::Resolve(int fd, const Descriptor& known) {
  const long flags = Raw(SYS_fcntl, fd, F_GETFL);
  if (flags < 0 || (flags & O_PATH) != 0) return {};
  const Descriptor found = Register(fd, known, static_cast<int>(flags), false);
  if (found.tracked() && Writable(static_cast<int>(flags))) {
    files_->Uncover(found.file, Reason::kForeign);
  }
  return found;
}

Descriptor Library::Register(int fd, const Descriptor& known, int flags, bool made) {
  Seen seen;
  if (!LookAt(fd, &seen)) return {};
  // A directory is closed by closedir(3), which is not seen: it stays unknown.
  if (S_ISDIR(seen.mode)) return {};
  const bool regular = S_ISREG(seen.mode);
  Descriptor found = known;
  found.marks = 0;
  if (regular && files_->IsMount(seen.device)) {
    found.state = Descriptor::State::kMounted;
    descriptors_.SetIf(fd, found);
    if ((flags & O_DSYNC) != 0) BeforeKernelSyncs(fd);
    return descriptors_.Get(fd);
  }
  found.file = regular ? files_->Open(fd, made) : direct::File{};
  found.state =
      found.file.tracked() ? Descriptor::State::kTracked : Descriptor::State::kOther;
  if (found.tracked()) found.marks = MarksLeftAt(fd);
  if (found.tracked() && fd <= STDERR_FILENO && Writable(flags)) {
    found.marks |= Descriptor::kStdio;
    files_->Uncover(found.file, Reason::kStdio);
  }
  descriptors_.SetIf(fd, found);
  // The look of another thread may have been stored first.
  const Descriptor stored = descriptors_.Get(fd);
  const bool same = stored.state == found.state && stored.file.index == found.file.index &&
                    stored.file.tag == found.file.tag;
  return same ? stored : found;
}

void Library::BeforeKernelSyncs(int fd) {
  if (!on() || Borrowed()) return;
  const Descriptor known = descriptors_.Get(fd);
  if (known.state != Descriptor::State::kMounted || (known.marks & Descriptor::kAsked) != 0) return;
  SetGrant(fd, known, files_->AskEarly(fd));
}

bool Library::SyncsEarly(int fd) {
  BeforeKernelSyncs(fd);
  if (!on() || Borrowed()) return false;
  const Descriptor known = descriptors_.Get(fd);
  if (known.state != Descriptor::State::kMounted || known.grant() == 0) return false;
  if (files_->SyncsEarly(fd, known.grant())) return true;
  // It may have ended. After a refusal the library does not ask again.
  const uint64_t again = files_->AskEarly(fd);
  SetGrant(fd, known, again);
  return files_->SyncsEarly(fd, again);
}

void Library::SetGrant(int fd, const Descriptor& known, uint64_t grant) {
  Descriptor found = known;
  found.file = {static_cast<uint32_t>(grant), static_cast<uint32_t>(grant >> 32)};
  found.marks |= Descriptor::kAsked;
  descriptors_.SetIf(fd, found);
}

void Library::Opened(int fd, int flags, bool made) {
  if (fd < 0 || !on() || Borrowed()) return;
  descriptors_.Forget(fd);
  if ((flags & O_PATH) != 0 || (!Writable(flags) && (flags & O_TRUNC) == 0)) return;
  Section section;
  if (!section.whole()) return;
  Descriptor found = Register(fd, descriptors_.Get(fd), flags, made);
  if (!found.tracked()) return;
  if ((flags & O_TRUNC) != 0 && !made) {
    // The truncation was not under the lock: it is what happened last only if the file is empty.
    files_->Lock(found.file);
    struct stat status;
    if (Raw(SYS_fstat, fd, &status) == 0 && status.st_size == 0) {
      files_->LogTruncate(found.file, 0);
    } else {
      files_->Uncover(found.file, Reason::kPosition);
    }
    files_->Unlock(found.file);
  }
  if (const uint8_t taken = TakeSync(fd, flags)) {
    found.marks |= taken;
    descriptors_.SetIf(fd, found);
  }
}

uint8_t Library::TakeSync(int fd, int flags) {
  const uint8_t marks = MarksOf(flags);
  // Putting another description in its place closes this one, which drops record locks. Then the
  // kernel keeps its flag: such a descriptor is slower and just as durable.
  if (marks == 0 || IsLocked(fd)) return 0;
  char path[32];
  DescriptorPath(fd, path);
  constexpr int kOnce = O_CREAT | O_EXCL | O_TRUNC | O_NOFOLLOW | O_TMPFILE;
  const long other =
      Raw(SYS_openat, AT_FDCWD, path, (flags & ~(kOnce | O_SYNC)) | O_CLOEXEC | O_NOCTTY);
  if (other < 0) return 0;
  const int sign = (marks & Descriptor::kFullSync) != 0 ? kFullSyncSign : kDataSyncSign;
  const bool taken = SameFile(static_cast<int>(other), fd) &&
                     Raw(SYS_fcntl, other, F_SETSIG, sign) == 0 &&
                     Raw(SYS_dup3, other, fd, flags & O_CLOEXEC) == fd;
  Raw(SYS_close, other);
  return taken ? marks : 0;
}

void Library::Streams(int fd) {
  if (fd < 0 || !on() || Borrowed()) return;
  Descriptor found = Look(fd);
  if (!found.tracked()) return;
  files_->Uncover(found.file, Reason::kStdio);
  found.marks |= Descriptor::kStdio;
  descriptors_.SetIf(fd, found);
}

Descriptor Library::DuplicateOf(int from, const Descriptor& known, int to) {
  if (known.state == Descriptor::State::kUnknown || !descriptors_.Still(from, known)) return {};
  Descriptor now = known;
  if (known.tracked() && to <= STDERR_FILENO) {
    now.marks |= Descriptor::kStdio;
    files_->Uncover(known.file, Reason::kStdio);
  }
  return now;
}

void Library::Duplicated(int from, const Descriptor& known, int to) {
  if (to < 0 || !on() || Borrowed()) return;
  const Descriptor now = DuplicateOf(from, known, to);
  descriptors_.Forget(to);
  descriptors_.Set(to, now.state, now.file, now.marks);
  if (to <= STDERR_FILENO) Look(to);
}

void Library::Replaced(int from, const Descriptor& known, int to, bool done) {
  descriptors_.EndChange(to, done ? DuplicateOf(from, known, to) : Descriptor{});
  if (done && to <= STDERR_FILENO) Look(to);
}

void Library::Uncover(int fd, Reason reason) {
  if (!on()) return;
  const Descriptor found = Look(fd);
  if (found.tracked()) files_->Uncover(found.file, reason);
}

void Library::UncoverSeen(const Seen& seen, Reason reason) {
  if (!logs() || !S_ISREG(seen.mode)) return;
  const int before = errno;
  files_->UncoverInode(seen.device, seen.inode, reason);
  errno = before;
}

direct::File Library::Known(const Seen& seen) {
  if (!logs() || !S_ISREG(seen.mode)) return {};
  const int before = errno;
  const direct::File file = files_->Known(seen.device, seen.inode);
  errno = before;
  return file;
}

void Library::UncoverMoved(int fd, direct::File file) {
  files_->Uncover(file, Reason::kPosition);
  Seen seen;
  if (LookAt(fd, &seen)) UncoverSeen(seen, Reason::kPosition);
}

int Library::Sync(int fd, const Descriptor& descriptor, bool data_only) {
  Section section;
  if (!section.whole()) {
    // The bytes reach the disk, but a record of the log could still be replayed over them, and
    // what prevents that needs a lock that this thread may hold.
    files_->Uncover(descriptor.file, Reason::kSignal);
    const long failed = Raw(SYS_fsync, fd);
    files_->Uncover(descriptor.file, Reason::kSignal);
    return failed < 0 ? static_cast<int>(-failed) : EIO;
  }
  if ((descriptor.marks & Descriptor::kStdio) != 0) {
    files_->Uncover(descriptor.file, Reason::kStdio);
  }
  return files_->Sync(descriptor.file, fd, data_only);
}

int Library::SyncAll() {
  Section section;
  return section.whole() ? files_->SyncAll() : EIO;
}

}  // namespace salius::preload
