// The border of a direct volume. A recovery finds a file below the volume's directory only, so a
// file that left it would lose what is acknowledged and not checkpointed. Hence the border is as that
// of a mount: no rename(2) and no link(2) crosses it, and programs copy the file instead.
#pragma once

namespace salius::preload {

// Whether a call takes a file or directory into the volume or out of it.
enum class Crossing {
  kNo,
  kYes,
  kUnknown,  // the kernel does not tell a place (no descriptor left, no /proc), or the call will fail
};

// Returns whether a rename crosses the border. Both paths are under their directories, as renameat(2)
// gets them. errno stays. Async-signal-safe.
Crossing RenameCrosses(int from_directory, const char* from, int to_directory, const char* to);

// The same for a link with the `flags` of linkat(2). A file without a name is where it was made.
Crossing LinkCrosses(int from_directory, const char* from, int to_directory, const char* to,
                     int flags);

}  // namespace salius::preload
