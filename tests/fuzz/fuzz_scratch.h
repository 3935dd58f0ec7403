// A directory in memory for the fuzzers whose decoders read files. It is removed when the fuzzer
// exits; a fuzzer that crashes leaves it.
#ifndef SALIUS_TESTS_FUZZ_FUZZ_SCRATCH_H_
#define SALIUS_TESTS_FUZZ_FUZZ_SCRATCH_H_

#include <fcntl.h>
#include <stdlib.h>

#include <string>
#include <utility>

#include "common/check.h"
#include "common/file.h"
#include "common/file_system.h"

namespace salius {

// Returns the path of this process's directory.
inline const std::string& ScratchPath() {
  static const std::string* const path = [] {
    char name[] = "/dev/shm/salius_fuzz.XXXXXX";
    SALIUS_CHECK(mkdtemp(name) != nullptr);
    static const std::string made = name;
    atexit([] { fs::RemoveTree(AT_FDCWD, made).IgnoreError(); });
    return &made;
  }();
  return *path;
}

// Returns an open descriptor of this process's directory.
inline int ScratchDirectory() {
  static const UniqueFd* const fd = [] {
    auto opened = OpenAt(AT_FDCWD, ScratchPath(), O_RDONLY | O_DIRECTORY);
    SALIUS_CHECK_OK(opened);
    return new UniqueFd(std::move(*opened));
  }();
  return fd->get();
}

// Writes `bytes` as the whole content of the file `name` in the directory.
inline void WriteScratch(const std::string& name, absl::Span<const uint8_t> bytes) {
  auto fd = OpenAt(ScratchDirectory(), name, O_RDWR | O_CREAT | O_TRUNC, 0600);
  SALIUS_CHECK_OK(fd);
  SALIUS_CHECK_OK(PwriteFull(fd->get(), bytes, 0));
}

}  // namespace salius

#endif  // SALIUS_TESTS_FUZZ_FUZZ_SCRATCH_H_
