#include "client/volume/hidden_links.h"

#include <errno.h>

#include <algorithm>
#include <string>
#include <utility>

#include "common/check.h"
#include "common/file.h"
#include "common/log.h"
#include "storage/apply.h"

namespace salius {

// Has the link removed when a checkpoint covers all records issued by the last close: the link must
// outlive every record of the file that recovery may still replay.
void HiddenLinks::DropOf(Node& node) {
  {
    absl::MutexLock lock(&node.state);
    if (!node.hidden_link) return;
  }
  Note(node, stream_.issued());
  LookSoon();
}

void HiddenLinks::Checkpointed() {
  {
    absl::MutexLock lock(&mu_);
    if (links_.empty()) return;
  }
  LookSoon();
}

void HiddenLinks::EndChores() {
  std::unique_ptr<Chores> chores;
  absl::MutexLock lock(&mu_);
  chores = std::move(chores_);  // ended after the lock
}

void HiddenLinks::LookSoon() {
  absl::MutexLock lock(&mu_);
  if (chores_ == nullptr) return;
  chores_->Do([this] {
    while (Look(/*wait=*/true)) {
    }
  });
}

void HiddenLinks::DropCovered() {
  if (Look(/*wait=*/false)) LookSoon();
}

std::vector<PinnedNode> HiddenLinks::ClosedFiles() {
  constexpr size_t kMost = 1000;
  std::vector<PinnedNode> files;
  absl::MutexLock lock(&mu_);
  for (auto& [node, link] : links_) {
    if (files.size() == kMost) break;
    absl::MutexLock state(&node->state);
    if (node->handles > 0 || !node->hidden_link) continue;
    table_.Pin(*node);
    files.emplace_back(table_, node);
  }
  return files;
}

void HiddenLinks::Note(Node& node, Seq after) {
  absl::MutexLock lock(&mu_);
  const auto [place, fresh] = links_.try_emplace(&node);
  if (fresh) {
    table_.Pin(node);
    place->second.node = PinnedNode(table_, &node);
  }
  place->second.after = std::max(place->second.after, after);
  next_ = std::min(next_, after);
}

bool HiddenLinks::Look(bool wait) {
  RecordStream* const stream = stream_.get();
  if (stream == nullptr) return false;
  const Seq checkpoint = stream->watermarks().checkpoint;
  std::vector<Link> covered;  // their pins are released after the lock
  {
    absl::MutexLock lock(&mu_);
    if (next_ > checkpoint) return false;  // cheap: files may be many, and each close calls it
    next_ = UINT64_MAX;
    absl::erase_if(links_, [&](auto& entry) {
      mu_.AssertHeld();
      Link& link = entry.second;
      if (link.after <= checkpoint) {
        covered.push_back(std::move(link));
        return true;
      }
      next_ = std::min(next_, link.after);
      return false;
    });
  }
  bool missed = false, noted = false;
  for (Link& link : covered) {
    // While `stream` is held, `last_seq` covers every record of the file. Its holder may itself be
    // waiting for a checkpoint.
    if (wait) {
      link.node->stream.Lock();
    } else if (!link.node->stream.TryLock()) {
      Note(*link.node, link.after);
      missed = true;
      continue;
    }
    noted |= !Drop(*link.node, checkpoint);
    link.node->stream.Unlock();
  }
  return missed || (noted && stream->watermarks().checkpoint > checkpoint);
}

bool HiddenLinks::Drop(Node& node, Seq checkpoint) {
  Seq last = 0;
  bool changing = false;
  {
    absl::MutexLock state(&node.state);
    // An open file comes back here at its next last close.
    if (node.handles > 0 || !node.hidden_link) return true;
    const NodeChanges::Records& records = node.seen_records();
    last = std::max({records.last_seq, records.name_seq, node.born_seq});
    // Its prediction, which a rename may just begin, counts the link.
    changing = last > checkpoint || records.prediction != nullptr || records.unapplied_names > 0;
    node.dropping_link = !changing;
  }
  if (changing) {  // changed while it was closed
    Note(node, last);
    return false;
  }
  const PathFd::Use held = node.path_fd.get();
  const absl::Status removed = held < 0
                                   ? ErrnoStatus(EBADF, "its descriptor")
                                   : backing_.Unlink(dirs_.open_fd(), IdName(node.id.load()), 0);
  {
    absl::MutexLock state(&node.state);
    node.dropping_link = false;
    if (removed.ok()) node.hidden_link = false;
  }
  if (!removed.ok()) {
    SLOG_WARN("a nameless file stays in .salius/open: {}", removed.ToString());
    return true;
  }
  UpdateOrphan(node, held);
  bulk_.EndOfNameless(node);
  return true;
}

absl::StatusOr<struct stat> HiddenLinks::StatOf(Node& node) {
  while (true) {
    bool hidden = false;
    {
      absl::MutexLock lock(&node.state);
      hidden = node.hidden_link;
    }
    if (!hidden) return backing_.Stat(node.path_fd.get());
    // The link may just be being removed, by a thread that waits for the disk.
    const std::string link = IdName(node.id.load());
    const bool before = backing_.StatAt(dirs_.open_fd(), link).ok();
    SALIUS_ASSIGN_OR_RETURN(struct stat st, backing_.Stat(node.path_fd.get()));
    if (before != backing_.StatAt(dirs_.open_fd(), link).ok()) continue;
    if (before && st.st_nlink > 0) --st.st_nlink;
    return st;
  }
}

void HiddenLinks::UpdateOrphan(Node& node, const PathFd::Use& held) {
  const absl::StatusOr<struct stat> st = backing_.Stat(held);
  if (!st.ok()) return health_.Fail(st.status());  // XFS says EIO once it has shut down
  if (st->st_nlink == 0) node.path_fd.Keep(held);  // nothing else leads to it
  absl::MutexLock lock(&node.state);
  node.orphan = st->st_nlink == 0;
}

}  // namespace salius
