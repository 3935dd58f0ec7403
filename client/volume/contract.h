// The promise to a writer, and the wait that is left before the writer is answered.
#pragma once

#include <cstddef>

#include "common/ids.h"

namespace salius {

// The promise to the caller of a write. A stronger one of the open handle counts as well.
enum class Contract {
  kPlain,    // nothing is promised before the file's next fsync
  kDurable,  // O_DSYNC: durable with everything before it, unless the mount relaxes it (SyncRule)
};

// The promise of synchronous calls (O_SYNC writes, fsync) on a mount: `commit=`.
enum class Commit {
  kSync,      // they return when durable
  kExternal,  // on a handle with early return at once; else when durable
  kOrdered,   // they return at once, and only order (docs/ordering.md)
};

// The options of a mount that decide what synchronous calls wait for.
struct MountContract {
  Commit commit = Commit::kSync;
  bool fsync_orders = false;   // fsync=osync: as under kOrdered
  bool exempts_o_sync = false;  // osync-exempt=o_sync: handles with O_SYNC or O_DSYNC wait

  // Returns whether some synchronous calls return before their records are durable. Then nothing
  // goes past the log, and operations on names do not wait either.
  bool relaxed() const { return commit != Commit::kSync || fsync_orders; }
};

// A write or an fsync that is under way: everything is done but the wait.
struct Ticket {
  size_t bytes = 0;       // written
  Seq durable_first = 0;  // the caller is answered when this record is durable; 0: at once

  bool settled() const { return durable_first == 0; }
};

}  // namespace salius
