// The program that salius-run starts, and the library that it starts it with.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace salius::run {

// Which programs can be the command.
enum class Programs {
  kLogged,  // those whose writes the library sees: on a direct volume
  kGated,   // all that run under a seccomp filter and the library, or without it: at mounts
};

// Returns the file of the command `name`: itself if it has a slash, else the first executable one
// in the directories of `path` (the variable PATH). NOT_FOUND; PERMISSION_DENIED when it cannot be
// executed, or is none of `programs`, with the reason.
absl::StatusOr<std::string> FindProgram(const std::string& name, const std::string& path,
                                        Programs programs);

// Returns the path of libsalius_preload.so, which is installed or built beside this program.
// NOT_FOUND names the places.
absl::StatusOr<std::string> FindLibrary();

}  // namespace salius::run
