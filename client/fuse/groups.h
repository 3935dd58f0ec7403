// The groups of who makes a request, which the kernel does not send along.
//
// Threads: none; every call reads anew.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace salius {

// The numbers behind "Groups:" in the text of /proc/PID/status; words that are none are left out.
// Pure.
std::vector<gid_t> ParseGroups(std::string_view status);

// What /proc/PID/status says of a process: the ids that it uses files with.
struct ProcessIds {
  uid_t uid = static_cast<uid_t>(-1);
  gid_t gid = static_cast<gid_t>(-1);
  std::vector<gid_t> groups;
};
// Pure.
ProcessIds ParseProcessIds(std::string_view status);
// Those of one that cannot be seen, or 0, are the ones of nobody.
ProcessIds IdsOf(uint32_t pid);

// Of a process, supplementary; none of one that cannot be seen, or 0.
std::vector<gid_t> SupplementaryGroups(uint32_t pid);

}  // namespace salius
