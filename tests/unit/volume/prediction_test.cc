// Prediction, rule by rule. prediction_apply_test.cc compares it with a real file.
#include "client/volume/prediction.h"

#include <fcntl.h>
#include <linux/falloc.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/bytes.h"
#include "gtest/gtest.h"
#include "log/record.h"
#include "storage/apply.h"
#include "storage/posix_acl.h"

namespace salius {
namespace {

constexpr timespec kOld = {100, 1};
constexpr timespec kNow = {200, 2};
constexpr timespec kLater = {300, 3};

int64_t Ns(const timespec& time) { return time.tv_sec * 1'000'000'000 + time.tv_nsec; }

struct stat Attributes(mode_t mode) {
  struct stat st {};
  st.st_mode = mode;
  st.st_nlink = 1;
  st.st_blksize = 4096;
  st.st_atim = st.st_mtim = st.st_ctim = kOld;
  return st;
}

RecordHeader DataOp(Op op, Seq seq, uint64_t arg0, uint64_t length = 0, uint64_t mode = 0) {
  RecordHeader header;
  header.op = op;
  header.seq = seq;
  header.arg0 = arg0;
  if (op == Op::kWrite) header.body_bytes = static_cast<uint32_t>(length);
  if (op == Op::kFallocate) header.arg1 = length;
  header.arg2 = mode;
  return header;
}

AttrBody Mode(mode_t mode) {
  AttrBody attr;
  attr.mask = kAttrMode;
  attr.mode = mode;
  return attr;
}

AttrBody Owner(uid_t uid, gid_t gid) {
  AttrBody attr;
  attr.mask = kAttrUid | kAttrGid;
  attr.uid = uid;
  attr.gid = gid;
  return attr;
}

AttrBody Mtime(const timespec& time) {
  AttrBody attr;
  attr.mask = kAttrMtime;
  attr.mtime_sec = time.tv_sec;
  attr.mtime_nsec = static_cast<uint32_t>(time.tv_nsec);
  return attr;
}

std::string Acl(const std::vector<std::pair<AclTag, uint16_t>>& entries) {
  std::string acl(kAclHeaderBytes + entries.size() * kAclEntryBytes, '\0');
  StoreU32(acl.data(), kAclVersion);
  char* at = acl.data() + kAclHeaderBytes;
  for (const auto& [tag, bits] : entries) {
    StoreU16(at, tag);
    StoreU16(at + 2, bits);
    StoreU32(at + 4, tag == kAclUser || tag == kAclGroup ? 7 : 0xffffffff);
    at += kAclEntryBytes;
  }
  return acl;
}

std::string NamedAcl(uint16_t user, uint16_t group, uint16_t mask, uint16_t other) {
  return Acl({{kAclUserObj, user},
              {kAclUser, 7},
              {kAclGroupObj, group},
              {kAclMask, mask},
              {kAclOther, other}});
}

TEST(PredictionTest, BeginsWithTheDisksAttributes) {
  const Prediction prediction(Attributes(S_IFREG | 0640));
  EXPECT_EQ(prediction.attributes().st_mode, mode_t{S_IFREG | 0640});
  EXPECT_EQ(Ns(prediction.attributes().st_mtim), Ns(kOld));
  EXPECT_EQ(prediction.last_seq(), 0u);
}

TEST(PredictionTest, ChmodSetsAllBitsAndCtime) {
  Prediction prediction(Attributes(S_IFREG | 0640));
  prediction.SetAttr(1, Mode(06751), kNow);
  EXPECT_EQ(prediction.attributes().st_mode, mode_t{S_IFREG | 06751});
  EXPECT_EQ(Ns(prediction.attributes().st_ctim), Ns(kNow));
  EXPECT_EQ(Ns(prediction.attributes().st_mtim), Ns(kOld));
}

TEST(PredictionTest, ChmodOfASymlinkChangesNothing) {
  Prediction prediction(Attributes(S_IFLNK | 0777));
  prediction.SetAttr(1, Mode(0600), kNow);
  EXPECT_EQ(prediction.attributes().st_mode, mode_t{S_IFLNK | 0777});
  EXPECT_EQ(Ns(prediction.attributes().st_ctim), Ns(kOld));
  EXPECT_EQ(prediction.last_seq(), 1u);
}

TEST(PredictionTest, ChmodChangesTheMaskOfTheDisksAcl) {
  Prediction prediction(Attributes(S_IFREG | 0664));
  prediction.SetAttr(1, Mode(0740), kNow, NamedAcl(6, 5, 6, 4));
  EXPECT_EQ(prediction.FindXattr(kAccessAclXattr)->value, NamedAcl(7, 5, 4, 0));
}

TEST(PredictionTest, ChmodChangesTheGroupOfAnAclWithoutAMask) {
  Prediction prediction(Attributes(S_IFREG | 0664));
  const std::string acl = Acl({{kAclUserObj, 6}, {kAclGroupObj, 6}, {kAclOther, 4}});
  prediction.SetAttr(1, Mode(0751), kNow, acl);
  EXPECT_EQ(prediction.FindXattr(kAccessAclXattr)->value,
            Acl({{kAclUserObj, 7}, {kAclGroupObj, 5}, {kAclOther, 1}}));
}

TEST(PredictionTest, ChmodPrefersThePendingAclToTheDisks) {
  Prediction prediction(Attributes(S_IFREG | 0664));
  prediction.SetXattr(1, kAccessAclXattr, NamedAcl(6, 1, 6, 4), kNow);
  prediction.SetAttr(2, Mode(0700), kNow, NamedAcl(6, 5, 6, 4));
  EXPECT_EQ(prediction.FindXattr(kAccessAclXattr)->value, NamedAcl(7, 1, 0, 0));
  prediction.RemoveXattr(3, kAccessAclXattr, kNow);
  prediction.SetAttr(4, Mode(0600), kNow, NamedAcl(6, 5, 6, 4));
  EXPECT_FALSE(prediction.FindXattr(kAccessAclXattr)->value.has_value());
}

TEST(PredictionTest, ChmodWithoutAnAclLeavesNoAttribute) {
  Prediction prediction(Attributes(S_IFREG | 0664));
  prediction.SetAttr(1, Mode(0600), kNow);
  EXPECT_FALSE(prediction.FindXattr(kAccessAclXattr).has_value());
}

TEST(PredictionTest, ChownTakesSuidAndExecutableSgid) {
  Prediction prediction(Attributes(S_IFREG | 06755));
  prediction.SetAttr(1, Owner(5, 6), kNow);
  EXPECT_EQ(prediction.attributes().st_uid, 5u);
  EXPECT_EQ(prediction.attributes().st_gid, 6u);
  EXPECT_EQ(prediction.attributes().st_mode, mode_t{S_IFREG | 0755});
  EXPECT_EQ(Ns(prediction.attributes().st_ctim), Ns(kNow));
}

TEST(PredictionTest, ChownByRootKeepsSgidWithoutGroupExecute) {
  Prediction prediction(Attributes(S_IFREG | 06745));
  prediction.SetAttr(1, Owner(5, 6), kNow);
  EXPECT_EQ(prediction.attributes().st_mode, mode_t{S_IFREG | 02745});
}

TEST(PredictionTest, ChownByAUserTakesSgidByTheFrontsModeRecord) {
  Prediction prediction(Attributes(S_IFREG | 06745));
  prediction.SetAttr(1, Mode(0745), kNow);
  prediction.SetAttr(2, Owner(5, 6), kNow);
  EXPECT_EQ(prediction.attributes().st_mode, mode_t{S_IFREG | 0745});
}

TEST(PredictionTest, ChownOfADirectoryKeepsItsBits) {
  Prediction prediction(Attributes(S_IFDIR | 07755));
  prediction.SetAttr(1, Owner(5, 6), kNow);
  EXPECT_EQ(prediction.attributes().st_mode, mode_t{S_IFDIR | 07755});
  EXPECT_FALSE(prediction.FindXattr(kCapabilityXattr).has_value());
}

TEST(PredictionTest, ChownTakesTheCapability) {
  Prediction prediction(Attributes(S_IFREG | 0755));
  prediction.SetXattr(1, kCapabilityXattr, "cap", kNow);
  EXPECT_EQ(prediction.FindXattr(kCapabilityXattr)->value, "cap");
  prediction.SetAttr(2, Owner(5, 6), kNow);
  EXPECT_FALSE(prediction.FindXattr(kCapabilityXattr)->value.has_value());
}

TEST(PredictionTest, ChownWithModeKeepsTheModesBits) {
  Prediction prediction(Attributes(S_IFREG | 0755));
  AttrBody attr = Owner(5, 6);
  attr.mask |= kAttrMode;
  attr.mode = 06755;
  prediction.SetAttr(1, attr, kNow);
  EXPECT_EQ(prediction.attributes().st_mode, mode_t{S_IFREG | 06755});
}

TEST(PredictionTest, ChownOfTheGroupKeepsTheOwner) {
  Prediction prediction(Attributes(S_IFREG | 0644));
  AttrBody attr = Owner(5, 6);
  attr.mask = kAttrGid;
  prediction.SetAttr(1, attr, kNow);
  EXPECT_EQ(prediction.attributes().st_uid, 0u);
  EXPECT_EQ(prediction.attributes().st_gid, 6u);
}

TEST(PredictionTest, GivenTimesAreTakenAsTheyAre) {
  Prediction prediction(Attributes(S_IFREG | 0644));
  AttrBody attr = Mtime({7, 8});
  prediction.SetAttr(1, attr, kNow);
  EXPECT_EQ(Ns(prediction.attributes().st_mtim), Ns({7, 8}));
  EXPECT_EQ(Ns(prediction.attributes().st_atim), Ns(kOld));
  EXPECT_EQ(Ns(prediction.attributes().st_ctim), Ns(kNow));
  attr.mask = kAttrAtime;
  attr.atime_sec = 9;
  prediction.SetAttr(2, attr, kLater);
  EXPECT_EQ(Ns(prediction.attributes().st_atim), Ns({9, 0}));
  EXPECT_EQ(Ns(prediction.attributes().st_mtim), Ns({7, 8}));
}

TEST(PredictionTest, WriteExtendsAndSetsTimes) {
  Prediction prediction(Attributes(S_IFREG | 06755));
  prediction.Data(DataOp(Op::kWrite, 1, 100, 50), kNow);
  EXPECT_EQ(prediction.attributes().st_size, 150);
  EXPECT_EQ(Ns(prediction.attributes().st_mtim), Ns(kNow));
  EXPECT_EQ(Ns(prediction.attributes().st_ctim), Ns(kNow));
  EXPECT_EQ(Ns(prediction.attributes().st_atim), Ns(kOld));
  prediction.Data(DataOp(Op::kWrite, 2, 0, 50), kLater);
  EXPECT_EQ(prediction.attributes().st_size, 150);
  EXPECT_EQ(Ns(prediction.attributes().st_mtim), Ns(kLater));
}

TEST(PredictionTest, DataKeepsSuidAndSgidAndTakesTheCapability) {
  for (const RecordHeader& header : {DataOp(Op::kWrite, 2, 0, 5), DataOp(Op::kTruncate, 2, 0),
                                     DataOp(Op::kFallocate, 2, 0, 5)}) {
    Prediction prediction(Attributes(S_IFREG | 06755));
    prediction.SetXattr(1, kCapabilityXattr, "cap", kNow);
    prediction.Data(header, kNow);
    EXPECT_EQ(prediction.attributes().st_mode, mode_t{S_IFREG | 06755});
    ASSERT_TRUE(prediction.FindXattr(kCapabilityXattr).has_value());
    EXPECT_FALSE(prediction.FindXattr(kCapabilityXattr)->value.has_value());
  }
}

TEST(PredictionTest, CapabilitySetAfterDataStays) {
  Prediction prediction(Attributes(S_IFREG | 0755));
  prediction.Data(DataOp(Op::kWrite, 1, 0, 5), kNow);
  prediction.SetXattr(2, kCapabilityXattr, "cap", kNow);
  EXPECT_EQ(prediction.FindXattr(kCapabilityXattr)->value, "cap");
}

TEST(PredictionTest, EmptyWriteChangesNothing) {
  Prediction prediction(Attributes(S_IFREG | 0644));
  prediction.Data(DataOp(Op::kWrite, 1, 100, 0), kNow);
  EXPECT_EQ(prediction.attributes().st_size, 0);
  EXPECT_EQ(Ns(prediction.attributes().st_mtim), Ns(kOld));
  EXPECT_EQ(prediction.last_seq(), 1u);
}

TEST(PredictionTest, TruncateSetsTimesEvenToTheSameSize) {
  Prediction prediction(Attributes(S_IFREG | 0644));
  prediction.Data(DataOp(Op::kTruncate, 1, 0), kNow);
  EXPECT_EQ(Ns(prediction.attributes().st_mtim), Ns(kNow));
  prediction.Data(DataOp(Op::kTruncate, 2, 5000), kLater);
  EXPECT_EQ(prediction.attributes().st_size, 5000);
  EXPECT_EQ(prediction.attributes().st_blocks, 0);
}

TEST(PredictionTest, FallocateExtendsUnlessItKeepsTheSize) {
  Prediction prediction(Attributes(S_IFREG | 0644));
  prediction.Data(DataOp(Op::kFallocate, 1, 0, 100, FALLOC_FL_KEEP_SIZE), kNow);
  EXPECT_EQ(prediction.attributes().st_size, 0);
  EXPECT_EQ(Ns(prediction.attributes().st_mtim), Ns(kNow));
  prediction.Data(DataOp(Op::kFallocate, 2, 50, 100, FALLOC_FL_ZERO_RANGE), kNow);
  EXPECT_EQ(prediction.attributes().st_size, 150);
  prediction.Data(DataOp(Op::kFallocate, 3, 100, 1000, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE),
                  kLater);
  EXPECT_EQ(prediction.attributes().st_size, 150);
  EXPECT_EQ(Ns(prediction.attributes().st_mtim), Ns(kLater));
}

TEST(PredictionTest, PendingWriteNeverShowsAFileWithoutBlocks) {
  Prediction prediction(Attributes(S_IFREG | 0644));
  prediction.Data(DataOp(Op::kTruncate, 1, 1 << 20), kNow);
  EXPECT_EQ(prediction.attributes().st_blocks, 0);
  prediction.Data(DataOp(Op::kWrite, 2, 10, 10), kNow);
  EXPECT_EQ(prediction.attributes().st_blocks, 8);
  prediction.Data(DataOp(Op::kWrite, 3, 1 << 20, 4097), kNow);
  EXPECT_EQ(prediction.attributes().st_blocks, 24);
  prediction.Data(DataOp(Op::kTruncate, 4, 1), kNow);
  EXPECT_EQ(prediction.attributes().st_blocks, 8);
}

TEST(PredictionTest, AccessAclSetsThePermissionBitsOnly) {
  Prediction prediction(Attributes(S_IFREG | 06600));
  prediction.SetXattr(1, kAccessAclXattr, NamedAcl(6, 7, 5, 4), kNow);
  EXPECT_EQ(prediction.attributes().st_mode, mode_t{S_IFREG | 06654});
  EXPECT_EQ(prediction.FindXattr(kAccessAclXattr)->value, NamedAcl(6, 7, 5, 4));
  EXPECT_EQ(Ns(prediction.attributes().st_ctim), Ns(kNow));
}

TEST(PredictionTest, AccessAclThatEqualsAModeIsNotStored) {
  Prediction prediction(Attributes(S_IFREG | 0600));
  const std::string acl = Acl({{kAclUserObj, 6}, {kAclGroupObj, 4}, {kAclOther, 4}});
  prediction.SetXattr(1, kAccessAclXattr, acl, kNow);
  EXPECT_EQ(prediction.attributes().st_mode, mode_t{S_IFREG | 0644});
  ASSERT_TRUE(prediction.FindXattr(kAccessAclXattr).has_value());
  EXPECT_FALSE(prediction.FindXattr(kAccessAclXattr)->value.has_value());
}

TEST(PredictionTest, AclWithoutEntriesRemovesItAndKeepsTheMode) {
  for (const char* const name : {kAccessAclXattr, kDefaultAclXattr}) {
    Prediction prediction(Attributes(S_IFDIR | 0654));
    prediction.SetXattr(1, name, NamedAcl(6, 7, 5, 4), kNow);
    prediction.SetXattr(2, name, Acl({}), kNow);
    EXPECT_FALSE(prediction.FindXattr(name)->value.has_value());
    EXPECT_EQ(prediction.attributes().st_mode, mode_t{S_IFDIR | 0654});
  }
}

TEST(PredictionTest, RemovedAccessAclKeepsTheMode) {
  Prediction prediction(Attributes(S_IFREG | 0664));
  prediction.RemoveXattr(1, kAccessAclXattr, kNow);
  EXPECT_EQ(prediction.attributes().st_mode, mode_t{S_IFREG | 0664});
}

TEST(PredictionTest, DefaultAclKeepsTheMode) {
  Prediction prediction(Attributes(S_IFDIR | 0755));
  prediction.SetXattr(1, kDefaultAclXattr, NamedAcl(6, 6, 6, 6), kNow);
  EXPECT_EQ(prediction.attributes().st_mode, mode_t{S_IFDIR | 0755});
}

TEST(PredictionTest, IdsOfAclEntriesWithoutANameAreNotStored) {
  Prediction prediction(Attributes(S_IFREG | 0755));
  std::string acl = NamedAcl(6, 7, 5, 4);
  StoreU32(acl.data() + kAclHeaderBytes + 4, 1234);
  prediction.SetXattr(1, kAccessAclXattr, acl, kNow);
  EXPECT_EQ(prediction.FindXattr(kAccessAclXattr)->value, NamedAcl(6, 7, 5, 4));
}

TEST(PredictionTest, XattrNamesAreMergedWithTheDisks) {
  Prediction prediction(Attributes(S_IFREG | 0755));
  prediction.SetXattr(1, "user.new", "1", kNow);
  prediction.SetXattr(2, "user.old", "2", kNow);
  prediction.RemoveXattr(3, "user.gone", kNow);
  prediction.Data(DataOp(Op::kWrite, 4, 0, 1), kNow);
  std::vector<std::string> names = {"user.gone", "user.kept", kCapabilityXattr, "user.old"};
  prediction.MergeXattrNames(names);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"user.kept", "user.new", "user.old"}));
}

TEST(PredictionTest, AppliedXattrsAreLeftToTheDisk) {
  Prediction prediction(Attributes(S_IFREG | 0755));
  prediction.SetXattr(1, "user.a", "1", kNow);
  prediction.Data(DataOp(Op::kWrite, 2, 0, 1), kNow);
  prediction.SetXattr(3, "user.b", "2", kNow);
  EXPECT_FALSE(prediction.NoteApplied(2));
  EXPECT_FALSE(prediction.FindXattr("user.a").has_value());
  EXPECT_FALSE(prediction.FindXattr(kCapabilityXattr).has_value());
  EXPECT_EQ(prediction.FindXattr("user.b")->value, "2");
}

TEST(PredictionTest, LinkCountChangesWithCtime) {
  Prediction prediction(Attributes(S_IFREG | 0644));
  prediction.SetLinks(1, 2, kNow);
  EXPECT_EQ(prediction.attributes().st_nlink, 2u);
  EXPECT_EQ(Ns(prediction.attributes().st_ctim), Ns(kNow));
  EXPECT_EQ(Ns(prediction.attributes().st_mtim), Ns(kOld));
}

TEST(PredictionTest, RenameSetsCtimeOnly) {
  Prediction prediction(Attributes(S_IFREG | 0644));
  prediction.Rename(1, kNow);
  EXPECT_EQ(Ns(prediction.attributes().st_ctim), Ns(kNow));
  EXPECT_EQ(Ns(prediction.attributes().st_mtim), Ns(kOld));
  EXPECT_EQ(prediction.attributes().st_nlink, 1u);
}

TEST(PredictionTest, NamesOfADirectoryChangeItsTimes) {
  Prediction prediction(Attributes(S_IFDIR | 0755));
  prediction.ChangeNames(1, 3, kNow);
  EXPECT_EQ(prediction.attributes().st_nlink, 3u);
  EXPECT_EQ(Ns(prediction.attributes().st_mtim), Ns(kNow));
  EXPECT_EQ(Ns(prediction.attributes().st_ctim), Ns(kNow));
}

TEST(PredictionTest, LaterRecordDecidesAboutTimes) {
  Prediction prediction(Attributes(S_IFDIR | 0755));
  prediction.ChangeNames(2, 3, kLater);
  prediction.SetAttr(1, Mtime({7, 8}), kNow);
  EXPECT_EQ(Ns(prediction.attributes().st_mtim), Ns(kLater));
  EXPECT_EQ(Ns(prediction.attributes().st_ctim), Ns(kLater));
  EXPECT_EQ(prediction.last_seq(), 2u);
}

TEST(PredictionTest, IsDoneWhenItsLastRecordIsApplied) {
  Prediction prediction(Attributes(S_IFREG | 0644));
  prediction.SetAttr(4, Mode(0600), kNow);
  prediction.SetAttr(7, Mode(0640), kNow);
  EXPECT_FALSE(prediction.NoteApplied(4));
  EXPECT_EQ(prediction.attributes().st_mode, mode_t{S_IFREG | 0640});
  EXPECT_TRUE(prediction.NoteApplied(7));
}

TEST(PredictionTest, DiskGetsTheMtimeThatNoCallerGave) {
  Prediction prediction(Attributes(S_IFREG | 0644));
  EXPECT_FALSE(prediction.ImpliedMtime().has_value());  // the disk has its own
  prediction.Data(DataOp(Op::kWrite, 1, 0, 5), kNow);
  EXPECT_EQ(Ns(*prediction.ImpliedMtime()), Ns(kNow));
  prediction.SetAttr(2, Mode(0600), kLater);
  EXPECT_EQ(Ns(*prediction.ImpliedMtime()), Ns(kNow));
  prediction.SetAttr(3, Mtime({7, 8}), kLater);
  EXPECT_FALSE(prediction.ImpliedMtime().has_value());
}

TEST(PredictionTest, MtimeGivenBeforeTheEndIsGivenAgain) {
  Prediction prediction(Attributes(S_IFREG | 0644));
  prediction.Data(DataOp(Op::kWrite, 1, 0, 5), kNow);
  prediction.NoteMtimeGiven();
  prediction.SetAttr(2, Mtime({7, 8}), kLater);  // applied before that
  EXPECT_EQ(Ns(*prediction.ImpliedMtime()), Ns({7, 8}));
}

TEST(PredictionTest, EachChangeImpliesACtime) {
  Prediction prediction(Attributes(S_IFREG | 0644));
  EXPECT_FALSE(prediction.ImpliedCtime().has_value());  // the disk has its own
  prediction.Data(DataOp(Op::kWrite, 1, 0, 5), kNow);
  EXPECT_EQ(Ns(*prediction.ImpliedCtime()), Ns(kNow));
  prediction.SetAttr(2, Mtime({7, 8}), kLater);
  EXPECT_EQ(Ns(*prediction.ImpliedCtime()), Ns(kLater));
}

TEST(KeptCtimeTest, PredictedCtimeIsGivenUntilTheDisksChanges) {
  const KeptCtime kept = {.predicted = kNow, .disk = kLater};
  struct stat st = Attributes(S_IFREG | 0644);
  st.st_ctim = kLater;
  kept.Merge(st);
  EXPECT_EQ(Ns(st.st_ctim), Ns(kNow));
  st.st_ctim = {301, 0};
  kept.Merge(st);
  EXPECT_EQ(Ns(st.st_ctim), Ns({301, 0}));
  st.st_ctim = {kNow.tv_sec - 1, 5};
  kept.Merge(st);
  EXPECT_EQ(Ns(st.st_ctim), Ns(kNow) + 1) << "it does not go back";
}

}  // namespace
}  // namespace salius
