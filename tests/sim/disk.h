// A simulated disk below the shipping code's own files (state, stable log, applied mark, recovery's
// note). The C library's calls on its descriptors come here, because the simulator's binary is
// linked with --wrap for them (tests/sim/disk_calls.cc). No shipping code knows of it.
//
// The effect of a power cut: writes reach the disk at the latest with a sync of their file. Changes
// of names reach it with a sync of any file, as a journal commits them. Until then they reach it in
// any order, each sector of 512 bytes alone. A *job* is a run of calls that in the real program
// blocks a thread for a while: its syncs count only once Commit() marks the thread's return. A cut
// before that leaves everything before one of its syncs, and any part of the writes after that
// sync.
//
// The death of a process leaves the page cache, with all writes, synced or not.
//
// A failed sync leaves the written data in the cache and marks it clean. Any part of the data is on
// the disk; the rest never will be, whichever process syncs again. Until the cache is dropped,
// reads show the data.
//
// Threads: one. At most one Disk exists at a time.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/random.h"

namespace salius::sim {

// How a machine, or only its process, ended.
enum class Death {
  kProcess,  // the page cache and the boot survive
  kRemount,  // the file system was also unmounted and mounted again, which writes everything
  kPower,
};

class Disk {
 public:
  using Job = uint64_t;
  static constexpr int kFirstFd = 1 << 20;

  // `sector`: the chance of each unsynced sector to survive a power cut.
  Disk(uint64_t seed, double sector);
  ~Disk();
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;

  // Returns a descriptor of the only directory. It is never closed.
  int dirfd() const { return kFirstFd; }

  Job BeginJob();
  void EndJob() { job_ = 0; }
  void Commit(Job job) { Persist(job); }

  // Ends the machine or process. Afterwards the disk works again, without any descriptor or
  // mapping.
  void Crash(Death death);
  // Makes the changing calls fail from the `calls`-th on (1: the next); nothing reaches the disk
  // any more. A syncfs() in which it dies fails too if `sync_fails`.
  void DieAfter(uint64_t calls, bool sync_fails) {
    dies_at_ = changes_ + calls;
    last_sync_fails_ = sync_fails;
  }
  bool dead() const { return dead_; }
  // Makes the n-th sync from now on (1: the next; a write that syncs counts) fail once with EIO.
  void FailSync(uint64_t n) { fail_sync_ = n; }
  // Makes the n-th write from now on fail once with EIO; a part of it may have been written.
  void FailWrite(uint64_t n) { fail_write_ = n; }
  // Leaves no room from the n-th change on, until HasRoom(). Not even allocated space can be
  // written, as on a file system that writes nothing in place.
  void FullAfter(uint64_t n) { full_at_ = changes_ + n; }
  // HasRoom ends FullAfter(); Mend ends every failure.
  void HasRoom() { full_at_ = UINT64_MAX; }
  void Mend();
  // Notes that the kernel could not write some data back and logged that.
  void Complain() { ++complaints_; }
  // Sets the function that syncfs() calls for the rest of the file system. Its argument: whether
  // the call fails.
  void OnSyncFs(std::function<void(bool)> sync) { on_syncfs_ = std::move(sync); }

  // Copies of the present content, from which many lives can start.
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
  int Unlink(const char* name);
  int SyncFs();
  void DropCache(int fd);
  void* Map(int fd, size_t size);
  bool Unmap(void* address);  // false: the mapping is not ours
  uint64_t mount_id() const { return mount_; }
  int OpenBootId();
  int OpenKernelFile(const std::string& path);
  static Disk* current();

 private:
  static constexpr uint64_t kPage = 4096;
  static constexpr uint64_t kSector = 512;
  using Page = std::array<char, kPage>;
  // The content of a file. Pages that were never written are zeros.
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
  // Numbers for things without an inode.
  static constexpr Inode kDirectory = 0, kEverything = -1, kBootIdFile = -2, kKernelFile = -3;
  struct Op {
    enum Kind { kWrite, kCreate, kTruncate, kRename, kUnlink, kBarrier } kind;
    Job job = 0;
    Inode inode = 0;  // kBarrier: the synced file
    uint64_t off = 0;
    std::string data;  // kWrite; kCreate, kRename, kUnlink: the name
    std::string to;    // kRename
    bool names() const { return kind == kCreate || kind == kRename || kind == kUnlink; }
  };
  // The changes that some syncs cover; queried from the last one backwards.
  class Synced;

  // Counts a change. Returns false with errno when the disk is dead, or full and this needs room.
  bool Change(bool needs_room);
  void Do(State& state, const Op& op) const;
  void DoPart(State& state, const Op& op);
  void Note(Op op);
  void Persist(Job job);  // puts on the disk the writes of `job` before its syncs
  void PowerCut();
  void Lose(Inode inode);  // a sync of it failed
  void NoteMapped(const std::shared_ptr<Page>& page, Inode inode);
  void EndMappings();
  void NewBoot();

  Random random_;
  const double sector_;
  State now_, disk_;
  std::vector<Op> log_;      // not yet on the disk, in order
  std::vector<Inode> lost_;  // the cache has data that the disk will never have
  std::map<int, Inode> fds_;
  std::map<int, off_t> positions_;
  std::map<void*, std::pair<Inode, std::shared_ptr<Page>>> mapped_;
  int next_fd_ = kFirstFd + 1;
  Inode next_inode_ = 1;
  Job job_ = 0, next_job_ = 1;
  uint64_t boot_ = 0, mount_ = 1;
  uint64_t changes_ = 0, dies_at_ = 0, full_at_ = UINT64_MAX;
  uint64_t fail_sync_ = 0, fail_write_ = 0;
  uint64_t complaints_ = 1;
  bool dead_ = false, last_sync_fails_ = false;
  std::function<void(bool)> on_syncfs_;
};

struct Disk::Image {
  State state;
  Inode next_inode;
};

}  // namespace salius::sim
