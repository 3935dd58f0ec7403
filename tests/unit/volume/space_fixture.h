// For tests of space: a volume whose disk a test fills.
#pragma once

#include <errno.h>
#include <fcntl.h>

#include <functional>
#include <string>

#include "tests/unit/volume/volume_fixture.h"

namespace salius {

// Takes all blocks that `allocate(at, bytes)` can take.
inline void TakeAll(const std::function<absl::Status(uint64_t, uint64_t)>& allocate) {
  uint64_t at = 0;
  for (uint64_t step = uint64_t{64} << 20; step >= 4096;) {
    const absl::Status allocated = allocate(at, step);
    if (allocated.ok()) {
      at += step;
    } else {
      ASSERT_EQ(Errno(allocated), ENOSPC);
      step /= 2;
    }
  }
}

class SpaceFixture : public VolumeFixture {
 protected:
  // Writes pieces until one is refused; returns the bytes that were taken.
  uint64_t Fill(Handle* file, size_t piece, int* error) {
    uint64_t at = 0;
    while (true) {
      const auto written =
          volume->files().Write(*file, at, std::string(piece, 'f'), false, Contract::kPlain);
      *error = Errno(written);
      if (*error != 0) return at;
      at += *written;
    }
  }
  void AllocateAll(Handle* file) {
    TakeAll([&](uint64_t at, uint64_t bytes) {
      return volume->files().Fallocate(*file, 0, at, bytes);
    });
  }
};

}  // namespace salius
