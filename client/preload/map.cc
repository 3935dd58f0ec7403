// mmap(2), munmap(2), mremap(2), mprotect(2), pkey_mprotect(2), msync(2).
//
// Stores through a shared writable map are never seen: the file is uncovered for the session
// (Reason::kMap), from the moment at which the map becomes writable. Private maps change no file.
// A map shared for reading can become writable by mprotect(2) when its descriptor is.
#include <fcntl.h>
#include <sys/mman.h>

#include <cstdarg>

#include "client/preload/export.h"
#include "client/preload/library.h"
#include "client/preload/raw_call.h"
#include "client/preload/real_calls.h"
#include "client/preload/section.h"
#include "client/preload/shared_maps.h"

namespace salius::preload {
namespace {

using direct::Reason;

constinit SharedMaps shared_maps;

bool Shared(int flags) {
  const int type = flags & MAP_TYPE;
  return type == MAP_SHARED || type == MAP_SHARED_VALIDATE;
}

uintptr_t AddressOf(const void* address) { return reinterpret_cast<uintptr_t>(address); }

// A map of a full table counts as writable: it is not seen when it becomes so.
void AddMap(void* address, size_t size, direct::File file) {
  shared_maps.Add(AddressOf(address), size, file);
  if (shared_maps.overflowed()) library.files().Uncover(file, Reason::kMap);
}

void* Map(void* address, size_t size, int protection, int flags, int fd, off64_t offset) {
  const bool of_file = Shared(flags) && (flags & MAP_ANONYMOUS) == 0;
  Descriptor descriptor;
  if (of_file && !library.Passes(fd)) {
    const int before = errno;
    descriptor = library.Look(fd);
    const long open = descriptor.tracked() ? Raw(SYS_fcntl, fd, F_GETFL) : -1;
    // Only a descriptor for both can have a writable shared map, now or by mprotect(2).
    if (open < 0 || (open & O_ACCMODE) != O_RDWR) descriptor = {};
    errno = before;
  }
  // The file is uncovered after the map is there, which may fail (MAP_SYNC), and before it is
  // writable: another thread may guess its address.
  const bool writable = descriptor.tracked() && (protection & PROT_WRITE) != 0;
  void* mapped = real_calls.mmap(address, size, writable ? protection & ~PROT_WRITE : protection,
                                 flags, fd, offset);
  if (mapped == MAP_FAILED) return mapped;
  if (writable) {
    library.files().Uncover(descriptor.file, Reason::kMap);
    if (real_calls.mprotect(mapped, size, protection) != 0) {
      real_calls.munmap(mapped, size);
      return MAP_FAILED;
    }
  }
  // MAP_FIXED replaces what was there.
  if (!shared_maps.empty()) shared_maps.Remove(AddressOf(mapped), size);
  if (descriptor.tracked()) AddMap(mapped, size, descriptor.file);
  return mapped;
}

void* Remap(void* address, size_t old_size, size_t new_size, int flags, void* to) {
  void* mapped = real_calls.mremap(address, old_size, new_size, flags, to);
  if (mapped == MAP_FAILED || shared_maps.empty()) return mapped;
  // An old size of 0 duplicates a shared map. The old entry stays: too much is harmless.
  direct::File file;
  shared_maps.ForEach(AddressOf(address), old_size == 0 ? 1 : old_size,
                      [&](direct::File found) { file = found; });
  if (file.tracked()) AddMap(mapped, new_size, file);
  return mapped;
}

// The maps are hidden before the kernel unmaps them: another thread may have a new map at the
// address as soon as it is free, and that one must stay.
int Unmap(void* address, size_t size) {
  if (shared_maps.empty()) return real_calls.munmap(address, size);
  const SharedMaps::Hidden hidden = shared_maps.Hide(AddressOf(address), size);
  const int result = real_calls.munmap(address, size);
  if (result == 0) {
    shared_maps.Drop(hidden);
  } else {
    shared_maps.Show(hidden);
  }
  return result;
}

// Takes note of a call that changes the protection of this memory, before it is made.
void BeforeProtect(void* address, size_t size, int protection) {
  if ((protection & PROT_WRITE) != 0 && !shared_maps.empty() && library.on()) {
    shared_maps.ForEach(AddressOf(address), size,
                        [](direct::File file) { library.files().Uncover(file, Reason::kMap); });
  }
}

// Makes the file of a shared map durable: by one of its descriptors, else with the whole volume.
int SyncFile(direct::File file) {
  const int fd = library.descriptors().Find(file);
  if (fd < 0) return library.SyncAll();
  const Descriptor descriptor = library.descriptors().Get(fd);
  if (!descriptor.tracked() || descriptor.file.index != file.index) return library.SyncAll();
  return library.Sync(fd, descriptor, false);
}

int SyncMap(void* address, size_t size, int flags) {
  const int result = real_calls.msync(address, size, flags);
  if (result != 0 || (flags & MS_SYNC) == 0 || !library.on() || shared_maps.empty()) return result;
  if (shared_maps.overflowed()) return static_cast<int>(Returned(-library.SyncAll()));
  int failed = 0;
  shared_maps.ForEach(AddressOf(address), size, [&](direct::File file) {
    if (const int error = SyncFile(file)) failed = error;
  });
  return static_cast<int>(Returned(-failed));
}

}  // namespace
}  // namespace salius::preload

SALIUS_INTERPOSE(void*, mmap, void* address, size_t size, int protection, int flags, int fd,
                 off64_t offset) {
  return salius::preload::Map(address, size, protection, flags, fd, offset);
}
SALIUS_INTERPOSE(void*, mmap64, void* address, size_t size, int protection, int flags, int fd,
                 off64_t offset) {
  return salius::preload::Map(address, size, protection, flags, fd, offset);
}
SALIUS_INTERPOSE(int, munmap, void* address, size_t size) {
  return salius::preload::Unmap(address, size);
}
SALIUS_INTERPOSE(void*, mremap, void* address, size_t old_size, size_t new_size, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  void* to = va_arg(rest, void*);
  va_end(rest);
  return salius::preload::Remap(address, old_size, new_size, flags, to);
}
SALIUS_INTERPOSE(int, mprotect, void* address, size_t size, int protection) {
  salius::preload::BeforeProtect(address, size, protection);
  return salius::preload::real_calls.mprotect(address, size, protection);
}
SALIUS_INTERPOSE(int, pkey_mprotect, void* address, size_t size, int protection, int key) {
  salius::preload::BeforeProtect(address, size, protection);
  return salius::preload::real_calls.pkey_mprotect(address, size, protection, key);
}
SALIUS_INTERPOSE(int, msync, void* address, size_t size, int flags) {
  return salius::preload::SyncMap(address, size, flags);
}
