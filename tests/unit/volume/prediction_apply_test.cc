// Prediction against a real file (RapidCheck): after each of a random sequence of records the
// predicted attributes are those that storage/apply gives a file of the test's directory. Without
// root the records are those that need no right.
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/volume/prediction.h"
#include "common/bytes.h"
#include "common/file.h"
#include "gtest/gtest.h"
#include "log/record.h"
#include "storage/apply.h"
#include "storage/fs_calls.h"
#include "storage/posix_acl.h"
// After gtest, which it needs.
#include <rapidcheck/gtest.h>

namespace salius {
namespace {

// The time of every record. The disk takes its own, which is before it.
constexpr timespec kMarker = {4'000'000'000, 1};
// The time of the new file. Each time that the disk sets is after it.
constexpr timespec kBefore = {1'000'000'000, 1};

constexpr char kUserXattr[] = "user.salius.test";

int64_t Ns(const timespec& time) { return time.tv_sec * 1'000'000'000 + time.tv_nsec; }

// Returns a number below `bound`, each equally often.
uint32_t Below(uint32_t bound) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<uint32_t>(0, bound));
}

// Without root the owner keeps its permissions, which it needs to read attributes.
bool IsRoot() { return geteuid() == 0; }

std::string AnyAcl() {
  const bool named = Below(2) == 0;
  std::vector<AclTag> tags = {kAclUserObj, kAclGroupObj, kAclOther};
  if (named) tags = {kAclUserObj, kAclUser, kAclGroupObj, kAclGroup, kAclMask, kAclOther};
  if (Below(8) == 0) tags.clear();
  std::string acl(kAclHeaderBytes + tags.size() * kAclEntryBytes, '\0');
  StoreU32(acl.data(), kAclVersion);
  for (size_t i = 0; i < tags.size(); ++i) {
    char* const entry = acl.data() + kAclHeaderBytes + i * kAclEntryBytes;
    StoreU16(entry, tags[i]);
    StoreU16(entry + 2, static_cast<uint16_t>(Below(8) | (IsRoot() ? 0 : 6)));
    StoreU32(entry + 4, tags[i] == kAclUser || tags[i] == kAclGroup ? 77 : 0xffffffff);
  }
  return acl;
}

// A value of security.capability: version 2, without any bit but the effective one.
std::string Capability() {
  std::string value(20, '\0');
  StoreU32(value.data(), 0x02000001);
  return value;
}

// An object in a new directory, and its prediction.
class Pair {
 public:
  explicit Pair(mode_t type) {
    std::string dir = testing::TempDir() + "/prediction.XXXXXX";
    RC_ASSERT(mkdtemp(dir.data()) != nullptr);
    dir_ = dir;
    path_ = dir + "/object";
    if (S_ISDIR(type)) {
      RC_ASSERT(mkdir(path_.c_str(), 0700) == 0);
    } else if (S_ISLNK(type)) {
      RC_ASSERT(symlink("target", path_.c_str()) == 0);
    } else {
      RC_ASSERT(mknod(path_.c_str(), S_IFREG | 0600, 0) == 0);
      data_fd_ = UniqueFd(open(path_.c_str(), O_RDWR | O_CLOEXEC));
    }
    path_fd_ = UniqueFd(open(path_.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    const std::array<timespec, 2> times = {kBefore, kBefore};
    RC_ASSERT(fs::SetTimes(path_fd_.get(), times.data()).ok());
    prediction_.emplace(Disk());
  }
  ~Pair() {
    remove(path_.c_str());
    remove(dir_.c_str());
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  void Step() {
    const uint32_t what = Below(data_fd_.get() >= 0 ? 10 : 6);
    if (what < 3) {
      SetAttr();
    } else if (what < 6) {
      ChangeXattr();
    } else {
      Data();
    }
    Check();
  }

 private:
  struct stat Disk() const {
    const auto st = fs::Stat(path_fd_.get());
    RC_ASSERT(st.ok());
    return *st;
  }

  std::optional<std::string> OnDisk(const std::string& name) const {
    const auto value = fs::XattrValue(path_fd_.get(), name);
    return value.ok() ? std::optional(*value) : std::nullopt;
  }

  void SetAttr() {
    AttrBody attr;
    attr.mask = 1 + Below(31);
    attr.mode = IsRoot() ? Below(010000) : Below(01000) | 0600;
    attr.uid = IsRoot() ? Below(3) : geteuid();
    attr.gid = IsRoot() ? Below(3) : getegid();
    attr.atime_sec = 2'000 + Below(1'000);
    attr.atime_nsec = Below(1'000'000'000);
    attr.mtime_sec = 2'000 + Below(1'000);
    RecordHeader header;
    header.op = Op::kSetAttr;
    const std::string acl = OnDisk(kAccessAclXattr).value_or("");
    RC_ASSERT(ApplyAttr(path_fd_.get(), header, attr.Encode()).ok());
    prediction_->SetAttr(++seq_, attr, kMarker, acl);
  }

  void ChangeXattr() {
    XattrBody xattr;
    switch (Below(4)) {
      case 0:
        xattr = {kUserXattr, std::string(Below(100), 'x')};
        break;
      case 1:
        xattr = {kCapabilityXattr, Capability()};
        break;
      case 2:
        xattr = {kDefaultAclXattr, AnyAcl()};
        break;
      default:
        xattr = {kAccessAclXattr, AnyAcl()};
        break;
    }
    RecordHeader header;
    header.op = Below(3) == 0 ? Op::kRemoveXattr : Op::kSetXattr;
    if (header.op == Op::kRemoveXattr) xattr.value.clear();
    // A removal of what is not there changes nothing, and the volume issues none.
    if (header.op == Op::kRemoveXattr && !OnDisk(xattr.name).has_value()) return;
    // The volume refuses what the file system does not take, before it issues a record.
    if (!ApplyAttr(path_fd_.get(), header, xattr.Encode()).ok()) return;
    ++seq_;
    if (header.op == Op::kSetXattr) {
      prediction_->SetXattr(seq_, xattr.name, xattr.value, kMarker);
    } else {
      prediction_->RemoveXattr(seq_, xattr.name, kMarker);
    }
  }

  void Data() {
    RecordHeader header;
    header.seq = ++seq_;
    header.arg0 = Below(10'000);
    std::string body;
    switch (Below(3)) {
      case 0:
        header.op = Op::kWrite;
        body.assign(Below(5'000), 'x');
        header.body_bytes = static_cast<uint32_t>(body.size());
        break;
      case 1:
        header.op = Op::kTruncate;
        break;
      default: {
        constexpr std::array<int, 5> kModes = {
            0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
            FALLOC_FL_ZERO_RANGE, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE};
        header.op = Op::kFallocate;
        header.arg1 = 1 + Below(5'000);
        header.arg2 = static_cast<uint64_t>(kModes[Below(kModes.size())]);
        break;
      }
    }
    if (!ApplyData(data_fd_.get(), header, body).ok()) {
      RC_ASSERT(header.op == Op::kFallocate);  // not every file system knows each mode
      return;
    }
    prediction_->Data(header, kMarker);
  }

  static void CheckTime(const timespec& predicted, const timespec& disk) {
    if (Ns(predicted) == Ns(kMarker)) {
      RC_ASSERT(Ns(disk) > Ns(kBefore));
    } else {
      RC_ASSERT(Ns(disk) == Ns(predicted));
    }
  }

  void Check() const {
    const struct stat disk = Disk();
    const struct stat& predicted = prediction_->attributes();
    RC_ASSERT(predicted.st_mode == disk.st_mode);
    RC_ASSERT(predicted.st_uid == disk.st_uid);
    RC_ASSERT(predicted.st_gid == disk.st_gid);
    RC_ASSERT(predicted.st_nlink == disk.st_nlink);
    if (data_fd_.get() >= 0) RC_ASSERT(predicted.st_size == disk.st_size);
    CheckTime(predicted.st_atim, disk.st_atim);
    CheckTime(predicted.st_mtim, disk.st_mtim);
    CheckTime(predicted.st_ctim, disk.st_ctim);
    for (const char* const name :
         {kUserXattr, kCapabilityXattr, kAccessAclXattr, kDefaultAclXattr}) {
      const auto pending = prediction_->FindXattr(name);
      if (pending.has_value()) RC_ASSERT(pending->value == OnDisk(name));
    }
  }

  std::string dir_;
  std::string path_;
  UniqueFd data_fd_;
  UniqueFd path_fd_;
  std::optional<Prediction> prediction_;
  Seq seq_ = 0;
};

void Run(mode_t type) {
  Pair pair(type);
  for (uint32_t steps = 1 + Below(30); steps > 0; --steps) pair.Step();
}

RC_GTEST_PROP(PredictionApplyProperty, FileHasThePredictedAttributes, ()) { Run(S_IFREG); }
RC_GTEST_PROP(PredictionApplyProperty, DirectoryHasThePredictedAttributes, ()) { Run(S_IFDIR); }
RC_GTEST_PROP(PredictionApplyProperty, SymlinkHasThePredictedAttributes, ()) { Run(S_IFLNK); }

}  // namespace
}  // namespace salius
