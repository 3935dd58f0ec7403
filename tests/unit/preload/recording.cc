// The preload library of the tests: the real interposed functions on an implementation of Files
// that records each call as a line of a file. It checks that the calls obey the contract of Files
// and ends the process when one does not.
//
// SALIUS_DIRECT_VOLUME    the directory whose files are the volume's; without it nothing is started
// SALIUS_DIRECT_RECORD    the file that gets the lines
// SALIUS_DIRECT_SYNC      an errno that every Sync and SyncAll returns
// SALIUS_DIRECT_APPEND    a descriptor that gets O_APPEND while a write awaits room, as if by
//                         another process that has it
// SALIUS_DIRECT_MOVE      "lock" or "open": once, the next Lock, or Open of descriptor 61, does what
//                         another thread might do: dup2(60, 61); only if 60 is open
#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "client/direct/process/files.h"
#include "client/preload/library.h"
#include "client/preload/raw_call.h"

namespace {

using salius::direct::File;
using salius::direct::Reason;
using salius::preload::Raw;

constexpr int kFiles = 64;
// Descriptors of SALIUS_DIRECT_MOVE.
constexpr int kSpare = 60, kMoved = 61;

class Recording final : public salius::direct::Files {
 public:
  void Begin(char* const* environment) {
    for (; *environment != nullptr; ++environment) {
      Take(*environment, "SALIUS_DIRECT_VOLUME=", volume_);
      Take(*environment, "SALIUS_DIRECT_RECORD=", record_);
      Take(*environment, "SALIUS_DIRECT_MOVE=", move_);
      char number[sizeof(volume_)] = {};
      if (Take(*environment, "SALIUS_DIRECT_SYNC=", number)) sync_ = atoi(number);
      if (Take(*environment, "SALIUS_DIRECT_APPEND=", number)) append_ = atoi(number);
    }
    if (volume_[0] == '\0') return;
    own_ = static_cast<int>(Raw(SYS_openat, AT_FDCWD, "/dev/null", O_RDONLY | O_CLOEXEC));
    const int high = static_cast<int>(Raw(SYS_fcntl, own_, F_DUPFD_CLOEXEC, 500));
    Raw(SYS_close, own_);
    own_ = high;
  }
  bool started() const { return volume_[0] != '\0'; }

  bool Owns(int fd) const override { return fd == own_ && fd >= 0; }

  File Open(int fd, bool made) override {
    Enter();
    char path[512];
    struct stat status;
    File file;
    if (const char* const name = NameOf(fd, path, sizeof(path));
        name != nullptr && Raw(SYS_fstat, fd, &status) == 0) {
      file = Register(name, status, made);
    }
    if (file.tracked()) Raw(SYS_fsetxattr, fd, "user.salius.id", "1", 1, 0);
    Leave();
    if (fd == kMoved) Move("open");
    return file;
  }

  void AwaitRoom(File file, size_t) override {
    if (owners_[file.index].load() == static_cast<int>(Raw(SYS_gettid)))
      Fail("AwaitRoom under Lock");
    if (append_ >= 0) Raw(SYS_fcntl, append_, F_SETFL, O_APPEND);
  }
  void Lock(File file) override {
    Move("lock");
    Enter();
    const int self = static_cast<int>(Raw(SYS_gettid));
    std::atomic<int>& owner = owners_[file.index];
    if (owner.load() == self) Fail("Lock twice");
    for (int expected = 0; !owner.compare_exchange_weak(expected, self); expected = 0) {
      Raw(SYS_sched_yield);
    }
    Leave();
  }
  void Unlock(File file) override {
    RequireLock(file, "Unlock without Lock");
    owners_[file.index].store(0);
  }

  uint64_t LogWrite(File file, uint64_t offset, const iovec* parts, int count,
                    size_t bytes) override {
    RequireLock(file, "LogWrite without Lock");
    char text[33] = {};
    size_t filled = 0;
    size_t left = bytes;
    for (int i = 0; i < count && left > 0; ++i) {
      const auto* from = static_cast<const char*>(parts[i].iov_base);
      for (size_t j = 0; j < parts[i].iov_len && left > 0; ++j, --left) {
        if (filled < sizeof(text) - 1) text[filled++] = from[j];
      }
    }
    if (left > 0) Fail("LogWrite of more than there is");
    Line("write %s %llu %zu %s", names_[file.index], static_cast<unsigned long long>(offset), bytes,
         text);
    return 1;
  }
  uint64_t LogTruncate(File file, uint64_t size) override {
    RequireLock(file, "LogTruncate without Lock");
    Line("truncate %s %llu", names_[file.index], static_cast<unsigned long long>(size));
    return 1;
  }

  void BeginUnseen(File file, Reason reason) override {
    Line("begin %s %s", names_[file.index], salius::direct::ReasonName(reason));
  }
  void EndUnseen(File file, Reason reason) override {
    Line("end %s %s", names_[file.index], salius::direct::ReasonName(reason));
  }
  void Uncover(File file, Reason reason) override {
    Line("uncover %s %s", names_[file.index], salius::direct::ReasonName(reason));
  }

  File Known(uint64_t device, uint64_t inode) override {
    struct stat volume;
    if (Raw(SYS_stat, volume_, &volume) != 0 || volume.st_dev != device) return {};
    for (int i = 0; i < kFiles; ++i) {
      if (inodes_[i].load() == inode) return {static_cast<uint32_t>(i), 0};
    }
    return {};
  }

  void UncoverInode(uint64_t device, uint64_t inode, Reason reason) override {
    struct stat volume;
    if (Raw(SYS_stat, volume_, &volume) != 0 || volume.st_dev != device) return;
    for (int i = 0; i < kFiles; ++i) {
      if (inodes_[i].load() == inode) Uncover({static_cast<uint32_t>(i), 0}, reason);
    }
  }

  void UncoverAll(Reason reason) override {
    Line("uncover-all %s", salius::direct::ReasonName(reason));
  }

  int Sync(File file, int fd, bool data_only) override {
    Enter();
    if (owners_[file.index].load() == Raw(SYS_gettid)) Fail("Sync with Lock");
    if (Raw(SYS_fcntl, fd, F_GETFD) < 0) Fail("Sync of a closed descriptor");
    Line("sync %s %s", names_[file.index], data_only ? "data" : "full");
    Leave();
    return sync_;
  }
  int SyncAll() override {
    Line("sync-all");
    return sync_;
  }
  int SyncNow(File file, int fd, bool data_only) override { return Sync(file, fd, data_only); }
  uint64_t Ticket(File) override { return 0; }
  int AwaitTicket(uint64_t, int64_t) override { return 0; }
  salius::direct::Watermarks Marks() const override { return {}; }
  void Changed() override {}
  bool IsOfVolume(int fd) const override {
    char path[512];
    return IsRoot(fd) || NameOf(fd, path, sizeof(path)) != nullptr;
  }
  bool IsOutside(int fd) const override { return !IsOfVolume(fd); }
  bool OweDirectory(int) override { return false; }
  void AfterFork() override { Line("after-fork"); }

 private:
  static bool Take(const char* entry, const char* prefix, char* to) {
    const size_t length = strlen(prefix);
    if (strncmp(entry, prefix, length) != 0) return false;
    snprintf(to, sizeof(volume_), "%s", entry + length);
    return true;
  }

  bool IsRoot(int fd) const {
    struct stat status, volume;
    return Raw(SYS_stat, volume_, &volume) == 0 && Raw(SYS_fstat, fd, &status) == 0 &&
           volume.st_dev == status.st_dev && volume.st_ino == status.st_ino;
  }

  // Returns the name in the volume of the file behind `fd`, in `path` of `size` bytes; null: it is
  // elsewhere.
  const char* NameOf(int fd, char* path, size_t size) const {
    char link[64];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    const long length = Raw(SYS_readlink, link, path, size - 1);
    if (length <= 0) return nullptr;
    path[length] = '\0';
    const size_t prefix = strlen(volume_);
    const bool below = strncmp(path, volume_, prefix) == 0 && path[prefix] == '/';
    return below ? path + prefix + 1 : nullptr;
  }

  void Move(const char* at) {
    if (strcmp(move_, at) != 0 || Raw(SYS_fcntl, kSpare, F_GETFD) < 0) return;
    move_[0] = '\0';
    if (dup2(kSpare, kMoved) != kMoved) Fail("dup2");
  }

  File Register(const char* name, const struct stat& status, bool made) {
    for (int i = 0; i < kFiles; ++i) {
      uint64_t free = 0;
      if (inodes_[i].load() != status.st_ino &&
          !inodes_[i].compare_exchange_strong(free, status.st_ino)) {
        continue;
      }
      snprintf(names_[i], sizeof(names_[i]), "%s", name);
      Line("open %s%s", name, made ? " made" : "");
      return {static_cast<uint32_t>(i), 0};
    }
    Fail("too many files");
    return {};
  }

  // A handler that interrupted the library must not come here: it could wait for its own thread.
  void Enter() {
    if (inside_++ != 0) Fail("entered twice by one thread");
  }
  void Leave() { --inside_; }

  void RequireLock(File file, const char* text) {
    if (owners_[file.index].load() != Raw(SYS_gettid)) Fail(text);
  }

  [[noreturn]] void Fail(const char* text) {
    Line("BROKEN: %s", text);
    Raw(SYS_exit_group, 99);
    __builtin_unreachable();
  }

  template <typename... Arguments>
  void Line(const char* format, Arguments... arguments) {
    const int before = errno;
    char line[640];
    const int length = snprintf(line, sizeof(line) - 1, format, arguments...);
    line[length] = '\n';
    const long fd =
        Raw(SYS_openat, AT_FDCWD, record_, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    Raw(SYS_write, fd, line, length + 1);
    Raw(SYS_close, fd);
    // An implementation may change errno; the program must not notice.
    errno = before == 0 ? ENOTTY : 0;
  }

  char volume_[256] = {};
  char record_[256] = {};
  char move_[256] = {};
  int sync_ = 0;
  int append_ = -1;
  int own_ = -1;
  std::atomic<uint64_t> inodes_[kFiles] = {};
  char names_[kFiles][128] = {};
  std::atomic<int> owners_[kFiles] = {};
  static thread_local int inside_;
};

thread_local int Recording::inside_ = 0;
constinit Recording recording;

__attribute__((constructor)) void Load(int, char**, char** environment) {
  salius::preload::library.Load();
  recording.Begin(environment);
  if (recording.started()) salius::preload::library.Start(recording, environment);
}

}  // namespace
