// Directories: open, read (plain and with attributes), sync.
#include <cerrno>
#include <memory>
#include <optional>
#include <vector>

#include "client/fuse/front.h"
#include "common/check.h"
#include "common/file.h"

namespace salius {
namespace {

void OpenDir(fuse_req_t req, fuse_ino_t ino, fuse_file_info* fi) noexcept {
  Front& front = FrontOf(req);
  Node* const node = NodeOf(req, ino);
  if (node == nullptr) return;
  const absl::StatusOr<Handle*> handle =
      front.volume().open_files().OpenDir(*node, front.OpenerOf(CallerHeader(req)));
  if (!handle.ok()) {
    fuse_reply_err(req, front.Errno(handle.status()));
    return;
  }
  fi->fh = front.KeepDirectory(**handle);
  if (fuse_reply_open(req, fi) != 0) front.DropDirectory(fi->fh);
}

void ReleaseDir(fuse_req_t req, fuse_ino_t, fuse_file_info* fi) noexcept {
  if (DirectoryOf(req, fi) == nullptr) return;
  FrontOf(req).DropDirectory(fi->fh);
  fuse_reply_err(req, 0);
}

bool IsDots(const std::string& name) { return name == "." || name == ".."; }

// The part of a listing that fits into one answer. With attributes every entry but the dots costs a
// lookup, which the kernel then owns. An entry that vanished meanwhile goes without attributes.
struct Listing {
  Listing(fuse_req_t r, Front& f, Node& d, size_t bytes, bool with_attributes)
      : req(r), front(f), dir(d), buffer(bytes), plus(with_attributes) {}

  fuse_req_t req;
  Front& front;
  Node& dir;
  std::vector<char> buffer;
  bool plus;
  bool may_wait = true;
  size_t used = 0;
  std::vector<fuse_ino_t> looked_up;

  bool Add(const DirEntry& entry) { return plus ? AddPlus(entry) : AddPlain(entry); }

  bool AddPlain(const DirEntry& entry) {
    struct stat attr {};
    attr.st_ino = entry.ino;
    attr.st_mode = entry.type;
    const size_t need =
        fuse_add_direntry(req, buffer.data() + used, buffer.size() - used, entry.name.c_str(),
                          &attr, static_cast<off_t>(entry.next_offset));
    if (need > buffer.size() - used) return false;
    used += need;
    return true;
  }

  bool AddPlus(const DirEntry& entry) {
    const size_t need = fuse_add_direntry_plus(req, nullptr, 0, entry.name.c_str(), nullptr, 0);
    if (need > buffer.size() - used) return false;
    fuse_entry_param param{};
    param.attr.st_ino = entry.ino;
    param.attr.st_mode = entry.type;
    if (!IsDots(entry.name)) {
      const absl::StatusOr<Entry> found =
          front.volume().names().LookupListed(dir, entry.name, entry.ino, may_wait);
      if (found.ok()) {
        // An answer waits once for records to be applied: a disk that hangs is slow for each file.
        if (found->provisional) may_wait = false;
        param = front.ToEntry(*found);
        looked_up.push_back(param.ino);
      }
    }
    used +=
        fuse_add_direntry_plus(req, buffer.data() + used, buffer.size() - used, entry.name.c_str(),
                               &param, static_cast<off_t>(entry.next_offset));
    return true;
  }
};

// Reads as many entries behind `offset` as fit into `size` bytes; `next_offset` of each is ours.
absl::Status ReadEntries(Front& front, OpenDirectory& directory, uint64_t offset, size_t size,
                         bool plus, std::vector<DirEntry>* entries) {
  DirOffsets::Place place;
  {
    absl::MutexLock lock(&directory.mutex);
    if (offset == 0) directory.offsets.Rewind();
    place = directory.offsets.Find(offset);
  }
  size_t bytes = 0;
  SALIUS_RETURN_IF_ERROR(
      front.volume().names().ReadDir(directory.handle, place.cookie, [&](const DirEntry& entry) {
        if (place.skip > 0) {
          --place.skip;
          return true;
        }
        bytes += plus
                     ? fuse_add_direntry_plus(nullptr, nullptr, 0, entry.name.c_str(), nullptr, 0)
                     : fuse_add_direntry(nullptr, nullptr, 0, entry.name.c_str(), nullptr, 0);
        if (bytes > size) return false;
        entries->push_back(entry);
        return true;
      }));
  absl::MutexLock lock(&directory.mutex);
  for (DirEntry& entry : *entries) {
    const std::optional<uint64_t> number = directory.offsets.Number(offset, entry.next_offset);
    if (!number.has_value()) return ErrnoStatus(EOVERFLOW, "too many entries in one listing");
    entry.next_offset = offset = *number;
  }
  return absl::OkStatus();
}

void List(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, const fuse_file_info* fi,
          bool plus) {
  Front& front = FrontOf(req);
  Node* const node = NodeOf(req, ino);
  if (node == nullptr) return;
  OpenDirectory* const directory = DirectoryOf(req, fi);
  if (directory == nullptr) return;
  Listing listing(req, front, *node, size, plus);
  // Reads the names first, then looks them up: the volume may hold the directory while it lists.
  std::vector<DirEntry> entries;
  const absl::Status status =
      ReadEntries(front, *directory, static_cast<uint64_t>(offset), size, plus, &entries);
  if (!status.ok()) {
    fuse_reply_err(req, front.Errno(status));
    return;
  }
  for (const DirEntry& entry : entries) {
    if (!listing.Add(entry)) break;
  }
  if (fuse_reply_buf(req, listing.buffer.data(), listing.used) != 0) {
    for (const fuse_ino_t entry : listing.looked_up) front.Forget(entry, 1);
  }
}

void ReadDir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
             fuse_file_info* fi) noexcept {
  List(req, ino, size, offset, fi, false);
}

void ReadDirPlus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                 fuse_file_info* fi) noexcept {
  List(req, ino, size, offset, fi, true);
}

void FsyncDir(fuse_req_t req, fuse_ino_t, int, fuse_file_info* fi) noexcept {
  Front& front = FrontOf(req);
  OpenDirectory* const directory = DirectoryOf(req, fi);
  if (directory == nullptr) return;
  front.CheckEarly(directory->handle, static_cast<uint32_t>(fuse_req_ctx(req)->pid));
  const auto answer = [&front, req](const absl::Status& status) {
    fuse_reply_err(req, status.ok() ? 0 : front.Errno(status));
  };
  const absl::StatusOr<Ticket> ticket = front.volume().files().StartFsync(directory->handle);
  if (!ticket.ok()) return answer(ticket.status());
  front.AnswerWhenDurable(*ticket, answer);
}

}  // namespace

void AddDirOps(fuse_lowlevel_ops* ops) {
  ops->opendir = OpenDir;
  ops->releasedir = ReleaseDir;
  ops->readdir = ReadDir;
  ops->readdirplus = ReadDirPlus;
  ops->fsyncdir = FsyncDir;
}

}  // namespace salius
