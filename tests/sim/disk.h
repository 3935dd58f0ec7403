// A simulated disk below the shipping code's own files (state, stable log, recovery's note): the C
// library's calls on its descriptors come here, because the simulator's binary is linked with
// --wrap for them (see BUILD.bazel). No shipping code knows of it.
//
// What a power cut leaves. Writes reach the disk when a sync says so, and until then in any order,
// each sector of 512 bytes on its own. A *job* is a run of calls that in the real program blocks a
// thread for a while: its syncs count only once Commit() says that the thread has come back. A cut
// before that leaves everything before one of its syncs, and any part of what it wrote after that
// one.
//
// Threads: one. At most one Disk exists at a time.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/random.h"

namespace salius::sim {

class Disk {
 public:
  using Job = uint64_t;
  static constexpr int kFirstFd = 1 << 20;

  Disk();
  ~Disk();
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;

  // A descriptor of the only directory there is. Never closed.
  int dirfd() const { return kFirstFd; }

  Job BeginJob();
  void EndJob() { job_ = 0; }
  void Commit(Job job) { Persist(job); }

  // The power goes, or (without `power`) only the process dies: then all that was written is still
  // there. Afterwards the disk works again.
  void Crash(Random& random, bool power);
  // The calls that change something fail from the `calls`-th on (1: the next), and nothing reaches
  // the disk any more.
  void DieAfter(uint64_t calls) { dies_at_ = changes_ + calls; }
  bool dead() const { return dead_; }
  // The next sync, or write that syncs, fails once with EIO.
  void FailNextSync() { fail_sync_ = true; }

  // Copies of what is there now, to begin many lives with.
  struct Image;
  std::shared_ptr<const Image> TakeImage() const;
  void SetImage(const Image& image);

  // ---- called by the wrapped functions; results as of the system calls, -1 with errno
  int Open(const char* name, int flags);
  int Close(int fd);
  ssize_t Pread(int fd, void* buf, size_t n, off_t off);
  ssize_t Read(int fd, void* buf, size_t n);
  ssize_t Pwritev(int fd, const iovec* parts, int count, off_t off, int flags);
  int Sync(int fd);
  int Stat(int fd, struct stat* st);
  int Rename(const char* from, const char* to);
  static Disk* current();

 private:
  static constexpr uint64_t kPage = 4096;
  static constexpr uint64_t kSector = 512;
  using Page = std::array<char, kPage>;
  // Pages that were never written are zeros.
  struct Bytes {
    uint64_t size = 0;
    std::map<uint64_t, std::shared_ptr<Page>> pages;
    void Write(uint64_t off, const char* data, uint64_t size);
    void Read(uint64_t off, char* out, uint64_t n) const;
  };
  using Inode = int;
  struct State {
    std::map<std::string, Inode> names;
    std::map<Inode, Bytes> files;
  };
  struct Op {
    enum Kind { kWrite, kCreate, kTruncate, kRename, kBarrier } kind;
    Job job = 0;
    Inode inode = 0;
    uint64_t off = 0;
    std::string data;  // kWrite; kCreate, kRename: the name
    std::string to;    // kRename
  };

  bool Change();  // counts one; false with errno when the disk is dead
  void Do(State& state, const Op& op) const;
  void DoPart(State& state, const Op& op, Random& random) const;
  void Note(Op op);
  void Persist(Job job);  // what `job` wrote before its last sync is on the disk

  State now_, disk_;
  std::vector<Op> log_;  // not yet on the disk, in order
  std::map<int, Inode> fds_;
  std::map<int, off_t> positions_;
  int next_fd_ = kFirstFd + 1;
  Inode next_inode_ = 1;
  Job job_ = 0, next_job_ = 1;
  uint64_t changes_ = 0, dies_at_ = 0;
  bool dead_ = false, fail_sync_ = false;
};

struct Disk::Image {
  State state;
  Inode next_inode;
};

}  // namespace salius::sim
