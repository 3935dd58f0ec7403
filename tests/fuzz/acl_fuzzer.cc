// Checks what a new object inherits from the default ACL of its directory. The input gives the
// bytes of the ACL's extended attribute.
// - The object has no permission that was not requested or that the ACL does not give.
// - A directory inherits the default ACL unchanged.
// - An access ACL equals the default ACL, except that the mode narrows three of its entries.
//
// Where tmpfs keeps ACLs, the fuzzer also asks the kernel. The kernel accepts the same ACLs, and
// its new objects have the same mode and the same attributes.
#include <sys/stat.h>
#include <sys/xattr.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/bytes.h"
#include "common/check.h"
#include "storage/names_acl.h"
#include "storage/posix_acl.h"
#include "tests/fuzz/fuzz_scratch.h"

namespace salius {
namespace {

// linux/posix_acl_xattr.h
constexpr uint16_t kUserObj = 1, kUser = 2, kGroupObj = 4, kGroup = 8, kMask = 16, kOther = 32;
constexpr size_t kHeaderBytes = 4;
constexpr size_t kEntryBytes = 8;
constexpr uint32_t kNobody = UINT32_MAX;

struct Entry {
  uint16_t tag = 0, perm = 0;
  uint32_t id = 0;
  bool operator==(const Entry&) const = default;
};

// Returns the entries of an ACL that was accepted.
std::vector<Entry> Entries(const std::string& acl) {
  ByteReader in(acl);
  SALIUS_CHECK(in.U32() == 2);
  std::vector<Entry> entries;
  while (in.remaining() > 0) entries.push_back({in.U16(), in.U16(), in.U32()});
  SALIUS_CHECK(in.ok());
  return entries;
}

// Returns the bytes of an ACL that is valid in most cases.
std::string Acl(ByteReader& in) {
  std::vector<Entry> entries = {{kUserObj, 0, kNobody}};
  const uint8_t what = in.U8();
  for (int i = what % 4; i > 0; --i) entries.push_back({kUser, 0, in.U16()});
  entries.push_back({kGroupObj, 0, kNobody});
  for (int i = what / 4 % 4; i > 0; --i) entries.push_back({kGroup, 0, in.U16()});
  if (entries.size() > 2 || (what & 16) != 0) entries.push_back({kMask, 0, kNobody});
  entries.push_back({kOther, 0, kNobody});
  for (Entry& entry : entries) entry.perm = in.U8() % 8;
  std::string acl;
  const auto put = [&acl](uint32_t number, int bytes) {
    for (; bytes > 0; --bytes, number >>= 8) acl += static_cast<char>(number);
  };
  put(2, 4);
  for (const Entry& entry : entries) put(entry.tag, 2), put(entry.perm, 2), put(entry.id, 4);
  if (what >= 0xe0) {
    acl[in.U8() % acl.size()] ^= static_cast<char>(in.U8());
  } else if (what >= 0xc0) {
    const size_t at = kHeaderBytes + in.U8() % entries.size() * kEntryBytes;
    if (what & 1) {
      acl.erase(at, kEntryBytes);
    } else {
      acl.insert(at, acl.substr(at, kEntryBytes));
    }
  }
  return acl;
}

const std::string* Attribute(const Inherited& made, std::string_view name) {
  const auto found = std::find_if(made.xattrs.begin(), made.xattrs.end(),
                                  [&](const auto& xattr) { return xattr.first == name; });
  return found == made.xattrs.end() ? nullptr : &found->second;
}

// Returns the bits of `mode` that belong to an entry of `tag`; a mask has the group's bits.
uint16_t BitsOf(mode_t mode, uint16_t tag) {
  return (tag == kUserObj ? mode >> 6 : tag == kOther ? mode : mode >> 3) & 7;
}

void CheckMade(const ParentFacts& parent, mode_t mode, const CallerFacts& caller,
               const Inherited& made) {
  constexpr mode_t kDecided = 0777 | S_ISGID;
  SALIUS_CHECK((made.mode & ~kDecided) == (mode & ~kDecided));
  SALIUS_CHECK((made.mode & 0777 & ~mode) == 0);
  const bool of_directory = (parent.mode & S_ISGID) != 0;
  SALIUS_CHECK(made.gid == (of_directory ? parent.gid : caller.gid));
  if ((made.mode & S_ISGID) != (mode & S_ISGID)) {
    SALIUS_CHECK(of_directory && S_ISDIR(mode) == ((made.mode & S_ISGID) != 0));
  }
  const std::string* const passed_on = Attribute(made, kDefaultAclXattr);
  const std::string* const access = Attribute(made, kAccessAclXattr);
  SALIUS_CHECK(made.xattrs.size() == (passed_on ? 1u : 0u) + (access ? 1u : 0u));
  if (S_ISLNK(mode) || parent.default_acl.empty()) {
    const mode_t umask = S_ISLNK(mode) ? 0 : caller.umask & 0777;
    SALIUS_CHECK(made.xattrs.empty() && (made.mode & 0777) == (mode & 0777 & ~umask));
    return;
  }
  SALIUS_CHECK((passed_on != nullptr) == S_ISDIR(mode));
  if (passed_on != nullptr) SALIUS_CHECK(*passed_on == parent.default_acl);

  std::vector<Entry> entries = Entries(parent.default_acl);
  std::map<uint16_t, int> count;
  for (const Entry& entry : entries) ++count[entry.tag];
  // One entry bounds each three bits of the mode.
  SALIUS_CHECK(count[kUserObj] == 1 && count[kGroupObj] == 1 && count[kOther] == 1);
  const bool masked = count[kMask] == 1;
  SALIUS_CHECK(masked || (count[kMask] == 0 && entries.size() == 3));
  SALIUS_CHECK((access != nullptr) == masked);
  for (Entry& entry : entries) {
    if (entry.tag == kUser || entry.tag == kGroup || (masked && entry.tag == kGroupObj)) continue;
    entry.perm &= BitsOf(mode, entry.tag);
    SALIUS_CHECK(BitsOf(made.mode, entry.tag) == entry.perm);
  }
  if (access == nullptr) return;
  SALIUS_CHECK(Entries(*access) == entries);
  // Inheriting from the result narrows nothing further.
  ParentFacts again = parent;
  again.default_acl = *access;
  const auto same = Inherit(again, made.mode, caller);
  SALIUS_CHECK_OK(same);
  SALIUS_CHECK(same->mode == made.mode && *Attribute(*same, kAccessAclXattr) == *access);
}

// Returns the path of a scratch directory whose default ACL the kernel keeps, or nullptr if the
// kernel keeps none.
const std::string* KernelsDirectory() {
  static const std::optional<std::string> directory = []() -> std::optional<std::string> {
    std::string path = ScratchPath() + "/acl";
    SALIUS_CHECK(mkdir(path.c_str(), 0755) == 0);
    ByteReader zeros(std::string_view{});
    const std::string acl = Acl(zeros);
    if (setxattr(path.c_str(), kDefaultAclXattr, acl.data(), acl.size(), 0) != 0) return {};
    return path;
  }();
  return directory.has_value() ? &*directory : nullptr;
}

std::string KernelsAttribute(const std::string& path, const char* name) {
  std::string value(1 << 16, '\0');
  const ssize_t size = lgetxattr(path.c_str(), name, value.data(), value.size());
  SALIUS_CHECK(size >= 0 || errno == ENODATA) << errno;
  value.resize(std::max<ssize_t>(size, 0));
  return value;
}

void AskKernel(const std::string& acl, mode_t mode, CallerFacts caller, bool taken) {
  const std::string* const directory = KernelsDirectory();
  // An ACL without entries means that the directory has none.
  if (directory == nullptr || acl.size() <= kHeaderBytes) return;
  if (setxattr(directory->c_str(), kDefaultAclXattr, acl.data(), acl.size(), 0) != 0) {
    if (!taken) return;
    const std::vector<Entry> entries = Entries(acl);
    // The kernel also checks the user and group ids, which Inherit() does not.
    SALIUS_CHECK(std::any_of(entries.begin(), entries.end(), [](const Entry& entry) {
      return (entry.tag == kUser || entry.tag == kGroup) && entry.id > UINT16_MAX;
    })) << errno;
    return;
  }
  SALIUS_CHECK(taken);
  ParentFacts parent;
  parent.default_acl = KernelsAttribute(*directory, kDefaultAclXattr);
  const auto made = Inherit(parent, mode, caller);
  SALIUS_CHECK_OK(made);
  const std::string path = *directory + "/made";
  umask(caller.umask & 0777);
  const int error = S_ISDIR(mode) ? mkdir(path.c_str(), mode & 0777)
                                  : mknod(path.c_str(), S_IFREG | (mode & 0777), 0);
  umask(0);
  SALIUS_CHECK(error == 0) << errno;
  struct stat st {};
  SALIUS_CHECK(lstat(path.c_str(), &st) == 0);
  SALIUS_CHECK((st.st_mode & 0777) == (made->mode & 0777));
  for (const char* name : {kAccessAclXattr, kDefaultAclXattr}) {
    const std::string* const ours = Attribute(*made, name);
    SALIUS_CHECK(KernelsAttribute(path, name) == (ours != nullptr ? *ours : "")) << name;
  }
  SALIUS_CHECK(remove(path.c_str()) == 0);
}

void Fuzz(ByteReader& in) {
  constexpr mode_t kTypes[] = {S_IFREG, S_IFDIR, S_IFLNK, S_IFIFO};
  const uint8_t what = in.U8();
  const mode_t mode = kTypes[what % 4] | (in.U16() & 07777);
  CallerFacts caller;
  caller.umask = in.U16();
  caller.gid = what / 4 % 4;
  caller.privileged = (what & 16) != 0;
  if (what & 32) caller.groups = {7, 2};
  ParentFacts parent;
  parent.mode = S_IFDIR | 0755 | (what & 64 ? S_ISGID : 0);
  parent.gid = 2;
  parent.default_acl = what & 128 ? std::string(in.String(in.remaining())) : Acl(in);

  const auto made = Inherit(parent, mode, caller);
  if (made.ok()) {
    CheckMade(parent, mode, caller, *made);
  } else {
    SALIUS_CHECK(absl::IsInvalidArgument(made.status()));
    SALIUS_CHECK(!S_ISLNK(mode) && !parent.default_acl.empty());
  }
  if (!S_ISLNK(mode)) AskKernel(parent.default_acl, mode, caller, made.ok());
}

}  // namespace
}  // namespace salius

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace salius;  // NOLINT: the function has to be outside
  ByteReader in(absl::MakeConstSpan(data, size));
  Fuzz(in);
  return 0;
}
