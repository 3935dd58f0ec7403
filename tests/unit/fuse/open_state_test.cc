// Direct or cached: one mode for a phase, and no old page afterwards.
#include "client/fuse/open_state.h"

#include <gtest/gtest.h>

namespace salius {
namespace {

class OpenStateTest : public testing::Test {
 protected:
  std::atomic<uint64_t> word_{0};
  OpenState state_{word_};
};

TEST_F(OpenStateTest, FirstOpenDecidesForThePhase) {
  EXPECT_TRUE(state_.Open(true).direct);
  EXPECT_TRUE(state_.Open(false).direct);  // a plain open joins the direct phase
  state_.Close();
  EXPECT_TRUE(state_.Open(false).direct);
  state_.Close();
  state_.Close();
  EXPECT_EQ(state_.open_files(), 0u);
  EXPECT_FALSE(state_.Open(false).direct);
}

TEST_F(OpenStateTest, SynchronousOpenJoinsACachedPhase) {
  EXPECT_FALSE(state_.Open(false).direct);
  EXPECT_FALSE(state_.Open(true).direct);
  state_.Close();
  EXPECT_FALSE(state_.Open(true).direct);
}

TEST_F(OpenStateTest, CacheIsKeptWhileNobodyWroteBesideIt) {
  EXPECT_TRUE(state_.Open(false).keep_cache);
  state_.Close();
  EXPECT_TRUE(state_.Open(false).keep_cache);
}

TEST_F(OpenStateTest, CacheIsDroppedInTheWholePhaseAfterADirectOne) {
  EXPECT_FALSE(state_.Open(true).keep_cache);
  state_.Close();
  EXPECT_FALSE(state_.Open(false).keep_cache);
  EXPECT_FALSE(state_.Open(false).keep_cache);  // the first one's drop may still be under way
  state_.Close();
  state_.Close();
  EXPECT_TRUE(state_.Open(false).keep_cache);
}

TEST_F(OpenStateTest, KnownUnprivilegedUntilForgotten) {
  EXPECT_FALSE(state_.known_unprivileged());
  state_.NoteUnprivileged();
  state_.Open(true);
  state_.Close();
  EXPECT_TRUE(state_.known_unprivileged());
  state_.ForgetPrivileges();
  EXPECT_FALSE(state_.known_unprivileged());
}

}  // namespace
}  // namespace salius
