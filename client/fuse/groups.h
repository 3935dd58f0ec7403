// The groups of a request's caller, which the kernel does not send.
//
// Threads: any; every call reads again.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace salius {

// Returns the numbers behind "Groups:" in the text of /proc/PID/status, without other words. Pure.
std::vector<gid_t> ParseGroups(std::string_view status);

// The ids with which a process uses files (/proc/PID/status).
struct ProcessIds {
  uid_t uid = static_cast<uid_t>(-1);
  gid_t gid = static_cast<gid_t>(-1);
  std::vector<gid_t> groups;
};
// Returns the ids in the text of /proc/PID/status. Pure.
ProcessIds ParseProcessIds(std::string_view status);
// Returns the ids of a process; the unprivileged defaults for one that cannot be seen, or 0.
ProcessIds IdsOf(uint32_t pid);

// Returns the supplementary groups of a process; none for one that cannot be seen, or 0.
std::vector<gid_t> SupplementaryGroups(uint32_t pid);

// Returns the process of a thread; 0 when it is not known.
uint32_t ProcessOf(uint32_t tid);

}  // namespace salius
