#include "client/volume/prediction.h"

#include <fcntl.h>
#include <linux/falloc.h>

#include <algorithm>
#include <utility>

#include "client/volume/extents.h"
#include "common/bytes.h"
#include "common/check.h"
#include "storage/apply.h"
#include "storage/posix_acl.h"

namespace salius {
namespace {

constexpr uint32_t kNoAclId = 0xffffffff;  // of entries that name no user or group
constexpr size_t kAclPermAt = 2;
constexpr size_t kAclIdAt = 4;

bool Same(const timespec& a, const timespec& b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

timespec Next(const timespec& time) {
  constexpr long kLast = 999'999'999;
  return time.tv_nsec == kLast ? timespec{time.tv_sec + 1, 0}
                               : timespec{time.tv_sec, time.tv_nsec + 1};
}

// Returns whether a value of an ACL's attribute removes the ACL.
bool IsEmptyAcl(std::string_view value) { return value.size() <= kAclHeaderBytes; }

// Calls `use` with the tag and the bytes of each entry of an ACL.
template <typename Use>
void ForEachAclEntry(std::string& acl, const Use& use) {
  for (size_t at = kAclHeaderBytes; at + kAclEntryBytes <= acl.size(); at += kAclEntryBytes) {
    use(LoadU16(acl.data() + at), acl.data() + at);
  }
}

// Returns an ACL as the file system gives it back.
std::string StoredAcl(std::string_view value) {
  std::string acl(value);
  ForEachAclEntry(acl, [](uint16_t tag, char* entry) {
    if (tag != kAclUser && tag != kAclGroup) StoreU32(entry + kAclIdAt, kNoAclId);
  });
  return acl;
}

// Returns whether the ACL says more than permission bits can.
bool IsExtended(std::string acl) {
  bool extended = false;
  ForEachAclEntry(acl, [&](uint16_t tag, char*) {
    extended |= tag == kAclUser || tag == kAclGroup || tag == kAclMask;
  });
  return extended;
}

// Returns an access ACL after chmod(2). The group bits are the mask's, where there is one.
std::string AclWithMode(std::string_view value, mode_t mode) {
  std::string acl(value);
  bool masked = false;
  ForEachAclEntry(acl, [&](uint16_t tag, char*) { masked |= tag == kAclMask; });
  ForEachAclEntry(acl, [&](uint16_t tag, char* entry) {
    const auto set = [entry](mode_t bits) {
      StoreU16(entry + kAclPermAt, static_cast<uint16_t>(bits & 7));
    };
    if (tag == kAclUserObj) set(mode >> 6);
    if (tag == (masked ? kAclMask : kAclGroupObj)) set(mode >> 3);
    if (tag == kAclOther) set(mode);
  });
  return acl;
}

// Returns the blocks of 512 bytes that [begin, end) of a file takes.
blkcnt_t BlocksOf(uint64_t begin, uint64_t end, uint64_t block) {
  if (end <= begin) return 0;
  const uint64_t first = begin / block;
  const uint64_t last = (end - 1) / block + 1;
  return static_cast<blkcnt_t>((last - first) * (block / 512));
}

// Returns st_blocks after a data record, estimated: it counts what is allocated past the old end.
blkcnt_t BlocksAfter(const struct stat& before, const RecordHeader& header) {
  const uint64_t block = std::max<uint64_t>(static_cast<uint64_t>(before.st_blksize), 512);
  const auto size = static_cast<uint64_t>(before.st_size);
  const uint64_t begin = header.arg0;
  if (header.op == Op::kTruncate) {
    return begin >= size ? before.st_blocks : std::min(before.st_blocks, BlocksOf(0, begin, block));
  }
  const bool punch = header.op == Op::kFallocate && (header.arg2 & FALLOC_FL_PUNCH_HOLE) != 0;
  if (punch) return before.st_blocks;
  const uint64_t end = begin + (header.op == Op::kWrite ? header.body_bytes : header.arg1);
  const uint64_t old_end = (size + block - 1) / block * block;
  const blkcnt_t more = BlocksOf(std::max(begin, old_end), end, block);
  return std::max(before.st_blocks + more, BlocksOf(begin, end, block));
}

// Returns whether the number of blocks after a data record is a guess: the file has a hole, or blocks
// behind its end, or may get them.
bool IsUnsure(const struct stat& before, const RecordHeader& header) {
  constexpr uint64_t kMetadata = 64 * 1024;  // more than the blocks of a file's own metadata
  const uint64_t allocated = static_cast<uint64_t>(before.st_blocks) * 512;
  const auto size = static_cast<uint64_t>(before.st_size);
  return allocated < size || allocated > size + kMetadata || header.op == Op::kFallocate;
}

}  // namespace

bool IsBefore(const timespec& a, const timespec& b) {
  return std::pair(a.tv_sec, a.tv_nsec) < std::pair(b.tv_sec, b.tv_nsec);
}

void Prediction::NoteSeq(Seq seq) { last_seq_ = std::max(last_seq_, seq); }

void Prediction::Touch(Seq seq, const timespec& now) {
  NoteSeq(seq);
  if (seq < ctime_.seq) return;
  stat_.st_ctim = now;
  ctime_ = {.seq = seq, .implied = true};
}

void Prediction::TouchData(Seq seq, const timespec& now) {
  Touch(seq, now);
  if (seq < mtime_.seq) return;
  stat_.st_mtim = now;
  mtime_ = {.seq = seq, .implied = true};
}

void Prediction::Data(const RecordHeader& header, const timespec& now) {
  SALIUS_CHECK(IsDataOp(header.op));
  NoteSeq(header.seq);
  if (header.op == Op::kWrite && header.body_bytes == 0) return;
  blocks_unsure_ = blocks_unsure_ || IsUnsure(stat_, header);
  stat_.st_blocks = BlocksAfter(stat_, header);
  stat_.st_size = static_cast<off_t>(SizeAfter(static_cast<uint64_t>(stat_.st_size), header));
  capability_gone_ = header.seq;
  TouchData(header.seq, now);
}

void Prediction::Chown(Seq seq, const AttrBody& attr) {
  if ((attr.mask & kAttrUid) != 0) stat_.st_uid = attr.uid;
  if ((attr.mask & kAttrGid) != 0) stat_.st_gid = attr.gid;
  if (S_ISDIR(stat_.st_mode)) return;
  capability_gone_ = seq;
  if (S_ISLNK(stat_.st_mode)) return;
  stat_.st_mode &= ~static_cast<mode_t>(S_ISUID);
  if ((stat_.st_mode & S_IXGRP) != 0) stat_.st_mode &= ~static_cast<mode_t>(S_ISGID);
}

void Prediction::Chmod(Seq seq, mode_t mode, std::string_view disk_acl) {
  stat_.st_mode = (stat_.st_mode & S_IFMT) | (mode & 07777);
  const std::optional<Xattr> pending = FindXattr(kAccessAclXattr);
  const std::string acl = pending.has_value() ? pending->value.value_or("") : std::string(disk_acl);
  if (!acl.empty()) PutXattr(seq, kAccessAclXattr, AclWithMode(acl, mode));
}

void Prediction::SetAttr(Seq seq, const AttrBody& attr, const timespec& now,
                         std::string_view disk_acl) {
  NoteSeq(seq);
  const bool chown = (attr.mask & (kAttrUid | kAttrGid)) != 0;
  const bool chmod = (attr.mask & kAttrMode) != 0 && !S_ISLNK(stat_.st_mode);
  const bool times = (attr.mask & (kAttrAtime | kAttrMtime)) != 0;
  if (chown) Chown(seq, attr);
  if (chmod) Chmod(seq, attr.mode, disk_acl);
  if ((attr.mask & kAttrAtime) != 0) {
    stat_.st_atim = {static_cast<time_t>(attr.atime_sec), static_cast<long>(attr.atime_nsec)};
  }
  if ((attr.mask & kAttrMtime) != 0 && seq >= mtime_.seq) {
    stat_.st_mtim = {static_cast<time_t>(attr.mtime_sec), static_cast<long>(attr.mtime_nsec)};
    mtime_ = {.seq = seq, .implied = false};
  }
  if (chown || chmod || times) Touch(seq, now);
}

void Prediction::PutXattr(Seq seq, const std::string& name, std::optional<std::string> value) {
  xattrs_[name] = {std::move(value), seq};
}

void Prediction::SetAccessAcl(Seq seq, std::string_view value) {
  if (IsEmptyAcl(value)) return PutXattr(seq, kAccessAclXattr, std::nullopt);
  const std::optional<mode_t> bits = ModeOfAcl(value);
  if (bits.has_value()) stat_.st_mode = (stat_.st_mode & ~mode_t{0777}) | *bits;
  std::optional<std::string> stored;
  if (IsExtended(std::string(value))) stored = StoredAcl(value);
  PutXattr(seq, kAccessAclXattr, std::move(stored));
}

void Prediction::SetXattr(Seq seq, const std::string& name, std::string_view value,
                          const timespec& now) {
  if (name == kAccessAclXattr) {
    SetAccessAcl(seq, value);
  } else if (name == kDefaultAclXattr) {
    PutXattr(seq, name, IsEmptyAcl(value) ? std::nullopt : std::optional(StoredAcl(value)));
  } else {
    PutXattr(seq, name, std::string(value));
  }
  Touch(seq, now);
}

void Prediction::RemoveXattr(Seq seq, const std::string& name, const timespec& now) {
  PutXattr(seq, name, std::nullopt);
  Touch(seq, now);
}

bool Prediction::IsChangedBy(const std::string& name, std::string_view value,
                             const std::optional<std::string>& old) const {
  Prediction after = *this;
  after.SetXattr(1, name, value, {});
  return after.stat_.st_mode != stat_.st_mode || after.xattrs_[name].value != old;
}

void Prediction::SetLinks(Seq seq, nlink_t links, const timespec& now) {
  stat_.st_nlink = links;
  Touch(seq, now);
}

void Prediction::ChangeNames(Seq seq, nlink_t links, const timespec& now) {
  stat_.st_nlink = links;
  TouchData(seq, now);
}

bool Prediction::NoteApplied(Seq seq) {
  applied_seq_ = std::max(applied_seq_, seq);
  absl::erase_if(xattrs_, [this](const auto& xattr) { return xattr.second.seq <= applied_seq_; });
  return applied_seq_ >= last_seq_;
}

std::optional<Prediction::Xattr> Prediction::FindXattr(const std::string& name) const {
  const auto found = xattrs_.find(name);
  const Seq set = found == xattrs_.end() ? 0 : found->second.seq;
  if (name == kCapabilityXattr && capability_gone_ > std::max(set, applied_seq_)) return Xattr{};
  if (found == xattrs_.end()) return std::nullopt;
  return Xattr{found->second.value};
}

void Prediction::MergeXattrNames(std::vector<std::string>& names) const {
  std::erase_if(names, [this](const std::string& name) { return FindXattr(name).has_value(); });
  for (const auto& [name, pending] : xattrs_) {
    const std::optional<Xattr> xattr = FindXattr(name);
    if (xattr.has_value() && xattr->value.has_value()) names.push_back(name);
  }
}

std::optional<timespec> Prediction::ImpliedMtime() const {
  if (!mtime_.implied && !mtime_given_) return std::nullopt;
  return stat_.st_mtim;
}

std::optional<timespec> Prediction::ImpliedCtime() const {
  if (!ctime_.implied) return std::nullopt;
  return stat_.st_ctim;
}

void KeptCtime::Merge(struct stat& attributes) const {
  timespec& ctime = attributes.st_ctim;
  if (Same(ctime, disk)) {
    ctime = predicted;
  } else if (IsBefore(ctime, predicted)) {
    ctime = Next(predicted);
  }
}

}  // namespace salius
