// How a process makes a file, and the volume, durable: the table of process.h.
#include <sys/stat.h>

#include <cstddef>

#include "client/direct/process/membership.h"
#include "client/direct/process/process.h"
#include "client/direct/window/file_table.h"
#include "client/direct/window/robust_lock.h"
#include "client/direct/window/stripes.h"
#include "client/direct/window/system.h"
#include "client/direct/window/waits.h"

namespace salius::direct {

int Process::Sync(File file, int fd, bool data_only) {
  if (!file.tracked()) return -RawFsync(fd);
  if (early_) {
    const int result = SyncEarly(file);
    if (result != kAgain) return result;
  }
  return SyncNow(file, fd, data_only);
}

int Process::SyncNow(File file, int fd, bool data_only) {
  if (!file.tracked()) return -RawFsync(fd);
  for (;;) {
    const PhaseWord phase = window_.phase();
    FileEntry& entry = window_.file(file.index);
    if (Current(file) && entry.failed.load() != 0) return EIO;
    int result = kAgain;
    switch (phase.phase()) {
      case Phase::kLocal:
        if (Current(file)) entry.unsynced.store(0);
        result = data_only ? -RawFdatasync(fd) : -RawFsync(fd);
        if (result == 0 && !acknowledged_.CoordinatorLives()) result = EIO;
        if (result == 0) CountLocal();
        break;
      case Phase::kEnded:
        return -RawFsync(fd);
      case Phase::kReplicated:
        result = SyncReplicated(file, fd, phase);
        break;
      case Phase::kStamping:
      case Phase::kGoingLocal: {
        const auto never = [](const SharedWindow&, uint64_t) { return false; };
        if (!acknowledged_.WaitForNews(phase, never, 0)) result = EIO;
        break;
      }
      case Phase::kFailed:
        return EIO;
    }
    if (result == kAgain) continue;
    if (result == 0) window_.header().counters.syncs.fetch_add(1, std::memory_order_relaxed);
    return result;
  }
}

int Process::SyncEarly(File file) {
  if (!gate_.Early() || !Current(file)) return kAgain;
  FileEntry& entry = window_.file(file.index);
  if (entry.failed.load() != 0) return EIO;
  const PhaseWord phase = window_.phase();
  if (phase.phase() == Phase::kEnded) return kAgain;
  if (phase.phase() == Phase::kFailed || !acknowledged_.CoordinatorLives()) return EIO;
  bool covered = false;
  {
    // A dead owner of the stripe is seen here.
    StripeLock lock(window_, file.index);
    covered = window_.phase() == phase && Covered(file, phase);
    entry.unsynced.store(0);
  }
  // Every write to a covered file has a record, and an output waits for all that are issued.
  if (!covered) gate_.Owe();
  // Early return may have ended meanwhile. The process that ended it then awaits all that is owed
  // and issued. So either it sees this sync, or this sync waits.
  if (!gate_.Early()) return kAgain;
  gate_.CountEarly(!covered);
  window_.header().counters.syncs.fetch_add(1, std::memory_order_relaxed);
  gate_.SendSoon();
  return 0;
}

bool Process::OweDirectory(int fd) {
  if (!early_ || !gate_.Early()) return false;
  struct stat status;
  if (RawCall(SYS_fstat, fd, AsLong(&status)) != 0 || !S_ISDIR(status.st_mode)) return false;
  if (!IsOfVolume(fd)) return false;
  const Phase phase = window_.phase().phase();
  if (phase == Phase::kEnded || phase == Phase::kFailed || !acknowledged_.CoordinatorLives()) {
    return false;
  }
  gate_.Owe();
  if (!gate_.Early()) return false;
  gate_.CountEarly(true);
  window_.header().counters.syncs.fetch_add(1, std::memory_order_relaxed);
  return true;
}

int Process::SyncReplicated(File file, int fd, PhaseWord phase) {
  FileEntry& entry = window_.file(file.index);
  uint64_t uncovered = 0;
  Seq last = 0;
  bool covered = false;
  {
    StripeLock lock(window_, file.index);
    // A write that found another phase made no record, and gave the stripe back before this.
    if (!(window_.phase() == phase)) return kAgain;
    if (Current(file)) {
      uncovered = entry.uncovered.load();
      covered = IsCovered(window_, entry, uncovered);
      last = entry.last_seq.load();
      entry.unsynced.store(0);
      if (!covered) entry.syncing.store(uncovered);
    }
  }
  if (covered) return Await(last, phase);
  return RealSync(file, fd, phase, uncovered);
}

int Process::RealSync(File file, int fd, PhaseWord phase, uint64_t uncovered) {
  FileEntry& entry = window_.file(file.index);
  Seq upto = 0;
  bool logged = false;
  {
    StripeLock stripe(window_, file.index);
    WindowLock lock(window_);
    upto = window_.window().issued();
    logged = entry.last_seq.load() > window_.window().checkpoint();
  }
  const uint32_t reasons = entry.reasons.load();
  constexpr uint32_t kNames =
      1u << static_cast<uint32_t>(Reason::kNew) | 1u << static_cast<uint32_t>(Reason::kName);
  int error = -RawFsync(fd);
  if (error == 0 && (reasons & kNames) != 0) {
    error = SyncName(descriptors_[kRootDescriptor], fd);
  }
  if (error != 0) return FailSync(entry, error);
  // Another thread may have put another file in the place of `fd` by dup2(2).
  struct stat status;
  if (RawCall(SYS_fstat, fd, AsLong(&status)) != 0 || status.st_ino != entry.inode.load() ||
      status.st_dev != window_.header().root_device) {
    return SyncAll();
  }
  Stamped stamped;
  {
    StripeLock stripe(window_, file.index);
    if (!Current(file)) return 0;
    // I3: older records of the file must not be replayed over the data that is on disk now. The
    // record comes first: killed after it, this process leaves the file uncovered.
    if (logged) {
      Draft draft;
      draft.op = Op::kOnDisk;
      draft.arg0 = upto;
      stamped = Log(file.index, draft);
    }
    if (stamped.why == NoSeq::kNone) {
      CountReasons(reasons);
      CoverFile(window_, file.index, uncovered, reasons);
    }
  }
  if (stamped.why == NoSeq::kNotStamping) return kAgain;
  if (stamped.why == NoSeq::kNone) return Await(stamped.seq, phase);
  // No room for the record: a checkpoint of all that it covers will do.
  Kick(window_, kTroubleRoom | kTroubleCheckpoint);
  const auto checkpointed = [](const SharedWindow& window, uint64_t seq) {
    return window.window().checkpoint() >= seq;
  };
  if (!acknowledged_.WaitForNews(phase, checkpointed, upto)) return EIO;
  return checkpointed(window_, upto) ? 0 : kAgain;
}

int Process::Await(Seq seq, PhaseWord phase) const {
  switch (acknowledged_.Wait(seq, phase)) {
    case Waited::kDurable:
      return 0;
    case Waited::kChanged:
      return kAgain;
    case Waited::kDead:
      return EIO;
  }
  return EIO;
}

// A failed fsync(2) is never repeated as if the data were clean (I8).
int Process::FailSync(FileEntry& entry, int error) const {
  if (error == EBADF || error == EINTR || error == EINVAL || error == EROFS) return error;
  entry.failed.store(error);
  Kick(window_, kTroubleSyncFailed);
  return error;
}

void Process::CountReasons(uint32_t reasons) const {
  Counters& counters = window_.header().counters;
  for (size_t i = 0; i < kReasons; ++i) {
    if ((reasons >> i & 1) != 0) counters.reasons[i].fetch_add(1, std::memory_order_relaxed);
  }
  counters.real_syncs.fetch_add(1, std::memory_order_relaxed);
}

void Process::CountLocal() const {
  window_.header().counters.local_syncs.fetch_add(1, std::memory_order_relaxed);
}

int Process::SyncAll() {
  const int root = descriptors_[kRootDescriptor];
  for (;;) {
    const PhaseWord phase = window_.phase();
    bool lives = true;
    switch (phase.phase()) {
      case Phase::kEnded:
        return -RawSyncfs(root);
      case Phase::kLocal: {
        const int error = -RawSyncfs(root);
        if (error != 0) return error;
        return acknowledged_.CoordinatorLives() ? 0 : EIO;
      }
      case Phase::kReplicated: {
        // The next sync of the coordinator covers everything, with its checkpoint.
        Header& header = window_.header();
        const uint64_t epoch = header.sync_epoch.load();
        uint64_t wanted = header.epoch_wanted.load();
        while (wanted < epoch && !header.epoch_wanted.compare_exchange_weak(wanted, epoch)) {
        }
        Kick(window_, kTroubleCheckpoint);
        const auto clean = [](const SharedWindow& window, uint64_t until) {
          return window.header().clean_epoch.load() >= until;
        };
        lives = acknowledged_.WaitForNews(phase, clean, epoch);
        if (lives && clean(window_, epoch)) return 0;
        break;
      }
      case Phase::kStamping:
      case Phase::kGoingLocal: {
        const auto never = [](const SharedWindow&, uint64_t) { return false; };
        lives = acknowledged_.WaitForNews(phase, never, 0);
        break;
      }
      case Phase::kFailed:
        return EIO;
    }
    if (!lives) return EIO;
  }
}

}  // namespace salius::direct
