// The order in which work that waits for the disk begins: by place, as a hard disk's head goes. From
// one place to the next the way is short, and requests near each other are outstanding together.
//
// The order is that of an elevator which goes up only: the next work is the first one at the last
// place or behind it, and after the last one the first of all. That is a sweep. A sweep may find new
// work before the head without end, so its length is limited: then the oldest work is the next,
// wherever it is, and a sweep begins there.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>

#include "common/id_types.h"

namespace salius {

// Where on the disk work is done, as far as it is known: files do not lie in the order of their ids,
// but the pages of a file mostly lie in their order.
struct WorkPlace {
  FileId file = 0;
  uint64_t offset = 0;  // in bytes
  auto operator<=>(const WorkPlace&) const = default;
};

class Elevator {
 public:
  using Work = std::function<void()>;

  bool empty() const { return waiting_.empty(); }
  size_t size() const { return waiting_.size(); }
  void Add(const WorkPlace& place, Work work);
  // Takes the next work out. There is some.
  Work Take();

 private:
  struct Key {
    WorkPlace place;
    uint64_t number = 0;  // later work has larger ones
    auto operator<=>(const Key&) const = default;
  };
  // A sweep takes at most four times as much work as ever waited in it, and this much more. With
  // places at random, and as much work added as taken, it takes twice as much.
  static constexpr uint64_t kSpare = 1024;

  std::map<Key, Work> waiting_;
  std::map<uint64_t, WorkPlace> by_age_;  // by number
  WorkPlace last_;                        // where the last work was
  uint64_t next_number_ = 1;
  // In the present sweep:
  uint64_t takes_ = 0;
  size_t most_waited_ = 0;
};

}  // namespace salius
