#include "client/session/pipeline.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/session/pipeline_impl.h"
#include "common/check.h"
#include "common/crc32c.h"
#include "common/ext4_watch.h"
#include "common/file.h"
#include "common/host.h"
#include "common/log.h"
#include "common/random.h"
#include "common/strings.h"

namespace salius {
namespace {

// File ids are noted in blocks of this many, so that a state note is not needed for every file.
constexpr FileId kFileIdBlock = 65536;
constexpr int64_t kDropDeadlineMs = 1000;
constexpr int64_t kMs = 1'000'000;
// The io thread is woken for gathered records unless it wakes within this anyway.
constexpr int64_t kGatherSlackNs = 11'000'000;

constexpr Seq kMostAtOnce = 16;

ReplicatorOptions CoreOptions(const VolumeConfig& config) {
  ReplicatorOptions options;
  options.replicas = static_cast<int>(config.replicas.size());
  options.acks = static_cast<int>(config.acks);
  options.delta_ns = static_cast<int64_t>(config.delta_us) * 1000;
  options.tau_ns = static_cast<int64_t>(config.tau_ms) * 1'000'000;
  options.k = static_cast<int>(config.k);
  options.log_max_bytes = config.log_max_bytes;
  // On two CPUs five (docs/history/performance.md); replicas have one thread that receives, however
  // many CPUs there are.
  const auto cpus = static_cast<Seq>(AvailableCpus());
  options.few = cpus > 1 ? std::min<Seq>(2 * cpus + 1, kMostAtOnce) : 0;
  return options;
}

}  // namespace

Pipeline::Pipeline(const VolumeDir& volume_dir, StateFile state_file, StableLog stable_log,
                   AppliedMark mark, ApplySink& apply_sink, StreamOptions pipeline_options)
    : dir(volume_dir),
      sink(apply_sink),
      options(std::move(pipeline_options)),
      config(options.config),
      clock(SystemClock()),
      applied_mark(std::move(mark)),
      window(NewWindow(Replicator::WindowSlots(config.log_max_bytes))),
      core(CoreOptions(config), *window, clock.MonotonicNanos()),
      places(config.replicas, options.insecure),
      stable(std::move(stable_log)),
      state(std::move(state_file)),
      spinner(options.spin_ns, clock) {}

absl::StatusOr<std::unique_ptr<RecordStream>> StartPipeline(const VolumeDir& dir, StateFile state,
                                                            StableLog stable, ApplySink& sink,
                                                            StreamOptions options) {
  SALIUS_RETURN_IF_ERROR(ValidateVolumeConfig(options.config));
  if (state.state().open) {
    return absl::FailedPreconditionError(
        "the volume was not closed cleanly: recover it first (salius-recover)");
  }
  SALIUS_ASSIGN_OR_RETURN(AppliedMark mark,
                          AppliedMark::IsReliedOn(dir.root_fd)
                              ? AppliedMark::Open(dir.salius_fd)
                              : absl::StatusOr<AppliedMark>(AppliedMark::InMemory()));
  auto pipeline = std::make_unique<Pipeline>(dir, std::move(state), std::move(stable),
                                             std::move(mark), sink, std::move(options));
  SALIUS_RETURN_IF_ERROR(pipeline->Begin());
  return pipeline;
}

Pipeline::~Pipeline() { StopThreads(); }

absl::Status Pipeline::Begin() {
  session = SecureRandom64();
  io_wake.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!io_wake.valid()) return ErrnoStatus(errno, "eventfd");

  SALIUS_RETURN_IF_ERROR(BeginPeers());

  {
    // Before anything else: this session, durably, in mode local with no members
    // (docs/protocol.md).
    absl::MutexLock note_lock(&note_mu);
    VolumeState next = state.state();
    epoch = next.epoch + 1;
    const absl::StatusOr<uint64_t> complaints = Ext4Complaints(dir.root_fd);
    applied_mark.Reset(epoch, complaints.ok() ? *complaints : AppliedMark::kUnknownComplaints);
    next.open = true;
    next.epoch = epoch;
    next.mode = Mode::kLocal;
    SALIUS_ASSIGN_OR_RETURN(next.boot_id, BootId());
    const absl::StatusOr<uint64_t> mount_id = UniqueMountId(dir.root_fd);
    next.mount_id = mount_id.ok() ? *mount_id : 0;
    next.acks = config.acks;
    next.members.clear();
    next.checkpoint = 0;
    next.file_id_limit += kFileIdBlock;
    SALIUS_RETURN_IF_ERROR(state.Write(next));
    opened = next;
    absl::MutexLock lock(&mu);
    NoteMode();
    next_file_id = next.file_id_limit - kFileIdBlock;
    file_id_limit = file_id_limit_wanted = next.file_id_limit;
    last_timestamp = next.last_timestamp_ns;
  }
  {
    absl::MutexLock lock(&stable_mu);
    SALIUS_RETURN_IF_ERROR(stable.Cut(epoch, 0));
    stable_used = stable.used_bytes();
    stable_capacity = stable.capacity();
  }
  SLOG_INFO("{}: session epoch {} started, mode local, {} replicas, acks {}", options.session_name,
            epoch, peers.size(), config.acks);
  threads.emplace_back([this] { IoLoop(); });
  threads.emplace_back([this] { ApplierLoop(); });
  threads.emplace_back([this] { StableLoop(); });
  threads.emplace_back([this] { SyncLoop(); });
  threads.emplace_back([this] { NoteLoop(); });
  for (size_t i = 0; i < peers.size(); ++i) {
    threads.emplace_back([this, i] { SessionLoop(static_cast<int>(i)); });
  }
  return absl::OkStatus();
}

void Pipeline::StopThreads() {
  Work work;
  {
    absl::MutexLock lock(&mu);
    stopping = true;
    CollectWaiters(&work);
    WakeCallers();
    for (absl::CondVar* cv : {&applier_cv, &stable_cv, &sync_cv, &note_cv, &session_cv}) {
      cv->SignalAll();
    }
  }
  Perform(work);
  for (Peer& peer : peers) peer.control->StopOpening();
  for (std::thread& thread : threads) thread.join();
  threads.clear();
}

absl::Status Pipeline::AwaitWindow(uint64_t ring_bytes) {
  ++window_waiters;
  while (HealthLocked().ok() && !stopping && !core.CanIssue(clock.MonotonicNanos(), ring_bytes)) {
    window_cv.WaitFor(&mu, 20 * kMs);
  }
  --window_waiters;
  SALIUS_RETURN_IF_ERROR(HealthLocked());
  return stopping ? Stopped() : absl::OkStatus();
}

absl::StatusOr<RecordRef> Pipeline::Issue(RecordDraft draft) {
  SALIUS_CHECK(draft.body.size() <= kMaxRecordBody);
  const SendWhen when = draft.when;
  auto record = std::make_shared<Record>(std::move(draft));
  RecordHeader& header = record->stamp();
  header.body_crc = Crc32c(absl::MakeConstSpan(
      reinterpret_cast<const uint8_t*>(record->body().data()), record->body().size()));
  header.volume = config.volume;
  header.epoch = epoch;
  const uint64_t ring_bytes = StableLog::EntryBytes(header.total_bytes());

  Work work;
  bool wake_io = false;
  {
    absl::MutexLock lock(&mu);
    SALIUS_RETURN_IF_ERROR(AwaitWindow(ring_bytes));
    const uint64_t now_real =
        static_cast<uint64_t>(std::max<int64_t>(clock.RealtimeNanos(), 0));
    last_timestamp = NextTimestamp(last_timestamp, now_real);
    header.timestamp_ns = last_timestamp;
    header.durable_mark = core.durable();
    header.checkpoint_mark = core.checkpoint();
    const int64_t now = clock.MonotonicNanos();
    header.seq = core.Issue(now, ring_bytes, when);
    if (core.sendable() < core.issued() && io_wakes_ns > now + kGatherSlackNs) {
      wake_io = true;
      io_wakes_ns = now;
    }
    record->Encode();
    records.push_back(record);
    issued.store(header.seq, std::memory_order_release);
    // A record that is only gathered needs no work yet.
    if (core.sendable() == header.seq || !core.counting_acks()) Collect(&work);
  }
  Perform(work);
  if (wake_io) WakeIo();
  return RecordRef(std::move(record));
}

absl::Status Pipeline::WaitDurable(Seq seq) {
  SendGathered(seq, SendWhen::kNow);
  while (durable.load(std::memory_order_acquire) < seq) {
    Wait lead = Wait::kNo;
    bool wake_io = false;
    {
      absl::MutexLock lock(&mu);
      if (core.durable() >= seq) return absl::OkStatus();
      SALIUS_RETURN_IF_ERROR(WaitableLocked(seq));
      lead = BecomeLeader();
      if (lead == Wait::kNo) {
        ++durable_waiters;
        // The bound only matters when a leader leaves and no thread follows it.
        durable_cv.WaitFor(&mu, 1 * kMs);
        --durable_waiters;
        // The last leader counted on this thread, which has nothing to wait for any more.
        wake_io = !leader && durable_waiters == 0 && !waiters.empty() &&
                  core.durable() >= seq;
      }
    }
    if (lead != Wait::kNo) Lead(seq, lead);
    if (wake_io) WakeIo();
  }
  return absl::OkStatus();
}

void Pipeline::WhenDurable(Seq seq, DurableCallback done) {
  SendGathered(seq, SendWhen::kSoon);
  absl::Status outcome;
  if (durable.load(std::memory_order_acquire) < seq) {
    absl::ReleasableMutexLock lock(&mu);
    if (core.durable() < seq) outcome = WaitableLocked(seq);
    if (core.durable() < seq && outcome.ok()) {
      waiters.push_back({seq, std::move(done)});
      std::push_heap(waiters.begin(), waiters.end(), Later);
      const Wait lead = BecomeLeader();
      lock.Release();
      if (lead != Wait::kNo) Lead(0, lead);
      return;
    }
  }
  std::move(done)(outcome);
}

absl::Status Pipeline::WaitApplied(Seq seq) {
  SALIUS_RETURN_IF_ERROR(WaitDurable(seq));
  while (applied.load(std::memory_order_acquire) < seq) {
    ApplySome(0);
    absl::MutexLock lock(&mu);
    if (core.applied() >= seq) break;
    SALIUS_RETURN_IF_ERROR(HealthLocked());
    if (stopping) return Stopped();
    ++applied_waiters;
    applied_cv.WaitFor(&mu, 50 * kMs);
    --applied_waiters;
  }
  return absl::OkStatus();
}

absl::Status Pipeline::WaitAppliedFor(Seq seq, int64_t bound_ns) {
  const Deadline end = Deadline::After(clock, bound_ns);
  SendGathered(seq, SendWhen::kNow);
  while (applied.load(std::memory_order_acquire) < seq) {
    Wait lead = Wait::kNo;
    bool wake_io = false;
    {
      absl::MutexLock lock(&mu);
      if (core.applied() >= seq) break;
      SALIUS_RETURN_IF_ERROR(WaitableLocked(seq));
      const int64_t now = clock.MonotonicNanos();
      if (end.ExpiredAt(now) || ApplyHangs(now, bound_ns)) {
        return absl::DeadlineExceededError("the disk is slow");
      }
      if (core.durable() < seq) {
        lead = BecomeLeader();
        if (lead == Wait::kNo) {
          ++durable_waiters;
          durable_cv.WaitFor(&mu, 1 * kMs);
          --durable_waiters;
          // As in WaitDurable.
          wake_io = !leader && durable_waiters == 0 && !waiters.empty() &&
                    (core.durable() >= seq || end.Expired(clock));
        }
      } else {
        applier_cv.Signal();
        ++applied_waiters;
        applied_cv.WaitFor(&mu, end.RemainingNs(clock));
        --applied_waiters;
      }
    }
    if (lead != Wait::kNo) Lead(seq, lead, end);
    if (wake_io) WakeIo();
  }
  return absl::OkStatus();
}

bool Pipeline::ManyWait() const { return many_wait.load(std::memory_order_relaxed); }

void Pipeline::TryApply() { ApplySome(kApplyBurst); }

absl::Status Pipeline::Checkpoint() {
  const Seq target = issued.load(std::memory_order_acquire);
  if (target == 0) return absl::OkStatus();
  SALIUS_RETURN_IF_ERROR(WaitApplied(target));
  while (true) {
    Work work;
    {
      absl::MutexLock lock(&mu);
      SALIUS_RETURN_IF_ERROR(HealthLocked());
      if (core.checkpoint() >= target) return absl::OkStatus();
      if (stopping) return Stopped();
      core.RequestCheckpoint(clock.MonotonicNanos());
      Collect(&work);
    }
    Perform(work);
    absl::MutexLock lock(&mu);
    if (core.checkpoint() < target && HealthLocked().ok()) {
      checkpoint_cv.WaitFor(&mu, 100 * kMs);
    }
  }
}

absl::StatusOr<FileId> Pipeline::NewFileId() {
  while (true) {
    Work work;
    std::optional<FileId> id;
    {
      absl::MutexLock lock(&mu);
      SALIUS_RETURN_IF_ERROR(HealthLocked());
      if (stopping) return Stopped();
      if (next_file_id < file_id_limit) id = next_file_id++;
      // Ask for the next block when half of this one is used up.
      if (next_file_id + kFileIdBlock / 2 > file_id_limit_wanted) {
        file_id_limit_wanted += kFileIdBlock;
        core.RequestNote(clock.MonotonicNanos());
        Collect(&work);
      }
    }
    Perform(work);
    if (id) return *id;
    absl::MutexLock lock(&mu);
    if (next_file_id >= file_id_limit && !stopping && HealthLocked().ok()) {
      checkpoint_cv.WaitFor(&mu, 50 * kMs);
    }
  }
}

Watermarks Pipeline::watermarks() const {
  absl::MutexLock lock(&mu);
  return Watermarks{core.checkpoint(), core.applied(), core.durable(),
                    core.issued()};
}

absl::Status Pipeline::health() const {
  if (!failed.load(std::memory_order_acquire)) return absl::OkStatus();
  absl::MutexLock lock(&mu);
  return HealthLocked();
}

SessionStatus Pipeline::status() const {
  SessionStatus out;
  absl::MutexLock lock(&mu);
  const int64_t now = clock.MonotonicNanos();
  out.epoch = epoch;
  out.marks = Watermarks{core.checkpoint(), core.applied(), core.durable(), core.issued()};
  out.mode = ModeLocked();
  out.mode_since_unix_ms = mode_since_unix_ms;
  out.mode_for_ms = static_cast<uint64_t>(now - mode_since_ns) / 1'000'000;
  out.mode_detail = core.ModeDetail(now);
  out.uncheckpointed_bytes = core.uncheckpointed_bytes();
  out.oldest_uncheckpointed_ms =
      static_cast<uint64_t>(core.oldest_uncheckpointed_ns(now)) / 1'000'000;
  out.stable_log_used_bytes = stable_used;
  out.stable_log_capacity_bytes = stable_capacity;
  out.failure = core.failure().ok() ? "" : std::string(core.failure().message());
  uint64_t members = 0, recoverable = 0;
  for (size_t i = 0; i < peers.size(); ++i) {
    const Replicator::ReplicaView view = core.replica(static_cast<int>(i), now);
    ReplicaReport report;
    report.address = peers[i].address;
    report.member = view.member && core.counting_acks();
    report.connected = view.connected;
    report.incarnation = view.incarnation;
    report.base = view.base;
    report.contiguous = view.contiguous;
    const Seq acked = std::max(view.contiguous, core.checkpoint());
    report.lag_records = view.connected ? core.issued() - std::min(acked, core.issued()) : 0;
    report.lag_bytes = view.lag_bytes;
    report.rtt_us = static_cast<uint64_t>(view.srtt_ns) / 1000;
    report.free_bytes = view.free_bytes;
    report.resent = view.resent;
    const absl::Status& place = places.problem(static_cast<int>(i));
    report.problem = place.ok() || view.connected ? view.problem : std::string(place.message());
    const Peer& peer = peers[i];
    if (view.connected) report.control_problem = peer.control_check.problem(now);
    if (report.problem.empty()) report.problem = report.control_problem;
    report.datagram_bytes = peer.path.datagram_bytes();
    report.route_bytes = peer.path.route_bytes();
    report.group_unheard = peer.path.group_unheard();
    members += report.member ? 1 : 0;
    recoverable += report.member && report.control_problem.empty() ? 1 : 0;
    if (view.same_as >= 0) {
      report.problem = absl::StrCat("it is replica ", peers[view.same_as].address,
                                    " under another address, and counts once");
    }
    report.host = peers[i].host_id;
    if (places.known(static_cast<int>(i))) {
      report.ip = FormatHost(places.at(static_cast<int>(i)));
    }
    out.replicas.push_back(std::move(report));
  }
  const uint64_t needed = members + 1 - std::min<uint64_t>(members, config.acks);
  if (out.mode == "replicated" && recoverable < needed) {
    absl::StrAppend(&out.mode_detail, out.mode_detail.empty() ? "" : "; ",
                    "a recovery would need answers from ", needed, " members and could ask ",
                    recoverable, ": the replicas' problems say why");
  }
  return out;
}

absl::Status Pipeline::Stop() {
  SALIUS_RETURN_IF_ERROR(Checkpoint());
  {
    absl::MutexLock lock(&mu);
    SALIUS_RETURN_IF_ERROR(HealthLocked());
    if (core.checkpoint() != core.issued()) {
      return absl::FailedPreconditionError("records were issued while the volume was being closed");
    }
    stopping = true;  // no record is issued after this
  }
  StopThreads();
  {
    absl::MutexLock lock(&note_mu);
    VolumeState next = state.state();
    absl::MutexLock core_lock(&mu);
    next.open = false;
    next.mode = Mode::kLocal;
    next.members.clear();
    next.checkpoint = core.issued();
    next.last_timestamp_ns = last_timestamp;
    next.file_id_limit = next_file_id;
    SALIUS_RETURN_IF_ERROR(state.Write(next));
  }
  // From here on nothing depends on a replica; the drop only frees their memory earlier. It names
  // the session: a replica may hold records of another copy of the volume that were acknowledged
  // under the same epoch and are not recovered yet.
  std::vector<std::future<absl::Status>> drops;
  for (Peer& peer : peers) {
    drops.push_back(std::async(std::launch::async, [this, &peer] {
      return peer.control->Drop(config.volume, epoch, session, kDropDeadlineMs);
    }));
  }
  for (size_t i = 0; i < drops.size(); ++i) {
    while (drops[i].wait_for(std::chrono::milliseconds(50)) != std::future_status::ready) {
      for (Peer& peer : peers) peer.control->EndOverdueCalls();
    }
    const absl::Status dropped = drops[i].get();
    if (!dropped.ok()) {
      SLOG_INFO("{}: replica {} keeps its log until the next session: {}",
                options.session_name, peers[i].address, Sv(dropped.message()));
    }
  }
  SLOG_INFO("{}: session epoch {} closed cleanly", options.session_name, epoch);
  return absl::OkStatus();
}

}  // namespace salius
