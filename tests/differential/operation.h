// One operation of the differential test: what it does and to which names, drawn from a seed. Both
// sides get the same operation.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace salius::differential {

// The operations that a process draws: of all kinds, or mostly of files' data.
enum class Profile : uint8_t { kAll, kData };

enum class Kind : uint8_t {
  kOpen,      // open(2), also O_CREAT; keeps the file in a slot or closes it
  kTmpFile,   // O_TMPFILE into a slot
  kLinkFile,  // linkat(2) of a slot
  kClose,     // closes the file of a slot
  kWrite,     // at the position
  kPwrite,
  kRead,  // at the position
  kPread,
  kSeek,
  kTruncate,
  kFtruncate,
  kFallocate,
  kMakeDir,
  kRemoveDir,
  kMakeNode,
  kSymlink,
  kReadLink,
  kLink,
  kUnlink,
  kRename,
  kChmod,
  kFchmod,
  kChown,
  kFchown,
  kTimes,
  kFtimes,
  kSetXattr,
  kGetXattr,
  kListXattr,
  kRemoveXattr,
  kFsetXattr,
  kAccess,
  kStat,
  kFstat,
  kOpenDir,  // into a slot for directories, which relative paths then use
  kCloseDir,
  kListSome,   // continues the listing of a directory's slot
  kListAgain,  // ends that listing, and repeats its end from an earlier offset
  kSync,       // fsync(2) or fdatasync(2) of a slot
  kSyncDir,
  // The rest only with Profile::kData.
  kMapStore,     // through a shared map of a slot
  kMapLoad,      // through a shared map, or a private one (flags)
  kMapPrivate,   // a store through a private map, which the file must not show
  kCopyRange,    // copy_file_range(2) from a slot to another one
  kSeekData,     // lseek(2) with SEEK_DATA or SEEK_HOLE (flags)
  kDirectRead,   // with O_DIRECT, through a new open file
  kDirectWrite,
  kEvict,        // drops the file's pages from the caches of the mount and of its backing file
  kKinds,
};

constexpr int kFiles = 10;       // slots of open files
constexpr int kDirectories = 4;  // slots of open directories
constexpr int kRoot = -1;        // the base of a path: the top of the process's tree

// A relative path, and the directory's slot where it begins, or kRoot.
struct Path {
  int base = kRoot;
  std::string text;
};

// The caller of an operation.
struct Identity {
  uid_t uid;
  gid_t gid;
  std::vector<gid_t> groups;
};
constexpr int kIdentities = 4;
const Identity& IdentityOf(int number);

struct Operation {
  Kind kind = Kind::kStat;
  int caller = 0;  // number of an Identity
  mode_t mask = 022;
  Path path;
  Path other;  // second path of link and rename; target of a symlink
  int slot = 0;
  int other_slot = 0;  // to which kCopyRange copies
  int flags = 0;  // open flags, rename flags, fallocate mode, flags of the *at calls
  mode_t mode = 0;
  dev_t device = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  int64_t offset = 0;
  int64_t length = 0;
  int64_t other_offset = 0;
  uint64_t content = 0;  // seed of the bytes to write
  timespec times[2] = {};
  bool no_times = false;  // utimensat(2) with a null pointer
  std::string name;       // of an xattr
  std::string value;
};

// Returns the path of the directory in which a path is.
std::string ParentOf(std::string path);
// Returns whether the operation is one on an open file, in a slot.
bool UsesFile(Kind kind);
// Returns whether the operation makes the name of its first path, or may make it (open).
bool MakesName(Kind kind);
// The name of a kind, as in reports.
const char* NameOf(Kind kind);
std::string TextOf(const timespec& time);
// Returns the operation as one line.
std::string TextOf(const Operation& operation);

}  // namespace salius::differential
