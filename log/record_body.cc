// The bodies of records (log/record.h): encoders, and decoders that refuse all else.
#include <sys/stat.h>

#include <algorithm>

#include "absl/strings/str_format.h"
#include "common/bytes.h"
#include "common/check.h"
#include "common/limits.h"
#include "common/strings.h"
#include "log/record.h"

namespace salius {
namespace {

constexpr uint32_t kAllAttrs = kAttrMode | kAttrUid | kAttrGid | kAttrAtime | kAttrMtime;
constexpr uint32_t kPermissionBits = 07777;
constexpr uint32_t kNanosPerSecond = 1'000'000'000;
// RENAME_NOREPLACE, RENAME_EXCHANGE and RENAME_WHITEOUT of <linux/fs.h>; the numbers are part of the
// format.
constexpr uint32_t kRenameNoReplace = 1;
constexpr uint32_t kRenameExchange = 2;
constexpr uint32_t kRenameWhiteout = 4;
// Bound on the extended attributes of one new object: ACLs and security labels are a handful.
constexpr size_t kMaxCreateXattrs = 64;

absl::Status Malformed(const std::string& why) {
  return absl::InvalidArgumentError("record body: " + why);
}

absl::Status CutOff(const char* what) {
  return Malformed(absl::StrFormat("%s: cut off, too long, or reserved bytes not zero", what));
}

absl::Status CheckName(std::string_view name) {
  if (name.empty() || name == "." || name == "..") {
    return Malformed(absl::StrFormat("\"%s\" is not a name", name));
  }
  if (name.size() > kMaxNameBytes) {
    return Malformed(absl::StrFormat("name of %d bytes, at most %d", name.size(), kMaxNameBytes));
  }
  if (name.find('/') != std::string_view::npos || name.find('\0') != std::string_view::npos) {
    return Malformed("name holds a slash or a zero byte");
  }
  return absl::OkStatus();
}

absl::Status CheckXattr(std::string_view name, size_t value_bytes) {
  if (name.empty() || name.size() > kMaxXattrNameBytes ||
      name.find('\0') != std::string_view::npos) {
    return Malformed(absl::StrFormat("xattr name of %d bytes", name.size()));
  }
  if (value_bytes > kMaxXattrValue) {
    return Malformed(
        absl::StrFormat("xattr value of %d bytes, at most %d", value_bytes, kMaxXattrValue));
  }
  return absl::OkStatus();
}

// Collects a body; strings are preceded by their length.
class BodyWriter {
 public:
  void U32(uint32_t value) { Append(&value, sizeof(value)); }
  void U64(uint64_t value) { Append(&value, sizeof(value)); }
  void I64(int64_t value) { Append(&value, sizeof(value)); }
  void Text16(std::string_view text) {
    SALIUS_CHECK(text.size() <= UINT16_MAX);
    const auto size = static_cast<uint16_t>(text.size());
    Append(&size, sizeof(size));
    out_.append(text);
  }
  void Text32(std::string_view text) {
    SALIUS_CHECK(text.size() <= UINT32_MAX);
    U32(static_cast<uint32_t>(text.size()));
    out_.append(text);
  }
  std::string Take() { return std::move(out_); }

 private:
  void Append(const void* from, size_t n) { out_.append(static_cast<const char*>(from), n); }
  std::string out_;
};

std::string Text16(ByteReader& in) { return std::string(in.String(in.U16())); }
std::string Text32(ByteReader& in) { return std::string(in.String(in.U32())); }

}  // namespace

std::string AttrBody::Encode() const {
  BodyWriter out;
  out.U32(mask);
  out.U32(mode);
  out.U32(uid);
  out.U32(gid);
  out.I64(atime_sec);
  out.I64(mtime_sec);
  out.U32(atime_nsec);
  out.U32(mtime_nsec);
  return out.Take();
}

absl::StatusOr<AttrBody> AttrBody::Decode(std::string_view body) {
  ByteReader in(body);
  AttrBody attr;
  attr.mask = in.U32();
  attr.mode = in.U32();
  attr.uid = in.U32();
  attr.gid = in.U32();
  attr.atime_sec = static_cast<int64_t>(in.U64());
  attr.mtime_sec = static_cast<int64_t>(in.U64());
  attr.atime_nsec = in.U32();
  attr.mtime_nsec = in.U32();
  if (!in.AtEnd()) return CutOff("setattr");
  if ((attr.mask & ~kAllAttrs) != 0) {
    return Malformed(absl::StrFormat("setattr: unknown mask %08x", attr.mask));
  }
  if ((attr.mode & ~kPermissionBits) != 0) {
    return Malformed(absl::StrFormat("setattr: mode %o has more than permissions", attr.mode));
  }
  if (attr.atime_nsec >= kNanosPerSecond || attr.mtime_nsec >= kNanosPerSecond) {
    return Malformed("setattr: a time with a full second of nanoseconds");
  }
  return attr;
}

std::string XattrBody::Encode() const {
  BodyWriter out;
  out.Text16(name);
  out.Text32(value);
  return out.Take();
}

absl::StatusOr<XattrBody> XattrBody::Decode(std::string_view body) {
  ByteReader in(body);
  XattrBody xattr;
  xattr.name = Text16(in);
  xattr.value = Text32(in);
  if (!in.AtEnd()) return CutOff("xattr");
  SALIUS_RETURN_IF_ERROR(CheckXattr(xattr.name, xattr.value.size()));
  return xattr;
}

std::string NameBody::Encode() const {
  BodyWriter out;
  out.U64(dir);
  out.Text16(name);
  return out.Take();
}

absl::StatusOr<NameBody> NameBody::Decode(std::string_view body) {
  ByteReader in(body);
  NameBody entry;
  entry.dir = in.U64();
  entry.name = Text16(in);
  if (!in.AtEnd()) return CutOff("name");
  if (entry.dir == kNoFileId) return Malformed("name in no directory");
  SALIUS_RETURN_IF_ERROR(CheckName(entry.name));
  return entry;
}

std::string CreateBody::Encode() const {
  BodyWriter out;
  out.U64(dir);
  out.U32(mode);
  out.U32(uid);
  out.U32(gid);
  out.U32(static_cast<uint32_t>(xattrs.size()));
  out.U64(rdev);
  out.Text16(name);
  out.Text16(symlink_target);
  for (const auto& [xattr_name, value] : xattrs) {
    out.Text16(xattr_name);
    out.Text32(value);
  }
  return out.Take();
}

namespace {

absl::Status CheckCreate(const CreateBody& create) {
  if (create.dir == kNoFileId) {
    if (!create.name.empty()) return Malformed("create: a name in no directory");
  } else {
    SALIUS_RETURN_IF_ERROR(CheckName(create.name));
  }
  const uint32_t type = create.mode & S_IFMT;
  switch (type) {
    case S_IFREG:
    case S_IFDIR:
    case S_IFLNK:
    case S_IFIFO:
    case S_IFSOCK:
    case S_IFCHR:
    case S_IFBLK:
      break;
    default:
      return Malformed(absl::StrFormat("create: mode %o has no known type", create.mode));
  }
  if ((create.mode & ~(uint32_t{S_IFMT} | kPermissionBits)) != 0) {
    return Malformed(absl::StrFormat("create: mode %o", create.mode));
  }
  if (create.dir == kNoFileId && type != S_IFREG) {
    return Malformed("create: nameless, but not a regular file");
  }
  const bool link = type == S_IFLNK;
  if (link == create.symlink_target.empty() ||
      create.symlink_target.find('\0') != std::string::npos) {
    return Malformed("create: a target goes with a symbolic link and nothing else");
  }
  if (create.symlink_target.size() > kMaxSymlinkBytes) {
    return Malformed(absl::StrFormat("create: target of %d bytes", create.symlink_target.size()));
  }
  if (create.rdev != 0 && type != S_IFCHR && type != S_IFBLK) {
    return Malformed("create: a device number without a device");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CreateBody> CreateBody::Decode(std::string_view body) {
  ByteReader in(body);
  CreateBody create;
  create.dir = in.U64();
  create.mode = in.U32();
  create.uid = in.U32();
  create.gid = in.U32();
  const uint32_t xattr_count = in.U32();
  create.rdev = in.U64();
  create.name = Text16(in);
  create.symlink_target = Text16(in);
  if (xattr_count > kMaxCreateXattrs) {
    return Malformed(
        absl::StrFormat("create: %d xattrs, at most %d", xattr_count, kMaxCreateXattrs));
  }
  for (uint32_t i = 0; i < xattr_count && in.ok(); ++i) {
    std::string name = Text16(in);
    std::string value = Text32(in);
    if (!in.ok()) break;
    SALIUS_RETURN_IF_ERROR(CheckXattr(name, value.size()));
    create.xattrs.emplace_back(std::move(name), std::move(value));
  }
  if (!in.AtEnd()) return CutOff("create");
  SALIUS_RETURN_IF_ERROR(CheckCreate(create));
  return create;
}

std::string RenameBody::Encode() const {
  BodyWriter out;
  out.U64(from_dir);
  out.U64(to_dir);
  out.U64(other);
  out.U32(flags);
  out.Text16(from_name);
  out.Text16(to_name);
  if ((flags & kRenameWhiteout) != 0) {
    out.U64(whiteout);
    out.U32(whiteout_uid);
    out.U32(whiteout_gid);
  }
  return out.Take();
}

absl::StatusOr<RenameBody> RenameBody::Decode(std::string_view body) {
  ByteReader in(body);
  RenameBody rename;
  rename.from_dir = in.U64();
  rename.to_dir = in.U64();
  rename.other = in.U64();
  rename.flags = in.U32();
  rename.from_name = Text16(in);
  rename.to_name = Text16(in);
  const bool whiteout = (rename.flags & kRenameWhiteout) != 0;
  if (whiteout) {
    rename.whiteout = in.U64();
    rename.whiteout_uid = in.U32();
    rename.whiteout_gid = in.U32();
  }
  if (!in.AtEnd()) return CutOff("rename");
  if (rename.from_dir == kNoFileId || rename.to_dir == kNoFileId) {
    return Malformed("rename: a name in no directory");
  }
  SALIUS_RETURN_IF_ERROR(CheckName(rename.from_name));
  SALIUS_RETURN_IF_ERROR(CheckName(rename.to_name));
  const uint32_t how = rename.flags & ~kRenameWhiteout;
  if (how != 0 && how != kRenameNoReplace && (how != kRenameExchange || whiteout)) {
    return Malformed(absl::StrFormat("rename: flags %08x", rename.flags));
  }
  if (whiteout && rename.whiteout == kNoFileId) {
    return Malformed("rename: leaves a whiteout without an id");
  }
  if (how == kRenameNoReplace && rename.other != kNoFileId) {
    return Malformed("rename: displaces a file though it may not");
  }
  if (rename.flags == kRenameExchange && rename.other == kNoFileId) {
    return Malformed("rename: exchanges with no file");
  }
  return rename;
}

CreateBody RenameBody::Whiteout() const {
  CreateBody made;
  made.dir = from_dir;
  made.name = from_name;
  made.mode = S_IFCHR;
  made.uid = whiteout_uid;
  made.gid = whiteout_gid;
  return made;
}

std::string AdoptBody::Encode() const {
  BodyWriter out;
  out.U32(static_cast<uint32_t>(handle_type));
  out.Text16(handle);
  out.Text16(path);
  return out.Take();
}

absl::StatusOr<AdoptBody> AdoptBody::Decode(std::string_view body) {
  ByteReader in(body);
  AdoptBody adopt;
  adopt.handle_type = static_cast<int32_t>(in.U32());
  adopt.handle = Text16(in);
  adopt.path = Text16(in);
  if (!in.AtEnd()) return CutOff("adopt");
  if (adopt.handle.size() > kMaxFileHandleBytes) {
    return Malformed(absl::StrFormat("adopt: handle of %d bytes", adopt.handle.size()));
  }
  if (adopt.path.size() > kMaxPathBytes || (adopt.path.empty() && adopt.handle.empty())) {
    return Malformed(absl::StrFormat("adopt: path of %d bytes", adopt.path.size()));
  }
  if (adopt.path.empty()) return adopt;
  // It is joined from components, each a name: relative, no "." or "..", no empty part.
  for (size_t start = 0; start <= adopt.path.size();) {
    const size_t end = std::min(adopt.path.find('/', start), adopt.path.size());
    SALIUS_RETURN_IF_ERROR(CheckName(std::string_view(adopt.path).substr(start, end - start)));
    start = end + 1;
  }
  return adopt;
}

}  // namespace salius
