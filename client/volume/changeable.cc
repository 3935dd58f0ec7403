#include "client/volume/changeable.h"

#include <errno.h>

#include "common/check.h"
#include "common/file.h"

namespace salius {

absl::Status CheckChangeable(Backing& backing, const Node& node) {
  SALIUS_ASSIGN_OR_RETURN(const fs::ChangeMarks marks, backing.ChangeMarksOf(node.path_fd.get()));
  if (!marks.immutable && !marks.append_only) return absl::OkStatus();
  return ErrnoStatus(EPERM, "immutable or append-only");
}

}  // namespace salius
