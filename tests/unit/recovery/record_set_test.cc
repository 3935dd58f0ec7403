#include "recovery/agree/record_set.h"

#include "tests/unit/recovery/test_util.h"

namespace salius::recovery {
namespace {

TEST(RecordSetTest, AChunkGivesItsRecordsInOrder) {
  Stamper stamper(3);
  std::string chunk = stamper.Write(5, 0, "abc");
  chunk += stamper.Write(5, 3, "");
  chunk += stamper.Write(6, 9, "z");
  RecordSet set;
  ASSERT_OK(set.Add(chunk));
  ASSERT_EQ(set.views().size(), 3u);
  EXPECT_EQ(set.views()[0].body(), "abc");
  EXPECT_EQ(set.views()[2].seq(), 3u);
  EXPECT_EQ(set.views()[2].header.file_id, 6u);
  EXPECT_EQ(set.bytes(), chunk.size());
}

TEST(RecordSetTest, ViewsStayGoodWhenSetsAreJoined) {
  Stamper stamper(3);
  RecordSet all;
  for (int i = 0; i < 200; ++i) {
    RecordSet one;
    ASSERT_OK(one.Add(stamper.Write(5, i, std::string(1, static_cast<char>('a' + i % 26)))));
    all.Append(std::move(one));
  }
  ASSERT_EQ(all.views().size(), 200u);
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(all.views()[i].body(), std::string(1, static_cast<char>('a' + i % 26)));
  }
}

TEST(RecordSetTest, ADamagedChunkAddsNothing) {
  Stamper stamper(3);
  std::string chunk = stamper.Write(5, 0, "abc");
  chunk += stamper.Write(5, 3, "def");
  chunk.back() ^= 1;
  RecordSet set;
  EXPECT_TRUE(absl::IsDataLoss(set.Add(chunk)));
  EXPECT_TRUE(set.empty());
  EXPECT_EQ(set.bytes(), 0u);
}

TEST(RecordSetTest, ACutChunkAddsNothing) {
  Stamper stamper(3);
  std::string chunk = stamper.Write(5, 0, "abc");
  chunk += stamper.Write(5, 3, "def");
  chunk.pop_back();
  RecordSet set;
  EXPECT_TRUE(absl::IsOutOfRange(set.Add(chunk)));
  EXPECT_TRUE(absl::IsOutOfRange(set.Add("short")));
  EXPECT_TRUE(set.empty());
  EXPECT_OK(set.Add(""));
}

TEST(RecordSetTest, DigestDependsOnOrderAndContent) {
  Stamper stamper(3);
  const RecordSet set = SetOf({stamper.Write(5, 0, "abc"), stamper.Write(5, 3, "def")});
  const RecordView* a = &set.views()[0];
  const RecordView* b = &set.views()[1];
  const std::vector<const RecordView*> ab = {a, b}, ba = {b, a}, only_a = {a};
  EXPECT_NE(DigestOf(ab), DigestOf(ba));
  EXPECT_NE(DigestOf(ab), DigestOf(only_a));
  Stamper other(3);
  const RecordSet changed = SetOf({other.Write(5, 0, "abd"), other.Write(5, 3, "def")});
  EXPECT_NE(DigestOf(ab), DigestOf(PointersTo(changed)));
  EXPECT_EQ(DigestOf({}), 0u);
}

}  // namespace
}  // namespace salius::recovery
