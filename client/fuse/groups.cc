#include "client/fuse/groups.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/file.h"
#include "common/strings.h"

namespace salius {

std::vector<gid_t> ParseGroups(std::string_view status) {
  std::vector<gid_t> groups;
  for (const absl::string_view line : absl::StrSplit(Av(status), '\n')) {
    if (!absl::StartsWith(line, "Groups:")) continue;
    for (const absl::string_view word : absl::StrSplit(line, absl::ByAnyChar(" \t"))) {
      gid_t group = 0;
      if (absl::SimpleAtoi(word, &group)) groups.push_back(group);
    }
  }
  return groups;
}

std::vector<gid_t> SupplementaryGroups(uint32_t pid) {
  if (pid == 0) return {};
  const absl::StatusOr<std::string> status = ReadWholeFile(absl::StrCat("/proc/", pid, "/status"));
  return status.ok() ? ParseGroups(*status) : std::vector<gid_t>();
}

}  // namespace salius
