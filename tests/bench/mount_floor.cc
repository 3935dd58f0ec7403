// The floor under a synchronous write through a mount: a bare low-level FUSE handler. For every
// write it does the work that no file system with this job can leave out, and nothing else:
// - one request from the kernel (FOPEN_DIRECT_IO, so that O_SYNC costs one crossing)
// - the data sent to m echo servers
// - a pwrite of the buffered backing file while they work
// - f answers, then the reply
//
// Data written without O_SYNC or O_DSYNC is sent by the fsync, all of it together.
//
//   mount_floor [--replicas M | --servers HOST:PORT,...] [--acks F] [--empty] [--cached]
//               [--threads N] [--delay-us N] BACKING_DIR MOUNTPOINT
//
// --replicas spawns the echo servers on loopback; --servers uses existing ones. --empty leaves out
// all of the work, and shows the cost of the crossing alone. --cached lets the kernel cache reads
// and writes: without servers that is an empty passthrough file system. --delay-us puts that much
// more work into every write: it shows that the comparison built on this floor would notice it.
//
// A flat directory: files can be created, written, read, truncated and removed. Prints "ready" when
// mounted; ends when unmounted or on SIGTERM.
//
// Threads: --threads; one by default, so that a lone writer never pays for a hand-over. With more
// writers each thread serves one request after the other, from its own socket.
#define FUSE_USE_VERSION 312
#include <fcntl.h>
#include <fuse3/fuse_lowlevel.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/options.h"
#include "tests/bench/replication.h"

namespace {

using salius::bench::Replication;
using salius::Options;

struct Floor {
  int backing_fd = -1;
  std::mutex mutex;                           // guards the two maps
  std::map<std::string, fuse_ino_t> numbers;  // of every name ever seen; never reused
  std::map<fuse_ino_t, std::string> names;
  Replication replication;
  bool empty = false;
  bool cached = false;
  int64_t delay_ns = 0;

  double AttrSeconds() const { return cached ? 86400 : 0; }
};
Floor* g_floor = nullptr;

struct OpenFile {
  int fd;
  bool synchronous;    // every write is; otherwise writes wait for the fsync
  size_t waiting = 0;  // bytes of those writes. A file has one writer
};

OpenFile& FileOf(const fuse_file_info* info) { return *reinterpret_cast<OpenFile*>(info->fh); }

fuse_ino_t NumberOf(const std::string& name) {
  const std::lock_guard<std::mutex> lock(g_floor->mutex);
  const auto [at, added] = g_floor->numbers.try_emplace(name, g_floor->numbers.size() + 2);
  if (added) g_floor->names[at->second] = name;
  return at->second;
}

std::string NameOf(fuse_ino_t number) {
  const std::lock_guard<std::mutex> lock(g_floor->mutex);
  return g_floor->names.at(number);
}

// Fills in the attributes of the root or of a file, by its number; false (errno set) when it was
// removed.
bool StatOf(fuse_ino_t number, struct stat* attr) {
  const std::string path = number == FUSE_ROOT_ID ? "." : NameOf(number);
  if (fstatat(g_floor->backing_fd, path.c_str(), attr, AT_SYMLINK_NOFOLLOW) != 0) return false;
  attr->st_ino = number;
  return true;
}

// Returns false (errno set) when there is no such file.
bool FillEntry(const char* name, fuse_entry_param* entry) {
  *entry = {};
  entry->ino = NumberOf(name);
  entry->attr_timeout = g_floor->AttrSeconds();
  return StatOf(entry->ino, &entry->attr);
}

void FloorLookup(fuse_req_t req, fuse_ino_t, const char* name) {
  fuse_entry_param entry;
  if (!FillEntry(name, &entry)) {
    fuse_reply_err(req, errno);
    return;
  }
  fuse_reply_entry(req, &entry);
}

void FloorGetattr(fuse_req_t req, fuse_ino_t number, fuse_file_info*) {
  struct stat attr {};
  if (!StatOf(number, &attr)) {
    fuse_reply_err(req, errno);
    return;
  }
  fuse_reply_attr(req, &attr, g_floor->AttrSeconds());
}

void FloorSetattr(fuse_req_t req, fuse_ino_t number, struct stat* want, int mask,
                  fuse_file_info* info) {
  if ((mask & FUSE_SET_ATTR_SIZE) != 0) {
    if (info == nullptr || ftruncate(FileOf(info).fd, want->st_size) != 0) {
      fuse_reply_err(req, info == nullptr ? EBADF : errno);
      return;
    }
  }
  FloorGetattr(req, number, info);
}

// Opens the backing file buffered: here the echo servers' answers make data durable.
bool OpenBacking(const char* name, int flags, mode_t mode, fuse_file_info* info) {
  const int own_flags = (flags & O_TRUNC) | O_RDWR | O_CLOEXEC;
  const int fd = openat(g_floor->backing_fd, name, own_flags | (flags & O_CREAT), mode);
  if (fd < 0) return false;
  info->fh = reinterpret_cast<uint64_t>(new OpenFile{fd, (flags & O_DSYNC) != 0});
  info->direct_io = !g_floor->cached;
  info->keep_cache = g_floor->cached;
  return true;
}

void FloorOpen(fuse_req_t req, fuse_ino_t number, fuse_file_info* info) {
  if (number == FUSE_ROOT_ID ||
      !OpenBacking(NameOf(number).c_str(), info->flags & ~O_CREAT, 0, info)) {
    fuse_reply_err(req, number == FUSE_ROOT_ID ? EISDIR : errno);
    return;
  }
  fuse_reply_open(req, info);
}

void FloorCreate(fuse_req_t req, fuse_ino_t, const char* name, mode_t mode, fuse_file_info* info) {
  fuse_entry_param entry;
  if (!OpenBacking(name, info->flags | O_CREAT, mode, info) || !FillEntry(name, &entry)) {
    fuse_reply_err(req, errno);
    return;
  }
  fuse_reply_create(req, &entry, info);
}

void FloorUnlink(fuse_req_t req, fuse_ino_t, const char* name) {
  fuse_reply_err(req, unlinkat(g_floor->backing_fd, name, 0) == 0 ? 0 : errno);
}

void FloorRelease(fuse_req_t req, fuse_ino_t, fuse_file_info* info) {
  OpenFile* const file = &FileOf(info);
  fuse_reply_err(req, close(file->fd) == 0 ? 0 : errno);
  delete file;
}

void FloorRead(fuse_req_t req, fuse_ino_t, size_t size, off_t offset, fuse_file_info* info) {
  std::vector<char> data(size);
  const ssize_t got = pread(FileOf(info).fd, data.data(), size, offset);
  if (got < 0) {
    fuse_reply_err(req, errno);
    return;
  }
  fuse_reply_buf(req, data.data(), static_cast<size_t>(got));
}

// Works for that long; a sleep would add the timer's slack and a wake-up.
void Spin(int64_t ns) {
  if (ns == 0) return;
  salius::Clock& clock = salius::SystemClock();
  const int64_t end = clock.MonotonicNanos() + ns;
  while (clock.MonotonicNanos() < end) {
  }
}

void FloorWrite(fuse_req_t req, fuse_ino_t, const char* data, size_t size, off_t offset,
                fuse_file_info* info) {
  if (g_floor->empty) {
    fuse_reply_write(req, size);
    return;
  }
  OpenFile& file = FileOf(info);
  const absl::Span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(data), size);
  const auto write_backing = [&] { return salius::PwriteFull(file.fd, bytes, offset); };
  const bool alone = !g_floor->replication.on() || !file.synchronous;
  if (!file.synchronous) file.waiting += size;
  const absl::Status status =
      alone ? write_backing() : g_floor->replication.Write(bytes, write_backing);
  Spin(g_floor->delay_ns);
  if (!status.ok()) {
    const int code = salius::StatusErrno(status);
    fuse_reply_err(req, code != 0 ? code : EIO);
    return;
  }
  fuse_reply_write(req, size);
}

// Sends everything written since the last fsync together.
void FloorFsync(fuse_req_t req, fuse_ino_t, int, fuse_file_info* info) {
  OpenFile& file = FileOf(info);
  if (!g_floor->replication.on() || file.waiting == 0) {
    fuse_reply_err(req, 0);
    return;
  }
  const absl::Status status = g_floor->replication.Sync(std::exchange(file.waiting, 0));
  fuse_reply_err(req, status.ok() ? 0 : EIO);
}

// Accepts the largest write as one request, as a Salius mount does.
void FloorInit(void*, fuse_conn_info* conn) { conn->max_write = 1 << 20; }

struct Arguments {
  uint64_t threads = 1;
  uint64_t delay_us = 0;
  bool empty = false;
  bool cached = false;
};

absl::StatusOr<Arguments> ParseArguments(Options& options, Replication* replication,
                                         absl::Span<const std::string> words) {
  Arguments arguments;
  replication->Declare(options);
  options.Number("threads", "N", &arguments.threads, 1, 64, "that serve requests (1)");
  options.Number("delay-us", "N", &arguments.delay_us, 0, 1000000, "so much more work per write");
  options.Switch("empty", &arguments.empty, "no work at all");
  options.Switch("cached", &arguments.cached, "through the kernel's page cache");
  SALIUS_RETURN_IF_ERROR(options.Parse(words, 2, 2));
  return arguments;
}

fuse_lowlevel_ops Operations() {
  fuse_lowlevel_ops ops{};
  ops.init = FloorInit;
  ops.lookup = FloorLookup;
  ops.getattr = FloorGetattr;
  ops.setattr = FloorSetattr;
  ops.open = FloorOpen;
  ops.create = FloorCreate;
  ops.unlink = FloorUnlink;
  ops.release = FloorRelease;
  ops.read = FloorRead;
  ops.write = FloorWrite;
  ops.fsync = FloorFsync;
  return ops;
}

int Loop(fuse_session* session, unsigned threads) {
  if (threads == 1) return fuse_session_loop(session);
  fuse_loop_config* const config = fuse_loop_cfg_create();
  fuse_loop_cfg_set_max_threads(config, threads);
  fuse_loop_cfg_set_idle_threads(config, threads);
  const int result = fuse_session_loop_mt(session, config);
  fuse_loop_cfg_destroy(config);
  return result;
}

int Serve(const std::string& mountpoint, unsigned threads) {
  std::string program = "mount_floor", option = "-o", value = "fsname=mount_floor";
  char* words[] = {program.data(), option.data(), value.data(), nullptr};
  fuse_args args = FUSE_ARGS_INIT(3, words);
  const fuse_lowlevel_ops ops = Operations();
  fuse_session* const session = fuse_session_new(&args, &ops, sizeof(ops), nullptr);
  if (session == nullptr) return EXIT_FAILURE;
  int result = EXIT_FAILURE;
  if (fuse_set_signal_handlers(session) == 0) {
    if (fuse_session_mount(session, mountpoint.c_str()) == 0) {
      std::puts("ready");
      std::fflush(stdout);
      result = Loop(session, threads) >= 0 ? EXIT_SUCCESS : EXIT_FAILURE;
      fuse_session_unmount(session);
    }
    fuse_remove_signal_handlers(session);
  }
  fuse_session_destroy(session);
  fuse_opt_free_args(&args);
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  Options options("mount_floor", "BACKING_DIR MOUNTPOINT",
                  "The floor under a write through a mount.");
  Floor floor;
  g_floor = &floor;
  const auto arguments =
      ParseArguments(options, &floor.replication, std::vector<std::string>(argv + 1, argv + argc));
  if (!arguments.ok()) {
    std::fprintf(stderr, "mount_floor: %s\n", arguments.status().ToString().c_str());
    return 2;
  }
  floor.empty = arguments->empty;
  floor.cached = arguments->cached;
  floor.delay_ns = static_cast<int64_t>(arguments->delay_us) * 1000;
  const std::string& backing = options.places()[0];
  floor.backing_fd = open(backing.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (floor.backing_fd < 0) {
    std::perror(backing.c_str());
    return EXIT_FAILURE;
  }
  const absl::Status status = floor.replication.Start();
  if (!status.ok()) {
    std::fprintf(stderr, "mount_floor: %s\n", status.ToString().c_str());
    return EXIT_FAILURE;
  }
  return Serve(options.places()[1], static_cast<unsigned>(arguments->threads));
}
