// A slow or a failing disk for benchmarks and tests: a file system with one file, `disk`, kept in a
// backing file. Its fsync takes as long as a rotating disk needs to empty its cache (8 ms by
// default). A loop device over `disk` is then a block device whose flush takes that long. ext4 on
// it reaches about 60 synchronous writes a second: two flushes each, one before the commit block
// and one for it.
//
//   slow_disk_fs [--flush-ms N] [--unreadable FILE] BACKING_FILE MOUNTPOINT
//
// FILE may hold two numbers, an offset and a length in bytes. While it exists, that part of the
// disk cannot be read (EIO), as with a bad sector.
//
// Prints "ready" when mounted; ends when unmounted or on SIGTERM. Data is only in the page cache of
// the backing file: this disk is slow, it is not made to survive anything.
//
// Threads: libfuse's pool. g_flush is held through a flush, because a disk does one at a time;
// reads and writes continue meanwhile.
#define FUSE_USE_VERSION 312
#include <fcntl.h>
#include <fuse3/fuse_lowlevel.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <mutex>
#include <string>

#include "absl/strings/numbers.h"

namespace {

constexpr fuse_ino_t kDiskIno = 2;
constexpr char kDiskName[] = "disk";
constexpr double kForever = 86400;

int g_backing_fd = -1;
int g_flush_ms = 8;
std::string g_unreadable;  // FILE; empty: everything can be read
std::mutex g_flush;

struct stat AttributesOf(fuse_ino_t number) {
  struct stat attr {};
  if (number == kDiskIno) {
    fstat(g_backing_fd, &attr);
    attr.st_mode = S_IFREG | 0600;
  } else {
    attr.st_mode = S_IFDIR | 0700;
    attr.st_nlink = 2;
  }
  attr.st_ino = number;
  return attr;
}

void DiskLookup(fuse_req_t req, fuse_ino_t, const char* name) {
  if (std::strcmp(name, kDiskName) != 0) {
    fuse_reply_err(req, ENOENT);
    return;
  }
  fuse_entry_param entry{};
  entry.ino = kDiskIno;
  entry.attr = AttributesOf(kDiskIno);
  entry.attr_timeout = kForever;
  entry.entry_timeout = kForever;
  fuse_reply_entry(req, &entry);
}

void DiskGetattr(fuse_req_t req, fuse_ino_t number, fuse_file_info*) {
  const struct stat attr = AttributesOf(number);
  fuse_reply_attr(req, &attr, kForever);
}

void DiskSetattr(fuse_req_t req, fuse_ino_t number, struct stat*, int mask, fuse_file_info* info) {
  // A disk does not change its size; times do not matter.
  if ((mask & FUSE_SET_ATTR_SIZE) != 0) {
    fuse_reply_err(req, EPERM);
    return;
  }
  DiskGetattr(req, number, info);
}

void DiskOpen(fuse_req_t req, fuse_ino_t number, fuse_file_info* info) {
  if (number != kDiskIno) {
    fuse_reply_err(req, EISDIR);
    return;
  }
  info->keep_cache = 1;
  fuse_reply_open(req, info);
}

bool IsReadable(off_t offset, size_t size) {
  std::ifstream file(g_unreadable);
  off_t first = 0, length = 0;
  if (!(file >> first >> length)) return true;
  return offset >= first + length || offset + static_cast<off_t>(size) <= first;
}

void DiskRead(fuse_req_t req, fuse_ino_t, size_t size, off_t offset, fuse_file_info*) {
  if (!g_unreadable.empty() && !IsReadable(offset, size)) {
    fuse_reply_err(req, EIO);
    return;
  }
  fuse_bufvec data = FUSE_BUFVEC_INIT(size);
  data.buf[0].flags = static_cast<fuse_buf_flags>(FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK);
  data.buf[0].fd = g_backing_fd;
  data.buf[0].pos = offset;
  fuse_reply_data(req, &data, FUSE_BUF_SPLICE_MOVE);
}

void DiskWrite(fuse_req_t req, fuse_ino_t, const char* data, size_t size, off_t offset,
               fuse_file_info*) {
  const ssize_t written = pwrite(g_backing_fd, data, size, offset);
  if (written < 0) {
    fuse_reply_err(req, errno);
    return;
  }
  fuse_reply_write(req, static_cast<size_t>(written));
}

void DiskFsync(fuse_req_t req, fuse_ino_t, int, fuse_file_info*) {
  {
    const std::lock_guard<std::mutex> lock(g_flush);
    const timespec pause{.tv_sec = g_flush_ms / 1000, .tv_nsec = g_flush_ms % 1000 * 1'000'000L};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, nullptr);
  }
  fuse_reply_err(req, 0);
}

void DiskFallocate(fuse_req_t req, fuse_ino_t, int mode, off_t offset, off_t length,
                   fuse_file_info*) {
  fuse_reply_err(req, fallocate(g_backing_fd, mode, offset, length) == 0 ? 0 : errno);
}

int Serve(const std::string& mountpoint) {
  std::string program = "slow_disk_fs", option = "-o", value = "fsname=slow_disk";
  char* words[] = {program.data(), option.data(), value.data(), nullptr};
  fuse_args args = FUSE_ARGS_INIT(3, words);
  fuse_lowlevel_ops ops{};
  ops.lookup = DiskLookup;
  ops.getattr = DiskGetattr;
  ops.setattr = DiskSetattr;
  ops.open = DiskOpen;
  ops.read = DiskRead;
  ops.write = DiskWrite;
  ops.fsync = DiskFsync;
  ops.fallocate = DiskFallocate;
  fuse_session* const session = fuse_session_new(&args, &ops, sizeof(ops), nullptr);
  if (session == nullptr) return EXIT_FAILURE;
  int result = EXIT_FAILURE;
  if (fuse_set_signal_handlers(session) == 0) {
    if (fuse_session_mount(session, mountpoint.c_str()) == 0) {
      std::puts("ready");
      std::fflush(stdout);
      fuse_loop_config* const config = fuse_loop_cfg_create();
      result = fuse_session_loop_mt(session, config) >= 0 ? EXIT_SUCCESS : EXIT_FAILURE;
      fuse_loop_cfg_destroy(config);
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
  int first = 1;
  bool understood = true;
  for (; first + 1 < argc && argv[first][0] == '-'; first += 2) {
    const std::string option = argv[first];
    if (option == "--unreadable") {
      g_unreadable = argv[first + 1];
    } else if (option != "--flush-ms" || !absl::SimpleAtoi(argv[first + 1], &g_flush_ms) ||
               g_flush_ms < 0) {
      understood = false;
    }
  }
  if (!understood || argc != first + 2) {
    std::fprintf(
        stderr, "usage: slow_disk_fs [--flush-ms N] [--unreadable FILE] BACKING_FILE MOUNTPOINT\n");
    return 2;
  }
  g_backing_fd = open(argv[first], O_RDWR | O_CLOEXEC);
  if (g_backing_fd < 0) {
    std::perror(argv[first]);
    return EXIT_FAILURE;
  }
  return Serve(argv[first + 1]);
}
