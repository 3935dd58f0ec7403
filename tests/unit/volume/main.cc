// Runs the tests of the volume. With --fake, tests that do not choose a stream use a FakeStream.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/unit/volume/volume_fixture.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  salius::FakeStreamByDefault() = argc > 1 && std::strcmp(argv[1], "--fake") == 0;
  return RUN_ALL_TESTS();
}
