#include "common/capabilities.h"

#include <linux/capability.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>

#include "common/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace salius {
namespace {

using ::testing::SizeIs;

constexpr Capability kChown = {CAP_CHOWN, "CAP_CHOWN", "owners"};
constexpr Capability kKill = {CAP_KILL, "CAP_KILL", "signals"};
// The kernel writes more digits than there are capabilities.
constexpr int kHexadecimal = 16;

// Returns a set of this thread ("CapEff").
uint64_t SetOf(const std::string& name) {
  const std::string text = ReadWholeFile("/proc/thread-self/status").value();
  const size_t at = text.find(name + ":");
  return std::strtoull(text.c_str() + at + name.size() + 1, nullptr, kHexadecimal);
}

TEST(CapabilitiesTest, ThreadHasOnlyTheKeptOnes) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, which has capabilities";
  const uint64_t before = SetOf("CapEff");
  std::thread([] {
    const auto kept = KeepOnly({kChown, kKill});
    ASSERT_TRUE(kept.ok()) << kept.status();
    EXPECT_THAT(*kept, SizeIs(2));
    const uint64_t wanted = uint64_t{1} << CAP_CHOWN | uint64_t{1} << CAP_KILL;
    for (const char* const set : {"CapPrm", "CapEff", "CapBnd"}) EXPECT_EQ(SetOf(set), wanted) << set;
    EXPECT_EQ(SetOf("CapInh") & ~wanted, 0u);
    EXPECT_EQ(SetOf("CapAmb"), 0u);
    std::thread([wanted] { EXPECT_EQ(SetOf("CapEff"), wanted) << "of a new thread"; }).join();
  }).join();
  EXPECT_EQ(SetOf("CapEff"), before) << "another thread lost capabilities";
}

TEST(CapabilitiesTest, ProgramGetsNoneBack) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, which has capabilities";
  std::thread([] {
    ASSERT_TRUE(KeepOnly({kChown}).ok());
    EXPECT_EQ(std::system("grep -q '^CapEff:\t0000000000000001$' /proc/self/status"), 0);
  }).join();
}

TEST(CapabilitiesTest, GivesNoneThatWereGivenUp) {
  std::thread([] {
    ASSERT_TRUE(KeepOnly({}).ok());
    const auto kept = KeepOnly({kChown});
    ASSERT_TRUE(kept.ok());
    EXPECT_THAT(*kept, SizeIs(0));
    EXPECT_EQ(SetOf("CapEff"), 0u);
  }).join();
}

TEST(CapabilitiesTest, TextHasTheReasons) {
  EXPECT_EQ(CapabilitiesText({kChown, kKill}), "CAP_CHOWN (owners), CAP_KILL (signals)");
  EXPECT_EQ(CapabilitiesText({}), "none");
}

}  // namespace
}  // namespace salius
