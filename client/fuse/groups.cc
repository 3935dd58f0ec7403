#include "client/fuse/groups.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
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

ProcessIds ParseProcessIds(std::string_view status) {
  constexpr size_t kFilesystemId = 4;  // behind the real, the effective and the saved one
  ProcessIds ids;
  ids.groups = ParseGroups(status);
  for (const absl::string_view line : absl::StrSplit(Av(status), '\n')) {
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    uint32_t id = 0;
    if (words.size() > kFilesystemId && absl::SimpleAtoi(words[kFilesystemId], &id)) {
      if (words[0] == "Uid:") ids.uid = id;
      if (words[0] == "Gid:") ids.gid = id;
    }
  }
  return ids;
}

ProcessIds IdsOf(uint32_t pid) {
  if (pid == 0) return {};
  const absl::StatusOr<std::string> status = ReadWholeFile(absl::StrCat("/proc/", pid, "/status"));
  return status.ok() ? ParseProcessIds(*status) : ProcessIds();
}

uint32_t ProcessOf(uint32_t tid) {
  const absl::StatusOr<std::string> status = ReadWholeFile(absl::StrCat("/proc/", tid, "/status"));
  if (!status.ok()) return 0;
  for (absl::string_view line : absl::StrSplit(*status, '\n')) {
    uint32_t process = 0;
    if (absl::ConsumePrefix(&line, "Tgid:") && absl::SimpleAtoi(line, &process)) return process;
  }
  return 0;
}

std::vector<gid_t> SupplementaryGroups(uint32_t pid) { return IdsOf(pid).groups; }

}  // namespace salius
