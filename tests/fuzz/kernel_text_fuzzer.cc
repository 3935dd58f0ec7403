// Parses system text: the mount tables, the kernel's log, the status of a process. Other users
// choose names and labels in it. Any text is read within its bounds, and contains each value that
// the parser finds.
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/fuse/groups.h"
#include "client/fuse/mount_table.h"
#include "common/check.h"
#include "common/ext4_watch.h"
#include "common/strings.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace salius;  // NOLINT: the function has to be outside
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const MountEntry& entry : ParseMountInfo(text)) {
    SALIUS_CHECK(entry.mountpoint.size() + entry.type.size() + entry.source.size() < size);
    SALIUS_CHECK(entry.type.find(' ') == std::string::npos || absl::StrContains(text, "\\040"));
  }
  if (UserTableHas(text, "/srv/data", "/mnt/data")) {
    SALIUS_CHECK(absl::StrContains(text, "SRC=") && absl::StrContains(text, "TARGET="));
  }
  if (const auto message = ParseExt4Message(text, "vda1"); message.has_value()) {
    SALIUS_CHECK(absl::StrContains(text, Av(message->text)));
    SALIUS_CHECK(absl::StartsWith(message->text, "EXT4-fs (vda1):"));
    SALIUS_CHECK(message->text.find('\n') == std::string::npos);
  }
  for (const gid_t group : ParseGroups(text)) {
    SALIUS_CHECK(absl::StrContains(text, absl::StrCat(group)) || absl::StrContains(text, "+") ||
                 absl::StrContains(text, "0"));
  }
  return 0;
}
