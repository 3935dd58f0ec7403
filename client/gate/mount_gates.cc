#include "client/gate/mount_gates.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "client/direct/window/system.h"

namespace salius::gate {

using direct::AsLong;
using direct::RawCall;

int MountGates::Attach(int memory) {
  struct stat status;
  if (const long error = RawCall(SYS_fstat, memory, AsLong(&status)); error != 0) {
    return static_cast<int>(-error);
  }
  if (status.st_size != sizeof(Shared)) return EPROTO;
  const long at =
      RawCall(SYS_mmap, 0, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  if (at < 0 && at >= -4095) return static_cast<int>(-at);
  auto* const shared = reinterpret_cast<Shared*>(at);
  int error = shared->magic == kSharedMagic && shared->count <= kMostMounts ? 0 : EPROTO;
  if (error == 0) {
    shared_ = shared;
    count_ = shared->count;
    first_ = count_ > 0 && shared->mounts[0].page == 0;
  }
  for (size_t i = 0; i < count_ && error == 0; ++i) error = Register(i);
  if (error == 0) return 0;
  for (size_t i = 0; i < count_; ++i) Leave(joined_[i]);
  RawCall(SYS_munmap, at, sizeof(Shared));
  shared_ = nullptr;
  count_ = 0;
  return error;
}

int MountGates::Register(size_t mount) {
  Joined fresh = Join(shared_->mounts[mount].gate, shared_->session);
  if (fresh.error != 0) return fresh.error;
  uint64_t& page = shared_->mounts[mount].page;
  if (first_ && page == 0) page = fresh.page_inode;
  if (page != fresh.page_inode) {
    Leave(fresh);
    return ESTALE;
  }
  // Closing the connection, at exec too, is no end of file that someone outside sees.
  struct stat status;
  if (RawCall(SYS_fstat, fresh.connection, AsLong(&status)) == 0) {
    MakeInside(status.st_dev, status.st_ino);
  }
  Leave(joined_[mount]);
  joined_[mount] = fresh;
  return 0;
}

void MountGates::AfterFork() {
  // Where it fails, the parent's connection and page still serve for waiting.
  outside_ = false;
  for (size_t i = 0; i < count_; ++i) outside_ |= Register(i) != 0;
}

bool MountGates::Owns(int fd) const {
  for (size_t i = 0; i < count_; ++i) {
    if (fd >= 0 && joined_[i].connection == fd) return true;
  }
  return false;
}

size_t MountGates::Find(uint64_t device) const {
  size_t mount = 0;
  while (mount < count_ && shared_->mounts[mount].device != device) ++mount;
  return mount;
}

bool MountGates::IsMount(uint64_t device) const { return Find(device) < count_; }

uint32_t MountGates::Mapped(uint64_t device) const {
  const size_t mount = Find(device);
  if (mount == count_) return 0;
  const uint32_t mapped = joined_[mount].page->mapped.load(std::memory_order_acquire);
  return mapped == kUncounted ? 0 : mapped;
}

bool MountGates::Registered(uint64_t device) const {
  const size_t mount = Find(device);
  return mount < count_ && !outside_ && IsRegistered(joined_[mount]);
}

bool MountGates::Pending() const {
  for (size_t i = 0; i < count_; ++i) {
    if (!MayOutput(joined_[i])) return true;
  }
  return false;
}

int MountGates::Await() {
  int failed = 0;
  for (size_t i = 0; i < count_; ++i) {
    if (const int error = AwaitOutput(joined_[i]); error != 0) failed = error;
  }
  return failed;
}

void MountGates::MakeInside(uint64_t device, uint64_t inode) {
  gate::Inside(shared_->inside).Add(device, inode);
}

bool MountGates::Inside(uint64_t device, uint64_t inode) const {
  return shared_->passed.load() == 0 && gate::Inside(shared_->inside).Has(device, inode);
}

void MountGates::Passed() { shared_->passed.store(1); }

bool MountGates::EndEarly(EarlyEnd reason) {
  shared_->early_end.fetch_or(reason);
  if (shared_->ended.load() != 0) return true;
  bool done = true;
  for (size_t i = 0; i < count_; ++i) {
    const int error = gate::EndEarly(joined_[i]);
    // A daemon ends the first process's connection only when it ends itself. No call returns early
    // there then.
    if (error != 0 && !(first_ && error == EPIPE)) done = false;
  }
  if (done) shared_->ended.store(1);
  return done;
}

}  // namespace salius::gate
