#include "tests/sim/primary.h"

#include <algorithm>

#include "common/check.h"
#include "common/crc32c.h"
#include "common/ext4_watch.h"
#include "common/host.h"
#include "common/strings.h"
#include "storage/apply.h"
#include "storage/backing.h"

namespace salius::sim {
namespace {

constexpr uint64_t kStableBatchBytes = 64 << 10;
constexpr size_t kDatagramBytes = 4096;  // larger records go in pieces
constexpr FileId kFileIdBlock = 1000;

absl::Span<const uint8_t> Bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

SessionTuning Tuning(uint64_t session) {
  SessionTuning tuning;
  tuning.few = session % 3 * 3;
  tuning.file_id_block = kFileIdBlock;
  return tuning;
}

std::string Joined(absl::Span<const iovec> parts) {
  std::string bytes;
  for (const iovec& part : parts) {
    bytes.append(static_cast<const char*>(part.iov_base), part.iov_len);
  }
  return bytes;
}

}  // namespace

Primary::Primary(World& world, Disk& disk, FsModel& fs, const VolumeConfig& config,
                 uint64_t session, StateFile state, StableLog stable, AppliedMark mark)
    : world_(world),
      disk_(&disk),
      fs_(fs),
      config_(config),
      state_(std::move(state)),
      stable_(std::move(stable)),
      mark_(std::move(mark)),
      core_(config_, Tuning(session), world.now()) {}

absl::StatusOr<std::unique_ptr<Primary>> Primary::Start(World& world, Disk& disk, FsModel& fs,
                                                        const VolumeConfig& config,
                                                        uint64_t session) {
  SALIUS_ASSIGN_OR_RETURN(StateFile state,
                          StateFile::Open(LinuxBacking(), disk.dirfd(), kStateFileName));
  SALIUS_CHECK(!state.state().open, "recovery comes first");
  SALIUS_ASSIGN_OR_RETURN(
      StableLog stable,
      StableLog::Open(LinuxBacking(), disk.dirfd(), kStableLogFileName, config.volume, nullptr));
  SALIUS_ASSIGN_OR_RETURN(AppliedMark mark, AppliedMark::Open(disk.dirfd()));
  std::unique_ptr<Primary> primary(new Primary(world, disk, fs, config, session, std::move(state),
                                               std::move(stable), std::move(mark)));
  SALIUS_ASSIGN_OR_RETURN(const uint64_t complaints, Ext4Complaints(disk.dirfd()));
  primary->mark_.Reset(primary->state_.state().epoch + 1, complaints);
  StateNotes::Place place;
  SALIUS_ASSIGN_OR_RETURN(place.boot_id, BootId());
  SALIUS_ASSIGN_OR_RETURN(place.mount_id, UniqueMountId(disk.dirfd()));
  const VolumeState first =
      StateNotes::First(primary->state_.state(), place, config.acks, kFileIdBlock);
  SALIUS_RETURN_IF_ERROR(primary->state_.Write(first));
  primary->core_.Begin(first, session);
  SALIUS_RETURN_IF_ERROR(primary->stable_.Cut(primary->epoch(), 0));
  return primary;
}

bool Primary::CanIssue(size_t body_bytes) const {
  return core_.CanIssue(world_.now(), kRecordHeaderBytes + body_bytes);
}

Seq Primary::Issue(const RecordHeader& header, std::string body, SendWhen when) {
  RecordDraft draft;
  draft.op = header.op;
  draft.file_id = header.file_id;
  draft.arg0 = header.arg0;
  draft.arg1 = header.arg1;
  draft.arg2 = header.arg2;
  draft.body = std::move(body);
  auto record = std::make_shared<Record>(std::move(draft));
  record->stamp().body_crc = Crc32c(Bytes(record->body()));
  Work work;
  const Seq seq =
      core_.Issue(world_.now(), static_cast<int64_t>(world_.Realtime()), record, when, work);
  records_.push_back({.issued_ns = world_.now()});
  SALIUS_CHECK(records_.size() == seq);
  if (when == SendWhen::kSoon) {
    core_.waiters().Add(seq, [this, seq](const absl::Status& outcome) {
      notified_too_early_ |= outcome.ok() && seq > core().durable();
    });
  }
  Do(work);
  return seq;
}

Seq Primary::OldestNeeded() const {
  Seq seq = core().checkpoint() + 1;
  while (seq <= core().issued() && records_[seq - 1].stable) ++seq;
  return seq;
}

FileId Primary::NewFileId() {
  Work work;
  const std::optional<FileId> id = core_.NewFileId(world_.now(), work);
  SALIUS_CHECK(id.has_value(), "more files in one session than ids in a block");
  Do(work);
  return *id;
}

void Primary::Feed(const Input& input) {
  Work work;
  core_.Feed(world_.now(), input, work);
  Do(work);
}

void Primary::OnDatagram(int replica, std::string_view datagram) {
  const AckDatagram one{Bytes(datagram), replica};
  Feed(input::Received{absl::MakeConstSpan(&one, 1)});
}

void Primary::OnOpened(int replica, Seq base, const absl::StatusOr<Opening>& opened) {
  if (opened.ok()) {
    core_.paths().SetCompact(static_cast<size_t>(replica), opened->compact_records);
    Feed(input::Opened{replica, opened->incarnation, opened->store, base, opened->free_bytes});
  } else {
    Feed(input::OpenFailed{replica, std::string(opened.status().message()),
                           absl::IsFailedPrecondition(opened.status())});
  }
}

void Primary::Tick() {
  Work work;
  core_.Feed(world_.now(), input::TimePassed{}, work);
  // The io thread may reach this sooner or later.
  ApplyDurable(/*few_too=*/world_.random().Chance(0.5));
  Do(work);
}

void Primary::Send(const SendJob& job) {
  std::vector<RecordBytes> records;
  for (const RecordRef& record : job.records) {
    records.push_back(
        {record->seq(), {record->encoded_header(), kRecordHeaderBytes}, Bytes(record->body())});
  }
  for (const auto coding : {Packer::Coding::kFull, Packer::Coding::kCompact}) {
    const int compact = job.compact & job.targets;
    const int targets = coding == Packer::Coding::kCompact ? compact : job.targets & ~compact;
    if (targets == 0) continue;
    Packer packer;
    packer.Pack(job.header, records, kDatagramBytes, coding);
    std::vector<std::string> datagrams;
    for (size_t i = 0; i < packer.size(); ++i) datagrams.push_back(world_.Seal(Joined(packer[i])));
    for (int replica = 0; replica < static_cast<int>(config_.replicas.size()); ++replica) {
      if ((targets >> replica & 1) == 0) continue;
      for (const std::string& datagram : datagrams) world_.SendToReplica(replica, datagram);
    }
  }
}

void Primary::Job(std::function<absl::Status()> work, std::function<void(absl::Status)> done) {
  if (disk_ == nullptr) return;
  switch (world_.JobTrouble()) {
    case DiskTrouble::kNone:
      break;
    case DiskTrouble::kSyncFails:
      disk_->FailSync(1);
      break;
    case DiskTrouble::kWriteFails:
      disk_->FailWrite(1);
      break;
    case DiskTrouble::kFull:
      disk_->FullAfter(1);
  }
  const Disk::Job job = disk_->BeginJob();
  const absl::Status status = work();
  disk_->EndJob();
  disk_->Mend();
  world_.At(world_.DiskTime(), [this, job, status, done = std::move(done)] {
    if (disk_ == nullptr) return;
    if (status.ok()) disk_->Commit(job);
    done(status);
  });
}

void Primary::StartNote(const VolumeState& note) {
  note_busy_ = true;
  Job([this, note] { return state_.Write(note); },
      [this, mode = note.mode](const absl::Status& status) {
        note_busy_ = false;
        if (mode != last_mode_) ++mode_changes_;
        last_mode_ = mode;
        Work work;
        core_.Feed(world_.now(), input::NoteWritten{status}, work);
        ApplyDurable(/*few_too=*/true);
        Do(work);
      });
}

void Primary::StartSync() {
  if (disk_ == nullptr) return;
  const Seq before = core().applied();
  const uint64_t changes = fs_.changes();
  const bool fails = world_.SyncFails();
  mark_.SyncBegins();
  syncing_ = changes;
  world_.At(world_.DiskTime(), [this, before, changes, fails] {
    if (disk_ == nullptr) return;
    syncing_.reset();
    if (fails) {
      fs_.FailSync(changes, world_.random());
    } else {
      fs_.SyncUpTo(changes);
    }
    mark_.SyncEnds(!fails);
    Feed(input::Synced{before, fails ? absl::InternalError("syncfs: EIO") : absl::OkStatus()});
  });
}

void Primary::StartStable() {
  if (stable_busy_ || disk_ == nullptr) return;
  const std::optional<Seq> cut = std::exchange(cut_, std::nullopt);
  const std::vector<RecordRef> records = core_.TakeStableBatch(kStableBatchBytes);
  if (!cut && records.empty()) return;
  stable_busy_ = true;
  Job(
      [&] {
        absl::Status status;
        if (cut) status = stable_.Cut(epoch(), *cut);
        if (!status.ok() || records.empty()) return status;
        std::vector<StableLog::Item> items;
        for (const RecordRef& record : records) {
          items.push_back({{record->encoded_header(), kRecordHeaderBytes}, Bytes(record->body())});
        }
        return stable_.Append(items);
      },
      [this, records](const absl::Status& status) {
        stable_busy_ = false;
        Work work;
        if (status.ok()) {
          for (const RecordRef& record : records) records_[record->seq() - 1].stable = true;
        }
        if (!records.empty() || !status.ok()) {
          core_.Feed(world_.now(), input::Stable{records, status}, work);
        }
        if (status.ok()) StartStable();
        Do(work);
      });
}

void Primary::ApplyDurable(bool few_too) {
  // The zombie's file system is no longer its own.
  if (disk_ == nullptr || core().applied() >= core().durable() || !core().failure().ok()) return;
  if (!few_too && core().durable() - core().applied() < SessionCore::kApplyAtLeast &&
      !OneIsAwaited()) {
    return;
  }
  std::vector<RecordRef> batch;
  Work work;
  const auto next = [&] { core_.NextToApply(core().applied(), &batch); };
  for (next(); !batch.empty(); next()) {
    for (const RecordRef& record : batch) {
      if (const absl::Status failed = ApplyOne(*record); !failed.ok()) {
        return core_.Feed(world_.now(), input::ApplyFailed{failed}, work);
      }
      core_.Feed(world_.now(), input::Applied{record->seq()}, work);
    }
  }
}

bool Primary::OneIsAwaited() const {
  std::vector<RecordRef> next;
  core_.NextToApply(core().applied(), &next);
  return std::any_of(next.begin(), next.end(),
                     [](const RecordRef& record) { return !IsDataOp(record->header().op); });
}

absl::Status Primary::ApplyOne(const Record& record) {
  const RecordHeader& header = record.header();
  if (world_.NoRoomFor(header)) {
    if (!ChangesNames(header.op)) {
      // No caller waits for it any more: acknowledged data stays in the log.
      return absl::ResourceExhaustedError("no room to apply a record");
    }
    refused_.push_back(header.seq);
  } else if (world_.ApplyFails()) {
    fs_.ApplyPart(header, record.body(), world_.random());
    apply_failed_ = true;
    return absl::InternalError("EIO when a record was applied");
  } else {
    SALIUS_CHECK_OK(fs_.Apply(header, record.body()));
  }
  mark_.Store(header.seq);
  return absl::OkStatus();
}

void Primary::OnBulkSyncFailed() {
  mark_.SyncBegins();
  mark_.SyncEnds(false);
  Feed(input::ApplyFailed{absl::InternalError("fdatasync: EIO")});
}

void Primary::Die() {
  if (disk_ == nullptr) return;
  if (syncing_ && world_.LastSyncFails()) {
    fs_.FailSync(*syncing_, world_.random());
  } else if (world_.WriteBackFails()) {
    fs_.FailSync(fs_.changes(), world_.random());
    disk_->Complain();
  }
  if (!core().failure().ok()) return;
  std::vector<RecordRef> next;
  core_.NextToApply(core().applied(), &next);
  next.resize(world_.random().Below(next.size() + 1));
  for (const RecordRef& record : next) {
    if (!IsDataOp(record->header().op) || world_.NoRoomFor(record->header())) return;
    SALIUS_CHECK_OK(fs_.Apply(record->header(), record->body()));
  }
}

void Primary::Do(Work& work) {
  for (const SendJob& job : work.jobs) Send(job);
  for (const Replicator::OpenRequest& open : work.opens) {
    world_.OpenSession(open.replica, epoch(), session(), open.base);
  }
  for (Waiters::Callback& waiter : work.done) std::move(waiter.done)(absl::OkStatus());
  for (Waiters::Callback& waiter : work.failed) std::move(waiter.done)(work.why);
  if (work.note) StartNote(*work.note);
  if (work.start_sync) StartSync();
  if (work.cut) cut_ = work.cut;
  if (work.stable_wanted || work.cut) StartStable();
  ApplyDurable(/*few_too=*/false);
}

}  // namespace salius::sim
