// The kernel's mount table.
#include "client/fuse/mount_table.h"

#include <gtest/gtest.h>

namespace salius {
namespace {

TEST(MountTableTest, DecodesPlacesTypesAndSources) {
  const std::vector<MountEntry> entries = ParseMountInfo(
      "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
      "60 22 0:44 / /mnt/my\\040volume rw,nosuid - fuse.salius /srv/back\\134slash rw,user_id=0\n");
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].type, "ext4");
  EXPECT_EQ(entries[1].device, "0:44");
  EXPECT_EQ(entries[1].options, "rw,nosuid");
  EXPECT_EQ(entries[1].super_options, "rw,user_id=0");
  EXPECT_EQ(entries[1].mountpoint, "/mnt/my volume");
  EXPECT_EQ(entries[1].type, "fuse.salius");
  EXPECT_EQ(entries[1].source, "/srv/back\\slash");
}

TEST(MountTableTest, LinesThatDoNotParseAreLeftOut) {
  EXPECT_TRUE(ParseMountInfo("").empty());
  EXPECT_TRUE(ParseMountInfo("nonsense\n22 1 254:0 / /x rw\n1 2 3 4 5 6 - ext4\n").empty());
}

TEST(UserTableTest, FindsAnEntryByBothPlaces) {
  const std::string table =
      "SRC=/dev/sda TARGET=/mnt/data ROOT=/ OPTS=_netdev\n"
      "ID=7 SRC=/srv/my\\040data TARGET=/mnt/back\\134slash ROOT=/ OPTS=uhelper=salius\n";
  EXPECT_TRUE(UserTableHas(table, "/srv/my data", "/mnt/back\\slash"));
  EXPECT_TRUE(UserTableHas(table, "/dev/sda", "/mnt/data"));
  EXPECT_FALSE(UserTableHas(table, "/dev/sda", "/mnt/back\\slash"));
  EXPECT_FALSE(UserTableHas(table, "/srv/my data", "/mnt"));
}

TEST(UserTableTest, UnparsableLinesAreSkipped) {
  EXPECT_FALSE(UserTableHas("", "", ""));
  EXPECT_FALSE(UserTableHas("SRC TARGET\n\n=\nSRC=/a\nTARGET=/b\n", "/a", "/b"));
}

TEST(MountTableTest, NothingOfOursAtTheRoot) {
  EXPECT_FALSE(IsSaliusMount("/", ""));
  EXPECT_EQ(BackingOf("/").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(MountAt("/no/such/place").status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(IsMountedAnywhere("/no/such/backing"));
}

}  // namespace
}  // namespace salius
