// The caller of a request, from the text of /proc/PID/status.
#include "client/fuse/groups.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace salius {
namespace {

constexpr char kStatus[] =
    "Name:\tcp\nPid:\t77\nUid:\t1000\t1001\t1002\t1003\nGid:\t10\t11\t12\t13\n"
    "Groups:\t20 30 \nCapInh:\t0000000000000000\n";

TEST(ProcessIdsTest, FilesystemIdsAndGroups) {
  const ProcessIds ids = ParseProcessIds(kStatus);
  EXPECT_EQ(ids.uid, 1003u);
  EXPECT_EQ(ids.gid, 13u);
  EXPECT_EQ(ids.groups, (std::vector<gid_t>{20, 30}));
}

TEST(ProcessIdsTest, NothingOfATextThatSaysNothing) {
  const ProcessIds ids = ParseProcessIds("Uid:\t0\nUid:\tx\ty\tz\tw\n");
  EXPECT_EQ(ids.uid, static_cast<uid_t>(-1));
  EXPECT_EQ(ids.gid, static_cast<gid_t>(-1));
  EXPECT_TRUE(ids.groups.empty());
}

TEST(ProcessIdsTest, OfThisProcess) {
  EXPECT_EQ(IdsOf(static_cast<uint32_t>(::getpid())).uid, ::geteuid());
  EXPECT_EQ(IdsOf(0).uid, static_cast<uid_t>(-1));
}

}  // namespace
}  // namespace salius
