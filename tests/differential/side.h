// One of the two trees: executes operations and says what they returned. It owns the open files and
// directories of one process. Threads: one.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/differential/operation.h"

namespace salius::differential {

// All that a program sees of one call.
struct Result {
  int error = 0;      // errno, or 0
  int64_t value = 0;  // of calls that return a number
  std::string data;

  bool operator==(const Result&) const = default;
};
std::string TextOf(const Result& result);

// A directory entry as getdents64(2) returns it.
struct ListedEntry {
  std::string name;
  uint64_t inode = 0;
  unsigned char type = 0;  // DT_*
  int64_t next = 0;        // the offset behind it
};

// Reads the next entries of an open directory; none at its end. Returns false with errno.
bool ReadEntries(int fd, size_t bytes, std::vector<ListedEntry>* entries);
// Returns all entries of a directory except the dots; `entries` by name. Returns errno, or 0.
int ListDirectory(int fd, std::map<std::string, ListedEntry>* entries);

class Side {
 public:
  // `top`: the directory of the process's tree. `backing`: the same directory below the mount, whose
  // files kEvict drops from the page cache as well; empty: none.
  explicit Side(const std::string& top, const std::string& backing = "");
  ~Side();
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  // Executes all kinds but listings. The caller has set the operation's identity.
  Result Do(const Operation& operation);

  // Return a descriptor to begin a path with, or -1.
  int BaseOf(const Path& path) const;
  int file(int slot) const { return files_[slot]; }
  int directory(int slot) const { return directories_[slot]; }
  int top() const { return top_; }

 private:
  Result Keep(int* slot, int fd);
  Result DoFile(const Operation& operation, int fd);
  Result DoNames(const Operation& operation, int base);
  Result DoAttributes(const Operation& operation, int base);
  Result DoXattr(const Operation& operation, int base);
  Result LinkFile(const Operation& operation, int base);
  Result Transfer(const Operation& operation, int fd);
  Result TransferDirect(const Operation& operation, int fd);
  Result Map(const Operation& operation, int fd);

  int top_;
  const std::string backing_;  // may not be there yet: names are applied later
  int files_[kFiles];
  int directories_[kDirectories];
};

// Returns the names of listxattr(2), sorted: their order is the file system's.
std::string SortedNames(const std::string& names);
// Returns a path for calls that have no *at form, in one buffer that the next call reuses.
const char* ProcPath(int base, const std::string& text);

}  // namespace salius::differential
