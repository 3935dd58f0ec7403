// fsync(2), fdatasync(2), sync(2), syncfs(2).
//
// sync_file_range(2) is not here: it promises nothing about a power cut. msync(2) is in map.cc.
#include <fcntl.h>
#include <pthread.h>

#include "client/preload/export.h"
#include "client/preload/library.h"
#include "client/preload/raw_call.h"
#include "client/preload/real_calls.h"
#include "client/preload/section.h"

namespace salius::preload {
namespace {

int SyncDescriptor(int fd, bool data_only, int (*real)(int)) {
  if (!library.on()) return real(fd);
  const Descriptor descriptor = library.Look(fd);
  if (library.SyncsEarly(fd)) {
    if (!Section::Inside()) pthread_testcancel();
    return 0;
  }
  if (library.Passes(fd)) return real(fd);
  if (!descriptor.tracked()) return library.files().OweDirectory(fd) ? 0 : real(fd);
  if (!Section::Inside()) pthread_testcancel();
  return static_cast<int>(Returned(-library.Sync(fd, descriptor, data_only)));
}

}  // namespace
}  // namespace salius::preload

using salius::preload::library;
using salius::preload::real_calls;

SALIUS_INTERPOSE(int, fsync, int fd) {
  return salius::preload::SyncDescriptor(fd, false, real_calls.fsync);
}
SALIUS_INTERPOSE(int, fdatasync, int fd) {
  return salius::preload::SyncDescriptor(fd, true, real_calls.fdatasync);
}

// The volume first: the kernel alone cannot make it durable, since records of the log could be
// replayed over what it wrote. sync(2) cannot report that this failed; the next fsync(2) does.
SALIUS_INTERPOSE(void, sync) {
  if (library.on()) library.SyncAll();
  real_calls.sync();
}
SALIUS_INTERPOSE(int, syncfs, int fd) {
  const int result = real_calls.syncfs(fd);
  if (result != 0 || !library.on()) return result;
  return static_cast<int>(salius::preload::Returned(-library.SyncAll()));
}
