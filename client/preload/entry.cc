// The constructor of libsalius_preload.so: attaches to the coordinator that the environment names.
//
// Without its variable the library only passes on. When the coordinator does not answer, the
// program is not run at all: it would write past the log.
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "client/direct/process/attach.h"
#include "client/direct/process/process.h"
#include "client/gate/call_page.h"
#include "client/preload/gating.h"
#include "client/preload/library.h"
#include "client/preload/mounted_files.h"
#include "client/preload/raw_call.h"

namespace salius::preload {
namespace {

constinit direct::Process process;
constinit MountedFiles mounted;

// Returns the value of a variable, or null.
const char* Variable(char* const* environment, const char* name) {
  const size_t length = strlen(name);
  for (; *environment != nullptr; ++environment) {
    if (strncmp(*environment, name, length) == 0 && (*environment)[length] == '=') {
      return *environment + length + 1;
    }
  }
  return nullptr;
}

[[noreturn]] void Refuse(const char* path, const char* reason, int error) {
  char text[768];
  char* at = stpcpy(text, "salius: cannot attach to the volume at ");
  const size_t length = strnlen(path, 128);
  memcpy(at, path, length);
  at = stpcpy(at + length, ": ");
  at = stpncpy(at, reason, 256);
  const char* const meaning = strerrordesc_np(error);
  if (meaning != nullptr) at = stpncpy(stpcpy(at, ": "), meaning, 64);
  // The socket is for the volume's owner.
  if (error == EACCES) at = stpcpy(at, " (does the program run as another user?)");
  *at++ = '\n';
  Raw(SYS_write, STDERR_FILENO, text, static_cast<size_t>(at - text));
  Raw(SYS_exit_group, direct::kNotAttached);
  __builtin_unreachable();
}

// Registers at the mounts whose shared memory is at `path`. A process that cannot is outside, and
// the supervisor waits for each of its outputs: slower, no less safe.
void LoadMounts(const char* path, char** environment) {
  if (!Gating::IsWatched()) return;
  gate::MapCallPage();
  // In another PID namespace the path may name any file.
  const long memory = Raw(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (memory < 0) return;
  const int error = mounted.gates().Attach(static_cast<int>(memory));
  Raw(SYS_close, memory);
  if (error != 0) return;
  gating.Start(mounted.gates(), Variable(environment, gate::kHeldVariable));
  library.Start(mounted, environment, /*logs=*/false);
}

__attribute__((constructor)) void Load(int, char**, char** environment) {
  library.Load();
  const char* path = Variable(environment, direct::kAttachVariable);
  if (path == nullptr || *path == '\0') {
    const char* const gates = Variable(environment, gate::kGatesVariable);
    if (gates != nullptr && *gates != '\0') LoadMounts(gates, environment);
    return;
  }
  const bool watched = Gating::IsWatched();
  // Without the page each call that may be an output goes to the supervisor: slower, no less safe.
  if (watched) gate::MapCallPage();
  char reason[256] = {};
  const int error = process.Attach(path, reason, sizeof(reason));
  if (error != 0) Refuse(path, reason, error);
  if (watched) process.GrantEarly();
  if (process.early()) gating.Start(process.gate(), Variable(environment, gate::kHeldVariable));
  library.Start(process, environment);
}

}  // namespace
}  // namespace salius::preload
