// Owners of volumes: the rules, the file's bytes, and its keeper.
#include "replica/owner_book.h"

#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "common/bytes.h"
#include "common/crc32c.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "replica/owner_keeper.h"
#include "tests/unit/replica/memory_promises.h"
#include "tests/unit/replica/replica_client.h"

namespace salius {
namespace {

using keys::Identity;
using keys::Kind;
using ::testing::HasSubstr;
using ::testing::Not;
using Action = OwnerBook::Action;

const Identity kAnne{Kind::kClient, "anne"};
const Identity kBob{Kind::kClient, "bob"};
const Identity kOp{Kind::kOperator, "anne"};

class OwnerBookTest : public testing::Test {
 protected:
  OwnerBookTest() { EXPECT_TRUE(book_.Claim(kAnne, TestVolume(1))); }
  absl::StatusCode Code(const Identity& caller, uint8_t volume, Action action, bool used) {
    return book_.Check(caller, TestVolume(volume), action, used).code();
  }

  OwnerBook book_;
};

TEST_F(OwnerBookTest, EachRowOfTheTable) {
  for (const bool used : {false, true}) {
    for (const Action action : {Action::kClaim, Action::kUse}) {
      EXPECT_EQ(Code(kAnne, 1, action, used), absl::StatusCode::kOk);
      EXPECT_EQ(Code(kOp, 1, action, used), absl::StatusCode::kOk);
      EXPECT_EQ(Code(kOp, 2, action, used), absl::StatusCode::kOk);
      EXPECT_EQ(Code(kBob, 1, action, used), absl::StatusCode::kPermissionDenied);
    }
    EXPECT_EQ(Code(kBob, 2, Action::kClaim, used), absl::StatusCode::kOk);
  }
  EXPECT_EQ(Code(kBob, 2, Action::kUse, false), absl::StatusCode::kOk);
  EXPECT_EQ(Code(kBob, 2, Action::kUse, true), absl::StatusCode::kPermissionDenied);
}

TEST_F(OwnerBookTest, RefusalNamesTheCallerOnly) {
  const absl::Status refused = book_.Check(kBob, TestVolume(1), Action::kUse, true);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("client/bob"));
  EXPECT_THAT(std::string(refused.message()), Not(HasSubstr("anne")));
}

TEST_F(OwnerBookTest, FirstCallerOwnsAndAnOperatorNever) {
  EXPECT_FALSE(book_.Claim(kBob, TestVolume(1)));
  EXPECT_FALSE(book_.Claim(kOp, TestVolume(2)));
  EXPECT_EQ(book_.OwnerOf(TestVolume(1)), "client/anne");
  EXPECT_EQ(book_.OwnerOf(TestVolume(2)), "");
  book_.Forget(TestVolume(1));
  EXPECT_TRUE(book_.Claim(kBob, TestVolume(1)));
}

TEST_F(OwnerBookTest, OnlyOwnersAndOperatorsSeeAVolume) {
  EXPECT_TRUE(book_.MaySee(kAnne, TestVolume(1)));
  EXPECT_TRUE(book_.MaySee(kOp, TestVolume(1)));
  EXPECT_TRUE(book_.MaySee(kOp, TestVolume(2)));
  EXPECT_FALSE(book_.MaySee(kBob, TestVolume(1)));
  EXPECT_FALSE(book_.MaySee(kBob, TestVolume(2)));
}

TEST(OwnerBookLimitsTest, OneIdentityOwnsItsShareOnly) {
  OwnerBook book(4, 50);
  EXPECT_TRUE(book.Claim(kAnne, TestVolume(1)));
  EXPECT_TRUE(book.Claim(kAnne, TestVolume(2)));
  const absl::Status full = book.Check(kAnne, TestVolume(3), Action::kClaim, false);
  EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
  EXPECT_TRUE(book.Check(kAnne, TestVolume(2), Action::kClaim, true).ok());
  EXPECT_TRUE(book.Check(kBob, TestVolume(3), Action::kClaim, false).ok());
}

TEST_F(OwnerBookTest, GoldenBytesOfVersionOne) {
  book_.Claim(kBob, TestVolume(0x20));
  const std::string bytes = book_.Encode();
  ASSERT_EQ(bytes.size(), kOwnerFileHeaderBytes + 2 * kOwnerBytes);
  EXPECT_EQ(absl::BytesToHexString(bytes.substr(0, 12)), "53414c4955534f3101000000");
  EXPECT_EQ(absl::BytesToHexString(bytes.substr(16, 16)), "02000000" + std::string(24, '0'));
  EXPECT_EQ(bytes.substr(kOwnerFileHeaderBytes + 16, 12), std::string("client/anne\0", 12));
  EXPECT_EQ(LoadU32(AsBytes(bytes).data() + 12),
            Crc32cExtend(Crc32c(AsBytes(bytes).first(12)), AsBytes(bytes).subspan(16)));
  OwnerBook read;
  ASSERT_TRUE(read.Decode(AsBytes(bytes)).ok());
  EXPECT_EQ(read.OwnerOf(TestVolume(0x20)), "client/bob");
  EXPECT_EQ(read.Encode(), bytes);
}

TEST_F(OwnerBookTest, ChangedBytesAreRefused) {
  const std::string bytes = book_.Encode();
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    OwnerBook read;
    EXPECT_FALSE(read.Decode(AsBytes(changed)).ok()) << i;
    EXPECT_EQ(read.size(), 0u);
    EXPECT_FALSE(read.Decode(AsBytes(bytes).first(i)).ok()) << i;
  }
}

class OwnerKeeperTest : public testing::Test {
 protected:
  OwnerKeeperTest() { Restart(); }
  void Restart() {
    absl::StatusOr<std::unique_ptr<OwnerKeeper>> loaded = OwnerKeeper::Load(store_, 100);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    keeper_ = *std::move(loaded);
  }
  absl::Status Claim(const Identity& caller, const absl::Status& result, bool used = true) {
    return keeper_->Claim(
        caller, TestVolume(1), [&] { return used; },
        [&] {
          durable_ = store_.content.value_or("");
          return result;
        });
  }

  MemoryPromises store_;
  std::unique_ptr<OwnerKeeper> keeper_;
  std::string durable_;  // When the call ran.
};

TEST_F(OwnerKeeperTest, OwnerIsDurableBeforeTheCall) {
  ASSERT_TRUE(Claim(kAnne, absl::OkStatus()).ok());
  EXPECT_THAT(durable_, HasSubstr("client/anne"));
  Restart();
  EXPECT_EQ(keeper_->OwnerOf(TestVolume(1)), "client/anne");
  EXPECT_TRUE(absl::IsPermissionDenied(Claim(kBob, absl::OkStatus())));
  EXPECT_TRUE(absl::IsPermissionDenied(keeper_->MayUse(kBob, TestVolume(1), true)));
}

TEST_F(OwnerKeeperTest, FailedCallLeavesNoOwnerOfAnUnusedVolume) {
  EXPECT_TRUE(absl::IsAborted(Claim(kAnne, absl::AbortedError("no"), /*used=*/false)));
  EXPECT_EQ(keeper_->OwnerOf(TestVolume(1)), "");
  EXPECT_TRUE(Claim(kBob, absl::OkStatus()).ok());
  // An owner's later failure changes nothing.
  EXPECT_TRUE(absl::IsAborted(Claim(kBob, absl::AbortedError("no"), /*used=*/false)));
  EXPECT_EQ(keeper_->OwnerOf(TestVolume(1)), "client/bob");
}

TEST_F(OwnerKeeperTest, CallIsNotMadeWhenTheOwnerCannotBeKept) {
  store_.fails = true;
  EXPECT_TRUE(absl::IsUnavailable(Claim(kAnne, absl::OkStatus())));
  EXPECT_EQ(durable_, "");
  EXPECT_EQ(keeper_->OwnerOf(TestVolume(1)), "");
}

TEST_F(OwnerKeeperTest, ForgottenVolumeHasNoOwnerAfterARestart) {
  ASSERT_TRUE(Claim(kAnne, absl::OkStatus()).ok());
  ASSERT_TRUE(keeper_->Forget(TestVolume(1)).ok());
  Restart();
  EXPECT_EQ(keeper_->OwnerOf(TestVolume(1)), "");
}

TEST_F(OwnerKeeperTest, DamagedFileIsAnErrorAndStays) {
  ASSERT_TRUE(Claim(kAnne, absl::OkStatus()).ok());
  store_.content->back() = 'x';
  const absl::Status refused = OwnerKeeper::Load(store_, 100).status();
  EXPECT_TRUE(absl::IsDataLoss(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("Put back a copy"));
  EXPECT_TRUE(store_.content.has_value());
}

}  // namespace
}  // namespace salius
