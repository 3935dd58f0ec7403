// Bindings, case by case. bindings_property_test.cc compares them with a model.
#include "client/volume/bindings.h"

#include <sys/stat.h>

#include <optional>
#include <string>

#include "gtest/gtest.h"

namespace salius {
namespace {

using Object = Bindings::Object;

constexpr Bindings::Key kRoot = 0;
constexpr Bindings::Key kSub = 1;
constexpr Bindings::Key kOther = 2;

Object File(Bindings::Key key) { return {key, 1000 + key, S_IFREG}; }
Object Dir(Bindings::Key key) { return {key, 1000 + key, S_IFDIR}; }

TEST(BindingsTest, UnknownNameIsLeftToTheDisk) {
  Bindings names;
  EXPECT_FALSE(names.Find({kRoot, "a"}).has_value());
  EXPECT_FALSE(names.Touches(kRoot));
  names.Bind(1, {kRoot, "a"}, File(9));
  EXPECT_FALSE(names.Find({kRoot, "b"}).has_value());
  EXPECT_FALSE(names.Find({kSub, "a"}).has_value());
  EXPECT_FALSE(names.Touches(kSub));
}

TEST(BindingsTest, BoundNameIsFoundWithItsSeq) {
  Bindings names;
  names.Bind(4, {kRoot, "a"}, File(9));
  const std::optional<Bindings::Binding> found = names.Find({kRoot, "a"});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->object, File(9));
  EXPECT_EQ(found->seq, 4u);
  EXPECT_TRUE(names.Touches(kRoot));
}

TEST(BindingsTest, RemovedNameIsAnEntryWithoutObject) {
  Bindings names;
  names.Remove(1, {kRoot, "a"});
  const std::optional<Bindings::Binding> found = names.Find({kRoot, "a"});
  ASSERT_TRUE(found.has_value());
  EXPECT_FALSE(found->object.has_value());
  EXPECT_FALSE(names.HasAdditions(kRoot));
}

TEST(BindingsTest, AppliedEntryGoes) {
  Bindings names;
  names.Bind(1, {kRoot, "a"}, File(9));
  names.Bind(2, {kRoot, "b"}, File(10));
  names.NoteApplied(1);
  EXPECT_FALSE(names.Find({kRoot, "a"}).has_value());
  EXPECT_TRUE(names.Find({kRoot, "b"}).has_value());
  names.NoteApplied(2);
  EXPECT_TRUE(names.empty());
  EXPECT_EQ(names.bytes(), 0u);
}

TEST(BindingsTest, ApplyOfAnEarlierRecordKeepsTheNewerEntry) {
  Bindings names;
  names.Bind(1, {kRoot, "a"}, File(9));
  names.Remove(2, {kRoot, "a"});
  names.Bind(3, {kRoot, "a"}, File(10));
  EXPECT_EQ(names.entries(), 1u);
  names.NoteApplied(1);
  names.NoteApplied(2);
  ASSERT_TRUE(names.Find({kRoot, "a"}).has_value());
  EXPECT_EQ(names.Find({kRoot, "a"})->object, File(10));
  names.NoteApplied(3);
  EXPECT_TRUE(names.empty());
}

TEST(BindingsTest, EntryOfAnAppliedRecordIsNotEntered) {
  Bindings names;
  names.NoteApplied(5);
  names.Bind(5, {kRoot, "a"}, File(9));
  names.Remove(4, {kRoot, "b"});
  names.Rename(3, {kRoot, "c"}, {kSub, "d"}, Dir(7));
  EXPECT_TRUE(names.empty());
  EXPECT_FALSE(names.ParentOf(7).has_value());
  names.Bind(6, {kRoot, "a"}, File(9));
  EXPECT_EQ(names.entries(), 1u);
}

TEST(BindingsTest, EntriesOfDifferentDirectoriesComeInAnyOrder) {
  Bindings names;
  names.Bind(3, {kSub, "a"}, File(9));
  names.Bind(1, {kRoot, "a"}, File(10));
  names.Bind(2, {kOther, "a"}, File(11));
  names.NoteApplied(1);
  EXPECT_FALSE(names.Touches(kRoot));
  EXPECT_TRUE(names.Touches(kOther));
  names.NoteApplied(2);
  EXPECT_FALSE(names.Touches(kOther));
  EXPECT_TRUE(names.Touches(kSub));
  names.NoteApplied(3);
  EXPECT_TRUE(names.empty());
}

TEST(BindingsTest, RenameRemovesOneNameAndBindsTheOther) {
  Bindings names;
  names.Rename(1, {kRoot, "a"}, {kSub, "b"}, File(9));
  EXPECT_FALSE(names.Find({kRoot, "a"})->object.has_value());
  EXPECT_EQ(names.Find({kSub, "b"})->object, File(9));
  EXPECT_FALSE(names.HasAdditions(kRoot));
  EXPECT_TRUE(names.HasAdditions(kSub));
}

TEST(BindingsTest, ExchangeBindsBothNames) {
  Bindings names;
  names.Rename(1, {kRoot, "a"}, {kSub, "b"}, Dir(8), Dir(9));
  EXPECT_EQ(names.Find({kRoot, "a"})->object, Dir(9));
  EXPECT_EQ(names.Find({kSub, "b"})->object, Dir(8));
  EXPECT_EQ(names.ParentOf(8), kSub);
  EXPECT_EQ(names.ParentOf(9), kRoot);
}

TEST(BindingsTest, WhiteoutStaysAtTheOldName) {
  Bindings names;
  const Object whiteout = {9, 1009, S_IFCHR};
  names.Rename(1, {kRoot, "a"}, {kRoot, "b"}, File(8), whiteout);
  EXPECT_EQ(names.Find({kRoot, "a"})->object, whiteout);
  EXPECT_EQ(names.Find({kRoot, "b"})->object, File(8));
}

TEST(BindingsTest, ParentFollowsTheLatestRename) {
  Bindings names;
  names.Bind(1, {kRoot, "d"}, Dir(9));
  EXPECT_EQ(names.ParentOf(9), kRoot);
  names.Rename(2, {kRoot, "d"}, {kSub, "d"}, Dir(9));
  names.Rename(3, {kSub, "d"}, {kOther, "d"}, Dir(9));
  EXPECT_EQ(names.ParentOf(9), kOther);
  names.NoteApplied(2);
  EXPECT_EQ(names.ParentOf(9), kOther);
  names.NoteApplied(3);
  EXPECT_FALSE(names.ParentOf(9).has_value());
}

TEST(BindingsTest, RemovedDirectoryHasNoParent) {
  Bindings names;
  names.Bind(1, {kRoot, "d"}, Dir(9));
  names.Remove(2, {kRoot, "d"});
  EXPECT_FALSE(names.ParentOf(9).has_value());
}

TEST(BindingsTest, FileHasNoParent) {
  Bindings names;
  names.Bind(1, {kRoot, "a"}, File(9));
  EXPECT_FALSE(names.ParentOf(9).has_value());
}

TEST(BindingsTest, AdditionReplacedByRemovalIsNone) {
  Bindings names;
  names.Bind(1, {kRoot, "a"}, File(9));
  EXPECT_TRUE(names.HasAdditions(kRoot));
  names.Remove(2, {kRoot, "a"});
  EXPECT_FALSE(names.HasAdditions(kRoot));
  EXPECT_TRUE(names.Touches(kRoot));
}

TEST(BindingsTest, SnapshotIsSortedAndStaysAfterTheApply) {
  Bindings names;
  names.Bind(1, {kRoot, "b"}, File(9));
  names.Bind(2, {kRoot, "a"}, Dir(8));
  names.Remove(3, {kRoot, "d"});
  names.Remove(4, {kRoot, "c"});
  names.Bind(5, {kSub, "e"}, File(7));
  const Bindings::Snapshot snapshot = names.SnapshotOf(kRoot);
  names.NoteApplied(5);
  ASSERT_EQ(snapshot.added.size(), 2u);
  EXPECT_EQ(snapshot.added[0].name, "a");
  EXPECT_EQ(snapshot.added[0].object, Dir(8));
  EXPECT_EQ(snapshot.added[1].name, "b");
  EXPECT_EQ(snapshot.removed, (std::vector<std::string>{"c", "d"}));
  for (const char* const name : {"a", "b", "c", "d"}) EXPECT_TRUE(snapshot.Covers(name)) << name;
  for (const char* const name : {"", "aa", "e", "z"}) EXPECT_FALSE(snapshot.Covers(name)) << name;
  EXPECT_TRUE(names.SnapshotOf(kRoot).added.empty());
}

TEST(BindingsTest, MemoryIsGivenBackWithTheEntries) {
  Bindings names;
  constexpr Seq kMany = 20'000;
  for (Seq seq = 1; seq <= kMany; ++seq) {
    const std::string name = "a name that is longer than a short string " + std::to_string(seq);
    names.Bind(seq, {seq % 3, name}, seq % 2 == 0 ? Dir(seq + 10) : File(seq + 10));
  }
  const size_t all = names.bytes();
  EXPECT_GT(all / kMany, 100u);
  names.NoteApplied(kMany - 20);
  EXPECT_EQ(names.entries(), 20u);
  EXPECT_LT(names.bytes(), all / 100);
  names.NoteApplied(kMany);
  EXPECT_EQ(names.bytes(), 0u);
}

TEST(BindingsTest, ReplacedEntriesTakeNoMemory) {
  Bindings names;
  names.Bind(1, {kRoot, "a"}, File(9));
  names.Remove(2, {kRoot, "b"});
  const size_t before = names.bytes();
  for (Seq seq = 3; seq < 2003; seq += 2) {
    names.Rename(seq, {kRoot, "a"}, {kRoot, "b"}, File(9));
    names.Rename(seq + 1, {kRoot, "b"}, {kRoot, "a"}, File(9));
  }
  EXPECT_EQ(names.entries(), 2u);
  EXPECT_EQ(names.bytes(), before);
}

TEST(BindingsDeathTest, RenameOntoTheSameNameIsABug) {
  Bindings names;
  EXPECT_DEATH(names.Rename(1, {kRoot, "a"}, {kRoot, "a"}, File(9)), "renamed to itself");
}

TEST(BindingsDeathTest, OlderRecordOfTheSameNameIsABug) {
  Bindings names;
  names.Remove(2, {kRoot, "a"});
  EXPECT_DEATH(names.Bind(1, {kRoot, "a"}, File(9)), "in order");
}

}  // namespace
}  // namespace salius
