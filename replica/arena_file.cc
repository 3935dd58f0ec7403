#include "replica/arena_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "common/bytes.h"
#include "common/check.h"
#include "common/host.h"
#include "common/parallel.h"
#include "common/strings.h"
#include "replica/memory_room.h"

namespace salius {
namespace {

// Name of the file with the boot in which the memory was last used; not on tmpfs.
constexpr char kBootFile[] = "boot";
constexpr char kArenaFile[] = "arena";
// Size that one thread maps at a time.
constexpr size_t kPopulateBytes = 64 << 20;

// Refuses a file that another user made, say in /dev/shm, or may change: it is not ours to trust.
absl::Status CheckOwn(int fd, const std::string& path) {
  struct stat st;
  if (fstat(fd, &st) != 0) return ErrnoStatus(errno, "stat " + path);
  if (st.st_uid != geteuid()) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s belongs to user %d, this process runs as user %d: remove it, or give "
                        "another --shm-dir",
                        path, st.st_uid, geteuid()));
  }
  if (!S_ISDIR(st.st_mode) && (!S_ISREG(st.st_mode) || st.st_nlink != 1)) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s is no plain file with one name: remove it", path));
  }
  if ((st.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "others may write to %s (mode %04o), and so forge what a recovery gets from "
        "here: chmod go-w it, if its bytes are intact",
        path, st.st_mode & 07777));
  }
  return absl::OkStatus();
}

bool IsOurs(const std::string& name) {
  return name == kArenaFile || name == kBootFile || name == std::string(kBootFile) + ".tmp" ||
         name == "lost+found";
}

// Refuses a directory that serves another purpose, such as /etc or /dev/shm itself.
absl::Status CheckItsOwnPurpose(int dir_fd, const std::string& path) {
  SALIUS_ASSIGN_OR_RETURN(UniqueFd list, OpenAt(dir_fd, ".", O_RDONLY | O_DIRECTORY));
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(fdopendir(list.get()), closedir);
  if (dir == nullptr) return ErrnoStatus(errno, "list " + path);
  list.Release();
  std::string foreign;
  for (const dirent* entry = readdir(dir.get()); entry != nullptr; entry = readdir(dir.get())) {
    const std::string name = entry->d_name;
    if (name == kArenaFile) return absl::OkStatus();
    if (name != "." && name != ".." && !IsOurs(name)) foreign = name;
  }
  if (foreign.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "%s is used for something else (%s is in it): give --shm-dir a directory of its own", path,
      Printable(foreign, NewLines::kReplace)));
}

// Refuses the memory of a replica that root ran: a new place would be a loss of memory. No other user
// can make such a directory.
absl::Status CheckNotOfRoot(const std::string& path) {
  struct stat dir, arena;
  if (geteuid() == 0 || lstat(path.c_str(), &dir) != 0 || !S_ISDIR(dir.st_mode) ||
      dir.st_uid != 0) {
    return absl::OkStatus();
  }
  if (lstat((path + "/" + kArenaFile).c_str(), &arena) != 0 && errno == ENOENT) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrFormat(
      "%s has the memory of a replica that root ran, and this process is user %d: hand it over "
      "with `chown -R %d %s`, or remove it if no volume needs it",
      path, geteuid(), geteuid(), ShellQuote(path)));
}

// Returns `path`, or the neighbour of it that an earlier start took, or a new one in the same
// parent.
absl::StatusOr<std::string> PlaceOf(const std::string& path, const Arena::RandomSource& random) {
  const size_t slash = path.rfind('/');
  const std::string parent = slash == 0 ? "/" : path.substr(0, slash);
  const std::string stem = path.substr(slash + 1) + ".";
  const auto own = [](const std::string& place) {
    const absl::StatusOr<UniqueFd> dir =
        OpenAt(AT_FDCWD, place, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (absl::IsNotFound(dir.status())) return true;
    return dir.ok() && CheckOwn(dir->get(), place).ok();
  };
  if (own(path)) return path;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(parent.c_str()), closedir);
  if (dir == nullptr) return ErrnoStatus(errno, "list " + parent);
  std::string found;
  for (const dirent* entry = readdir(dir.get()); entry != nullptr; entry = readdir(dir.get())) {
    const std::string name = entry->d_name;
    if (name.compare(0, stem.size(), stem) != 0 || !own(parent + "/" + name)) continue;
    if (found.empty() || name < found) found = name;
  }
  return found.empty() ? absl::StrFormat("%s.%016x", path, random()) : parent + "/" + found;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ArenaFile>> ArenaFile::Open(const Options& options,
                                                           Arena::RandomSource random) {
  const uint64_t bytes = options.memory_bytes / kArenaPageBytes * kArenaPageBytes;
  SALIUS_RETURN_IF_ERROR(ArenaGeometry::For(bytes).status());
  std::unique_ptr<ArenaFile> file(new ArenaFile());
  SALIUS_RETURN_IF_ERROR(file->OpenFile(options, random));
  SALIUS_RETURN_IF_ERROR(file->Prepare(bytes, options));
  SALIUS_RETURN_IF_ERROR(file->Map(bytes, options.lock_memory));
  SALIUS_RETURN_IF_ERROR(file->AttachOrFormat(random));
  return file;
}

ArenaFile::~ArenaFile() {
  arena_.reset();
  if (!memory_.empty()) munmap(memory_.data(), memory_.size());
}

absl::Status ArenaFile::OpenFile(const Options& options, const Arena::RandomSource& random) {
  SALIUS_RETURN_IF_ERROR(CheckNotOfRoot(options.dir));
  std::string place = options.dir;
  if (options.take_neighbour) {
    SALIUS_ASSIGN_OR_RETURN(place, PlaceOf(options.dir, random));
  }
  path_ = place + "/" + kArenaFile;
  const absl::Status made = MkdirAt(AT_FDCWD, place, 0700);
  if (!made.ok() && !absl::IsAlreadyExists(made)) return made;
  absl::StatusOr<UniqueFd> dir = OpenAt(AT_FDCWD, place, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (absl::IsInvalidArgument(dir.status())) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s is a link or no directory: remove it, or give another --shm-dir", place));
  }
  SALIUS_RETURN_IF_ERROR(dir.status());
  dir_ = *std::move(dir);
  SALIUS_RETURN_IF_ERROR(CheckOwn(dir_.get(), place));
  SALIUS_RETURN_IF_ERROR(CheckItsOwnPurpose(dir_.get(), place));
  SALIUS_ASSIGN_OR_RETURN(fd_, OpenAt(dir_.get(), kArenaFile,
                                      O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0600));
  SALIUS_RETURN_IF_ERROR(CheckOwn(fd_.get(), path_));
  struct statfs fs;
  on_tmpfs_ = fstatfs(fd_.get(), &fs) == 0 && fs.f_type == TMPFS_MAGIC;
  return LockExclusive(fd_.get(), "the arena " + path_);
}

// Gives the file its size, with all its memory reserved. A later store that found no memory would
// be a SIGBUS.
absl::Status ArenaFile::Prepare(uint64_t bytes, const Options& options) {
  SALIUS_ASSIGN_OR_RETURN(const uint64_t size, FileSize(fd_.get()));
  struct stat st;
  if (fstat(fd_.get(), &st) != 0) return ErrnoStatus(errno, "stat " + path_);
  const auto too_small = [&](const absl::Status& status) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "reserve %d bytes for %s: %s (--memory is more than the tmpfs has left; enlarge it with "
        "mount -o remount,size=...)",
        bytes, path_, Sv(status.message())));
  };
  if (size != bytes) {
    // Before the old arena is given up, check that there is room for the new one.
    SALIUS_ASSIGN_OR_RETURN(const FsSpace space, StatfsFree(fd_.get()));
    if (space.bytes_total != 0 && bytes > space.bytes_avail + size) {
      return too_small(absl::ResourceExhaustedError(
          absl::StrFormat("%d bytes are available", space.bytes_avail)));
    }
  }
  // Memory that the file has already is counted as used, or will be given back.
  const uint64_t had = on_tmpfs_ ? static_cast<uint64_t>(st.st_blocks) * 512 : 0;
  SALIUS_RETURN_IF_ERROR(CheckMemoryRoom(ReadMemoryRoom(options.system_root, !options.lock_memory),
                                         bytes - std::min(bytes, had), "the arena " + path_));
  if (size != bytes) {
    created_because_ = size == 0 ? "there was none"
                                 : absl::StrFormat("its size was %d bytes, not %d", size, bytes);
    if (ftruncate(fd_.get(), 0) != 0) return ErrnoStatus(errno, "truncate " + path_);
  }
  if (fallocate(fd_.get(), 0, 0, static_cast<off_t>(bytes)) != 0) {
    return too_small(ErrnoStatus(errno, "fallocate"));
  }
  return absl::OkStatus();
}

absl::Status ArenaFile::Map(uint64_t bytes, bool lock_memory) {
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (at == MAP_FAILED) return ErrnoStatus(errno, "map " + path_);
  memory_ = absl::MakeSpan(static_cast<uint8_t*>(at), bytes);
  const auto lock_error = [&] {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "%s: raise RLIMIT_MEMLOCK (systemd: LimitMEMLOCK=infinity, shell: ulimit -l) or "
        "give CAP_IPC_LOCK, or use --no-mlock and let the arena be swapped",
        Sv(ErrnoStatus(errno, absl::StrFormat("lock %d bytes of memory", bytes)).message())));
  };
  // An arena on swap would make every acknowledgement wait for a disk. Each page is locked when it
  // is mapped. Mapping runs on all CPUs, while mlock runs on one.
  if (lock_memory && mlock2(at, bytes, MLOCK_ONFAULT) != 0) return lock_error();
  // Map every page now, so that no primary waits for the first use of one. A read is enough: the
  // mapping is writable.
  std::atomic<bool> failed{false};
  OnAllCpus((bytes + kPopulateBytes - 1) / kPopulateBytes, [&](size_t i) {
    const absl::Span<uint8_t> part = memory_.subspan(i * kPopulateBytes, kPopulateBytes);
    if (madvise(part.data(), part.size(), MADV_POPULATE_READ) != 0) failed = true;
  });
  // A kernel before 5.14 cannot do that.
  if (failed && lock_memory && mlock(at, bytes) != 0) return lock_error();
  return absl::OkStatus();
}

absl::Status ArenaFile::AttachOrFormat(const Arena::RandomSource& random) {
  absl::StatusOr<Arena> arena = Arena::Attach(memory_, random);
  if (!arena.ok()) {
    if (created_because_.empty()) created_because_ = std::string(arena.status().message());
    SALIUS_RETURN_IF_ERROR(Arena::Format(memory_, random));
    arena = Arena::Attach(memory_, random);
    if (!arena.ok()) return arena.status();
  }
  arena_ = std::make_unique<Arena>(*std::move(arena));
  return on_tmpfs_ ? absl::OkStatus() : NoteBoot();
}

absl::Status ArenaFile::NoteBoot() {
  SALIUS_ASSIGN_OR_RETURN(const std::string boot, BootId());
  const absl::StatusOr<std::string> noted = ReadWholeFile(dir_.get(), kBootFile);
  if (noted.ok() && *noted == boot) return absl::OkStatus();
  if (!noted.ok() && !absl::IsNotFound(noted.status())) return noted.status();
  went_back_ = created_because_.empty();
  if (went_back_) arena_->NewIncarnation();
  return WriteFileAtomically(dir_.get(), kBootFile, AsBytes(boot), 0600);
}

}  // namespace salius
