#include "client/session/session_core.h"

#include <algorithm>
#include <iterator>
#include <memory>

#include "common/check.h"
#include "log/stable_log.h"

namespace salius {
namespace {

ReplicatorOptions PolicyOptions(const VolumeConfig& config, const SessionTuning& tuning) {
  ReplicatorOptions options;
  options.replicas = static_cast<int>(config.replicas.size());
  options.acks = static_cast<int>(config.acks);
  options.delta_ns = static_cast<int64_t>(config.delta_us) * 1000;
  options.tau_ns = static_cast<int64_t>(config.tau_ms) * 1'000'000;
  options.k = static_cast<int>(config.k);
  options.log_max_bytes = config.log_max_bytes;
  options.few = tuning.few;
  options.output_triggered = tuning.output_triggered;
  options.noticed = tuning.foreign != nullptr;
  return options;
}

template <typename... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <typename... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

template <typename T>
void Append(std::vector<T>&& from, std::vector<T>& to) {
  if (to.empty()) {
    to = std::move(from);
  } else {
    std::move(from.begin(), from.end(), std::back_inserter(to));
  }
}

}  // namespace

void RecordRing::DropUpTo(Seq seq, std::vector<RecordRef>& dropped) {
  while (!records_.empty() && first_ <= seq) {
    dropped.push_back(std::move(records_.front()));
    records_.pop_front();
    ++first_;
  }
}

SessionCore::SessionCore(const VolumeConfig& config, const SessionTuning& tuning, int64_t now)
    : config_(config),
      file_id_block_(tuning.file_id_block),
      foreign_(tuning.foreign),
      window_(foreign_ ? nullptr : NewWindow(Replicator::WindowSlots(config.log_max_bytes))),
      policy_(PolicyOptions(config, tuning), foreign_ ? foreign_->window() : *window_, now),
      stamper_(config.volume, 0, 0),
      waiters_(tuning.cpus),
      file_ids_(0, 0),
      notes_({}, {}),
      paths_(config.replicas.size()) {}

void SessionCore::Begin(const VolumeState& first, uint64_t session) {
  key_ = {config_.volume, first.epoch, session};
  stamper_ = Stamper(config_.volume, first.epoch, first.last_timestamp_ns);
  file_ids_ = FileIdBlocks(first.file_id_limit - file_id_block_, file_id_block_);
  notes_ = StateNotes(first, config_.replicas);
}

bool SessionCore::CanIssue(int64_t now, size_t record_bytes) const {
  return policy_.CanIssue(now, StableLog::EntryBytes(record_bytes));
}

Seq SessionCore::Issue(int64_t now, int64_t realtime_ns, const std::shared_ptr<Record>& record,
                       SendWhen when, Work& work) {
  RecordHeader& header = record->stamp();
  stamper_.Stamp(header, realtime_ns, policy_.durable(), policy_.checkpoint());
  header.seq = policy_.Issue(now, StableLog::EntryBytes(header.total_bytes()), when);
  record->Encode();
  ring_.Add(record);
  // A record that is only gathered needs no work yet.
  if (policy_.sendable() == header.seq || !policy_.counting_acks()) Collect(now, work);
  return header.seq;
}

void SessionCore::Feed(int64_t now, const Input& input, Work& work) {
  if (foreign_ == nullptr) {
    Take(now, input, work);
  } else {
    file_ids_.TakenUpTo(foreign_->Enter(now, policy_, paths_));
    if (file_ids_.WantsNote() && policy_.failure().ok()) policy_.RequestNote(now);
    Take(now, input, work);
    foreign_->Leave(policy_, paths_, file_ids_.limit());
  }
  Collect(now, work);
}

void SessionCore::Take(int64_t now, const Input& input, Work& work) {
  std::visit(
      Overloaded{
          [&](const input::Received& in) {
            for (const AckDatagram& datagram : in.datagrams) TakeDatagram(now, datagram, work);
          },
          [&](const input::TimePassed&) { policy_.Tick(now); },
          [&](const input::Awaited& in) {
            if (policy_.sendable() < in.seq && policy_.failure().ok()) policy_.Send(now, in.when);
          },
          [&](const input::Opened& in) {
            policy_.OnOpened(now, in.replica, in.incarnation, in.store, in.base, in.free_bytes);
          },
          [&](const input::OpenFailed& in) {
            policy_.OnOpenFailed(now, in.replica, in.why, in.fenced);
          },
          [&](const input::AddressTaken& in) { policy_.OnAddressTaken(now, in.replica); },
          [&](const input::Stable& in) { TakeStable(now, in); },
          [&](const input::Applied& in) { policy_.OnApplied(in.seq); },
          [&](const input::ApplyFailed& in) { policy_.OnApplyFailed(in.status); },
          [&](const input::Synced& in) { policy_.OnSynced(now, in.applied_before, in.status); },
          [&](const input::NoteWritten& in) {
            if (in.status.ok()) file_ids_.OnNoteWritten();
            policy_.OnNoteWritten(now, in.status);
          },
          [&](const input::CheckpointWanted&) { policy_.RequestCheckpoint(now); },
          [&](const input::SyncWanted&) { policy_.RequestSync(now); },
          [&](const input::WentBack& in) { policy_.OnWentBack(now, in.replica); },
          [&](const input::StripesPassed&) { policy_.OnStripesPassed(now); },
          [&](const input::Stopping&) {
            stopping_ = true;
            CollectCallbacks(work);
          },
      },
      input);
}

std::optional<FileId> SessionCore::NewFileId(int64_t now, Work& work) {
  const std::optional<FileId> id = file_ids_.Take();
  if (file_ids_.WantsNote()) {
    policy_.RequestNote(now);
    Collect(now, work);
  }
  return id;
}

std::vector<RecordRef> SessionCore::TakeStableBatch(uint64_t max_bytes) {
  std::vector<RecordRef> records;
  for (const Seq seq : policy_.TakeStableBatch(max_bytes)) records.push_back(ring_.At(seq));
  return records;
}

void SessionCore::NextToApply(Seq taken, std::vector<RecordRef>* batch) const {
  batch->clear();
  if (!policy_.failure().ok()) return;
  const Seq last = std::min(policy_.durable(), taken + kApplyTogether);
  for (Seq seq = taken + 1; seq <= last; ++seq) batch->push_back(ring_.At(seq));
}

absl::Status SessionCore::Waitable() const {
  return stopping_ ? absl::UnavailableError("the volume is being unmounted") : policy_.failure();
}

VolumeState SessionCore::ClosedNote() const {
  SALIUS_CHECK(policy_.checkpoint() == policy_.issued());
  return notes_.Closed(policy_.issued(), Marks(file_ids_.next()));
}

std::string_view SessionCore::mode() const {
  // I10: the present truth. Acks count only in mode replicated; on the way to local they no longer
  // do.
  if (!policy_.failure().ok()) return "failed";
  return ModeName(policy_.counting_acks() ? Mode::kReplicated : Mode::kLocal);
}

void SessionCore::TakeDatagram(int64_t now, const AckDatagram& datagram, Work& work) {
  ReceivedAck ack;
  const AckVerdict verdict = FilterAck(key_, datagram, &ack);
  ++work.datagrams[static_cast<size_t>(verdict)];
  if (verdict != AckVerdict::kGood) return;
  const int64_t rtt = ack.sent_ns > 0 && ack.sent_ns <= now ? now - ack.sent_ns : -1;
  policy_.OnAck(now, datagram.replica, rtt, ack.payload);
  if ((ack.payload.flags & (kAckUnknownSession | kAckFenced)) != 0) return;
  if (paths_[datagram.replica].Acked(now, ack.payload.contiguous)) {
    work.changed_paths.push_back(datagram.replica);
  }
}

void SessionCore::TakeStable(int64_t now, const input::Stable& stable) {
  std::vector<Seq> seqs;
  seqs.reserve(stable.records.size());
  for (const RecordRef& record : stable.records) seqs.push_back(record->seq());
  policy_.OnStable(now, seqs, stable.status);
}

void SessionCore::Collect(int64_t now, Work& work) {
  Replicator::Outputs out = policy_.TakeOutputs();
  AddJobs(now, out, work);
  Append(std::move(out.opens), work.opens);
  Append(std::move(out.events), work.events);
  if (out.note) {
    SALIUS_CHECK(!work.note.has_value());
    work.note = notes_.Compose(*out.note, Marks(file_ids_.StartNote()));
  }
  work.start_sync |= out.start_sync;
  work.pass_stripes |= out.pass_stripes;
  work.stable_wanted = out.stable_wanted;
  if (out.cut) {
    work.cut = out.cut;
    ring_.DropUpTo(std::min(policy_.checkpoint(), policy_.applied()), work.dropped);
  }
  if (out.durable_advanced) {
    work.durable_advanced = true;
    CollectCallbacks(work);
  }
  work.window_opened |= out.window_opened;
  if (out.failed && !std::exchange(failure_reported_, true)) work.failure = policy_.failure();
}

void SessionCore::AddJobs(int64_t now, const Replicator::Outputs& out, Work& work) {
  if (out.sends.empty() && out.probes == 0) return;
  FrameHeader header;
  header.volume = key_.volume;
  header.epoch = key_.epoch;
  header.session = key_.session;
  header.send_time_ns = static_cast<uint64_t>(now);
  header.trim_mark = policy_.checkpoint();
  header.durable_mark = policy_.durable();
  header.issued_mark = policy_.sendable();
  const size_t begin = work.jobs.size();
  for (const Replicator::SendRange& range : out.sends) {
    // The same records to several replicas: one job, packed once.
    const auto bit = static_cast<uint8_t>(1u << range.replica);
    if (range.again) {
      paths_[range.replica].Resent(now, range.first, range.last);
    } else if (work.jobs.size() > begin) {
      SendJob& last = work.jobs.back();
      if (last.first_time && last.records.front()->seq() == range.first &&
          last.records.back()->seq() == range.last) {
        last.targets |= bit;
        continue;
      }
    }
    SendJob job;
    job.targets = bit;
    job.header = header;
    job.first_time = !range.again;
    job.records.reserve(range.last - range.first + 1);
    for (Seq seq = range.first; seq <= range.last; ++seq) job.records.push_back(RecordAt(seq));
    work.jobs.push_back(std::move(job));
  }
  if (out.probes != 0) {
    SendJob probe;
    probe.targets = out.probes;
    probe.header = header;
    work.jobs.push_back(std::move(probe));
  }
  const ReplicaMask connected = policy_.connected();
  for (size_t i = begin; i < work.jobs.size(); ++i) paths_.Choose(work.jobs[i], connected);
}

void SessionCore::CollectCallbacks(Work& work) {
  waiters_.TakeUpTo(policy_.durable(), work.done);
  const absl::Status why = Waitable();
  if (!waiters_.HasCallbacks() || why.ok()) return;
  work.why = why;
  waiters_.TakeAll(work.failed);
}

}  // namespace salius
