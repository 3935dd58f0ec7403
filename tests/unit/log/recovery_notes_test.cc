#include "log/recovery_notes.h"

#include <gtest/gtest.h>

#include "storage/backing.h"
#include "tests/unit/log/test_dir.h"

namespace salius {
namespace {

RecoveryNote Note(Epoch epoch) {
  RecoveryNote note;
  note.at_unix_ms = 1'700'000'000'000;
  note.epoch = epoch;
  note.next_epoch = epoch + 1;
  note.decided = 228;
  note.records = 12;
  return note;
}

RecoveryNote GaveUp(Epoch epoch) {
  RecoveryNote note = Note(epoch);
  note.given_up = {{229, 240}, {242, 242}};
  note.overridden = {"2 of 3 members must answer: \"a b\"\n100%", ""};
  return note;
}

TEST(RecoveryNotesTest, EncodedNotesDecode) {
  RecoveryNotes notes;
  notes.Put(GaveUp(7));
  notes.Put(Note(9));
  const std::string text = notes.Encode();
  // The golden text of docs/log-format.md.
  EXPECT_EQ(text,
            "salius-recoveries 1\n"
            "1700000000000 7 8 228 12 new lost=229-240 lost=242-242 "
            "because=2%20of%203%20members%20must%20answer:%20%22a%20b%22%0a100%25 because=\n"
            "1700000000000 9 10 228 12 new\n"
            "crc32c " +
                text.substr(text.size() - 9));
  const auto decoded = RecoveryNotes::Decode(text);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, notes);
}

TEST(RecoveryNotesTest, EveryFlippedBitAndEveryCutIsRefused) {
  RecoveryNotes notes;
  notes.Put(GaveUp(7));
  const std::string text = notes.Encode();
  for (size_t bit = 0; bit < text.size() * 8; ++bit) {
    std::string damaged = text;
    damaged[bit / 8] ^= static_cast<char>(1 << bit % 8);
    EXPECT_FALSE(RecoveryNotes::Decode(damaged).ok()) << bit;
  }
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_FALSE(RecoveryNotes::Decode(text.substr(0, size)).ok()) << size;
  }
}

TEST(RecoveryNotesTest, AMarkStaysUntilItIsAcknowledged) {
  RecoveryNotes notes;
  notes.Put(Note(5));
  notes.Put(GaveUp(7));
  EXPECT_EQ(notes.all().size(), 1u) << "of the earlier ones only those that gave something up";
  notes.Put(Note(9));
  EXPECT_EQ(notes.all().size(), 2u);
  EXPECT_EQ(notes.Unacknowledged().size(), 1u);
  EXPECT_EQ(notes.AcknowledgeAll(), 1u);
  EXPECT_EQ(notes.AcknowledgeAll(), 0u);
  EXPECT_TRUE(notes.Unacknowledged().empty());
  EXPECT_TRUE(notes.Find(7)->acknowledged);
  notes.Put(Note(11));
  EXPECT_EQ(notes.all().size(), 1u);
}

TEST(RecoveryNotesTest, AnotherRunOfTheSameEpochTakesTheFirstOnesPlace) {
  RecoveryNotes notes;
  notes.Put(GaveUp(7));
  RecoveryNote again = GaveUp(7);
  again.decided = 230;
  notes.Put(again);
  ASSERT_EQ(notes.all().size(), 1u);
  EXPECT_EQ(notes.Find(7)->decided, 230u);
}

TEST(RecoveryNotesTest, ManyRangesAndManyNotesHaveABound) {
  RecoveryNotes notes;
  RecoveryNote note = Note(1);
  for (Seq seq = 1; seq <= 1000; ++seq) note.given_up.emplace_back(2 * seq, 2 * seq);
  notes.Put(note);
  EXPECT_EQ(notes.all()[0].given_up.back().second, 2000u) << "nothing is left out";
  for (Epoch epoch = 2; epoch < 200; ++epoch) notes.Put(GaveUp(epoch));
  EXPECT_EQ(notes.all().size(), RecoveryNotes::kMost);
  EXPECT_TRUE(RecoveryNotes::Decode(notes.Encode()).ok());
}

TEST(RecoveryNotesTest, TextNamesRecordsAndReasonsInPrintableAscii) {
  RecoveryNote note = GaveUp(7);
  note.overridden = {"file \xff\n is missing"};
  EXPECT_EQ(GivenUpText(note), "records 229-240, 242; file ?? is missing");
}

TEST(RecoveryNotesTest, NoFileIsNoNotesAndARewriteReplacesIt) {
  const TestDir dir;
  EXPECT_TRUE(ReadRecoveryNotes(LinuxBacking(), dir.fd())->all().empty());
  RecoveryNotes notes;
  notes.Put(GaveUp(7));
  ASSERT_TRUE(WriteRecoveryNotes(LinuxBacking(), dir.fd(), notes).ok());
  notes.AcknowledgeAll();
  ASSERT_TRUE(WriteRecoveryNotes(LinuxBacking(), dir.fd(), notes).ok());
  EXPECT_EQ(*ReadRecoveryNotes(LinuxBacking(), dir.fd()), notes);
}

}  // namespace
}  // namespace salius
