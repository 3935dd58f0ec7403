// Patches laid over the backing file, against a model of the file kept in memory, with the apply
// delayed at random.
#include <fcntl.h>
#include <string.h>

#include <algorithm>
#include <string>

#include "client/volume/extents.h"
#include "common/random.h"
#include "tests/unit/volume/fake_stream.h"
#include "tests/unit/volume/volume_fixture.h"

namespace salius {
namespace {

class OverlayTest : public VolumeFixture {
 protected:
  // Makes a record that is never applied.
  RecordRef Record(Op op, uint64_t arg0, uint64_t arg1, uint64_t arg2, std::string body = "") {
    RecordDraft draft;
    draft.op = op;
    draft.arg0 = arg0;
    draft.arg1 = arg1;
    draft.arg2 = arg2;
    draft.body = std::move(body);
    auto record = volume->stream().Issue(std::move(draft));
    SALIUS_CHECK_OK(record);
    return *record;
  }
};

// A model of a file: its content after a sequence of operations.
struct Shadow {
  std::string content;

  void Write(uint64_t at, const std::string& data) {
    if (content.size() < at + data.size()) content.resize(at + data.size());
    content.replace(at, data.size(), data);
  }
  void Zero(uint64_t at, uint64_t length) {
    for (uint64_t i = at; i < std::min<uint64_t>(at + length, content.size()); ++i) content[i] = 0;
  }
  std::string Read(uint64_t at, size_t size) const {
    return at >= content.size() ? "" : content.substr(at, size);
  }
};

TEST_F(OverlayTest, EveryKindOfPatchIsLaidOverInOrder) {
  Make();
  Extents extents;
  const RecordRef records[] = {
      Record(Op::kWrite, 2, 0, 0, "abcdef"),
      Record(Op::kTruncate, 5, 0, 0),
      Record(Op::kWrite, 7, 0, 0, "Z"),
      Record(Op::kFallocate, 0, 3, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE),
      Record(Op::kFallocate, 0, 100, 0),
  };
  for (const RecordRef& record : records) extents.Add(record);
  std::string buffer = "0123456789";
  Overlay(extents.In(0, buffer.size()), 0, absl::MakeSpan(buffer.data(), buffer.size()));
  EXPECT_EQ(buffer, std::string("\0\0\0bc\0\0Z\0\0", 10));
  EXPECT_TRUE(extents.In(3, 0).empty());
  EXPECT_EQ(extents.In(8, 4).size(), 1u);  // only the truncation changes these bytes
  EXPECT_EQ(extents.bytes(), 3u);          // "bc" and "Z"
  extents.Remove(records[0]->seq());
  extents.Remove(records[1]->seq());
  EXPECT_EQ(extents.In(0, 10).size(), 2u);
  for (const RecordRef& record : records) extents.Remove(record->seq());
  EXPECT_TRUE(extents.empty());
  EXPECT_EQ(extents.bytes(), 0u);
}

TEST_F(OverlayTest, SizeFollowsEveryKindOfPatch) {
  Make();
  EXPECT_EQ(SizeAfter(10, Record(Op::kWrite, 8, 0, 0, "abc")->header()), 11u);
  EXPECT_EQ(SizeAfter(10, Record(Op::kWrite, 2, 0, 0, "abc")->header()), 10u);
  EXPECT_EQ(SizeAfter(10, Record(Op::kWrite, 99, 0, 0, "")->header()), 10u);
  EXPECT_EQ(SizeAfter(10, Record(Op::kTruncate, 3, 0, 0)->header()), 3u);
  EXPECT_EQ(SizeAfter(10, Record(Op::kFallocate, 5, 10, 0)->header()), 15u);
  EXPECT_EQ(SizeAfter(10, Record(Op::kFallocate, 5, 10, FALLOC_FL_KEEP_SIZE)->header()), 10u);
  EXPECT_EQ(SizeAfter(10, Record(Op::kSetAttr, 5, 10, 0)->header()), 10u);
}

TEST_F(OverlayTest, RandomOperationsReadLikeAPlainFileHoweverLateTheyAreApplied) {
  Make();
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Shadow shadow;
    const std::string name = "f" + std::to_string(seed);
    Handle* const file = Create(name);
    FakeStream& fake = FakeOf(volume->stream());
    for (int step = 0; step < 300; ++step) {
      const uint64_t at = random.Below(20000);
      const uint64_t length = 1 + random.Below(6000);
      switch (random.Below(10)) {
        case 0: {
          struct stat want {};
          want.st_size = static_cast<off_t>(at);
          // SetAttr alone would not do: it returns attributes, and so waits for the apply.
          ASSERT_TRUE(volume->attrs().SetAttr(file->node, kSetSize, want).ok());
          shadow.content.resize(at);
          break;
        }
        case 1:
          ASSERT_TRUE(volume->files()
                          .Fallocate(*file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, length)
                          .ok());
          shadow.Zero(at, length);
          break;
        case 2:
          fake.ApplySome(random.Below(8));
          break;
        case 3: {
          const std::string data(length, static_cast<char>('A' + step % 26));
          ASSERT_TRUE(
              volume->files().Write(*file, 0, data, /*append=*/true, Contract::kPlain).ok());
          shadow.Write(shadow.content.size(), data);
          break;
        }
        default: {
          const std::string data(length, static_cast<char>('a' + step % 26));
          Write(file, at, data, random.Chance(0.1) ? Contract::kDurable : Contract::kPlain);
          shadow.Write(at, data);
          break;
        }
      }
      const uint64_t from = random.Below(26000);
      const size_t size = random.Below(9000);
      ASSERT_EQ(Read(file, from, size), shadow.Read(from, size)) << "step " << step;
    }
    EXPECT_EQ(Stat(file->node).st_size, static_cast<off_t>(shadow.content.size()));
    fake.ApplySome(SIZE_MAX);
    EXPECT_EQ(BackingContent(name), shadow.content);
    volume->open_files().Release(file);
  }
}

TEST_F(OverlayTest, UnappliedTruncationAndExtensionAreRead) {
  Make();
  Handle* const file = Create("a");
  Write(file, 0, "0123456789");
  FakeStream& fake = FakeOf(volume->stream());
  fake.ApplySome(SIZE_MAX);
  // Truncate without asking for attributes: open with O_TRUNC, then write beyond.
  Handle* const again = OpenFile(file->node, O_RDWR | O_TRUNC);
  EXPECT_EQ(BackingContent("a"), "0123456789");
  EXPECT_EQ(Read(file, 0, 100), "");
  Write(again, 3, "x");
  EXPECT_EQ(Read(file, 0, 100), std::string("\0\0\0x", 4));
  EXPECT_EQ(BackingContent("a"), "0123456789");
  fake.ApplySome(1);
  EXPECT_EQ(Read(file, 0, 100), std::string("\0\0\0x", 4));
  fake.ApplySome(1);
  EXPECT_EQ(BackingContent("a"), std::string("\0\0\0x", 4));
  EXPECT_EQ(Read(file, 0, 100), std::string("\0\0\0x", 4));
  volume->open_files().Release(again);
  volume->open_files().Release(file);
}

TEST_F(OverlayTest, FailedVolumeStillAnswersReadsAndSizesFromPatches) {
  Make();
  Handle* const file = Create("a");
  Write(file, 0, "patched");
  FakeOf(volume->stream()).Fail(absl::InternalError("test"));
  EXPECT_EQ(Read(file, 0, 100), "patched");
  EXPECT_EQ(Stat(file->node).st_size, 7);
  EXPECT_EQ(Errno(volume->files().Write(*file, 0, "x", false, Contract::kPlain)), EIO);
  EXPECT_EQ(Errno(Fsync(file)), EIO);
  EXPECT_EQ(Errno(volume->names().MakeDir(root(), "d", 0755, caller)), EROFS);
  EXPECT_EQ(Errno(volume->names().Unlink(root(), "a")), EROFS);
  EXPECT_EQ(Errno(volume->attrs().SetXattr(file->node, "user.a", "x", 0, false)), EROFS);
  EXPECT_EQ(Errno(volume->open_files().Open(file->node, O_WRONLY)), EROFS);
  volume->open_files().Release(file);
}

TEST_F(OverlayTest, SizeIsRightWhenARecordIsAppliedBeforeItsIssuerContinues) {
  Make();
  Handle* const file = Create("a");
  ASSERT_EQ(*volume->files().Write(*file, 0, "one", /*append=*/true, Contract::kPlain), 3u);
  FakeStream& fake = FakeOf(volume->stream());
  fake.apply_at_once = true;
  ASSERT_EQ(*volume->files().Write(*file, 0, "two", /*append=*/true, Contract::kPlain), 3u);
  ASSERT_EQ(*volume->files().Write(*file, 0, "three", /*append=*/true, Contract::kPlain), 5u);
  EXPECT_EQ(Read(file, 0, 100), "onetwothree");
  struct stat want {};
  want.st_size = 4;
  ASSERT_TRUE(volume->attrs().SetAttr(file->node, kSetSize, want).ok());
  fake.apply_at_once = false;
  ASSERT_EQ(*volume->files().Write(*file, 0, "x", /*append=*/true, Contract::kPlain), 1u);
  EXPECT_EQ(Read(file, 0, 100), "onetx");
  volume->open_files().Release(file);
}

TEST_F(OverlayTest, WritesThatFollowOneAnotherAreAppliedWithOneCall) {
  Make();
  FakeStream& fake = FakeOf(volume->stream());
  Handle* const a = Create("a");
  Handle* const b = Create("b");
  const int before = fake.applies;
  Write(a, 0, "one");
  Write(a, 3, "two");
  Write(a, 6, "three");
  Write(b, 11, "another file");
  Write(a, 11, "four");
  Write(a, 20, "a gap");
  Write(a, 20, "again");
  EXPECT_EQ(Stat(b->node).st_size, 23);
  EXPECT_EQ(fake.applies - before, 2);
  EXPECT_EQ(Stat(a->node).st_size, 25);
  EXPECT_EQ(fake.applies - before, 5);
  EXPECT_EQ(BackingContent("a"), "onetwothreefour" + std::string(5, '\0') + "again");
  EXPECT_EQ(BackingContent("b"), std::string(11, '\0') + "another file");
  // A write after a truncation is applied after it.
  volume->open_files().Release(OpenFile(a->node, O_WRONLY | O_TRUNC));
  Write(a, 0, "new");
  EXPECT_EQ(Stat(a->node).st_size, 3);
  EXPECT_EQ(BackingContent("a"), "new");
  volume->open_files().Release(a);
  volume->open_files().Release(b);
}

TEST_F(OverlayTest, DataAppliedTogetherIsReadFromTheFile) {
  Make();
  Handle* const file = Create("a");
  Write(file, 0, "one");
  Write(file, 3, "two");
  EXPECT_EQ(Stat(file->node).st_size, 6);
  Write(file, 6, "three");
  ASSERT_TRUE(backing().Pwrite(OpenBacking("a", O_WRONLY).get(), "TWO", 3).ok());
  EXPECT_EQ(Read(file, 0, 100), "oneTWOthree");
  volume->open_files().Release(file);
}

}  // namespace
}  // namespace salius
