#include "recovery/run_file.h"

#include "common/crc32c.h"
#include "storage/backing.h"
#include "tests/unit/recovery/test_util.h"

namespace salius::recovery {
namespace {

RunNote Note() { return RunNote{TestVolume(), 7, 8, 0x1122334455667788}; }

TEST(RunFileTest, GoldenBytes) {
  const std::string bytes = EncodeRunNote(Note());
  ASSERT_EQ(bytes.size(), kRunFileBytes);
  EXPECT_EQ(bytes.substr(0, 8), std::string("SLRR\x01\x00\x00\x00", 8));
  EXPECT_EQ(bytes.substr(8, 16), std::string(16, '\x5A'));
  EXPECT_EQ(LoadU64(bytes.data() + 24), 7u);
  EXPECT_EQ(LoadU64(bytes.data() + 32), 8u);
  EXPECT_EQ(LoadU64(bytes.data() + 40), 0x1122334455667788u);
  EXPECT_EQ(LoadU32(bytes.data() + 48), Crc32c(AsBytes(bytes).first(48)));
}

TEST(RunFileTest, EveryFlippedByteIsRefused) {
  const std::string good = EncodeRunNote(Note());
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] ^= 0x10;
    EXPECT_FALSE(DecodeRunNote(AsBytes(bad)).ok()) << i;
  }
  EXPECT_TRUE(absl::IsDataLoss(DecodeRunNote(AsBytes(good.substr(1))).status()));
}

TEST(RunFileTest, ImpossibleNoteIsRefused) {
  RunNote note = Note();
  note.token = 0;
  EXPECT_TRUE(absl::IsInvalidArgument(DecodeRunNote(AsBytes(EncodeRunNote(note))).status()));
  note = Note();
  note.fence_epoch = note.epoch;
  EXPECT_TRUE(absl::IsInvalidArgument(DecodeRunNote(AsBytes(EncodeRunNote(note))).status()));
  note.fence_epoch = UINT64_MAX;
  EXPECT_TRUE(absl::IsInvalidArgument(DecodeRunNote(AsBytes(EncodeRunNote(note))).status()));
}

TEST(RunFileTest, IsFoundAgainOnlyForItsVolumeAndEpoch) {  // R19
  TempDir dir;
  const UniqueFd fd = MustOpen(dir.path());
  EXPECT_FALSE(ReadRunNote(LinuxBacking(), fd.get(), TestVolume(), 7)->has_value());
  ASSERT_OK(WriteRunNote(LinuxBacking(), fd.get(), Note()));
  EXPECT_EQ(ReadRunNote(LinuxBacking(), fd.get(), TestVolume(), 7)->value(), Note());
  EXPECT_FALSE(ReadRunNote(LinuxBacking(), fd.get(), TestVolume(), 9)->has_value());
  EXPECT_FALSE(ReadRunNote(LinuxBacking(), fd.get(), VolumeId{}, 7)->has_value());
}

TEST(RunFileTest, ADamagedNoteIsNoNote) {
  TempDir dir;
  const UniqueFd fd = MustOpen(dir.path());
  WriteFile(dir.path() + "/" + kRunFileName, "garbage");
  const auto note = ReadRunNote(LinuxBacking(), fd.get(), TestVolume(), 7);
  ASSERT_OK(note.status());
  EXPECT_FALSE(note->has_value());
}

}  // namespace
}  // namespace salius::recovery
