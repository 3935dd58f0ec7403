#include "replica/memory_room.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/file.h"
#include "common/strings.h"

namespace salius {
namespace {

// Memory of threads, gRPC's buffers and the index of the records.
constexpr uint64_t kProcessBytes = uint64_t{24} << 20;
// From here on a bound of version 1 says "none" (a page below 2^63).
constexpr uint64_t kNoBound = uint64_t{1} << 62;

std::vector<std::string> Lines(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadWholeFile(path);
  if (!text.ok()) return {};
  return absl::StrSplit(*text, '\n', absl::SkipEmpty());
}

// Returns the whole file as a number; nothing for "max" and other text.
std::optional<uint64_t> NumberIn(const std::string& path) {
  uint64_t number = 0;
  const std::vector<std::string> lines = Lines(path);
  if (lines.size() != 1 || !absl::SimpleAtoi(lines[0], &number)) return std::nullopt;
  return number;
}

// Returns the value behind `key` in lines "key value" or "key: value kB"; 0 when there is none.
uint64_t ValueOf(const std::vector<std::string>& lines, std::string_view key) {
  for (const std::string& line : lines) {
    const std::vector<std::string> words = absl::StrSplit(line, absl::ByAnyChar(" :\t"), absl::SkipEmpty());
    uint64_t value = 0;
    if (words.size() < 2 || words[0] != key || !absl::SimpleAtoi(words[1], &value)) continue;
    return words.size() > 2 && words[2] == "kB" ? value * 1024 : value;
  }
  return 0;
}

// A mount of the memory controller's hierarchy, and the part of it that is seen there.
struct Mount {
  std::string point, top;
  bool v2 = false;
};

std::vector<Mount> MemoryMounts(const std::string& root) {
  std::vector<Mount> mounts;
  for (const std::string& line : Lines(root + "/proc/self/mountinfo")) {
    const std::vector<std::string> halves = absl::StrSplit(line, absl::MaxSplits(" - ", 1));
    if (halves.size() != 2) continue;
    const std::vector<std::string> left = absl::StrSplit(halves[0], ' ');
    const std::vector<std::string> right = absl::StrSplit(halves[1], ' ');
    if (left.size() < 5 || right.size() < 3) continue;
    const bool v2 = right[0] == "cgroup2";
    const std::vector<std::string> options = absl::StrSplit(right[2], ',');
    const bool memory = std::find(options.begin(), options.end(), "memory") != options.end();
    if (v2 || (right[0] == "cgroup" && memory)) mounts.push_back({left[4], left[3], v2});
  }
  return mounts;
}

// Returns this process's own group in the hierarchy; nothing when it is in none.
std::optional<std::string> OwnGroup(const std::string& root, bool v2) {
  for (const std::string& line : Lines(root + "/proc/self/cgroup")) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    const bool memory =
        std::find(controllers.begin(), controllers.end(), "memory") != controllers.end();
    if (v2 ? parts[0] == "0" && parts[1].empty() : memory) return parts[2];
  }
  return std::nullopt;
}

void Bound(MemoryRoom& room, uint64_t bytes, std::string because) {
  if (bytes >= room.bytes) return;
  room.bytes = bytes;
  room.because = std::move(because);
}

// Applies the bound of one group. The page cache of files, which the kernel gives back, counts as
// free.
void BoundByGroup(MemoryRoom& room, const std::string& dir, bool v2, uint64_t swap_free) {
  const std::string limit_file = dir + (v2 ? "/memory.max" : "/memory.limit_in_bytes");
  const std::optional<uint64_t> limit = NumberIn(limit_file);
  if (!limit.has_value() || *limit >= kNoBound) return;
  const uint64_t used =
      NumberIn(dir + (v2 ? "/memory.current" : "/memory.usage_in_bytes")).value_or(0);
  const std::vector<std::string> stat = Lines(dir + "/memory.stat");
  const std::string prefix = v2 ? "" : "total_";
  const uint64_t cache =
      ValueOf(stat, prefix + "active_file") + ValueOf(stat, prefix + "inactive_file");
  const uint64_t kept = used - std::min(used, cache);
  Bound(room, *limit - std::min(*limit, kept) + swap_free,
        absl::StrFormat("%s allows %d bytes, of which %d are used", limit_file, *limit, kept));
}

}  // namespace

MemoryRoom ReadMemoryRoom(const std::string& root, bool swap) {
  MemoryRoom room;
  const std::vector<std::string> host = Lines(root + "/proc/meminfo");
  const uint64_t swap_free = swap ? ValueOf(host, "SwapFree") : 0;
  if (const uint64_t available = ValueOf(host, "MemAvailable"); available > 0) {
    Bound(room, available + swap_free,
          absl::StrFormat("the host has %d bytes available", available + swap_free));
  }
  for (const Mount& mount : MemoryMounts(root)) {
    std::optional<std::string> group = OwnGroup(root, mount.v2);
    if (!group.has_value()) continue;
    // The mount may show only a part of the hierarchy, as in a container.
    if (mount.top != "/" && absl::StartsWith(*group, mount.top)) group->erase(0, mount.top.size());
    while (true) {
      BoundByGroup(room, absl::StrCat(root, mount.point, *group == "/" ? "" : *group), mount.v2,
                   swap_free);
      const size_t slash = group->find_last_of('/');
      if (group->empty() || *group == "/" || slash == std::string::npos) break;
      group->resize(slash);
    }
  }
  return room;
}

absl::Status CheckMemoryRoom(const MemoryRoom& room, uint64_t bytes, const std::string& what) {
  if (bytes == 0 || room.bytes >= bytes + kProcessBytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "%s needs %d bytes more, and %d for the process: %s. Give less --memory, or raise that limit "
      "(systemd: MemoryMax=, also of the slices above; a container's memory limit), or the kernel "
      "would kill this process",
      what, bytes, kProcessBytes, room.because));
}

}  // namespace salius
