#include "client/cli/order.h"

#include <fcntl.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "client/api/ioctl.h"
#include "client/cli/exit_code.h"
#include "common/check.h"
#include "common/file.h"
#include "common/options.h"

namespace salius::cli {
namespace {

// Makes the call on the file. FAILED_PRECONDITION: it is on no mounted volume.
absl::Status Call(const std::string& path, unsigned long command) {
  SALIUS_ASSIGN_OR_RETURN(const UniqueFd file, OpenAt(AT_FDCWD, path, O_RDONLY | O_NONBLOCK));
  if (::ioctl(file.get(), command) == 0) return absl::OkStatus();
  if (errno == ENOTTY || errno == ENOTSUP) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, errno == ENOTTY ? " is on no mounted volume: give a file below its mount point, or run "
                                "this command under salius-run"
                              : " is on a direct volume, which keeps no order: use dsync"));
  }
  return ErrnoStatus(errno, path);
}

int Run(const char* name, const char* about, unsigned long command,
        absl::Span<const std::string> words) {
  Options options(absl::StrCat("salius ", name), "FILE", about);
  options.Note(
      "Exit codes: 0 done, 1 the volume has failed, or another error, 2 usage, 3 no such file,\n"
      "5 the file is on no mounted volume, 9 no permission.");
  if (const absl::Status parsed = options.Parse(words, 1, 1); !parsed.ok()) {
    return Report(name, parsed);
  }
  if (options.answer().has_value()) {
    std::printf("%s", options.answer()->c_str());
    return kExitOk;
  }
  return Report(name, Call(options.places()[0], command));
}

}  // namespace

int RunOsync(absl::Span<const std::string> words) {
  return Run("osync",
             "Orders the changes of the volume of FILE: after a crash no later change is there\n"
             "without all that were made before. Does not wait for durability.",
             SALIUS_IOC_OSYNC, words);
}

int RunDsync(absl::Span<const std::string> words) {
  return Run("dsync",
             "Waits until the data, attributes and names of FILE are durable, also on a mount\n"
             "with commit=ordered, where sync(1) does not wait.",
             SALIUS_IOC_DSYNC, words);
}

}  // namespace salius::cli
