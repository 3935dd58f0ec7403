// The border of a direct volume. A recovery finds a file below the volume's directory only, so a
// file that left it would lose what is acknowledged and not checkpointed. Hence the border is as that
// of a mount: no rename(2) and no link(2) crosses it, and programs copy the file instead.
#pragma once

namespace salius::preload {

// Returns whether a rename would take a file or directory into the volume or out of it. Both paths
// are under their directories, as renameat(2) gets them. False also where the kernel does not tell,
// and where the call fails in any case. errno stays. Async-signal-safe.
bool RenameCrosses(int from_directory, const char* from, int to_directory, const char* to);

// The same for a link with the `flags` of linkat(2). A file without a name is where it was made.
bool LinkCrosses(int from_directory, const char* from, int to_directory, const char* to, int flags);

}  // namespace salius::preload
