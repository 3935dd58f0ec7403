// New programs: exec*, posix_spawn(3), system(3), popen(3).
//
// A program that would run without the library is refused before it starts: EPERM, and a message on
// standard error. (ENOEXEC would make execvp(3) try it as a shell script.) The library and its
// variables are put back into an environment from which they are missing.
//
// Everything here may run in a child of vfork(2): it allocates on the stack only.
#include <alloca.h>
#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdlib>
#include <cstring>

#include "client/preload/export.h"
#include "client/preload/library.h"
#include "client/preload/program.h"
#include "client/preload/raw_call.h"
#include "client/preload/real_calls.h"
#include "client/preload/write.h"

namespace salius::preload {
namespace {

// Says on standard error why `path` is not started.
void Explain(const char* path, const char* reason) {
  char text[PATH_MAX + 256];
  const size_t length = strnlen(path, PATH_MAX);
  char* at = stpcpy(text, "salius: ");
  memcpy(at, path, length);
  at = stpcpy(at + length, " is not started: ");
  at = stpcpy(stpcpy(at, reason), "\n");
  const size_t size = static_cast<size_t>(at - text);
  ssize_t written;
  if (WriteTracked({.fd = STDERR_FILENO, .data = text, .size = size}, &written)) return;
  Raw(SYS_write, STDERR_FILENO, text, size);
}

// Returns whether the program must not be started, after the message.
bool Refused(int directory, const char* path) {
  if (path == nullptr || !library.logs()) return false;
  const Verdict verdict = JudgeProgram(directory, path);
  const char* own = library.environment().library_path();
  if (verdict != Verdict::kRuns) {
    Explain(path, VerdictText(verdict));
  } else if (own != nullptr && Raw(SYS_faccessat, AT_FDCWD, own, R_OK) != 0 &&
             Raw(SYS_faccessat, directory, path, X_OK) == 0) {
    // ld.so(8) would go on without it.
    Explain(path, "the preload library cannot be read from here (chroot or permissions)");
  } else {
    return false;
  }
  return true;
}

int Forbidden() {
  errno = EPERM;
  return -1;
}

// Stores at `path` (PATH_MAX bytes) the file that execvp(3) would start for `file`. Returns false
// when it finds none.
bool Search(const char* file, char* path) {
  const size_t length = strnlen(file, NAME_MAX + 1);
  const char* list = getenv("PATH");
  if (list == nullptr) list = "/bin:/usr/bin";
  if (length == 0 || length > NAME_MAX) return false;
  for (;; ++list) {
    const size_t folder = strcspn(list, ":");
    if (folder + length + 2 <= PATH_MAX) {
      memcpy(path, list, folder);
      char* at = path + folder;
      if (folder > 0) *at++ = '/';
      memcpy(at, file, length + 1);
      if (Raw(SYS_faccessat, AT_FDCWD, path, X_OK) == 0) return true;
    }
    list += folder;
    if (*list == '\0') return false;
  }
}

bool RefusedByName(const char* file) {
  if (file == nullptr) return false;
  if (strchr(file, '/') != nullptr) return Refused(AT_FDCWD, file);
  char path[PATH_MAX];
  return Search(file, path) && Refused(AT_FDCWD, path);
}

// Calls `start(environment)` with the library's variables put back where they are missing.
template <typename Start>
int WithEnvironment(char* const* environment, Start start) {
  const KeptEnvironment& kept = library.environment();
  if (!kept.Lacks(environment)) return start(environment);
  auto** pointers = static_cast<char**>(alloca(kept.Pointers(environment) * sizeof(char*)));
  auto* bytes = static_cast<char*>(alloca(kept.Bytes(environment)));
  kept.Complete(environment, pointers, bytes);
  return start(pointers);
}

int Execve(const char* path, char* const* arguments, char* const* environment) {
  if (!library.on()) return real_calls.execve(path, arguments, environment);
  if (Refused(AT_FDCWD, path)) return Forbidden();
  return WithEnvironment(environment, [&](char* const* completed) {
    return real_calls.execve(path, arguments, completed);
  });
}

int Execvpe(const char* file, char* const* arguments, char* const* environment) {
  if (!library.on()) return real_calls.execvpe(file, arguments, environment);
  if (RefusedByName(file)) return Forbidden();
  return WithEnvironment(environment, [&](char* const* completed) {
    return real_calls.execvpe(file, arguments, completed);
  });
}

bool RefusedDescriptor(int fd) {
  // "/proc/self/fd/N" can be opened even when the descriptor is O_PATH.
  char path[32] = "/proc/self/fd/";
  char digits[12];
  int count = 0;
  if (fd < 0) return false;
  for (int rest = fd; count == 0 || rest != 0; rest /= 10) {
    digits[count++] = static_cast<char>('0' + rest % 10);
  }
  char* at = path + strlen(path);
  while (count > 0) *at++ = digits[--count];
  *at = '\0';
  return Refused(AT_FDCWD, path);
}

// A list of file actions cuts a file, or did.
constinit std::atomic<bool> actions_cut{false};

int Spawn(decltype(real_calls.posix_spawn) real, bool refused, pid_t* child, const char* path,
          const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* attributes,
          char* const* arguments, char* const* environment) {
  if (refused) return EPERM;
  if (!library.on()) return real(child, path, actions, attributes, arguments, environment);
  const auto start = [&] {
    return WithEnvironment(environment, [&](char* const* completed) {
      return real(child, path, actions, attributes, arguments, completed);
    });
  };
  // The C library's child carries the actions out, unseen, and may have done so when this fails.
  // Which files they cut depends on the child's directory, too: all are uncovered.
  if (actions == nullptr || !library.logs() || !actions_cut.load()) return start();
  const int before = errno;
  library.files().UncoverAll(direct::Reason::kPosition);
  errno = before;
  const int result = start();
  const int after = errno;
  library.files().UncoverAll(direct::Reason::kPosition);
  errno = after;
  return result;
}

// system(3) and popen(3) take the environment of the process: puts the variables back there. This
// does what putenv(3) of the program would do.
void CompleteOwnEnvironment() {
  if (!library.on()) return;
  const KeptEnvironment& kept = library.environment();
  if (!kept.Lacks(environ)) return;
  for (int i = 0; i < kept.count(); ++i) putenv(const_cast<char*>(kept.entry(i)));
  setenv(kPreload, kept.library_path(), 1);
}

}  // namespace
}  // namespace salius::preload

using salius::preload::Execve;
using salius::preload::Execvpe;
using salius::preload::Forbidden;
using salius::preload::library;
using salius::preload::real_calls;

// Collects the arguments of execl and the like into `arguments`, up to the null pointer.
#define SALIUS_COLLECT(first)                                                  \
  va_list rest;                                                                \
  va_start(rest, first);                                                       \
  size_t count = 1;                                                            \
  while (va_arg(rest, const char*) != nullptr) ++count;                        \
  va_end(rest);                                                                \
  auto** arguments = static_cast<char**>(alloca((count + 1) * sizeof(char*))); \
  va_start(rest, first);                                                       \
  arguments[0] = const_cast<char*>(first);                                     \
  for (size_t i = 1; i <= count; ++i) arguments[i] = va_arg(rest, char*)

SALIUS_INTERPOSE(int, execve, const char* path, char* const* arguments, char* const* environment) {
  return Execve(path, arguments, environment);
}
SALIUS_INTERPOSE(int, execv, const char* path, char* const* arguments) {
  return Execve(path, arguments, environ);
}
SALIUS_INTERPOSE(int, execvp, const char* file, char* const* arguments) {
  return Execvpe(file, arguments, environ);
}
SALIUS_INTERPOSE(int, execvpe, const char* file, char* const* arguments, char* const* environment) {
  return Execvpe(file, arguments, environment);
}
SALIUS_INTERPOSE(int, execl, const char* path, const char* first, ...) {
  SALIUS_COLLECT(first);
  va_end(rest);
  return Execve(path, arguments, environ);
}
SALIUS_INTERPOSE(int, execlp, const char* file, const char* first, ...) {
  SALIUS_COLLECT(first);
  va_end(rest);
  return Execvpe(file, arguments, environ);
}
SALIUS_INTERPOSE(int, execle, const char* path, const char* first, ...) {
  SALIUS_COLLECT(first);
  char* const* environment = va_arg(rest, char* const*);
  va_end(rest);
  return Execve(path, arguments, environment);
}
SALIUS_INTERPOSE(int, execveat, int directory, const char* path, char* const* arguments,
                 char* const* environment, int flags) {
  if (library.on()) {
    const bool by_descriptor = (flags & AT_EMPTY_PATH) != 0 && path != nullptr && *path == '\0';
    if (by_descriptor ? salius::preload::RefusedDescriptor(directory)
                      : salius::preload::Refused(directory, path)) {
      return Forbidden();
    }
  }
  return salius::preload::WithEnvironment(environment, [&](char* const* completed) {
    return real_calls.execveat(directory, path, arguments, completed, flags);
  });
}
SALIUS_INTERPOSE(int, fexecve, int fd, char* const* arguments, char* const* environment) {
  if (library.on() && salius::preload::RefusedDescriptor(fd)) return Forbidden();
  return salius::preload::WithEnvironment(environment, [&](char* const* completed) {
    return real_calls.fexecve(fd, arguments, completed);
  });
}

SALIUS_INTERPOSE(int, posix_spawn, pid_t* child, const char* path,
                 const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* attributes,
                 char* const* arguments, char* const* environment) {
  const bool refused = library.on() && salius::preload::Refused(AT_FDCWD, path);
  return salius::preload::Spawn(real_calls.posix_spawn, refused, child, path, actions, attributes,
                                arguments, environment);
}
SALIUS_INTERPOSE(int, posix_spawnp, pid_t* child, const char* file,
                 const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* attributes,
                 char* const* arguments, char* const* environment) {
  const bool refused = library.on() && salius::preload::RefusedByName(file);
  return salius::preload::Spawn(real_calls.posix_spawnp, refused, child, file, actions, attributes,
                                arguments, environment);
}

SALIUS_INTERPOSE(int, posix_spawn_file_actions_addopen, posix_spawn_file_actions_t* actions, int fd,
                 const char* path, int flags, mode_t mode) {
  if ((flags & O_TRUNC) != 0) salius::preload::actions_cut.store(true);
  return real_calls.posix_spawn_file_actions_addopen(actions, fd, path, flags, mode);
}

SALIUS_INTERPOSE(int, system, const char* command) {
  salius::preload::CompleteOwnEnvironment();
  return real_calls.system(command);
}
SALIUS_INTERPOSE(FILE*, popen, const char* command, const char* mode) {
  salius::preload::CompleteOwnEnvironment();
  return real_calls.popen(command, mode);
}
