#include "client/direct/process/process.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "client/direct/process/membership.h"
#include "client/direct/window/file_table.h"
#include "client/direct/window/robust_lock.h"
#include "client/direct/window/stripes.h"
#include "client/direct/window/system.h"
#include "client/direct/window/waits.h"
#include "common/limits.h"
#include "storage/direct_id.h"

namespace salius::direct {
namespace {

// How long an open waits for the coordinator to note more file ids, in sleeps of up to 16 ms.
constexpr int kFileIdSleeps = 64;

// A ticket is a sync's number above a seq. A session has fewer than 2^24 syncs and 2^40 records.
constexpr unsigned kTicketSeqBits = 40;
// A writer that waits for room looks again after this time, whatever the coordinator does.
constexpr int64_t kRoomSleepNs = 4'000'000;
constexpr Seq kNeverAsked = ~Seq{0};

// Returns the number of CPUs that this process may run on.
uint32_t Cpus() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (sched_getaffinity(0, sizeof(cpus), &cpus) != 0) return 1;
  return static_cast<uint32_t>(CPU_COUNT(&cpus));
}

bool Stamping(Phase phase) { return phase == Phase::kStamping || phase == Phase::kReplicated; }

// The outcome of reading a file's id.
enum class IdRead {
  kFound,   // it has one, of this inode and this volume
  kNone,    // it has none that counts
  kHidden,  // this process may not read it
};

IdRead ReadId(int fd, uint64_t inode, const VolumeId& volume, FileId* id) {
  uint8_t value[kDirectIdBytes];
  const long size =
      RawCall(SYS_fgetxattr, fd, AsLong(kDirectIdXattr), AsLong(value), sizeof(value));
  if (size == -EACCES) return IdRead::kHidden;
  DirectId found;
  if (size < 0 || !DecodeDirectId(value, static_cast<size_t>(size), &found) ||
      !DirectIdIsOf(found, inode, volume.bytes.data())) {
    return IdRead::kNone;
  }
  *id = found.file_id;
  return IdRead::kFound;
}

// Returns 0, or -errno. `flags`: those of setxattr(2).
long WriteId(int fd, uint64_t inode, const VolumeId& volume, FileId id, int flags) {
  DirectId fresh;
  fresh.file_id = id;
  fresh.inode = inode;
  std::memcpy(fresh.volume, volume.bytes.data(), sizeof(fresh.volume));
  uint8_t value[kDirectIdBytes];
  EncodeDirectId(fresh, value);
  return RawCall(SYS_fsetxattr, fd, AsLong(kDirectIdXattr), AsLong(value), sizeof(value), flags);
}

}  // namespace

int Process::Attach(const char* path, char* text, size_t text_bytes) {
  const Attached attached = AttachTo(path);
  const int error = attached.error != 0 ? attached.error : Adopt(attached);
  if (text_bytes > 0) {
    std::strncpy(text, attached.error != 0 ? attached.text : "the window", text_bytes - 1);
    text[text_bytes - 1] = '\0';
  }
  return error;
}

int Process::Adopt(const Attached& attached) {
  connection_ = attached.connection;
  std::memcpy(descriptors_, attached.descriptors, sizeof(descriptors_));
  const long address =
      RawCall(SYS_mmap, 0, static_cast<long>(attached.window_bytes), PROT_READ | PROT_WRITE,
              MAP_SHARED, descriptors_[kWindowDescriptor], 0);
  if (address < 0 && address > -4096) return static_cast<int>(-address);
  window_ = SharedWindow::Attach(reinterpret_cast<void*>(address), attached.window_bytes);
  if (!window_.valid()) return EPROTO;
  const int socket = descriptors_[kSocketDescriptor];
  const timeval patience{0, 1000};
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  acknowledged_ = Acknowledged(window_, socket, Cpus());
  gate_ = DirectGate(window_, acknowledged_);
  struct stat status;
  if (connection_ >= 0 && RawCall(SYS_fstat, connection_, AsLong(&status)) == 0) {
    gate_.MakeInside(status.st_dev, status.st_ino);
  }
  return 0;
}

void Process::GrantEarly() {
  early_ = window_.header().promises.external.load(std::memory_order_relaxed) != 0;
}

bool Process::Owns(int fd) const {
  if (fd < 0) return false;
  return fd == connection_ ||
         std::find(std::begin(descriptors_), std::end(descriptors_), fd) != std::end(descriptors_);
}

bool Process::Current(File file) const {
  return file.index < window_.header().files && window_.file(file.index).tag.load() == file.tag;
}

File Process::Open(int fd, bool made) {
  (void)made;  // a file that is not in the table is uncovered as new either way
  struct stat status;
  if (RawCall(SYS_fstat, fd, AsLong(&status)) != 0 || !S_ISREG(status.st_mode)) return {};
  const Header& header = window_.header();
  if (status.st_dev != header.root_device) return {};
  const Place place = PlaceOf(descriptors_[kRootDescriptor], fd);
  FileId id = kNoFileId;
  // With another name it may be below the directory too, and get its id there.
  if (place == Place::kOutside && status.st_nlink < 2 &&
      ReadId(fd, status.st_ino, header.volume, &id) == IdRead::kNone) {
    return {};  // also when its inode number was a file's of the volume
  }
  uint32_t index = FindFile(window_, status.st_ino);
  if (index == kNoFile) {
    WindowLock lock(window_);
    index = FindOrAddFile(window_, status.st_ino);
  }
  // The table never has room again, so no process logs this file.
  if (index == kNoFile) return {};
  // The library takes it for a file inside, so its writes would wait for nothing.
  if (early_ && place != Place::kBelow) gate_.EndEarly(gate::kFileOutside);
  Identify(fd, status.st_ino, index, place);
  return {index, window_.file(index).tag.load()};
}

// A file that is not identified is in the table all the same. Otherwise its writes would go past
// the records of a process that can identify it: later, or because it is of another user.
void Process::Identify(int fd, uint64_t inode, uint32_t file, Place place) {
  const VolumeId& volume = window_.header().volume;
  const FileEntry& entry = window_.file(file);
  FileId id = kNoFileId;
  FileId fresh = kNoFileId;
  // Before the stripe: it may wait. Only what is below the directory is found by a recovery.
  if (place == Place::kBelow && ReadId(fd, inode, volume, &id) != IdRead::kFound) {
    fresh = NewFileId();
  }
  StripeLock lock(window_, file);
  const FileId known = entry.id.load();
  switch (ReadId(fd, inode, volume, &id)) {
    case IdRead::kFound:
      if (place == Place::kBelow) return IdentifyFile(window_, file, id);
      if (place == Place::kUnknown && known == id) return;
      return LeaveUnidentified(window_, file, id);
    case IdRead::kNone:
      if (fresh != kNoFileId && WriteId(fd, inode, volume, fresh, 0) == 0) {
        return IdentifyFile(window_, file, fresh);
      }
      return LeaveUnidentified(window_, file, kNoFileId);
    case IdRead::kHidden:
      break;
  }
  const long error =
      fresh == kNoFileId ? -EACCES : WriteId(fd, inode, volume, fresh, XATTR_CREATE);
  if (error == 0) return IdentifyFile(window_, file, fresh);
  // It has an id, and an open of this session gave it or read it: the records under it count.
  if (error == -EEXIST && known != kNoFileId) return;
  LeaveUnidentified(window_, file, known);
}

FileId Process::NewFileId() {
  for (int i = 0; i < kFileIdSleeps; ++i) {
    const uint32_t news = News(window_);
    bool few = false;
    FileId id = kNoFileId;
    {
      WindowLock lock(window_);
      id = TakeFileId(window_, &few);
    }
    if (few) Kick(window_, kTroubleFileIds);
    if (id != kNoFileId || !acknowledged_.CoordinatorLives()) return id;
    SleepForNews(window_, news, 0, 16'000'000);
  }
  return kNoFileId;
}

void Process::AwaitRoom(File file, size_t bytes) {
  Header& header = window_.header();
  if (!file.tracked() || header.half_full.load(std::memory_order_relaxed) == 0) return;
  const FileEntry& entry = window_.file(file.index);
  const int64_t until = MonotonicNs() + kLongestRoomWaitNs;
  Seq asked_at = kNeverAsked;
  for (;;) {
    const uint32_t news = News(window_);
    if (!Current(file) || !Logs(entry) || !Stamping(window_.phase().phase())) return;
    if (entry.unsynced.load() + bytes > header.bulk_bytes) return;
    {
      WindowLock lock(window_);
      if (HasRoomForWrite(window_, bytes)) return;
    }
    const int64_t left = until - MonotonicNs();
    if (left <= 0 || !acknowledged_.CoordinatorLives()) return;
    // The checkpoint that is under way may not free enough.
    const Seq checkpoint = window_.window().checkpoint();
    if (checkpoint != asked_at) Kick(window_, kTroubleRoom);
    asked_at = checkpoint;
    SleepForNews(window_, news, 0, std::min(left, kRoomSleepNs));
  }
}

void Process::Lock(File file) {
  if (file.tracked()) TakeStripe(window_, file.index);
}

void Process::Unlock(File file) {
  if (file.tracked()) GiveStripe(window_, file.index);
}

bool Process::Logs(const FileEntry& entry) const {
  const uint64_t uncovered = entry.uncovered.load();
  if (IsCovered(window_, entry, uncovered)) return true;
  // While a real fsync(2) is under way, writes are logged, so that the file is covered after it.
  return !StaysUncovered(entry, uncovered) && entry.syncing.load() == uncovered;
}

Stamped Process::Log(uint32_t file, Draft& draft) {
  FileEntry& entry = window_.file(file);
  draft.file = file;
  draft.file_id = entry.id.load();
  return Stamp(window_, draft);
}

bool Process::Covered(File file, PhaseWord phase) const {
  if (phase.phase() != Phase::kReplicated || !Current(file)) return false;
  const FileEntry& entry = window_.file(file.index);
  return IsCovered(window_, entry, entry.uncovered.load());
}

void Process::Changed() {
  if (early_) gate_.Owe();
}

uint64_t Process::LogWrite(File file, uint64_t offset, const iovec* parts, int count,
                           size_t bytes) {
  const uint64_t seq = TryLogWrite(file, offset, parts, count, bytes);
  if (early_ && bytes != 0 && !Covered(file, window_.phase())) gate_.Owe();
  return seq;
}

uint64_t Process::LogTruncate(File file, uint64_t size) {
  const uint64_t seq = TryLogTruncate(file, size);
  if (early_ && !Covered(file, window_.phase())) gate_.Owe();
  return seq;
}

uint64_t Process::TryLogWrite(File file, uint64_t offset, const iovec* parts, int count,
                              size_t bytes) {
  if (!file.tracked() || !Current(file) || bytes == 0) return 0;
  FileEntry& entry = window_.file(file.index);
  if (!Logs(entry)) {
    UncoverFile(window_, file.index);
    return 0;
  }
  if (!Stamping(window_.phase().phase())) return 0;
  const uint64_t unsynced = entry.unsynced.load() + bytes;
  entry.unsynced.store(unsynced);
  if (unsynced > window_.header().bulk_bytes) {
    UncoverFile(window_, file.index, Reason::kBulk);
    return 0;
  }
  uint64_t last = 0;
  for (size_t done = 0; done < bytes;) {
    Draft draft;
    draft.arg0 = offset + done;
    draft.parts = parts;
    draft.count = count;
    draft.skip = done;
    draft.body_bytes = static_cast<uint32_t>(std::min(bytes - done, kMaxRecordBody));
    const Stamped stamped = Log(file.index, draft);
    if (stamped.why == NoSeq::kNoRoom) UncoverFile(window_, file.index, Reason::kFull);
    if (stamped.why != NoSeq::kNone) return 0;
    last = stamped.seq;
    done += draft.body_bytes;
  }
  return last;
}

uint64_t Process::TryLogTruncate(File file, uint64_t size) {
  if (!file.tracked() || !Current(file)) return 0;
  if (!Logs(window_.file(file.index))) {
    UncoverFile(window_, file.index);
    return 0;
  }
  Draft draft;
  draft.op = Op::kTruncate;
  draft.arg0 = size;
  const Stamped stamped = Log(file.index, draft);
  if (stamped.why == NoSeq::kNoRoom) UncoverFile(window_, file.index, Reason::kFull);
  return stamped.seq;
}

void Process::BeginUnseen(File file, Reason reason) {
  // Also if the entry is another file's since: EndUnseen counts down what this counts up.
  if (file.tracked()) BeginUnseenChange(window_, file.index, reason);
  Changed();
}

void Process::EndUnseen(File file, Reason reason) {
  if (file.tracked()) EndUnseenChange(window_, file.index, reason);
  Changed();
}

void Process::Uncover(File file, Reason reason) {
  if (file.tracked() && Current(file)) UncoverFile(window_, file.index, reason);
  Changed();
}

File Process::Known(uint64_t device, uint64_t inode) {
  const uint32_t index =
      device == window_.header().root_device ? FindFile(window_, inode) : kNoFile;
  if (index == kNoFile) return {};
  return {index, window_.file(index).tag.load()};
}

void Process::UncoverInode(uint64_t device, uint64_t inode, Reason reason) {
  if (device != window_.header().root_device) return;
  const uint32_t index = FindFile(window_, inode);
  // An entry of an inode number that is used again may still be the old file's: no harm is done.
  if (index != kNoFile) UncoverFile(window_, index, reason);
  Changed();
}

void Process::UncoverAll(Reason reason) {
  for (uint32_t index = 0; index < window_.header().files; ++index) {
    if (window_.file(index).inode.load() != 0) UncoverFile(window_, index, reason);
  }
  Changed();
}

uint64_t Process::Ticket(File file) {
  const PhaseWord phase = window_.phase();
  if (file.tracked() && phase.phase() == Phase::kReplicated) {
    StripeLock lock(window_, file.index);
    FileEntry& entry = window_.file(file.index);
    if (window_.phase() == phase && Current(file) &&
        IsCovered(window_, entry, entry.uncovered.load())) {
      const Seq last = entry.last_seq.load();
      return last <= window_.durable() ? 0 : last;
    }
  }
  return window_.header().sync_epoch.load() << kTicketSeqBits;
}

int Process::AwaitTicket(uint64_t ticket, int64_t timeout_ns) {
  const Seq upto = ticket & ((uint64_t{1} << kTicketSeqBits) - 1);
  const uint64_t epoch = ticket >> kTicketSeqBits;
  if (upto > window_.window().issued() || epoch > window_.header().sync_epoch.load()) {
    return EINVAL;
  }
  return gate_.AwaitMarks(upto, epoch, timeout_ns < 0 ? -1 : MonotonicNs() + timeout_ns);
}

Watermarks Process::Marks() const {
  Watermarks marks;
  // In this order they are in order.
  marks.checkpoint = window_.window().checkpoint();
  marks.durable = window_.durable();
  marks.issued = window_.window().issued();
  return marks;
}

bool Process::IsOfVolume(int fd) const {
  struct stat status;
  const Header& header = window_.header();
  if (RawCall(SYS_fstat, fd, AsLong(&status)) != 0 || status.st_dev != header.root_device) {
    return false;
  }
  return status.st_ino == header.root_inode ||
         PlaceOf(descriptors_[kRootDescriptor], fd) == Place::kBelow;
}

bool Process::IsOutside(int fd) const {
  struct stat status;
  const Header& header = window_.header();
  if (RawCall(SYS_fstat, fd, AsLong(&status)) != 0) return false;
  if (status.st_dev != header.root_device) return true;
  return status.st_ino != header.root_inode &&
         PlaceOf(descriptors_[kRootDescriptor], fd) == Place::kOutside;
}

// The child has the same memory and descriptors. It keeps the connection, so that the coordinator
// sees the end of both. No lock is held across a fork: the parent's other threads keep theirs.
void Process::AfterFork() {
  if (RawCall(SYS_getppid) != 0) return;
  // The parent is outside of this PID namespace. The threads of both may have the same ids, so this
  // process must take no lock of the window, and could not write to the volume.
  constexpr char kBegin[] = "salius: a forked process cannot use the volume: ";
  RawCall(SYS_write, STDERR_FILENO, AsLong(kBegin), sizeof(kBegin) - 1);
  RawCall(SYS_write, STDERR_FILENO, AsLong(kOtherNamespace), sizeof(kOtherNamespace) - 1);
  RawCall(SYS_write, STDERR_FILENO, AsLong("\n"), 1);
  RawCall(SYS_exit_group, kNotAttached);
}

}  // namespace salius::direct
