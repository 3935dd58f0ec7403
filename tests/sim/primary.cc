#include "tests/sim/primary.h"

#include <algorithm>

#include "common/check.h"
#include "common/crc32c.h"
#include "common/ext4_watch.h"
#include "common/host.h"
#include "common/strings.h"
#include "storage/apply.h"

namespace salius::sim {
namespace {

constexpr uint64_t kStableBatchBytes = 64 << 10;
constexpr size_t kDatagramBytes = 4096;  // larger records go in pieces
constexpr Seq kApplyAtLeast = 8;  // the pipeline's

absl::Span<const uint8_t> Bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

ReplicatorOptions CoreOptions(const VolumeConfig& config, uint64_t session) {
  ReplicatorOptions options;
  options.replicas = static_cast<int>(config.replicas.size());
  options.acks = static_cast<int>(config.acks);
  options.delta_ns = static_cast<int64_t>(config.delta_us) * 1000;
  options.tau_ns = static_cast<int64_t>(config.tau_ms) * 1'000'000;
  options.k = static_cast<int>(config.k);
  options.log_max_bytes = config.log_max_bytes;
  options.few = session % 3 * 3;
  return options;
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
      session_(session),
      state_(std::move(state)),
      stable_(std::move(stable)),
      mark_(std::move(mark)),
      window_(NewWindow(Replicator::WindowSlots(config.log_max_bytes))),
      core_(CoreOptions(config, session), *window_, world.now()) {}

absl::StatusOr<std::unique_ptr<Primary>> Primary::Start(World& world, Disk& disk, FsModel& fs,
                                                        const VolumeConfig& config,
                                                        uint64_t session) {
  SALIUS_ASSIGN_OR_RETURN(StateFile state, StateFile::Open(disk.dirfd(), kStateFileName));
  SALIUS_CHECK(!state.state().open, "recovery comes first");
  SALIUS_ASSIGN_OR_RETURN(
      StableLog stable, StableLog::Open(disk.dirfd(), kStableLogFileName, config.volume, nullptr));
  SALIUS_ASSIGN_OR_RETURN(AppliedMark mark, AppliedMark::Open(disk.dirfd()));
  std::unique_ptr<Primary> primary(new Primary(world, disk, fs, config, session, std::move(state),
                                               std::move(stable), std::move(mark)));
  VolumeState next = primary->state_.state();
  primary->epoch_ = ++next.epoch;
  SALIUS_ASSIGN_OR_RETURN(const uint64_t complaints, Ext4Complaints(disk.dirfd()));
  primary->mark_.Reset(next.epoch, complaints);
  next.open = true;
  next.mode = Mode::kLocal;
  SALIUS_ASSIGN_OR_RETURN(next.boot_id, BootId());
  SALIUS_ASSIGN_OR_RETURN(next.mount_id, UniqueMountId(disk.dirfd()));
  next.acks = config.acks;
  next.members.clear();
  next.checkpoint = 0;
  primary->next_file_id_ = next.file_id_limit;
  next.file_id_limit += 1000;
  SALIUS_RETURN_IF_ERROR(primary->state_.Write(next));
  primary->opened_ = next;
  primary->last_timestamp_ = next.last_timestamp_ns;
  SALIUS_RETURN_IF_ERROR(primary->stable_.Cut(primary->epoch_, 0));
  return primary;
}

bool Primary::CanIssue(size_t body_bytes) const {
  return core_.CanIssue(world_.now(), StableLog::EntryBytes(kRecordHeaderBytes + body_bytes));
}

Seq Primary::Issue(RecordHeader header, std::string body, SendWhen when) {
  header.body_bytes = static_cast<uint32_t>(body.size());
  header.body_crc = Crc32c(Bytes(body));
  header.volume = config_.volume;
  header.epoch = epoch_;
  last_timestamp_ = NextTimestamp(last_timestamp_, world_.Realtime());
  header.timestamp_ns = last_timestamp_;
  header.durable_mark = core_.durable();
  header.checkpoint_mark = core_.checkpoint();
  header.seq = core_.Issue(world_.now(), StableLog::EntryBytes(header.total_bytes()), when);
  Issued issued;
  issued.encoded = EncodeRecord(header, body);
  issued.header = header;
  issued.body = std::move(body);
  issued.time = world_.now();
  issued_.push_back(std::move(issued));
  SALIUS_CHECK(issued_.size() == header.seq);
  Drain();
  return header.seq;
}

void Primary::OnDatagram(int replica, std::string_view datagram) {
  const auto header = DecodeFrameHeader(Bytes(datagram));
  if (!header.ok() || header->type != FrameType::kAck || header->volume != config_.volume ||
      header->epoch != epoch_ || header->session != session_) {
    return;
  }
  const auto ack = DecodeAckPayload(Bytes(datagram).subspan(kFrameHeaderBytes));
  if (!ack.ok()) return;
  const int64_t now = world_.now();
  const auto sent = static_cast<int64_t>(header->send_time_ns);
  core_.OnAck(now, replica, sent > 0 && sent <= now ? now - sent : -1, *ack);
  Drain();
}

void Primary::OnOpened(int replica, Seq base, const absl::StatusOr<Opening>& opened) {
  if (opened.ok()) {
    core_.OnOpened(world_.now(), replica, opened->incarnation, opened->store, base,
                   opened->free_bytes);
  } else {
    core_.OnOpenFailed(world_.now(), replica, std::string(opened.status().message()),
                       absl::IsFailedPrecondition(opened.status()));
  }
  Drain();
}

void Primary::Tick() {
  core_.Tick(world_.now());
  // The io thread may reach this sooner or later.
  ApplyDurable(/*few_too=*/world_.random().Chance(0.5));
  Drain();
}

FrameHeader Primary::Frame() const {
  FrameHeader header;
  header.volume = config_.volume;
  header.epoch = epoch_;
  header.session = session_;
  header.send_time_ns = static_cast<uint64_t>(world_.now());
  header.trim_mark = core_.checkpoint();
  header.durable_mark = core_.durable();
  header.issued_mark = core_.sendable();
  return header;
}

void Primary::Send(const Replicator::SendRange& range) {
  std::vector<RecordBytes> records;
  for (Seq seq = range.first; seq <= range.last; ++seq) {
    const auto bytes = Bytes(issued_[seq - 1].encoded);
    records.push_back({seq, bytes.first(kRecordHeaderBytes), bytes.subspan(kRecordHeaderBytes)});
  }
  SendPacked(range.replica, records);
}

void Primary::SendPacked(int replica, absl::Span<const RecordBytes> records) {
  Packer packer;
  packer.Pack(Frame(), records, kDatagramBytes);
  for (size_t i = 0; i < packer.size(); ++i) world_.SendToReplica(replica, Joined(packer[i]));
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
    Drain();
  });
}

void Primary::StartNote(const Note& note) {
  VolumeState next = opened_;
  next.mode = note.mode;
  next.checkpoint = note.checkpoint;
  next.members.clear();
  for (size_t i = 0; i < config_.replicas.size(); ++i) {
    if (note.members & (1u << i)) {
      next.members.push_back({config_.replicas[i], note.incarnation[i], note.base[i]});
    }
  }
  next.last_timestamp_ns = last_timestamp_;
  Job([this, next] { return state_.Write(next); },
      [this, mode = note.mode](const absl::Status& status) {
        if (mode != last_mode_) ++mode_changes_;
        last_mode_ = mode;
        core_.OnNoteWritten(world_.now(), status);
        ApplyDurable(/*few_too=*/true);
      });
}

void Primary::StartStable() {
  if (stable_busy_ || disk_ == nullptr) return;
  const std::optional<Seq> cut = std::exchange(cut_, std::nullopt);
  const std::vector<Seq> seqs = core_.TakeStableBatch(kStableBatchBytes);
  if (!cut && seqs.empty()) return;
  stable_busy_ = true;
  Job(
      [&] {
        absl::Status status;
        if (cut) status = stable_.Cut(epoch_, *cut);
        if (!status.ok() || seqs.empty()) return status;
        std::vector<StableLog::Item> items;
        for (const Seq seq : seqs) {
          const auto bytes = Bytes(issued_[seq - 1].encoded);
          items.push_back({bytes.first(kRecordHeaderBytes), bytes.subspan(kRecordHeaderBytes)});
        }
        return stable_.Append(items);
      },
      [this, seqs](const absl::Status& status) {
        stable_busy_ = false;
        if (!seqs.empty() || !status.ok()) core_.OnStable(world_.now(), seqs, status);
        if (status.ok()) StartStable();
      });
}

void Primary::ApplyDurable(bool few_too) {
  // The zombie's file system is no longer its own.
  if (disk_ == nullptr || core_.applied() >= core_.durable() || !core_.failure().ok()) return;
  const auto awaited = [](const Issued& record) { return !IsDataOp(record.header.op); };
  if (!few_too && core_.durable() - core_.applied() < kApplyAtLeast &&
      std::none_of(issued_.begin() + static_cast<ptrdiff_t>(core_.applied()),
                   issued_.begin() + static_cast<ptrdiff_t>(core_.durable()), awaited)) {
    return;
  }
  for (Seq seq = core_.applied() + 1; seq <= core_.durable(); ++seq) {
    const Issued& record = issued_[seq - 1];
    if (world_.NoRoomFor(record.header)) {
      if (!ChangesNames(record.header.op)) {
        // No caller waits for it any more: acknowledged data stays in the log.
        return core_.OnApplyFailed(absl::ResourceExhaustedError("no room to apply a record"));
      }
      refused_.push_back(seq);
    } else if (world_.ApplyFails()) {
      fs_.ApplyPart(record.header, record.body, world_.random());
      apply_failed_ = true;
      return core_.OnApplyFailed(absl::InternalError("EIO when a record was applied"));
    } else {
      SALIUS_CHECK_OK(fs_.Apply(record.header, record.body));
    }
    mark_.Store(seq);
    core_.OnApplied(seq);
  }
}

void Primary::OnBulkSyncFailed() {
  mark_.SyncBegins();
  mark_.SyncEnds(false);
  core_.OnApplyFailed(absl::InternalError("fdatasync: EIO"));
  Drain();
}

void Primary::Die() {
  if (disk_ == nullptr) return;
  if (syncing_ && world_.LastSyncFails()) {
    fs_.FailSync(*syncing_, world_.random());
  } else if (world_.WriteBackFails()) {
    fs_.FailSync(fs_.changes(), world_.random());
    disk_->Complain();
  }
  if (!core_.failure().ok()) return;
  const Seq left = core_.durable() - core_.applied();
  const Seq last = core_.applied() + world_.random().Below(left + 1);
  for (Seq seq = core_.applied() + 1; seq <= last; ++seq) {
    const Issued& record = issued_[seq - 1];
    if (!IsDataOp(record.header.op) || world_.NoRoomFor(record.header)) return;
    SALIUS_CHECK_OK(fs_.Apply(record.header, record.body));
  }
}

void Primary::Drain() {
  while (true) {
    const Replicator::Outputs out = core_.TakeOutputs();
    for (const Replicator::SendRange& range : out.sends) Send(range);
    for (int i = 0; i < static_cast<int>(config_.replicas.size()); ++i) {
      if (out.probes & (1u << i)) {
        SendPacked(i, {});
      }
    }
    for (const Replicator::OpenRequest& open : out.opens) {
      world_.OpenSession(open.replica, epoch_, session_, open.base);
    }
    if (out.note) StartNote(*out.note);
    if (out.start_sync) {
      const Seq before = core_.applied();
      const uint64_t changes = fs_.changes();
      if (disk_ != nullptr) {
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
          core_.OnSynced(world_.now(), before,
                         fails ? absl::InternalError("syncfs: EIO") : absl::OkStatus());
          Drain();
        });
      }
    }
    if (out.cut) cut_ = *out.cut;
    if (out.stable_wanted || out.cut) StartStable();
    ApplyDurable(/*few_too=*/false);
    if (!out.durable_advanced && !out.note && out.sends.empty() && !out.start_sync) return;
  }
}

}  // namespace salius::sim
