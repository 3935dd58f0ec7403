// How much memory may be taken: the bounds of both versions of cgroups, on made-up trees.
#include "replica/memory_room.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "common/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "replica/arena_file.h"
#include "tests/unit/replica/replica_client.h"

namespace salius {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;

class MemoryRoomTest : public ::testing::Test {
 protected:
  MemoryRoomTest() { Put("/proc/meminfo", "MemTotal: 9 kB\nMemAvailable: 1048576 kB\nSwapFree: 1024 kB\n"); }

  void Put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_.path() + path).parent_path());
    std::ofstream(root_.path() + path) << text;
  }
  void Group(const std::string& dir, const std::string& limit, uint64_t used_mib, uint64_t cache_mib) {
    Put(dir + "/memory.max", limit + "\n");
    Put(dir + "/memory.current", std::to_string(used_mib * kMiB) + "\n");
    Put(dir + "/memory.stat", "anon 5\nactive_file " + std::to_string(cache_mib * kMiB) +
                                  "\ninactive_file 0\n");
  }
  void Version2(const std::string& own, const std::string& top = "/") {
    Put("/proc/self/cgroup", "0::" + own + "\n");
    Put("/proc/self/mountinfo", "31 23 0:28 " + top +
                                    " /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw\n");
  }
  MemoryRoom Read(bool swap = false) { return ReadMemoryRoom(root_.path(), swap); }

  ShmDir root_;
};

TEST_F(MemoryRoomTest, WithoutCgroupsTheHostDecides) {
  EXPECT_EQ(Read().bytes, 1024 * kMiB);
  EXPECT_EQ(Read(true).bytes, 1025 * kMiB);
  EXPECT_THAT(Read().because, HasSubstr("available"));
}

TEST_F(MemoryRoomTest, NothingThatCanBeReadBoundsNothing) {
  EXPECT_EQ(ReadMemoryRoom("/nowhere", false).bytes, UINT64_MAX);
}

TEST_F(MemoryRoomTest, TheTightestGroupUpToTheRootDecides) {
  Version2("/system.slice/salius-replica.service");
  Group("/sys/fs/cgroup/system.slice/salius-replica.service", "max", 10, 0);
  Group("/sys/fs/cgroup/system.slice", std::to_string(300 * kMiB), 100, 40);
  EXPECT_EQ(Read().bytes, 240 * kMiB);  // 300 - (100 - 40)
  EXPECT_THAT(Read().because, HasSubstr("/system.slice/memory.max"));
  Group("/sys/fs/cgroup/system.slice/salius-replica.service", std::to_string(64 * kMiB), 4, 0);
  EXPECT_EQ(Read().bytes, 60 * kMiB);
  EXPECT_THAT(Read().because, HasSubstr("salius-replica.service/memory.max"));
}

TEST_F(MemoryRoomTest, AContainersOwnRootCounts) {
  Version2("/");
  Group("/sys/fs/cgroup", std::to_string(128 * kMiB), 8, 0);
  EXPECT_EQ(Read().bytes, 120 * kMiB);
}

TEST_F(MemoryRoomTest, AMountOfAPartOfTheHierarchyIsReadAsOne) {
  Version2("/docker/abc/inner", "/docker/abc");
  Group("/sys/fs/cgroup/inner", std::to_string(50 * kMiB), 10, 0);
  EXPECT_EQ(Read().bytes, 40 * kMiB);
}

TEST_F(MemoryRoomTest, AGroupOfVersionOneCountsItsChildrenToo) {
  Put("/proc/self/cgroup", "5:cpu:/x\n4:memory:/a/b\n0::/\n");
  Put("/proc/self/mountinfo",
      "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
      "36 31 0:33 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n");
  Put("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
  Put("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", std::to_string(100 * kMiB) + "\n");
  Put("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", std::to_string(30 * kMiB) + "\n");
  Put("/sys/fs/cgroup/memory/a/memory.stat",
      "active_file 0\ntotal_active_file " + std::to_string(10 * kMiB) + "\ntotal_inactive_file 0\n");
  EXPECT_EQ(Read().bytes, 80 * kMiB);
  EXPECT_THAT(Read().because, HasSubstr("memory.limit_in_bytes"));
}

TEST_F(MemoryRoomTest, RefusalNamesFiguresAndTheRemedy) {
  const MemoryRoom room{64 * kMiB, "the file"};
  EXPECT_TRUE(CheckMemoryRoom(room, 32 * kMiB, "it").ok());
  EXPECT_TRUE(CheckMemoryRoom(room, 0, "it").ok());
  const absl::Status refused = CheckMemoryRoom(room, 64 * kMiB, "it");
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  for (const char* const text : {"it needs 67108864 bytes", "the file", "--memory", "MemoryMax="}) {
    EXPECT_THAT(std::string(refused.message()), HasSubstr(text));
  }
}

TEST_F(MemoryRoomTest, AnArenaThatDoesNotFitIsRefusedAndAnOlderOneStays) {
  ArenaFile::Options options;
  options.dir = root_.path() + "/arena";
  options.memory_bytes = 4 * kMiB;
  options.lock_memory = false;
  options.system_root = root_.path();
  const Incarnation before = ArenaFile::Open(options, SecureRandom64)->get()->arena().incarnation();
  Version2("/");
  Group("/sys/fs/cgroup", std::to_string(32 * kMiB), 0, 0);
  options.memory_bytes = 16 * kMiB;
  EXPECT_TRUE(absl::IsResourceExhausted(ArenaFile::Open(options, SecureRandom64).status()));
  // Memory that is taken already needs no more room.
  Group("/sys/fs/cgroup", std::to_string(1 * kMiB), 0, 0);
  options.memory_bytes = 4 * kMiB;
  const auto again = ArenaFile::Open(options, SecureRandom64);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ((*again)->arena().incarnation(), before);
}

}  // namespace
}  // namespace salius
