// A disk of a model for benchmarks and tests: a file system with one file, `disk`, kept in a backing
// file. A loop device over `disk` (losetup --direct-io=on) is then a block device whose requests take
// as long as the model says.
//
//   disk_model_fs [options] BACKING_FILE MOUNTPOINT
//
//   --model flush      a flush takes --flush-ms (8), reads and writes nothing: ext4 on it reaches about
//                      60 synchronous writes a second, two flushes each
//   --model iops       every request takes 1/--iops s (100), one after another
//   --model hard-disk  head, platter and a queue of 32 (model.h)
//   --model ssd        90 us a read, 30 us a write of 4 KiB, eight at a time
//
// --unreadable FILE: FILE may hold two numbers, an offset and a length in bytes. While it exists, that
// part of the disk cannot be read (EIO), as with a bad sector.
//
// --at-once FILE: while FILE exists, requests take no time: for what a measurement needs before and
// after. Those that had begun end as the model says.
//
// A disk needs no CPU of the machine, but this one does. It runs with real-time priority (SCHED_RR, 1),
// if it may, so that the load of the machine does not make its requests longer.
//
// Prints its priority, and "ready" when mounted; ends when unmounted or on SIGTERM. Then it prints how
// many requests the model had, how many were outstanding at most, how much later they were answered
// than the model says, and the CPU time of each. Data is only in the page cache of the backing
// file: this disk is slow, it is not made to survive anything.
//
// Threads: libfuse's pool takes requests. Those that take time are answered by one more thread, at
// their end. `mutex_` is held over nothing that waits.
#define FUSE_USE_VERSION 312
#include <fcntl.h>
#include <fuse3/fuse_lowlevel.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/clock.h"
#include "common/options.h"
#include "tests/bench/disk_model/model.h"

namespace {

constexpr fuse_ino_t kDiskIno = 2;
constexpr char kDiskName[] = "disk";
constexpr double kForever = 86400;
constexpr unsigned kOutstanding = 128;  // the queue of a loop device

int g_backing_fd = -1;
std::string g_unreadable;  // FILE; empty: everything can be read
std::string g_at_once;     // FILE; empty: the model always decides

// Answers each request at the end that the model gives it.
class Timer {
 public:
  explicit Timer(std::unique_ptr<salius::disk::Model> model) : model_(std::move(model)) {
    thread_ = std::thread([this] { Run(); });
  }
  ~Timer() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

  void Print() {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::printf("%lu requests, at most %zu outstanding\n", last_id_, most_outstanding_);
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    const auto us = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_usec);
    };
    const double count = static_cast<double>(std::max<uint64_t>(last_id_, 1));
    const double all = static_cast<double>(std::max<uint64_t>(last_id_ + at_once_.load(), 1));
    std::printf("late by %.0f us on average and %.0f us at most, %.0f us of CPU each\n",
                static_cast<double>(late_ns_) / 1e3 / count, static_cast<double>(most_late_ns_) / 1e3,
                (us(used.ru_utime) + us(used.ru_stime)) / all);
    std::fflush(stdout);
  }

  // Calls `answer` when the request has ended: on this thread if that is now.
  void At(salius::disk::Call call, uint64_t offset, uint64_t bytes, std::function<void()> answer) {
    if (!g_at_once.empty() && access(g_at_once.c_str(), F_OK) == 0) {
      ++at_once_;
      return answer();
    }
    std::vector<std::function<void()>> ready;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const int64_t now_ns = salius::SystemClock().MonotonicNanos();
      const uint64_t id = ++last_id_;
      answers_.emplace(id, std::move(answer));
      most_outstanding_ = std::max(most_outstanding_, answers_.size());
      model_->Submit(now_ns, {id, call, offset, bytes});
      ready = TakeReady(now_ns);
    }
    changed_.notify_one();
    for (const auto& one : ready) one();
  }

 private:
  std::vector<std::function<void()>> TakeReady(int64_t now_ns) {
    std::vector<std::function<void()>> ready;
    const std::optional<int64_t> end_ns = model_->NextEnd();
    const std::vector<uint64_t> ended = model_->TakeEnded(now_ns);
    if (!ended.empty() && end_ns.has_value()) {
      // The first of several that end together is the latest.
      late_ns_ += (now_ns - *end_ns) * static_cast<int64_t>(ended.size());
      most_late_ns_ = std::max(most_late_ns_, now_ns - *end_ns);
    }
    for (const uint64_t id : ended) {
      const auto found = answers_.find(id);
      ready.push_back(std::move(found->second));
      answers_.erase(found);
    }
    return ready;
  }

  void Run() {
    // The default slack of 50 us is as long as a request of the faster disk.
    prctl(PR_SET_TIMERSLACK, 1UL);
    std::unique_lock<std::mutex> lock(mutex_);
    while (!stop_) {
      const std::optional<int64_t> end_ns = model_->NextEnd();
      const int64_t now_ns = salius::SystemClock().MonotonicNanos();
      if (!end_ns.has_value()) {
        changed_.wait(lock);
      } else if (*end_ns > now_ns) {
        changed_.wait_for(lock, std::chrono::nanoseconds(*end_ns - now_ns));
      } else {
        const std::vector<std::function<void()>> ready = TakeReady(now_ns);
        lock.unlock();
        for (const auto& one : ready) one();
        lock.lock();
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::unique_ptr<salius::disk::Model> model_;
  uint64_t last_id_ = 0;
  std::map<uint64_t, std::function<void()>> answers_;
  size_t most_outstanding_ = 0;
  std::atomic<uint64_t> at_once_{0};  // requests that took no time; not in last_id_
  int64_t late_ns_ = 0;               // of all requests of the model
  int64_t most_late_ns_ = 0;
  std::thread thread_;
};

Timer* g_timer = nullptr;

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

void DiskInit(void*, fuse_conn_info* connection) {
  connection->max_background = kOutstanding;
  connection->congestion_threshold = kOutstanding;
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
  g_timer->At(salius::disk::Call::kRead, static_cast<uint64_t>(offset), size, [=] {
    fuse_bufvec data = FUSE_BUFVEC_INIT(size);
    data.buf[0].flags = static_cast<fuse_buf_flags>(FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK);
    data.buf[0].fd = g_backing_fd;
    data.buf[0].pos = offset;
    fuse_reply_data(req, &data, FUSE_BUF_SPLICE_MOVE);
  });
}

void DiskWrite(fuse_req_t req, fuse_ino_t, const char* data, size_t size, off_t offset,
               fuse_file_info*) {
  const ssize_t written = pwrite(g_backing_fd, data, size, offset);
  if (written < 0) {
    fuse_reply_err(req, errno);
    return;
  }
  g_timer->At(salius::disk::Call::kWrite, static_cast<uint64_t>(offset), static_cast<uint64_t>(written),
              [=] { fuse_reply_write(req, static_cast<size_t>(written)); });
}

void DiskFsync(fuse_req_t req, fuse_ino_t, int, fuse_file_info*) {
  g_timer->At(salius::disk::Call::kFlush, 0, 0, [=] { fuse_reply_err(req, 0); });
}

void DiskFallocate(fuse_req_t req, fuse_ino_t, int mode, off_t offset, off_t length,
                   fuse_file_info*) {
  fuse_reply_err(req, fallocate(g_backing_fd, mode, offset, length) == 0 ? 0 : errno);
}

int Serve(const std::string& mountpoint) {
  std::string program = "disk_model_fs", option = "-o", value = "fsname=disk_model";
  char* words[] = {program.data(), option.data(), value.data(), nullptr};
  fuse_args args = FUSE_ARGS_INIT(3, words);
  fuse_lowlevel_ops ops{};
  ops.init = DiskInit;
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
  salius::Options options("disk_model_fs", "BACKING_FILE MOUNTPOINT",
                          "A file that is as slow as a disk, for a loop device.");
  std::string model = "flush";
  uint64_t flush_ms = 8, iops = 100, seed = 1;
  options.Choice("model", {"flush", "iops", "hard-disk", "ssd"}, &model, "what the disk is like");
  options.Number("flush-ms", "N", &flush_ms, 0, 60'000, "model flush: milliseconds of a flush");
  options.Number("iops", "N", &iops, 1, 1'000'000, "model iops: requests a second");
  options.Number("seed", "N", &seed, 0, UINT64_MAX, "model hard-disk: decides where the head is at first");
  options.Text("unreadable", "FILE", &g_unreadable, "holds the offset and length of what cannot be read");
  options.Text("at-once", "FILE", &g_at_once, "while it exists, requests take no time");
  const absl::Status status = options.Parse(std::vector<std::string>(argv + 1, argv + argc), 2, 2);
  if (options.answer().has_value()) {
    std::fputs(options.answer()->c_str(), stdout);
    return EXIT_SUCCESS;
  }
  if (!status.ok()) {
    std::fprintf(stderr, "disk_model_fs: %s\n", std::string(status.message()).c_str());
    return 2;
  }
  g_backing_fd = open(options.places()[0].c_str(), O_RDWR | O_CLOEXEC);
  struct stat attr {};
  if (g_backing_fd < 0 || fstat(g_backing_fd, &attr) != 0) {
    std::perror(options.places()[0].c_str());
    return EXIT_FAILURE;
  }
  std::unique_ptr<salius::disk::Model> made;
  if (model == "hard-disk") {
    made = MakeModel(salius::disk::RotatingDisk{.disk_bytes = static_cast<uint64_t>(attr.st_size)}, seed);
  } else if (model == "ssd") {
    made = MakeModel(salius::disk::FlashDisk{});
  } else if (model == "iops") {
    const int64_t each_ns = 1'000'000'000 / static_cast<int64_t>(iops);
    made = MakeModel(salius::disk::FixedDisk{each_ns, each_ns, each_ns});
  } else {
    made = MakeModel(salius::disk::FixedDisk{.flush_ns = static_cast<int64_t>(flush_ms) * 1'000'000});
  }
  const sched_param first{.sched_priority = 1};
  const bool real_time = sched_setscheduler(0, SCHED_RR, &first) == 0;  // threads inherit it
  std::printf("%s priority\n", real_time ? "real-time" : "ordinary");
  Timer timer(std::move(made));
  g_timer = &timer;
  const int result = Serve(options.places()[1]);
  timer.Print();
  return result;
}
