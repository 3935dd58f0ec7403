#include "storage/volume_rights.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace salius {
namespace {

using ::testing::Contains;
using ::testing::Not;

constexpr char kPlain[] =
    "22 28 0:21 / /proc rw,nosuid shared:12 - proc proc rw\n"
    "40 28 0:55 / /srv/proc rw - proc proc rw,hidepid=invisible\n";
constexpr char kHidden[] = "22 28 0:21 / /proc rw,nosuid - proc proc rw,hidepid=invisible\n";
constexpr char kOff[] = "22 28 0:21 / /proc rw,nosuid - proc proc rw,hidepid=off\n";

class VolumeRightsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/rights-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    rights_.proc = name;
    std::filesystem::create_directories(name + "/sys/net/core");
    std::filesystem::create_directories(name + "/self");
    Put("sys/net/core/rmem_max", "8388608\n");
    Put("sys/net/core/wmem_max", "16777216\n");
    Put("self/mountinfo", kPlain);
  }
  void TearDown() override { std::filesystem::remove_all(rights_.proc); }

  void Put(const std::string& name, const std::string& text) {
    std::ofstream(rights_.proc + "/" + name) << text;
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const Capability& each : NeededForVolume(rights_)) names.emplace_back(each.name);
    return names;
  }

  VolumeRights rights_;
};

TEST_F(VolumeRightsTest, PlainVolumeKeepsRightsOverFilesOnly) {
  EXPECT_THAT(Names(), Contains("CAP_DAC_OVERRIDE"));
  for (const char* const name : {"CAP_NET_ADMIN", "CAP_SYS_PTRACE", "CAP_NET_BIND_SERVICE", "CAP_KILL",
                                 "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_MODULE", "CAP_SYS_RAWIO"}) {
    EXPECT_THAT(Names(), Not(Contains(name)));
  }
}

TEST_F(VolumeRightsTest, NetAdminKeptWhereBuffersAreLimited) {
  Put("sys/net/core/rmem_max", "212992\n");
  EXPECT_THAT(Names(), Contains("CAP_NET_ADMIN"));
  Put("sys/net/core/rmem_max", "8388608\n");
  Put("sys/net/core/wmem_max", "212992\n");
  EXPECT_THAT(Names(), Contains("CAP_NET_ADMIN"));
  std::filesystem::remove(rights_.proc + "/sys/net/core/wmem_max");
  EXPECT_THAT(Names(), Contains("CAP_NET_ADMIN"));
}

TEST_F(VolumeRightsTest, PtraceKeptToReadCallersAndForHiddenProcesses) {
  rights_.reads_callers = true;
  EXPECT_THAT(Names(), Contains("CAP_SYS_PTRACE"));
  rights_.reads_callers = false;
  Put("self/mountinfo", kHidden);
  EXPECT_THAT(Names(), Contains("CAP_SYS_PTRACE"));
  Put("self/mountinfo", kOff);
  EXPECT_THAT(Names(), Not(Contains("CAP_SYS_PTRACE")));
}

TEST_F(VolumeRightsTest, OthersKeptForWhatNeedsThem) {
  rights_.metrics_port = 9400;
  EXPECT_THAT(Names(), Not(Contains("CAP_NET_BIND_SERVICE")));
  rights_.metrics_port = 1023;
  EXPECT_THAT(Names(), Contains("CAP_NET_BIND_SERVICE"));
  rights_.signals_command = true;
  EXPECT_THAT(Names(), Contains("CAP_KILL"));
}

}  // namespace
}  // namespace salius
