// Where data that is written to a descriptor goes: to other gated processes only, or outside. Pure.
#pragma once

#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cstdint>
#include <initializer_list>

namespace salius::gate {

enum class Kind : uint8_t {
  kInside,  // no one outside sees what is written to it
  kFile,    // outside; closing it shows nothing
  kStream,  // outside; closing it may show end of file to another process
};

// Returns whether the device with this number gives no one what is written to it: /dev/null, zero,
// full, random and urandom.
constexpr bool KeepsNothing(dev_t device_number) {
  for (const unsigned minor : {3u, 5u, 7u, 8u, 9u}) {
    if (device_number == makedev(1, minor)) return true;
  }
  return false;
}

// Returns the kind of a descriptor with this mode and device number (fstat(2)). `in_volume`: a
// regular file of the volume. `made_inside`: a pipe or socket of gated processes (Gate::Inside).
// Anything that is not known is outside.
constexpr Kind KindOf(mode_t mode, dev_t device_number, bool in_volume, bool made_inside) {
  switch (mode & S_IFMT) {
    case S_IFREG:
      return in_volume ? Kind::kInside : Kind::kFile;
    case S_IFDIR:
      return Kind::kInside;  // cannot be written
    case S_IFIFO:
    case S_IFSOCK:
      return made_inside ? Kind::kInside : Kind::kStream;
    case S_IFCHR:
      // The last close of a terminal is an end of file to its other side.
      return KeepsNothing(device_number) ? Kind::kInside : Kind::kStream;
    default:
      return Kind::kFile;  // disks; eventfd(2) and the like, which another process may have
  }
}

// The requests of ioctl(2) that only ask, so that no process outside can notice them.
inline constexpr uint32_t kHarmlessIoctls[] = {TCGETS,  TIOCGWINSZ, TIOCGPGRP, TIOCGSID, FIONREAD,
                                               FIOCLEX, FIONCLEX,   FIONBIO,   FIOASYNC};

constexpr bool IsHarmlessIoctl(uint32_t request) {
  for (const uint32_t harmless : kHarmlessIoctls) {
    if (request == harmless) return true;
  }
  return false;
}

}  // namespace salius::gate
