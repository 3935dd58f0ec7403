// Compares directories and whole trees of the two sides.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

#include "tests/differential/looks.h"

namespace salius::differential {

class Trees {
 public:
  explicit Trees(Looks& looks) : looks_(looks) {}

  // `hidden`: a name of the mount's side that is left out.
  //
  // Compares the listings of two open directories, and all attributes of their entries. Returns how
  // they differ; nothing if they do not.
  std::optional<std::string> CompareDirectory(int mount_fd, int bare_fd, bool xattrs,
                                              const std::string& hidden = "");
  // Compares everything below two directories, with content and xattrs.
  std::optional<std::string> CompareAll(int mount_fd, int bare_fd, const std::string& hidden = "");
  // Returns the number of objects that CompareAll has seen.
  uint64_t objects() const { return objects_; }

 private:
  std::optional<std::string> CompareEntry(int mount_fd, int bare_fd, const std::string& name,
                                          uint64_t mount_inode, uint64_t bare_inode, bool xattrs);
  static std::optional<std::string> CompareContent(int mount_fd, int bare_fd,
                                                   const std::string& name);

  Looks& looks_;
  uint64_t objects_ = 0;
};

}  // namespace salius::differential
