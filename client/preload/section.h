// A part of a call in which this thread is inside the library and may hold locks of it.
#pragma once

#include <cerrno>
#include <csignal>

namespace salius::preload {

// Entering blocks signals when the program has handlers, so that no handler runs between a lock
// and its unlock: the kernel delays handlers over a write to a file in the same way. Faults
// (SIGSEGV and the like) and handlers that were installed by raw system calls still interrupt;
// such a handler finds `whole()` false. errno is at the end what it was at the beginning.
class Section {
 public:
  Section();
  ~Section();
  Section(const Section&) = delete;
  Section& operator=(const Section&) = delete;

  // Returns whether this thread may take locks: it did not interrupt another section, and it is
  // not a child that borrows its parent's memory (vfork(2)). Otherwise it makes raw system calls
  // and marks files as uncovered.
  bool whole() const { return whole_; }

  // Returns whether this thread is in a section.
  static bool Inside();

 private:
  const int errno_ = errno;
  const bool whole_;
  bool blocked_ = false;
  unsigned long signals_ = 0;  // blocked ones before, as the kernel stores them
};

}  // namespace salius::preload
