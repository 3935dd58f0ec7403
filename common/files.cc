#include "common/files.h"

#include <errno.h>
#include <fcntl.h>

#include <algorithm>

#include "absl/strings/str_format.h"
#include "common/bytes.h"
#include "common/check.h"

namespace salius {

void BackingFd::Reset() {
  if (number_ < 0) return;
  const int number = Release();
  if (files_ != nullptr) return files_->Close(number);
  UniqueFd kernel(number);
  kernel.Reset();
}

absl::Status Files::Pwrite(int fd, std::string_view data, uint64_t offset) {
  // pwritev only reads, although iovec is not const.
  const iovec part = {const_cast<char*>(data.data()), data.size()};
  return Pwritev(fd, {&part, 1}, offset);
}

Files::LongWrite Files::LongWrites(int fd) {
  return [this, fd](absl::Span<const iovec> parts, uint64_t offset) {
    return Pwritev(fd, parts, offset);
  };
}

absl::StatusOr<std::string> ReadWholeFile(Files& files, int dirfd, const std::string& name,
                                          size_t max_bytes) {
  SALIUS_ASSIGN_OR_RETURN(const BackingFd fd, files.OpenAt(dirfd, name, O_RDONLY));
  constexpr size_t kPiece = 4096;
  std::string content;
  while (true) {
    const size_t before = content.size();
    content.resize(before + kPiece);
    SALIUS_ASSIGN_OR_RETURN(const size_t got,
                            files.Pread(fd.get(), content.data() + before, kPiece, before));
    content.resize(before + got);
    if (content.size() > max_bytes) {
      return AtPath(ErrnoStatus(EFBIG, absl::StrFormat("read %s: over %d bytes", name, max_bytes)),
                    PathAt(dirfd, name));
    }
    if (got < kPiece) return content;
  }
}

absl::Status WriteFileAtomically(Files& files, int dirfd, const std::string& name,
                                 absl::Span<const uint8_t> bytes, mode_t mode) {
  const std::string temporary = name + ".tmp";
  const auto write = [&]() -> absl::Status {
    SALIUS_ASSIGN_OR_RETURN(
        const BackingFd fd,
        files.CreateAt(dirfd, temporary, O_WRONLY | O_TRUNC | O_NOFOLLOW, mode));
    SALIUS_RETURN_IF_ERROR(files.Pwrite(fd.get(), AsText(bytes), 0));
    return files.Fsync(fd.get());
  };
  absl::Status status = write();
  if (status.ok()) status = files.Rename(dirfd, temporary, dirfd, name, 0);
  if (!status.ok()) {
    files.Unlink(dirfd, temporary, 0).IgnoreError();  // the first error is the one to report
    return AtPath(status, PathAt(dirfd, name));
  }
  // `dirfd` may be O_PATH, which fsync refuses.
  SALIUS_ASSIGN_OR_RETURN(const BackingFd dir, files.OpenAt(dirfd, ".", O_RDONLY | O_DIRECTORY));
  return files.Fsync(dir.get());
}

}  // namespace salius
