// Reading directories: straight from the backing directory, since names are applied before they are
// acknowledged.
#include <errno.h>

#include <utility>

#include "client/engine/volume_calls.h"
#include "client/engine/volume_impl.h"
#include "common/check.h"
#include "log/fs_calls.h"

namespace salius {

absl::StatusOr<Handle*> Volume::OpenDir(Node& node) { return impl_->OpenDir(node); }

absl::Status Volume::ReadDir(Handle& handle, uint64_t offset,
                             const std::function<bool(const DirEntry&)>& emit) {
  Node& node = handle.node;
  if (!node.is_dir()) return ErrnoStatus(ENOTDIR, "readdir");
  while (true) {
    std::vector<fs::RawDirEntry> batch;
    {
      absl::MutexLock lock(&handle.dir_position);
      SALIUS_ASSIGN_OR_RETURN(batch, fs::ReadDirents(handle.fd->get(), offset));
    }
    if (batch.empty()) return absl::OkStatus();
    for (fs::RawDirEntry& raw : batch) {
      offset = raw.next_offset;
      if (impl_->IsHidden(node, raw.name)) continue;
      if (raw.type == 0) {
        const absl::StatusOr<struct stat> st = fs::StatAt(node.path_fd.get(), raw.name);
        if (!st.ok()) continue;  // removed since
        raw.type = st->st_mode & S_IFMT;
      }
      if (!emit({std::move(raw.name), raw.next_offset, raw.ino, raw.type})) {
        return absl::OkStatus();
      }
    }
  }
}

}  // namespace salius
