// Syncs and power cuts of MemoryBacking, and errors that tests plan.
#include <errno.h>
#include <fcntl.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/check.h"
#include "tests/unit/storage/memory_backing.h"

namespace salius {
namespace {

absl::Status Error(int error, std::string_view what) { return ErrnoStatus(error, what); }

}  // namespace

void MemoryBacking::FailNth(Call call, int nth, int error) {
  absl::MutexLock lock(&mu_);
  planned_[{call, calls_[static_cast<size_t>(call)] + static_cast<uint64_t>(nth)}] = error;
}

void MemoryBacking::PowerCut() {
  absl::MutexLock lock(&mu_);
  planned_.clear();
  std::erase_if(open_, [this](const auto& entry) { return entry.first != root_; });
  opens_ = {{kRootIno, 1}};
  std::erase_if(disk_.inodes, [](const auto& entry) { return entry.second.links == 0; });
  disk_.used_blocks = 0;
  for (const auto& [ino, inode] : disk_.inodes) disk_.used_blocks += inode.data.blocks();
  now_ = disk_;
}

void MemoryBacking::EndProcess() {
  absl::MutexLock lock(&mu_);
  std::erase_if(open_, [this](const auto& entry) { return entry.first != root_; });
  opens_ = {{kRootIno, 1}};
  std::vector<ino_t> nameless;
  for (const auto& [ino, inode] : now_.inodes) {
    if (inode.links == 0) nameless.push_back(ino);
  }
  for (const ino_t ino : nameless) Collect(ino);
}

void MemoryBacking::OnEachCall(std::function<Turn(Call)> decide) {
  absl::MutexLock lock(&mu_);
  decide_ = std::move(decide);
}

bool MemoryBacking::IsSame(const Inode& a, const Inode& b) {
  return a.btime.tv_sec == b.btime.tv_sec && a.btime.tv_nsec == b.btime.tv_nsec;
}

void MemoryBacking::BringToDisk(WriteBack what) {
  if (what == WriteBack::kNothing) return;
  Tree next = now_;
  if (what == WriteBack::kJournal) {
    for (auto& [ino, inode] : next.inodes) {
      if (!S_ISREG(inode.mode)) continue;
      const auto before = disk_.inodes.find(ino);
      const bool there = before != disk_.inodes.end() && IsSame(before->second, inode);
      inode.data = there ? before->second.data : SparseFile(options_.block_bytes);
    }
  }
  disk_ = std::move(next);
}

void MemoryBacking::WriteBackJournal() {
  absl::MutexLock lock(&mu_);
  BringToDisk(WriteBack::kJournal);
}

void MemoryBacking::WriteBackBlocks(const std::function<bool()>& chosen) {
  absl::MutexLock lock(&mu_);
  std::string block(options_.block_bytes, '\0');
  for (auto& [ino, inode] : disk_.inodes) {
    const auto now = now_.inodes.find(ino);
    if (now == now_.inodes.end() || !S_ISREG(inode.mode)) continue;
    if (!IsSame(now->second, inode)) continue;
    const SparseFile& data = now->second.data;
    if (data.size() < inode.data.size() && chosen()) inode.data.Resize(data.size());
    for (uint64_t at = 0; at < data.size(); at += block.size()) {
      if (!chosen()) continue;
      const size_t size = data.Read(at, block.data(), block.size());
      inode.data.Write(at, std::string_view(block).substr(0, size));
    }
  }
}

absl::Status MemoryBacking::Begin(Call call) {
  if (decide_) {
    const Turn turn = decide_(call);
    BringToDisk(turn.before);
    if (turn.error != 0) return Error(turn.error, "decided by the test");
  }
  const uint64_t number = ++calls_[static_cast<size_t>(call)];
  const auto planned = planned_.find({call, number});
  if (planned == planned_.end()) return absl::OkStatus();
  const int error = planned->second;
  planned_.erase(planned);
  return Error(error, "planned by the test");
}

absl::Status MemoryBacking::Fsync(int fd) {
  absl::MutexLock lock(&mu_);
  SALIUS_RETURN_IF_ERROR(Begin(Call::kSync));
  const Open* const open = Find(fd);
  if (open == nullptr || (open->flags & O_PATH) != 0) return Error(EBADF, "fsync");
  const Inode& inode = now_.inodes.at(open->ino);
  if (inode.is_dir()) {
    BringToDisk(options_.exact_syncs ? WriteBack::kJournal : WriteBack::kAll);
    return absl::OkStatus();
  }
  auto kept = disk_.inodes.find(inode.ino);
  if (kept != disk_.inodes.end() && !IsSame(kept->second, inode)) {
    BringToDisk(WriteBack::kJournal);  // with the end of the object that had its number
    kept = disk_.inodes.find(inode.ino);
  }
  if (kept == disk_.inodes.end()) {
    if (!options_.exact_syncs) return absl::OkStatus();
    kept = disk_.inodes.emplace(inode.ino, Inode(options_.block_bytes)).first;
  }
  const uint64_t links = kept->second.links;
  kept->second = inode;
  kept->second.links = links;
  return absl::OkStatus();
}

absl::Status MemoryBacking::SyncFs(int fd) {
  absl::MutexLock lock(&mu_);
  SALIUS_RETURN_IF_ERROR(Begin(Call::kSync));
  const Open* const open = Find(fd);
  if (open == nullptr || (open->flags & O_PATH) != 0) return Error(EBADF, "syncfs");
  disk_ = now_;
  return absl::OkStatus();
}

}  // namespace salius
