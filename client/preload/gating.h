// The outputs of this process under external synchrony (docs/external-synchrony.md).
//
// The filter of salius-run sends each output that is not made through the call page to the
// supervisor, which waits for it. The interposed functions here are the quick way: they wait in
// this process, and only where a descriptor leads outside, and then call through the page. Where
// they cannot decide (inside a signal handler that interrupted the library), the call is left to
// the supervisor.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <cstring>

#include "client/gate/call_page.h"
#include "client/gate/gate.h"
#include "client/preload/raw_call.h"

namespace salius::preload {

// Returns what is behind the last slash of `path`.
inline const char* LastComponent(const char* path) {
  const char* const slash = std::strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

class Gating {
 public:
  // Returns whether the filter of salius-run watches this process.
  static bool IsWatched();

  // Outputs wait at `gate` from now on. `held`: the value of gate::kHeldVariable, or null.
  void Start(gate::Gate& gate, const char* held);
  bool on() const { return gate_.load(std::memory_order_acquire) != nullptr; }

  enum class Verdict {
    kGo,     // make the call through the page
    kLeave,  // make it by the C library: the supervisor waits
    kFail,   // what it depends on cannot become durable: EIO
  };
  // Judges a call that writes to `fd`, and waits for what it depends on. errno stays.
  Verdict Before(int fd) { return Wait(fd, false); }
  // Judges a call that closes `fd`.
  Verdict BeforeClose(int fd) { return Wait(fd, true); }
  // Judges a call that makes or cuts the file at `path` under `directory`.
  Verdict BeforeName(int directory, const char* path) {
    return JudgeName(directory, path, nullptr);
  }
  // The same for a call that fails if the name exists. With kGo, `folder` may be the directory of
  // the name, which is its last component then: a call there does not ask for the other components
  // again, each of which is a request to the daemon of a mount. The caller closes it. -1: none.
  Verdict BeforeNewName(int directory, const char* path, int* folder) {
    *folder = -1;
    return JudgeName(directory, path, folder);
  }
  // Returns whether `fd` leads outside.
  bool Outside(int fd) const;

  // The descriptors in `fds` are pipes or sockets that this process made.
  void Made(const int* fds, int count);
  // A message with descriptors goes to `fd`.
  void Passes(int fd);
  // Pages of this process become readable through `fd`. Returns whether the supervisor must see to it:
  // the call is then made by the C library.
  bool Lends(int fd);

 private:
  static constexpr int kMostHeld = 32;
  struct Held {
    uint64_t device = 0, inode = 0;
  };

  // Has the next output wait for changes that this thread made by calls that the supervisor let
  // continue: they have been made by now.
  void Settle();
  bool IsHeld(uint64_t device, uint64_t inode) const;
  bool Leads(int fd, bool closes) const;
  Verdict Wait(int fd, bool closes);
  // `folder`: of BeforeNewName(), or null.
  Verdict JudgeName(int directory, const char* path, int* folder);
  Verdict WaitNow();

  std::atomic<gate::Gate*> gate_{nullptr};
  Held held_[kMostHeld];
  int held_count_ = 0;
};

extern Gating gating;

// Makes a system call through the page, which may block and is a cancellation point. Returns as the
// C library does.
template <typename... Arguments>
long Blocking(long number, Arguments... arguments) {
  int before = 0;
  // As the C library does around its own system calls.
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before);
  const long result = Raw(number, arguments...);
  pthread_setcanceltype(before, nullptr);
  return Returned(result);
}

// Makes an output to `fd`: by `plain`, the C library's function, where there is no gate or the
// supervisor is to wait.
template <typename Plain, typename... Arguments>
auto Output(int fd, Plain plain, long number, Arguments... arguments) -> decltype(plain()) {
  if (!gating.on()) return plain();
  switch (gating.Before(fd)) {
    case Gating::Verdict::kGo:
      return static_cast<decltype(plain())>(Blocking(number, arguments...));
    case Gating::Verdict::kLeave:
      return plain();
    case Gating::Verdict::kFail:
      break;
  }
  errno = EIO;
  return -1;
}

}  // namespace salius::preload
