// Whether a file is below the volume's directory, and where its directory entry is. Both ask the
// kernel for the path of the descriptor (/proc/self/fd), so renames of the volume's directory and
// chroot(2) do no harm.
//
// Needs the standard library and POSIX only.
#pragma once

namespace salius::direct {

enum class Place {
  kBelow,    // below the directory, and not in .salius
  kOutside,  // elsewhere, or reached by another mount
  kUnknown,  // the kernel does not tell: /proc is not there, or the path is too long
};
// Returns where the open file `fd` is, as seen from the directory `root`.
Place PlaceOf(int root, int fd);

// Makes the name of `fd` durable: fsync(2) of its directory. A file without a name needs none. If
// the directory cannot be opened, the file system of `root` is synced. Returns 0 or an errno.
int SyncName(int root, int fd);

}  // namespace salius::direct
