#include "client/fuse/mount_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/file.h"
#include "common/strings.h"

namespace salius {
namespace {

// Decodes blanks and backslashes, which are written as three octal digits.
std::string Unescape(absl::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](size_t at) { return text[at] >= '0' && text[at] <= '7'; };
    if (text[i] == '\\' && i + 3 < text.size() && digit(i + 1) && text[i + 1] < '4' &&
        digit(i + 2) && digit(i + 3)) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                               (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

std::vector<MountEntry> ParseMountInfo(std::string_view text) {
  std::vector<MountEntry> entries;
  for (absl::string_view line : absl::StrSplit(Av(text), '\n', absl::SkipEmpty())) {
    // id parent major:minor root mountpoint options optional... - type source super-options
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    constexpr size_t kFixed = 6;
    if (words.size() < kFixed) continue;
    const auto dash = std::find(words.begin() + kFixed, words.end(), "-");
    if (words.end() - dash < 3) continue;
    entries.push_back({std::string(words[2]), Unescape(words[4]), Unescape(dash[1]),
                       Unescape(dash[2]), std::string(words[5]),
                       words.end() - dash > 3 ? std::string(dash[3]) : ""});
  }
  return entries;
}

bool UserTableHas(std::string_view text, std::string_view source, std::string_view mountpoint) {
  const std::vector<absl::string_view> lines = absl::StrSplit(Av(text), '\n', absl::SkipEmpty());
  return std::any_of(lines.begin(), lines.end(), [&](absl::string_view line) {
    bool of_source = false;
    bool at_mountpoint = false;
    for (const absl::string_view word : absl::StrSplit(line, ' ', absl::SkipEmpty())) {
      const std::pair<absl::string_view, absl::string_view> parts =
          absl::StrSplit(word, absl::MaxSplits('=', 1));
      if (parts.first == "SRC") of_source = Unescape(parts.second) == source;
      if (parts.first == "TARGET") at_mountpoint = Unescape(parts.second) == mountpoint;
    }
    return of_source && at_mountpoint;
  });
}

absl::StatusOr<std::vector<MountEntry>> ReadMountTable() {
  absl::StatusOr<std::string> text = ReadWholeFile("/proc/self/mountinfo");
  if (!text.ok()) return text.status();
  return ParseMountInfo(*text);
}

absl::StatusOr<MountEntry> MountAt(std::string_view mountpoint) {
  const absl::StatusOr<std::vector<MountEntry>> table = ReadMountTable();
  if (!table.ok()) return table.status();
  // Later lines lie on top of earlier ones.
  const auto found = std::find_if(table->rbegin(), table->rend(), [&](const MountEntry& entry) {
    return entry.mountpoint == mountpoint;
  });
  if (found == table->rend()) {
    return absl::NotFoundError(absl::StrCat("nothing is mounted at ", Av(mountpoint)));
  }
  return *found;
}

absl::StatusOr<std::string> BackingOf(std::string_view mountpoint) {
  absl::StatusOr<MountEntry> top = MountAt(mountpoint);
  if (absl::IsNotFound(top.status()) || (top.ok() && top->type != kMountType)) {
    return absl::NotFoundError(absl::StrCat(Av(mountpoint), " is not a mounted Salius volume"));
  }
  if (!top.ok()) return top.status();
  return std::move(top->source);
}

bool IsSaliusMount(std::string_view mountpoint, std::string_view source) {
  const absl::StatusOr<std::string> backing = BackingOf(mountpoint);
  return backing.ok() && (source.empty() || *backing == source);
}

std::vector<std::string> OtherMountsOf(std::string_view device, std::string_view mountpoint) {
  std::vector<std::string> others;
  const absl::StatusOr<std::vector<MountEntry>> table = ReadMountTable();
  if (!table.ok()) return others;
  for (const MountEntry& entry : *table) {
    if (entry.device == device && entry.mountpoint != mountpoint) {
      others.push_back(entry.mountpoint);
    }
  }
  return others;
}

bool IsMountedAnywhere(std::string_view source) {
  const absl::StatusOr<std::vector<MountEntry>> table = ReadMountTable();
  return table.ok() && std::any_of(table->begin(), table->end(), [&](const MountEntry& entry) {
           return entry.type == kMountType && entry.source == source;
         });
}

}  // namespace salius
