// Direct or cached: one mode for a phase, and no old page afterwards.
#include "client/fuse/open_state.h"

#include <gtest/gtest.h>

namespace salius {
namespace {

constexpr bool kReadsOnly = false;
constexpr bool kReadsAndWrites = true;

class OpenStateTest : public testing::Test {
 protected:
  std::atomic<uint64_t> word_{0};
  OpenState state_{word_};
};

TEST_F(OpenStateTest, FirstOpenDecidesForThePhase) {
  EXPECT_TRUE(state_.Open(true, kReadsOnly).direct);
  EXPECT_TRUE(state_.Open(false, kReadsOnly).direct);  // a plain open joins the direct phase
  state_.Close(kReadsOnly);
  EXPECT_TRUE(state_.Open(false, kReadsOnly).direct);
  state_.Close(kReadsOnly);
  state_.Close(kReadsOnly);
  EXPECT_EQ(state_.open_files(), 0u);
  EXPECT_FALSE(state_.Open(false, kReadsOnly).direct);
}

TEST_F(OpenStateTest, SynchronousOpenJoinsACachedPhase) {
  EXPECT_FALSE(state_.Open(false, kReadsOnly).direct);
  EXPECT_FALSE(state_.Open(true, kReadsOnly).direct);
  state_.Close(kReadsOnly);
  EXPECT_FALSE(state_.Open(true, kReadsOnly).direct);
}

TEST_F(OpenStateTest, CacheIsKeptWithoutWritesBesideIt) {
  EXPECT_TRUE(state_.Open(false, kReadsOnly).keep_cache);
  state_.Close(kReadsOnly);
  EXPECT_TRUE(state_.Open(false, kReadsOnly).keep_cache);
}

TEST_F(OpenStateTest, CacheIsDroppedInTheWholePhaseAfterADirectOne) {
  EXPECT_FALSE(state_.Open(true, kReadsOnly).keep_cache);
  state_.Close(kReadsOnly);
  EXPECT_FALSE(state_.Open(false, kReadsOnly).keep_cache);
  // The drop at the first open may still be under way.
  EXPECT_FALSE(state_.Open(false, kReadsOnly).keep_cache);
  state_.Close(kReadsOnly);
  state_.Close(kReadsOnly);
  EXPECT_TRUE(state_.Open(false, kReadsOnly).keep_cache);
}

TEST_F(OpenStateTest, KnownUnprivilegedUntilForgotten) {
  EXPECT_FALSE(state_.known_unprivileged());
  state_.NoteUnprivileged();
  state_.Open(true, kReadsOnly);
  state_.Close(kReadsOnly);
  EXPECT_TRUE(state_.known_unprivileged());
  state_.ForgetPrivileges();
  EXPECT_FALSE(state_.known_unprivileged());
}

TEST_F(OpenStateTest, FilledUntilThePhaseEnds) {
  state_.Open(true, kReadsOnly);
  EXPECT_FALSE(state_.filled());
  state_.NoteFill();
  state_.Open(false, kReadsOnly);
  state_.Close(kReadsOnly);
  EXPECT_TRUE(state_.filled());
  state_.Close(kReadsOnly);
  state_.Open(false, kReadsOnly);
  EXPECT_FALSE(state_.filled());
}

TEST_F(OpenStateTest, CachedPhaseIsNotFilled) {
  state_.Open(false, kReadsOnly);
  state_.NoteFill();  // here the kernel itself drops the pages that a direct write replaces
  EXPECT_FALSE(state_.filled());
}

TEST_F(OpenStateTest, DirtyPagesNeedAHandleThatReadsAndWrites) {
  state_.Open(false, kReadsOnly);
  state_.NoteFill();
  EXPECT_FALSE(state_.MayHaveDirtyPages());
  state_.Open(false, kReadsAndWrites);
  EXPECT_TRUE(state_.MayHaveDirtyPages());
  state_.Close(kReadsAndWrites);
  EXPECT_FALSE(state_.MayHaveDirtyPages());
  EXPECT_EQ(state_.open_files(), 1u);
}

TEST_F(OpenStateTest, DirtyPagesOfADirectPhaseNeedAFill) {
  state_.Open(true, kReadsAndWrites);
  EXPECT_FALSE(state_.MayHaveDirtyPages());
  state_.NoteFill();
  EXPECT_TRUE(state_.MayHaveDirtyPages());
}

TEST_F(OpenStateTest, CachedPhaseMayStoreIntoPagesKeptFromBefore) {
  state_.Open(false, kReadsAndWrites);
  EXPECT_FALSE(state_.filled());
  EXPECT_TRUE(state_.MayHaveDirtyPages());
}

TEST_F(OpenStateTest, NewlyMappedByTheLaterOfFillAndOpen) {
  EXPECT_FALSE(state_.Open(true, kReadsAndWrites).newly_mapped);
  EXPECT_TRUE(state_.NoteFill());
  EXPECT_FALSE(state_.NoteFill());
  EXPECT_FALSE(state_.Open(true, kReadsAndWrites).newly_mapped);
  state_.Close(kReadsAndWrites);
  state_.Close(kReadsAndWrites);
  EXPECT_FALSE(state_.Open(true, kReadsOnly).newly_mapped);
  EXPECT_FALSE(state_.NoteFill());
  EXPECT_TRUE(state_.Open(true, kReadsAndWrites).newly_mapped);
  state_.Close(kReadsAndWrites);
  EXPECT_TRUE(state_.Open(true, kReadsAndWrites).newly_mapped);
}

TEST_F(OpenStateTest, StoredUntilThePhaseEnds) {
  state_.Open(false, kReadsAndWrites);
  EXPECT_FALSE(state_.stored());
  state_.NoteStore();
  state_.Open(false, kReadsOnly);
  state_.Close(kReadsAndWrites);
  EXPECT_TRUE(state_.stored());
  state_.Close(kReadsOnly);
  state_.Open(false, kReadsAndWrites);
  EXPECT_FALSE(state_.stored());
}

TEST_F(OpenStateTest, LookedSparseOutlivesThePhase) {
  state_.NoteSparse();
  state_.Open(false, kReadsAndWrites);
  state_.Close(kReadsAndWrites);
  EXPECT_TRUE(state_.looked_sparse());
}

TEST_F(OpenStateTest, NewModeStaysOverPhasesUntilItIsKnown) {
  state_.NoteNewMode();
  state_.Open(false, kReadsAndWrites);
  state_.Close(kReadsAndWrites);
  EXPECT_TRUE(state_.has_new_mode());
  state_.NoteKnownMode();
  EXPECT_FALSE(state_.has_new_mode());
}

}  // namespace
}  // namespace salius
