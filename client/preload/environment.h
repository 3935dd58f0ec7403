// The environment variables that a program needs to be under the library, and their return into an
// environment from which the program took them.
#pragma once

#include <cstddef>

namespace salius::preload {

// The name of the preload variable of ld.so(8).
inline constexpr char kPreload[] = "LD_PRELOAD";
// All variables of the library begin with one of these.
inline constexpr const char* kOwnPrefixes[] = {"SALIUS_DIRECT_", "SALIUS_GATE_"};

class KeptEnvironment {
 public:
  static constexpr int kMost = 8;
  static constexpr size_t kBytes = 4096;

  // Copies the library's variables of `environment`, and LD_PRELOAD, whose first entry must be
  // the library. Returns false when they have no room: nothing is kept then.
  bool Keep(char* const* environment);

  // Returns the library's path.
  const char* library_path() const { return path_; }

  // Returns whether `environment` (may be null) lacks something of the library's.
  bool Lacks(char* const* environment) const;

  // Returns how many pointers and bytes Complete needs for `environment`.
  size_t Pointers(char* const* environment) const;
  size_t Bytes(char* const* environment) const;

  // Stores at `pointers` the environment with the library's variables as they were kept; the
  // library is put before what LD_PRELOAD has. `bytes` is room for text.
  void Complete(char* const* environment, char** pointers, char* bytes) const;

  int count() const { return count_; }
  const char* entry(int index) const { return entries_[index]; }

 private:
  bool Has(char* const* environment, const char* entry) const;
  static const char* Preload(char* const* environment);

  char text_[kBytes] = {};
  const char* entries_[kMost] = {};  // NAME=value, without LD_PRELOAD
  int count_ = 0;
  const char* path_ = nullptr;
};

}  // namespace salius::preload
