#include "tests/differential/drawer.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

namespace salius::differential {
namespace {

struct Weight {
  Kind kind;
  unsigned weight;
};

constexpr Weight kWeights[] = {
    {Kind::kOpen, 180},     {Kind::kTmpFile, 25},   {Kind::kLinkFile, 30},
    {Kind::kClose, 110},    {Kind::kWrite, 60},     {Kind::kPwrite, 60},
    {Kind::kRead, 40},      {Kind::kPread, 40},     {Kind::kSeek, 15},
    {Kind::kTruncate, 25},  {Kind::kFtruncate, 30}, {Kind::kFallocate, 20},
    {Kind::kMakeDir, 100},  {Kind::kRemoveDir, 50}, {Kind::kMakeNode, 30},
    {Kind::kSymlink, 35},   {Kind::kReadLink, 15},  {Kind::kLink, 60},
    {Kind::kUnlink, 110},   {Kind::kRename, 170},   {Kind::kChmod, 50},
    {Kind::kFchmod, 15},    {Kind::kChown, 25},     {Kind::kFchown, 10},
    {Kind::kTimes, 40},     {Kind::kFtimes, 12},    {Kind::kSetXattr, 50},
    {Kind::kGetXattr, 25},  {Kind::kListXattr, 12}, {Kind::kRemoveXattr, 30},
    {Kind::kFsetXattr, 12}, {Kind::kAccess, 20},    {Kind::kStat, 60},
    {Kind::kFstat, 30},     {Kind::kOpenDir, 25},   {Kind::kCloseDir, 12},
    {Kind::kListSome, 30},  {Kind::kListAgain, 10}, {Kind::kSync, 3},
    {Kind::kSyncDir, 3},
};
static_assert(std::size(kWeights) == static_cast<size_t>(Kind::kMapStore));

// For Profile::kData.
constexpr Weight kDataWeights[] = {
    {Kind::kOpen, 90},       {Kind::kTmpFile, 6},    {Kind::kClose, 50},     {Kind::kWrite, 120},
    {Kind::kPwrite, 260},    {Kind::kRead, 80},      {Kind::kPread, 220},    {Kind::kSeek, 15},
    {Kind::kTruncate, 15},   {Kind::kFtruncate, 35}, {Kind::kFallocate, 60}, {Kind::kLink, 8},
    {Kind::kUnlink, 20},     {Kind::kRename, 40},    {Kind::kStat, 20},      {Kind::kFstat, 20},
    {Kind::kSync, 8},        {Kind::kMapStore, 60},  {Kind::kMapLoad, 40},   {Kind::kMapPrivate, 20},
    {Kind::kCopyRange, 60},  {Kind::kSeekData, 60},  {Kind::kDirectRead, 40}, {Kind::kDirectWrite, 40},
    {Kind::kEvict, 90},
};

constexpr size_t kMadeKept = 24;
constexpr int64_t kFarthest = 450'000;  // blocks of a sparse file are compared loosely: Looks
constexpr size_t kLongestMade = 200;
constexpr const char* kNames[] = {"a", "b", "c", "d", "e", "f"};
constexpr mode_t kModes[] = {0644, 0600, 0666, 0755,  0777,  0400,  0000,  0640,
                             0750, 0711, 0770, 04755, 02755, 06777, 01777, 02775};
constexpr uint32_t kAclVersion = 2;
enum AclTag : uint16_t {
  kUserObj = 1,
  kUser = 2,
  kGroupObj = 4,
  kGroup = 8,
  kMask = 16,
  kOther = 32,
};

void AppendLittle(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

void AppendAclEntry(std::string& out, uint16_t tag, uint64_t permissions, uint32_t id) {
  AppendLittle(out, tag, 2);
  AppendLittle(out, permissions, 2);
  AppendLittle(out, id, 4);
}

template <size_t kCount>
Kind DrawWeighted(Random& random, const Weight (&weights)[kCount]) {
  uint64_t total = 0;
  for (const Weight& weight : weights) total += weight.weight;
  uint64_t at = random.Below(total);
  size_t chosen = 0;
  while (at >= weights[chosen].weight) at -= weights[chosen++].weight;
  return weights[chosen].kind;
}

}  // namespace

void Drawer::NoteMade(const Path& path, bool directory) {
  if (path.base != kRoot || path.text.size() > kLongestMade) return;
  std::vector<std::string>& known = directory ? directories_ : made_;
  if (std::find(known.begin(), known.end(), path.text) != known.end()) return;
  if (known.size() == kMadeKept) {
    known[random_.Below(kMadeKept)] = path.text;
  } else {
    known.push_back(path.text);
  }
}

void Drawer::NoteMissing(const Path& path) {
  if (path.base != kRoot) return;
  std::erase(made_, path.text);
  std::erase(directories_, path.text);
}

std::string Drawer::DrawName() {
  const uint64_t special = random_.Below(400);
  if (special == 0) return std::string(255, 'l');
  if (special == 1) return std::string(256, 'l');
  if (special == 2) return ".";
  if (special == 3) return "..";
  return random_.Pick(kNames);
}

Path Drawer::DrawNewPath() {
  Path path;
  if (random_.Chance(12)) {
    path.base = static_cast<int>(random_.Below(kDirectories));
  } else if (!directories_.empty() && random_.Chance(75)) {
    path.text = directories_[random_.Below(directories_.size())];
  }
  const int depth = random_.Chance(85) ? 1 : 2;
  for (int i = 0; i < depth; ++i) {
    std::string name = DrawName();
    // The tree must not be left: `..` follows a name only.
    if (path.text.empty() && name == "..") name = "a";
    if (!path.text.empty()) path.text += "/";
    path.text += name;
    if (name == "..") break;
  }
  if (random_.Below(150) == 0) path.text += "/";
  if (random_.Below(1000) == 0) path.text.clear();
  return path;
}

Path Drawer::DrawPath() {
  const size_t known = made_.size() + directories_.size();
  if (known == 0 || random_.Chance(25)) return DrawNewPath();
  const size_t chosen = random_.Below(known);
  return {kRoot, chosen < made_.size() ? made_[chosen] : directories_[chosen - made_.size()]};
}

Path Drawer::DrawDirectory() {
  if (directories_.empty()) return {kRoot, "."};
  return {kRoot, directories_[random_.Below(directories_.size())]};
}

// A target with one `..` leads at most to the directory above the top, where no directory is ever
// made: so no path leaves the process's own tree.
std::string Drawer::DrawTarget() {
  const uint64_t shape = random_.Below(20);
  if (shape == 0) return std::string(random_.Chance(50) ? 4096 : 1000, 't');
  if (shape == 1) return "";
  std::string target;
  if (shape < 5) target = "../";
  if (shape == 5) target = "./";
  target += random_.Pick(kNames);
  if (shape > 10) target += "/" + std::string(random_.Pick(kNames));
  return target;
}

void Drawer::DrawOpen(Operation& o) {
  constexpr int kAccess[] = {O_RDONLY, O_WRONLY, O_RDWR, O_RDWR};
  o.flags = random_.Pick(kAccess) | O_NONBLOCK;
  o.mode = random_.Pick(kModes);
  if (o.kind == Kind::kTmpFile) {
    o.path = DrawDirectory();
    o.flags |= O_TMPFILE;
    if (random_.Chance(10)) o.flags |= O_EXCL;
    return;
  }
  if (random_.Chance(40)) o.path = DrawNewPath();
  if (random_.Chance(70)) o.flags |= O_CREAT;
  if (random_.Chance(25)) o.flags |= O_EXCL;
  if (random_.Chance(15)) o.flags |= O_TRUNC;
  if (random_.Chance(15)) o.flags |= O_APPEND;
  if (random_.Chance(5)) o.flags |= O_NOFOLLOW;
  if (random_.Chance(2)) o.flags |= O_DIRECTORY;
  if (random_.Chance(2)) o.flags |= O_NOATIME;
  if (random_.Chance(2)) o.flags |= O_PATH;
  if (random_.Below(300) == 0) o.flags |= O_SYNC;
  // Without O_CREAT the kernel ignores O_EXCL, except for a device.
  if ((o.flags & O_CREAT) == 0) o.flags &= ~O_EXCL;
}

void Drawer::DrawData(Operation& o) {
  constexpr int64_t kSizes[] = {1, 10, 100, 511, 512, 1000, 4095, 4096, 4097, 9000};
  o.offset = static_cast<int64_t>(random_.Below(random_.Chance(10) ? 150'000 : 12'000));
  o.length = random_.Chance(3) ? static_cast<int64_t>(random_.Below(70'000)) : random_.Pick(kSizes);
  if (random_.Below(100) == 0) o.length = 0;
  o.content = random_.Next();
  if (o.kind == Kind::kFallocate) {
    constexpr int kHow[] = {0,
                            FALLOC_FL_KEEP_SIZE,
                            FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                            FALLOC_FL_ZERO_RANGE,
                            FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
                            FALLOC_FL_PUNCH_HOLE};
    o.flags = random_.Pick(kHow);
  }
  if (o.kind == Kind::kSeek) {
    constexpr int kWhence[] = {SEEK_SET, SEEK_CUR, SEEK_END};
    o.flags = random_.Pick(kWhence);
    if (random_.Chance(20)) o.offset = -o.offset;
  }
  if ((o.kind == Kind::kTruncate || o.kind == Kind::kFtruncate) && random_.Below(100) == 0) {
    o.offset = -1;
  }
}

void Drawer::DrawNames(Operation& o) {
  o.mode = random_.Pick(kModes);
  switch (o.kind) {
    case Kind::kMakeNode: {
      constexpr mode_t kTypes[] = {S_IFIFO, S_IFIFO, S_IFSOCK, S_IFREG, S_IFCHR, S_IFBLK, 0};
      o.mode |= random_.Pick(kTypes);
      o.device = random_.Chance(30) ? makedev(0, 0) : makedev(1, 3);
      break;
    }
    case Kind::kRemoveDir:
      if (random_.Chance(70)) o.path = DrawDirectory();
      break;
    case Kind::kMakeDir:
      // Most directories must be usable.
      if (random_.Chance(70)) o.mode |= 0700;
      break;
    case Kind::kSymlink:
      o.other = {kRoot, DrawTarget()};
      break;
    case Kind::kLink:
      o.other = random_.Chance(80) ? DrawNewPath() : DrawPath();
      if (random_.Chance(20)) o.flags = AT_SYMLINK_FOLLOW;
      break;
    case Kind::kLinkFile:
      o.flags = random_.Chance(50) ? AT_EMPTY_PATH : AT_SYMLINK_FOLLOW;
      break;
    case Kind::kRename: {
      o.other = random_.Chance(50) ? DrawPath() : DrawNewPath();
      if (random_.Chance(4)) {
        o.other = o.path;
        o.other.text += "/" + DrawName();
      }
      constexpr unsigned kFlags[] = {
          0, 0, 0, 0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_EXCHANGE, RENAME_WHITEOUT};
      o.flags = static_cast<int>(random_.Pick(kFlags));
      if (random_.Below(200) == 0) o.flags = RENAME_EXCHANGE | RENAME_NOREPLACE;
      break;
    }
    default:
      break;
  }
}

void Drawer::DrawTimes(Operation& o) {
  // None of them is in the time of a run (Looks).
  constexpr time_t kSeconds[] = {0, 1, 946'684'800, 1'000'000'000, 2'000'000'000};
  constexpr time_t kWideSeconds[] = {4'102'444'800, -5};  // in more than 32 bits
  constexpr long kNanos[] = {0, 1, 123'456'789, 999'999'999};
  for (timespec& time : o.times) {
    time = {random_.Pick(kSeconds), random_.Pick(kNanos)};
    if (random_.Chance(4)) time.tv_sec = random_.Pick(kWideSeconds);
    if (random_.Chance(20)) time.tv_nsec = UTIME_NOW;
    if (random_.Chance(15)) time.tv_nsec = UTIME_OMIT;
    if (random_.Below(200) == 0) time.tv_nsec = 1'000'000'000;
  }
  o.no_times = random_.Chance(15);
  if (random_.Chance(25)) o.flags = AT_SYMLINK_NOFOLLOW;
}

void Drawer::DrawAttributes(Operation& o) {
  constexpr uid_t kUids[] = {0, 1000, 1001, 1002, static_cast<uid_t>(-1)};
  constexpr gid_t kGids[] = {0, 1000, 1001, 2000, static_cast<gid_t>(-1)};
  o.mode = random_.Pick(kModes);
  o.uid = random_.Pick(kUids);
  o.gid = random_.Pick(kGids);
  if (o.kind == Kind::kAccess) o.mode &= 7;
  if (o.kind == Kind::kChown && random_.Chance(30)) o.flags = AT_SYMLINK_NOFOLLOW;
}

std::string Drawer::DrawAcl() {
  const auto permissions = [this] { return random_.Below(8); };
  const bool named = random_.Chance(60);
  constexpr uint32_t kNobody = ~uint32_t{0};
  std::string acl;
  AppendLittle(acl, random_.Below(40) == 0 ? 3 : kAclVersion, 4);
  AppendAclEntry(acl, kUserObj, permissions(), kNobody);
  if (named) AppendAclEntry(acl, kUser, permissions(), 1000 + random_.Below(3));
  AppendAclEntry(acl, kGroupObj, permissions(), kNobody);
  if (named && random_.Chance(50)) AppendAclEntry(acl, kGroup, permissions(), 2000);
  // An ACL with names and without a mask is refused.
  if (named && random_.Below(20) != 0) AppendAclEntry(acl, kMask, permissions(), kNobody);
  AppendAclEntry(acl, kOther, permissions(), kNobody);
  return acl;
}

std::string Drawer::DrawCapability() {
  std::string value;
  AppendLittle(value, VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE, 4);
  AppendLittle(value, 1U << CAP_NET_RAW, 4);
  AppendLittle(value, 0, 4);
  AppendLittle(value, 0, 8);
  if (random_.Below(20) == 0) value.pop_back();
  return value;
}

void Drawer::DrawXattr(Operation& o) {
  constexpr const char* kXattrs[] = {"user.a",
                                     "user.b",
                                     "trusted.t",
                                     "security.capability",
                                     "system.posix_acl_access",
                                     "system.posix_acl_default"};
  o.name = random_.Pick(kXattrs);
  if (random_.Below(100) == 0) o.name = "user." + std::string(random_.Chance(50) ? 251 : 250, 'n');
  if (random_.Below(200) == 0) o.name = "unknown.n";
  if (o.name == "security.capability") {
    o.value = DrawCapability();
  } else if (o.name.starts_with("system.")) {
    o.value = DrawAcl();
  } else {
    // All together must fit into one block beside the file id: docs/mount.md names no other limit.
    o.value = std::string(random_.Below(random_.Chance(10) ? 500 : 30), 'x');
    if (random_.Below(500) == 0) o.value = std::string(70'000, 'x');
    for (char& c : o.value) c = static_cast<char>('a' + random_.Below(26));
  }
  if (random_.Chance(15)) o.flags = XATTR_CREATE;
  if (random_.Chance(10)) o.flags = XATTR_REPLACE;
}

void Drawer::DrawSlot(Operation& o) {
  o.slot = static_cast<int>(random_.Below(kDirectories));
  if (o.kind == Kind::kOpenDir && random_.Chance(90)) o.path = DrawDirectory();
  o.offset = static_cast<int64_t>(random_.Below(1000));
  o.length = 300 + static_cast<int64_t>(random_.Below(500));
}

Kind Drawer::DrawKind() {
  const Kind kind = profile_ == Profile::kData ? DrawWeighted(random_, kDataWeights)
                                               : DrawWeighted(random_, kWeights);
  const bool listing = kind == Kind::kListSome || kind == Kind::kListAgain;
  return listing && !listings_ ? Kind::kStat : kind;
}

// Few names in one directory, all of the same owner, so that most operations meet the data of the
// others.
Operation Drawer::DrawOfData() {
  Operation o;
  o.kind = DrawKind();
  o.mode = 0644;
  o.path = {kRoot, random_.Pick(kNames)};
  o.slot = static_cast<int>(random_.Below(kFiles));
  if (o.kind == Kind::kOpen) {
    constexpr int kAccess[] = {O_RDONLY, O_WRONLY, O_RDWR, O_RDWR, O_RDWR, O_RDWR};
    o.flags = random_.Pick(kAccess);
    if (random_.Chance(90)) o.flags |= O_CREAT;
    if (random_.Chance(8)) o.flags |= O_TRUNC;
    if (random_.Chance(12)) o.flags |= O_APPEND;
    if (random_.Chance(4)) o.flags |= O_SYNC;
    return o;
  }
  if (o.kind == Kind::kTmpFile) {
    o.path.text = ".";
    o.flags = O_RDWR | O_TMPFILE;
    return o;
  }
  if (o.kind == Kind::kRename || o.kind == Kind::kLink) {
    o.other = {kRoot, random_.Pick(kNames)};
    constexpr unsigned kFlags[] = {0, 0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE};
    if (o.kind == Kind::kRename) o.flags = static_cast<int>(random_.Pick(kFlags));
    return o;
  }
  DrawData(o);
  if (o.kind != Kind::kRead && o.kind != Kind::kWrite && o.kind != Kind::kSeek) {
    // Near the ends of pages, within a page, or far away, so that there are holes.
    if (random_.Chance(30)) {
      o.offset = static_cast<int64_t>(random_.Below(32) * 4096 + random_.Below(64)) - 32;
      o.offset = std::max<int64_t>(o.offset, 0);
    }
    if (random_.Chance(4)) o.offset = static_cast<int64_t>(random_.Below(kFarthest));
  }
  switch (o.kind) {
    case Kind::kMapStore:
      o.flags = random_.Chance(20) ? MS_SYNC : random_.Chance(20) ? MS_ASYNC : 0;
      break;
    case Kind::kMapLoad:
      o.flags = random_.Chance(50) ? MAP_SHARED : MAP_PRIVATE;
      break;
    case Kind::kCopyRange:
      o.other_slot = static_cast<int>(random_.Below(kFiles));
      o.other_offset = static_cast<int64_t>(random_.Below(100'000));
      break;
    case Kind::kSeekData:
      o.flags = random_.Chance(50) ? SEEK_DATA : SEEK_HOLE;
      break;
    case Kind::kDirectRead:
    case Kind::kDirectWrite:
      // Every disk accepts this alignment.
      o.offset = o.offset / 4096 * 4096;
      o.length = (o.length / 4096 + 1) * 4096;
      break;
    case Kind::kSync:
      o.flags = random_.Chance(50) ? O_DSYNC : 0;
      break;
    default:
      break;
  }
  return o;
}

Operation Drawer::Draw() {
  if (profile_ == Profile::kData) return DrawOfData();
  Operation o;
  o.kind = DrawKind();
  constexpr mode_t kUmasks[] = {022, 022, 0, 077, 027, 02};
  o.caller = random_.Chance(60) ? 0 : static_cast<int>(random_.Below(kIdentities));
  o.mask = random_.Pick(kUmasks);
  const bool made = MakesName(o.kind) && o.kind != Kind::kOpen;
  o.path = made && random_.Chance(80) ? DrawNewPath() : DrawPath();
  o.slot = static_cast<int>(random_.Below(kFiles));
  switch (o.kind) {
    case Kind::kOpen:
    case Kind::kTmpFile:
      DrawOpen(o);
      break;
    case Kind::kWrite:
    case Kind::kPwrite:
    case Kind::kRead:
    case Kind::kPread:
    case Kind::kSeek:
    case Kind::kTruncate:
    case Kind::kFtruncate:
    case Kind::kFallocate:
      DrawData(o);
      break;
    case Kind::kMakeDir:
    case Kind::kRemoveDir:
    case Kind::kMakeNode:
    case Kind::kSymlink:
    case Kind::kLink:
    case Kind::kLinkFile:
    case Kind::kRename:
      DrawNames(o);
      break;
    case Kind::kChmod:
    case Kind::kFchmod:
    case Kind::kChown:
    case Kind::kFchown:
    case Kind::kAccess:
      DrawAttributes(o);
      break;
    case Kind::kTimes:
    case Kind::kFtimes:
      DrawTimes(o);
      break;
    case Kind::kSetXattr:
    case Kind::kFsetXattr:
    case Kind::kGetXattr:
    case Kind::kRemoveXattr:
      DrawXattr(o);
      break;
    case Kind::kStat:
      if (random_.Chance(50)) o.flags = AT_SYMLINK_NOFOLLOW;
      break;
    case Kind::kListSome:
    case Kind::kListAgain:
    case Kind::kOpenDir:
    case Kind::kCloseDir:
    case Kind::kSyncDir:
      DrawSlot(o);
      break;
    case Kind::kSync:
      o.flags = random_.Chance(50) ? O_DSYNC : 0;
      break;
    default:
      break;
  }
  return o;
}

}  // namespace salius::differential
