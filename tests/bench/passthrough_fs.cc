// The cost of a FUSE file system that does nothing of its own: every call goes to the same file
// below BACKING_DIR, through the kernel's page cache, and fsync returns at once. No file system
// that is mounted through FUSE can be faster for an application, however it makes writes durable.
//
// With --replicas (or --servers) data is sent to echo servers, and --acks answers are awaited: at
// every fsync, and at every write to a file that is open for synchronous writes. No file system
// that is mounted through FUSE and replicates can be faster. (`mount_floor` is the floor under one
// file's reads and writes: one thread, no directories.)
//
//   passthrough_fs [--replicas M | --servers HOST:PORT,...] [--acks F] BACKING_DIR MOUNTPOINT
//
// Stays in the foreground; ends when unmounted or on SIGTERM. Files opened for synchronous writes
// are opened direct, as Salius does, so that a write is one crossing. Run it as root: a file
// belongs to its creator.
#define FUSE_USE_VERSION 312
#include <dirent.h>
#include <fcntl.h>
#include <fuse3/fuse.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "common/file.h"
#include "common/options.h"
#include "tests/bench/replication.h"

namespace {

constexpr double kForEver = 86400;  // seconds; no other program uses the backing directory

int g_root = -1;
salius::bench::Replication* g_replication = nullptr;

struct OpenFile {
  int fd;
  bool synchronous;                // every write is; otherwise writes wait for the fsync
  std::atomic<size_t> waiting{0};  // bytes of those writes
};

// Returns the path relative to g_root.
const char* Below(const char* path) { return path[1] == '\0' ? "." : path + 1; }
int Result(int returned) { return returned < 0 ? -errno : 0; }
int Answer(const absl::Status& status, size_t done) {
  if (status.ok()) return static_cast<int>(done);
  const int code = salius::StatusErrno(status);
  return code != 0 ? -code : -EIO;
}
OpenFile& FileOf(const fuse_file_info* fi) { return *reinterpret_cast<OpenFile*>(fi->fh); }
int Fd(const fuse_file_info* fi) { return FileOf(fi).fd; }
int DirFd(const fuse_file_info* fi) { return static_cast<int>(fi->fh); }

void* Init(fuse_conn_info*, fuse_config* config) {
  config->kernel_cache = 1;
  config->nullpath_ok = 1;
  config->entry_timeout = config->attr_timeout = kForEver;
  config->use_ino = 1;
  return nullptr;
}

int GetAttr(const char* path, struct stat* st, fuse_file_info* fi) {
  if (fi != nullptr) return Result(fstat(Fd(fi), st));
  return Result(fstatat(g_root, Below(path), st, AT_SYMLINK_NOFOLLOW));
}

// Gives a new file to the caller.
int GiveAway(const char* path, int made) {
  if (made < 0) return -errno;
  const fuse_context* caller = fuse_get_context();
  return Result(fchownat(g_root, Below(path), caller->uid, caller->gid, AT_SYMLINK_NOFOLLOW));
}

int MakeDir(const char* path, mode_t mode) {
  return GiveAway(path, mkdirat(g_root, Below(path), mode));
}

int Symlink(const char* target, const char* path) {
  return GiveAway(path, symlinkat(target, g_root, Below(path)));
}

int ReadLink(const char* path, char* target, size_t size) {
  const ssize_t got = readlinkat(g_root, Below(path), target, size - 1);
  if (got < 0) return -errno;
  target[got] = '\0';
  return 0;
}

int Unlink(const char* path) { return Result(unlinkat(g_root, Below(path), 0)); }
int RemoveDir(const char* path) { return Result(unlinkat(g_root, Below(path), AT_REMOVEDIR)); }

int Rename(const char* from, const char* to, unsigned flags) {
  return Result(renameat2(g_root, Below(from), g_root, Below(to), flags));
}

int Link(const char* from, const char* to) {
  return Result(linkat(g_root, Below(from), g_root, Below(to), 0));
}

int ChangeMode(const char* path, mode_t mode, fuse_file_info* fi) {
  if (fi != nullptr) return Result(fchmod(Fd(fi), mode));
  return Result(fchmodat(g_root, Below(path), mode, 0));
}

int ChangeOwner(const char* path, uid_t uid, gid_t gid, fuse_file_info* fi) {
  if (fi != nullptr) return Result(fchown(Fd(fi), uid, gid));
  return Result(fchownat(g_root, Below(path), uid, gid, AT_SYMLINK_NOFOLLOW));
}

int SetTimes(const char* path, const timespec times[2], fuse_file_info* fi) {
  if (fi != nullptr) return Result(futimens(Fd(fi), times));
  return Result(utimensat(g_root, Below(path), times, AT_SYMLINK_NOFOLLOW));
}

// Returns the flags without those that make the backing file's writes synchronous.
int OpenFlags(const fuse_file_info* fi) { return fi->flags & ~(O_SYNC | O_DSYNC | O_DIRECT); }

void Opened(int fd, fuse_file_info* fi) {
  fi->fh = reinterpret_cast<uint64_t>(new OpenFile{fd, (fi->flags & O_DSYNC) != 0});
  fi->direct_io = (fi->flags & (O_DSYNC | O_DIRECT)) != 0;
}

int Open(const char* path, fuse_file_info* fi) {
  const int fd = openat(g_root, Below(path), OpenFlags(fi));
  if (fd < 0) return -errno;
  Opened(fd, fi);
  return 0;
}

int Create(const char* path, mode_t mode, fuse_file_info* fi) {
  const int fd = openat(g_root, Below(path), OpenFlags(fi) | O_CREAT, mode);
  const int given = GiveAway(path, fd);
  if (given != 0) {
    if (fd >= 0) close(fd);
    return given;
  }
  Opened(fd, fi);
  return 0;
}

int Truncate(const char* path, off_t size, fuse_file_info* fi) {
  if (fi != nullptr) return Result(ftruncate(Fd(fi), size));
  const int fd = openat(g_root, Below(path), O_WRONLY);
  if (fd < 0) return -errno;
  const int result = Result(ftruncate(fd, size));
  close(fd);
  return result;
}

int Read(const char*, char* to, size_t size, off_t at, fuse_file_info* fi) {
  const ssize_t got = pread(Fd(fi), to, size, at);
  return got < 0 ? -errno : static_cast<int>(got);
}

int Write(const char*, const char* from, size_t size, off_t at, fuse_file_info* fi) {
  OpenFile& file = FileOf(fi);
  const absl::Span<const uint8_t> data(reinterpret_cast<const uint8_t*>(from), size);
  const auto write = [&] { return salius::PwriteFull(file.fd, data, at); };
  if (!file.synchronous) file.waiting += size;
  return Answer(
      g_replication->on() && file.synchronous ? g_replication->Write(data, write) : write(), size);
}

int Allocate(const char*, int mode, off_t at, off_t size, fuse_file_info* fi) {
  return Result(fallocate(Fd(fi), mode, at, size));
}

int Sync(const char*, int, fuse_file_info* fi) {
  const size_t waiting = FileOf(fi).waiting.exchange(0);
  if (!g_replication->on() || waiting == 0) return 0;
  return Answer(g_replication->Sync(waiting), 0);
}

int Release(const char*, fuse_file_info* fi) {
  const std::unique_ptr<OpenFile> file(&FileOf(fi));
  return Result(close(file->fd));
}

int StatFs(const char*, struct statvfs* st) { return Result(fstatvfs(g_root, st)); }

int OpenDir(const char* path, fuse_file_info* fi) {
  const int fd = openat(g_root, Below(path), O_RDONLY | O_DIRECTORY);
  if (fd < 0) return -errno;
  fi->fh = static_cast<uint64_t>(fd);
  return 0;
}

// Lists everything at once, each time: libfuse keeps the answer for the rest of the calls.
int ReadDir(const char*, void* to, fuse_fill_dir_t fill, off_t, fuse_file_info* fi,
            fuse_readdir_flags) {
  const int fd = openat(DirFd(fi), ".", O_RDONLY | O_DIRECTORY);
  if (fd < 0) return -errno;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(fdopendir(fd), closedir);
  while (const dirent* entry = readdir(dir.get())) {
    struct stat st {};
    st.st_ino = entry->d_ino;
    st.st_mode = static_cast<mode_t>(DTTOIF(entry->d_type));
    fill(to, entry->d_name, &st, 0, fuse_fill_dir_flags{});
  }
  return 0;
}

// Names are left out: a floor may do less than the systems compared with it.
int SyncDir(const char*, int, fuse_file_info*) { return 0; }

int ReleaseDir(const char*, fuse_file_info* fi) { return Result(close(DirFd(fi))); }

}  // namespace

int main(int argc, char** argv) {
  salius::Options options("passthrough_fs", "BACKING_DIR MOUNTPOINT",
                               "A FUSE file system that does nothing of its own.");
  salius::bench::Replication replication;
  g_replication = &replication;
  replication.Declare(options);
  absl::Status status = options.Parse(std::vector<std::string>(argv + 1, argv + argc), 2, 2);
  if (status.ok()) status = replication.Start();
  if (!status.ok()) {
    std::fprintf(stderr, "passthrough_fs: %s\n", status.ToString().c_str());
    return 2;
  }
  const std::string& backing = options.places()[0];
  g_root = open(backing.c_str(), O_RDONLY | O_DIRECTORY);
  if (g_root < 0) {
    std::perror(backing.c_str());
    return 1;
  }
  umask(0);  // the kernel has applied the caller's
  fuse_operations ops{};
  ops.init = Init;
  ops.getattr = GetAttr;
  ops.readlink = ReadLink;
  ops.mkdir = MakeDir;
  ops.symlink = Symlink;
  ops.unlink = Unlink;
  ops.rmdir = RemoveDir;
  ops.rename = Rename;
  ops.link = Link;
  ops.chmod = ChangeMode;
  ops.chown = ChangeOwner;
  ops.utimens = SetTimes;
  ops.truncate = Truncate;
  ops.open = Open;
  ops.create = Create;
  ops.read = Read;
  ops.write = Write;
  ops.fallocate = Allocate;
  ops.fsync = Sync;
  ops.fsyncdir = SyncDir;
  ops.release = Release;
  ops.statfs = StatFs;
  ops.opendir = OpenDir;
  ops.readdir = ReadDir;
  ops.releasedir = ReleaseDir;
  std::string program = argv[0], foreground = "-f", option = "-o",
              value = "default_permissions,allow_other", mountpoint = options.places()[1];
  char* words[] = {program.data(), foreground.data(), option.data(), value.data(),
                   mountpoint.data()};
  return fuse_main(5, words, &ops, nullptr);
}
