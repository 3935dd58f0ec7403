// The promise to a writer, and the wait that is left before the writer is answered.
#pragma once

#include <cstddef>

#include "common/ids.h"

namespace salius {

// The promise to the caller of a write. A stronger one of the open handle counts as well.
enum class Contract {
  kPlain,    // nothing is promised before the file's next fsync
  kDurable,  // the data and everything before it is durable when the caller is answered: O_DSYNC
};

// A write or an fsync that is under way: everything is done but the wait.
struct Ticket {
  size_t bytes = 0;       // written
  Seq durable_first = 0;  // the caller is answered when this record is durable; 0: at once

  bool settled() const { return durable_first == 0; }
};

}  // namespace salius
