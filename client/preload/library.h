// The preload library's one object: what all interposed functions share.
//
// Loaded without a coordinator it is never started, and every interposed function only passes on.
#pragma once

#include <atomic>

#include "client/direct/process/files.h"
#include "client/preload/descriptors.h"
#include "client/preload/environment.h"
#include "client/preload/look.h"

extern "C" {
// Children of vfork(2) that run now; fork.cc's assembly counts them.
extern std::atomic<int> salius_preload_borrowers;
// 1 once the library is started.
extern std::atomic<int> salius_preload_started;
}

namespace salius::preload {

class Library {
 public:
  // Finds the C library's functions. The first thing in the constructor of the shared object.
  void Load();

  // From now on calls on the volume's files go to `files`, which lives until the process ends.
  // `environment` is the process's: its entries of the library are put back by exec and spawn.
  // `logs`: `files` needs to see every change; false: programs without the library may run too.
  void Start(direct::Files& files, char** environment, bool logs = true);

  bool on() const { return salius_preload_started.load(std::memory_order_acquire) != 0; }
  // Returns whether changes of files are logged in this process, and must be seen.
  bool logs() const { return on() && logs_; }
  direct::Files& files() { return *files_; }
  Descriptors& descriptors() { return descriptors_; }
  const KeptEnvironment& environment() const { return environment_; }

  // Returns whether a call on `fd` can be passed on without a further look.
  bool Passes(int fd) const {
    if (!on()) return true;
    if (Borrowed()) return !logs_;
    const Descriptor::State state = descriptors_.Get(fd).state;
    return state == Descriptor::State::kOther || state == Descriptor::State::kMounted;
  }

  // A synchronous call on `fd` is to be made by the kernel. Asks for early return where that may be
  // granted, once for each descriptor. errno stays.
  void BeforeKernelSyncs(int fd);
  // Returns whether a sync of `fd`, a file of a mount, has returned early: the kernel need not make
  // it. Asks as BeforeKernelSyncs does. errno stays.
  bool SyncsEarly(int fd);

  // Returns what `fd` is. A descriptor seen for the first time is registered; it is uncovered when
  // it is writable, since other processes may have it too. In a child of vfork(2), whose descriptors
  // are its own, it is looked at each time.
  Descriptor Look(int fd);
  // Returns what is known of `fd`, which is not registered.
  Descriptor Found(int fd) { return on() && Borrowed() ? Look(fd) : descriptors_.Get(fd); }

  // Registers `fd`, which was just opened with `flags`. `made`: the open made the file. A
  // synchronous descriptor loses O_SYNC and O_DSYNC in the kernel, where that is possible.
  void Opened(int fd, int flags, bool made);

  // A stdio stream that writes to `fd` exists from now on. Its writes are not seen: they are made
  // inside the C library. So the file is uncovered, and every sync of it by this process is real.
  void Streams(int fd);

  // `to`, a number that was free, is now a duplicate of `from`, which was `known` before.
  void Duplicated(int from, const Descriptor& known, int to);
  // The same after descriptors().BeginChange(to) and dup2(2). `done`: it has succeeded.
  void Replaced(int from, const Descriptor& known, int to, bool done);

  // `fd` may be another descriptor from now on. Returns the new generation for ForgetLooks.
  uint32_t Forget(int fd) { return on() && !Borrowed() ? descriptors_.Forget(fd) : 0; }
  // `fd` has been closed: what other threads found of it since Forget is wrong.
  void ForgetLooks(int fd, uint32_t generation) {
    if (on() && !Borrowed()) descriptors_.ForgetLooks(fd, generation);
  }

  // Makes the file behind `fd` uncovered, if it is the volume's. Async-signal-safe.
  void Uncover(int fd, direct::Reason reason);

  // Makes the file that was seen uncovered, if the volume knows it. A file that it does not know is
  // uncovered when it is opened. errno stays. Async-signal-safe.
  void UncoverSeen(const Seen& seen, direct::Reason reason);

  // Returns the file that was seen, if changes are logged here and the volume knows it; else an
  // untracked one. errno stays. Async-signal-safe.
  direct::File Known(const Seen& seen);

  // A change was made through `fd`, which was a descriptor of `file` and may have been another one by
  // then: another thread closed or replaced it. Makes both files uncovered. Within a section too.
  void UncoverMoved(int fd, direct::File file);

  // Makes the file of `descriptor` durable. Returns 0 or an errno.
  int Sync(int fd, const Descriptor& descriptor, bool data_only);
  // The same for the whole volume.
  int SyncAll();

  // Returns whether this is a child of vfork(2), which runs in its parent's memory, or one after
  // AfterUnknownFork. It neither takes a lock nor changes the table.
  bool Borrowed() const {
    return salius_preload_borrowers.load(std::memory_order_relaxed) != 0 && IsOtherProcess();
  }
  // A child of fork(2) begins.
  void AfterFork();
  // A child with memory of its own begins which the C library does not know as one: a lock that it
  // took would not be given back by its death. So it is treated as a child of vfork(2), until it
  // starts a program or forks.
  void AfterUnknownFork();
  // Returns whether the program must leave the library's own descriptors alone. A child of vfork(2)
  // has a table of its own, in which it may close what it likes.
  bool Shields() const {
    return on() && (unknown_fork_.load(std::memory_order_relaxed) || !Borrowed());
  }

  // The program has a signal handler.
  void HandlerInstalled() { handlers_.store(true, std::memory_order_relaxed); }
  bool handlers() const { return handlers_.load(std::memory_order_relaxed); }

 private:
  bool IsOtherProcess() const;
  // Returns what `fd` is, past the table.
  Descriptor LookAsBorrower(int fd);
  // `known`: the entry of `fd` before this look at it. A new one is stored if that is the same.
  Descriptor Resolve(int fd, const Descriptor& known);
  // Stores what AskEarly returned for `fd`, which was `known`.
  void SetGrant(int fd, const Descriptor& known, uint64_t grant);
  Descriptor Register(int fd, const Descriptor& known, int flags, bool made);
  // Returns what a duplicate of `from` with the number `to` is: unknown, if `from` is `known` no more.
  Descriptor DuplicateOf(int from, const Descriptor& known, int to);
  // Lets the kernel forget that `fd` is synchronous. Returns the marks for it; 0 when it could not.
  uint8_t TakeSync(int fd, int flags);

  direct::Files* files_ = nullptr;
  bool logs_ = true;
  Descriptors descriptors_;
  KeptEnvironment environment_;
  std::atomic<bool> handlers_{false};
  std::atomic<bool> unknown_fork_{false};  // since AfterUnknownFork
  std::atomic<int> process_{0};
};

extern Library library;

}  // namespace salius::preload
