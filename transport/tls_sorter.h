// Tells accepted connections that begin with TLS from others, by their first byte. A client without
// keys can then get an answer that says why it is refused.
//
// A connection that sends nothing waits here, and is closed after a while.
//
// Threads: Add() from any thread. `take` runs on the thread that calls Add, or on one of this class.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/file.h"

namespace salius {

class TlsSorter {
 public:
  // Takes a connection of which nothing was read yet. `tls`: it does not begin as plain HTTP does.
  using Take = std::function<void(UniqueFd connection, bool tls)>;

  // How long a connection may send nothing.
  static constexpr std::chrono::seconds kPatience{10};

  // Errors: those of epoll_create1(2) and eventfd(2).
  static absl::StatusOr<std::unique_ptr<TlsSorter>> Start(Take take, Clock& clock = SystemClock());
  // Closes the connections that wait. Afterwards no `take` runs.
  ~TlsSorter();
  TlsSorter(const TlsSorter&) = delete;
  TlsSorter& operator=(const TlsSorter&) = delete;

  // Gives a connection, which does not block, to `take` now, or later when its first byte is there.
  void Add(UniqueFd connection);

 private:
  struct Waiting {
    UniqueFd connection;
    int64_t until_ns = 0;
  };

  TlsSorter(UniqueFd epoll, UniqueFd wake, Take take, Clock& clock);
  void Run();
  // Looks at the first byte of waiting connection `fd`.
  void Look(int fd);
  // Closes the connections that have waited long enough.
  void CloseOverdue();

  const UniqueFd epoll_;
  const UniqueFd wake_;
  const Take take_;
  Clock& clock_;
  absl::Mutex mutex_;
  absl::flat_hash_map<int, Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  // When connections end their wait, the first one first. Some have ended it already.
  std::deque<std::pair<int64_t, int>> ends_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace salius
