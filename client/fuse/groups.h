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

// Of a process, supplementary; none of one that cannot be seen, or 0.
std::vector<gid_t> SupplementaryGroups(uint32_t pid);

}  // namespace salius
