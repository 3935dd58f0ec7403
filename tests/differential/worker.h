// One process of the differential test: draws operations, executes each on both sides, compares.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/differential/drawer.h"
#include "tests/differential/looks.h"
#include "tests/differential/operation.h"
#include "tests/differential/side.h"
#include "tests/differential/tree.h"

namespace salius::differential {

// An operation of the mount that takes this long is counted as slow: it may have waited for a
// replica.
constexpr int64_t kSlowNs = 3'000'000;

// In memory that all processes share.
struct Shared {
  pthread_mutex_t pair;  // held over a pair of operations in the tree that processes share
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> done{0};
  std::atomic<uint64_t> unclear_times{0};
  std::atomic<uint64_t> late_ctimes{0};
  std::atomic<uint64_t> tried[static_cast<size_t>(Kind::kKinds)];
  std::atomic<uint64_t> succeeded[static_cast<size_t>(Kind::kKinds)];
  std::atomic<uint64_t> slow[static_cast<size_t>(Kind::kKinds)];  // kSlowNs or more in the mount
};

struct Task {
  std::string mount;  // directories of the process's tree
  std::string bare;
  std::string backing;  // of the mount; empty: nothing is evicted there
  Profile profile = Profile::kAll;
  uint64_t seed = 0;
  uint64_t operations = 0;
  int64_t since = 0;  // when the run began, in seconds since 1970
  bool shared_tree = false;
  TimeRule times = TimeRule::kExact;
  // The number of a successful change that the mount's side leaves out: a control. 0: none.
  uint64_t plant = 0;
  std::string name;  // for reports
  std::string log;   // a file for all that is remembered at a difference; empty: none
};

class Worker {
 public:
  Worker(const Task& task, Shared& shared);
  // Runs all operations. Returns whether nothing differed; reports the first difference.
  bool Run();

 private:
  // A listing of a directory's slot that is under way.
  struct Listing {
    bool begun = false;
    std::set<std::string> before;   // names when it began
    std::set<std::string> touched;  // names that operations had since
    std::vector<ListedEntry> entries[2];
    bool ended[2] = {false, false};
  };
  struct Done {
    uint64_t number;
    Operation operation;
    Result mount;
    Result bare;
    timespec ended;
  };
  using Difference = std::optional<std::string>;

  Difference Step(const Operation& operation);
  Difference Look(const Operation& operation);
  Difference LookAt(const Path& path);
  Difference LookAtFile(int slot);
  Difference CompareSome();
  Difference ListSome(const Operation& operation);
  Difference ListAgain(const Operation& operation);
  // Judges what one side listed: `entries` without what comes behind the first `kept` of them, and
  // `again`.
  Difference JudgeListing(int slot, int side, size_t kept, const std::vector<ListedEntry>& again);
  std::set<std::string> NamesIn(int fd) const;
  void NoteTouched(const Operation& operation);
  void Become(int identity);
  Result DoInMount(const Operation& operation);
  void Count(const Operation& operation, const Result& result);
  void Report(const Operation& operation, const std::string& difference) const;

  const Task task_;
  Shared& shared_;
  Side mount_;
  Side bare_;
  Drawer drawer_;
  Looks looks_;
  Trees trees_;
  Listing listings_[kDirectories];
  std::deque<Done> done_;
  uint64_t number_ = 0;
  uint64_t changes_ = 0;
  int identity_ = 0;
};

}  // namespace salius::differential
