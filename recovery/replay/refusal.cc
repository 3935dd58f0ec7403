#include "recovery/replay/refusal.h"

#include <errno.h>

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/file.h"

namespace salius::recovery {
namespace {

// With this much free space the disk is not full.
constexpr uint64_t kRoomBytes = uint64_t{1} << 20;
constexpr uint64_t kRoomInodes = 16;

// Returns the same error with another text.
absl::Status WithText(const absl::Status& error, const std::string& text) {
  absl::Status result(error.code(), text);
  error.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& value) { result.SetPayload(url, value); });
  return result;
}

}  // namespace

bool RefusedForGood(Backing& backing, const absl::Status& error, int fd, Change change) {  // R60
  const bool attributes = change == Change::kXattr || change == Change::kObject;
  switch (StatusErrno(error)) {
    case EMLINK:
      return change == Change::kName || change == Change::kNewName;
    case ENAMETOOLONG:  // of a name, or of a symbolic link's target
      return change != Change::kAttribute && change != Change::kXattr;
    case EXDEV:  // a directory of another project, or an encrypted one
      return change == Change::kNewName;
    case ERANGE:
    case E2BIG:
    case EINVAL:
      return attributes || change == Change::kAttribute;
    case ENOSPC: {
      if (!attributes) return false;
      const absl::StatusOr<FsSpace> space = backing.FreeSpace(fd);
      return space.ok() && space->bytes_avail >= kRoomBytes &&
             (space->inodes_total == 0 || space->inodes_free >= kRoomInodes);
    }
    default:
      return false;
  }
}

absl::Status Explain(Backing& backing, const absl::Status& error, const std::string& what, int fd) {
  if (error.ok()) return error;
  const absl::StatusOr<std::string> path = backing.PathOf(fd);
  std::string text =
      absl::StrCat(what, path.ok() ? absl::StrCat(" (", *path, ")") : "", ": ", error.message());
  switch (StatusErrno(error)) {  // R62
    case EPERM:
    case EACCES:
      text +=
          "; nothing is lost: if it or its directory is immutable or append-only, take that away "
          "(chattr -i -a) and run this again";
      break;
    case EBUSY:
      text += "; nothing is lost: if something is mounted there, unmount it and run this again";
      break;
    case ETXTBSY:
      text += "; nothing is lost: end the program that runs from it and run this again";
      break;
    case EXDEV:
      text +=
          "; nothing is lost: if it belongs to another project than .salius, which passes its own "
          "on, take that away (chattr -R -P .salius) and run this again";
      break;
    case EDQUOT:
      text += "; nothing is lost: raise the quota of its owner and run this again";
      break;
    default:
      break;
  }
  return WithText(error, text);
}

std::string LeftOutText(Seq seq, const absl::Status& error) {
  return absl::StrFormat("record %d: %s", seq, error.message());
}

}  // namespace salius::recovery
