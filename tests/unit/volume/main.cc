// Runs the tests of the volume. Tests that choose neither a file system nor a stream use the real
// pipeline on ext4; with --fake a FakeStream; with --xfs the file system is xfs; with --memory both
// are in memory. With --early name operations return before they are durable.
#include <gtest/gtest.h>

#include <string_view>

#include "tests/unit/volume/volume_fixture.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  salius::TestWorld& world = salius::DefaultWorld();
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--fake" || flag == "--memory") world.fake_stream = true;
    if (flag == "--memory") world.disk = salius::TestWorld::Disk::kMemory;
    if (flag == "--early") world.early = true;
    if (flag == "--xfs") world.disk = salius::TestWorld::Disk::kXfs;
  }
  return RUN_ALL_TESTS();
}
