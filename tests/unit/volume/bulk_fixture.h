// For tests of bulk files: a volume with a low limit.
#pragma once

#include <string>

#include "common/metrics.h"
#include "tests/unit/volume/fake_stream.h"
#include "tests/unit/volume/volume_fixture.h"

namespace salius {

class BulkFixture : public VolumeFixture {
 protected:
  BulkFixture() { config.bulk_limit_bytes = 64 * 1024; }
  FakeStream& fake() { return FakeOf(volume->stream()); }
  // Makes a file before a checkpoint, so that its name needs no sync.
  Handle* OldFile(const std::string& name) {
    Handle* const file = Create(name);
    SALIUS_CHECK_OK(volume->stream().Checkpoint());
    return file;
  }
  // Writes until the file is bulk; returns the offset of the next byte.
  uint64_t MakeBulk(Handle* file) {
    for (uint64_t at = 0; at < 80 * 1024; at += 16 * 1024) {
      Write(file, at, std::string(16 * 1024, 'b'));
    }
    return 80 * 1024;
  }
  static uint64_t Transitions(const char* to) {
    return GetCounter("salius_bulk_transitions_total", "", {{"to", to}}).Value();
  }
};

}  // namespace salius
