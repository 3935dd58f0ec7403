#include "common/host.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>

#include "common/file.h"
#include "common/ids.h"
#include "gtest/gtest.h"

namespace salius {
namespace {

TEST(HostTest, BootIdIsAStableUuid) {
  const auto id = BootId();
  ASSERT_TRUE(id.ok()) << id.status();
  EXPECT_TRUE(ParseVolumeId(*id).ok()) << *id;
  EXPECT_EQ(BootId().value(), *id);
}

TEST(HostTest, MountsAreToldApartWhereTheKernelCan) {
  const auto root = OpenAt(AT_FDCWD, "/", O_RDONLY);
  const auto proc = OpenAt(AT_FDCWD, "/proc", O_RDONLY);
  ASSERT_TRUE(root.ok() && proc.ok());
  const auto root_id = UniqueMountId(root->get());
  if (root_id.status().code() == absl::StatusCode::kUnimplemented) return;  // Before Linux 6.8.
  ASSERT_TRUE(root_id.ok()) << root_id.status();
  EXPECT_EQ(UniqueMountId(root->get()).value(), *root_id);
  EXPECT_NE(UniqueMountId(proc->get()).value(), *root_id);
}

TEST(HostTest, CpusAreThoseTheProcessMayRunOn) {
  const unsigned before = AvailableCpus();
  EXPECT_GE(before, 1u);
  cpu_set_t all, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(AvailableCpus(), 1u);
  ASSERT_EQ(sched_setaffinity(0, sizeof(all), &all), 0);
  EXPECT_EQ(AvailableCpus(), before);
}

TEST(HostTest, BadDescriptorIsAnError) {
  EXPECT_EQ(StatusErrno(UniqueMountId(-1).status()), EBADF);
}

}  // namespace
}  // namespace salius
