#include "tests/differential/operation.h"

#include <stdio.h>

#include <iterator>

namespace salius::differential {
namespace {

// In the order of Kind.
constexpr const char* kKindNames[] = {
    "open",      "tmpfile",     "link-file",  "close",     "write",     "pwrite",   "read",
    "pread",     "seek",        "truncate",   "ftruncate", "fallocate", "mkdir",    "rmdir",
    "mknod",     "symlink",     "readlink",   "link",      "unlink",    "rename",   "chmod",
    "fchmod",    "chown",       "fchown",     "times",     "ftimes",    "setxattr", "getxattr",
    "listxattr", "removexattr", "fsetxattr",  "access",    "stat",      "fstat",    "opendir",
    "closedir",  "list-some",   "list-again", "sync",      "sync-dir",
    "map-store", "map-load",    "map-private", "copy-range", "seek-data", "direct-read", "direct-write",
    "evict",
};
static_assert(std::size(kKindNames) == static_cast<size_t>(Kind::kKinds));

std::string Text(const Path& path) {
  const std::string base = path.base == kRoot ? "" : "[" + std::to_string(path.base) + "]/";
  if (path.text.size() < 60) return base + "\"" + path.text + "\"";
  return base + "\"" + path.text.substr(0, 40) + "...\" (" + std::to_string(path.text.size()) +
         " bytes)";
}

std::string Number(const char* format, long long value) {
  char text[64];
  snprintf(text, sizeof(text), format, value);
  return text;
}

std::string Hex(const std::string& bytes) {
  std::string text;
  for (size_t i = 0; i < bytes.size() && i < 48; ++i) {
    text += Number("%02llx", static_cast<unsigned char>(bytes[i]));
  }
  return bytes.size() > 48 ? text + "... (" + std::to_string(bytes.size()) + " bytes)" : text;
}

}  // namespace

const Identity& IdentityOf(int number) {
  // The third has the first one's group among its own.
  static const Identity kAll[kIdentities] = {
      {0, 0, {}}, {1000, 1000, {2000}}, {1001, 1001, {1000, 2000}}, {1002, 2000, {}}};
  return kAll[number];
}

bool MakesName(Kind kind) {
  switch (kind) {
    case Kind::kOpen:
    case Kind::kLinkFile:
    case Kind::kMakeDir:
    case Kind::kMakeNode:
    case Kind::kSymlink:
      return true;
    default:
      return false;
  }
}

bool UsesFile(Kind kind) {
  switch (kind) {
    case Kind::kWrite:
    case Kind::kPwrite:
    case Kind::kRead:
    case Kind::kPread:
    case Kind::kSeek:
    case Kind::kFtruncate:
    case Kind::kFallocate:
    case Kind::kFchmod:
    case Kind::kFchown:
    case Kind::kFtimes:
    case Kind::kFsetXattr:
    case Kind::kSync:
    case Kind::kFstat:
    case Kind::kMapStore:
    case Kind::kMapLoad:
    case Kind::kMapPrivate:
    case Kind::kCopyRange:
    case Kind::kSeekData:
    case Kind::kDirectRead:
    case Kind::kDirectWrite:
      return true;
    default:
      return false;
  }
}

std::string ParentOf(std::string path) {
  while (!path.empty() && path.back() == '/') path.pop_back();
  const size_t end = path.rfind('/');
  return end == std::string::npos ? "." : path.substr(0, end);
}

const char* NameOf(Kind kind) { return kKindNames[static_cast<size_t>(kind)]; }

std::string TextOf(const timespec& time) {
  if (time.tv_nsec == UTIME_NOW) return "now";
  if (time.tv_nsec == UTIME_OMIT) return "omit";
  return Number("%lld", time.tv_sec) + Number(".%09lld", time.tv_nsec);
}

std::string TextOf(const Operation& o) {
  std::string text = NameOf(o.kind);
  text += " " + Text(o.path);
  if (!o.other.text.empty() || o.kind == Kind::kRename || o.kind == Kind::kLink) {
    text += " " + Text(o.other);
  }
  text += Number(" slot %lld", o.slot) + Number(" uid %lld", IdentityOf(o.caller).uid);
  if (o.flags != 0) text += Number(" flags 0%llo", o.flags);
  switch (o.kind) {
    case Kind::kOpen:
    case Kind::kTmpFile:
    case Kind::kMakeDir:
    case Kind::kMakeNode:
    case Kind::kAccess:
    case Kind::kChmod:
    case Kind::kFchmod:
      text += Number(" mode 0%llo", o.mode) + Number(" umask 0%llo", o.mask);
      break;
    case Kind::kChown:
    case Kind::kFchown:
      text +=
          Number(" to %lld", static_cast<int>(o.uid)) + Number(":%lld", static_cast<int>(o.gid));
      break;
    case Kind::kTimes:
    case Kind::kFtimes:
      text += o.no_times ? " null" : " " + TextOf(o.times[0]) + " " + TextOf(o.times[1]);
      break;
    default:
      break;
  }
  if (o.offset != 0 || o.length != 0) {
    text += Number(" at %lld", o.offset) + Number(" length %lld", o.length);
  }
  if (o.kind == Kind::kCopyRange) {
    text += Number(" to slot %lld", o.other_slot) + Number(" at %lld", o.other_offset);
  }
  if (!o.name.empty()) text += " xattr " + o.name.substr(0, 40) + " = " + Hex(o.value);
  return text;
}

}  // namespace salius::differential
