#include "client/engine/pipeline.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/engine/pipeline_impl.h"
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
// The io thread is woken for records that are gathered unless it wakes within this by itself.
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

Pipeline::Impl::Impl(const VolumeDir& volume_dir, StateFile state_file, StableLog stable_log,
                     AppliedMark mark, ApplySink& apply_sink, PipelineOptions pipeline_options)
    : dir(volume_dir),
      sink(apply_sink),
      options(std::move(pipeline_options)),
      config(options.config),
      clock(SystemClock()),
      applied_mark(std::move(mark)),
      core(CoreOptions(config), clock.MonotonicNanos()),
      places(config.replicas, options.insecure),
      stable(std::move(stable_log)),
      state(std::move(state_file)),
      spinner(options.spin_ns, clock) {}

absl::StatusOr<std::unique_ptr<Pipeline>> Pipeline::Start(const VolumeDir& dir, StateFile state,
                                                          StableLog stable, ApplySink& sink,
                                                          PipelineOptions options) {
  SALIUS_RETURN_IF_ERROR(ValidateVolumeConfig(options.config));
  if (state.state().open) {
    return absl::FailedPreconditionError(
        "the volume was not closed cleanly: recover it first (salius-recover)");
  }
  SALIUS_ASSIGN_OR_RETURN(AppliedMark mark,
                          AppliedMark::IsReliedOn(dir.root_fd)
                              ? AppliedMark::Open(dir.salius_fd)
                              : absl::StatusOr<AppliedMark>(AppliedMark::InMemory()));
  auto impl = std::make_unique<Impl>(dir, std::move(state), std::move(stable), std::move(mark),
                                     sink, std::move(options));
  SALIUS_RETURN_IF_ERROR(impl->Begin());
  return std::unique_ptr<Pipeline>(new Pipeline(std::move(impl)));
}

Pipeline::Pipeline(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Pipeline::~Pipeline() = default;

Pipeline::Impl::~Impl() { StopThreads(); }

absl::Status Pipeline::Impl::Begin() {
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

void Pipeline::Impl::StopThreads() {
  Work work;
  {
    absl::MutexLock lock(&mu);
    stopping = true;
    CollectWaiters(&work);
    for (absl::CondVar* cv : {&durable_cv, &applied_cv, &window_cv, &checkpoint_cv, &applier_cv,
                              &stable_cv, &sync_cv, &note_cv, &session_cv}) {
      cv->SignalAll();
    }
  }
  Perform(work);
  for (Peer& peer : peers) peer.control->StopOpening();
  for (std::thread& thread : threads) thread.join();
  threads.clear();
}

absl::Status Pipeline::Impl::AwaitWindow(uint64_t ring_bytes) {
  ++window_waiters;
  while (HealthLocked().ok() && !stopping && !core.CanIssue(clock.MonotonicNanos(), ring_bytes)) {
    window_cv.WaitWithTimeout(&mu, absl::Milliseconds(20));
  }
  --window_waiters;
  SALIUS_RETURN_IF_ERROR(HealthLocked());
  return stopping ? Stopped() : absl::OkStatus();
}

absl::StatusOr<RecordRef> Pipeline::Issue(RecordDraft draft) {
  Impl& impl = *impl_;
  SALIUS_CHECK(draft.body.size() <= kMaxRecordBody);
  auto record = std::make_shared<Record>();
  record->body_ = std::move(draft.body);
  record->context_ = std::move(draft.context);
  RecordHeader& header = record->header_;
  header.op = draft.op;
  header.body_bytes = static_cast<uint32_t>(record->body_.size());
  header.body_crc = Crc32c(absl::MakeConstSpan(
      reinterpret_cast<const uint8_t*>(record->body_.data()), record->body_.size()));
  header.volume = impl.config.volume;
  header.epoch = impl.epoch;
  header.file_id = draft.file_id;
  header.arg0 = draft.arg0;
  header.arg1 = draft.arg1;
  header.arg2 = draft.arg2;
  const uint64_t ring_bytes = StableLog::EntryBytes(header.total_bytes());

  Impl::Work work;
  bool wake_io = false;
  {
    absl::MutexLock lock(&impl.mu);
    SALIUS_RETURN_IF_ERROR(impl.AwaitWindow(ring_bytes));
    const uint64_t now_real =
        static_cast<uint64_t>(std::max<int64_t>(impl.clock.RealtimeNanos(), 0));
    impl.last_timestamp = NextTimestamp(impl.last_timestamp, now_real);
    header.timestamp_ns = impl.last_timestamp;
    header.durable_mark = impl.core.durable();
    header.checkpoint_mark = impl.core.checkpoint();
    const int64_t now = impl.clock.MonotonicNanos();
    header.seq = impl.core.Issue(now, ring_bytes, draft.when);
    if (impl.core.sendable() < impl.core.issued() && impl.io_wakes_ns > now + kGatherSlackNs) {
      wake_io = true;
      impl.io_wakes_ns = now;
    }
    EncodeRecordHeader(header, record->encoded_);
    impl.records.push_back(record);
    impl.issued.store(header.seq, std::memory_order_release);
    // For what is only gathered there is nothing to do yet.
    if (impl.core.sendable() == header.seq || !impl.core.counting_acks()) impl.Collect(&work);
  }
  impl.Perform(work);
  if (wake_io) impl.WakeIo();
  return RecordRef(std::move(record));
}

absl::Status Pipeline::WaitDurable(Seq seq) {
  Impl& impl = *impl_;
  impl.SendGathered(seq, SendWhen::kNow);
  while (impl.durable.load(std::memory_order_acquire) < seq) {
    Impl::Wait lead = Impl::Wait::kNo;
    bool wake_io = false;
    {
      absl::MutexLock lock(&impl.mu);
      if (impl.core.durable() >= seq) return absl::OkStatus();
      SALIUS_RETURN_IF_ERROR(impl.WaitableLocked(seq));
      lead = impl.BecomeLeader();
      if (lead == Impl::Wait::kNo) {
        ++impl.durable_waiters;
        // The bound only matters when a leader leaves without anybody to follow it.
        impl.durable_cv.WaitWithTimeout(&impl.mu, absl::Milliseconds(1));
        --impl.durable_waiters;
        // A leader that has left counted on this thread, which has nothing to wait for any more.
        wake_io = !impl.leader && impl.durable_waiters == 0 && !impl.waiters.empty() &&
                  impl.core.durable() >= seq;
      }
    }
    if (lead != Impl::Wait::kNo) impl.Lead(seq, lead);
    if (wake_io) impl.WakeIo();
  }
  return absl::OkStatus();
}

void Pipeline::WhenDurable(Seq seq, DurableCallback done) {
  Impl& impl = *impl_;
  impl.SendGathered(seq, SendWhen::kSoon);
  absl::Status outcome;
  if (impl.durable.load(std::memory_order_acquire) < seq) {
    absl::ReleasableMutexLock lock(&impl.mu);
    if (impl.core.durable() < seq) outcome = impl.WaitableLocked(seq);
    if (impl.core.durable() < seq && outcome.ok()) {
      impl.waiters.push_back({seq, std::move(done)});
      std::push_heap(impl.waiters.begin(), impl.waiters.end(), Impl::Later);
      const Impl::Wait lead = impl.BecomeLeader();
      lock.Release();
      if (lead != Impl::Wait::kNo) impl.Lead(0, lead);
      return;
    }
  }
  std::move(done)(outcome);
}

absl::Status Pipeline::WaitApplied(Seq seq) {
  Impl& impl = *impl_;
  SALIUS_RETURN_IF_ERROR(WaitDurable(seq));
  while (impl.applied.load(std::memory_order_acquire) < seq) {
    impl.ApplySome(0);
    absl::MutexLock lock(&impl.mu);
    if (impl.core.applied() >= seq) break;
    SALIUS_RETURN_IF_ERROR(impl.HealthLocked());
    if (impl.stopping) return Impl::Stopped();
    ++impl.applied_waiters;
    impl.applied_cv.WaitWithTimeout(&impl.mu, absl::Milliseconds(50));
    --impl.applied_waiters;
  }
  return absl::OkStatus();
}

absl::Status Pipeline::WaitAppliedFor(Seq seq, int64_t bound_ns) {
  Impl& impl = *impl_;
  const int64_t end = impl.clock.MonotonicNanos() + bound_ns;
  impl.SendGathered(seq, SendWhen::kNow);
  while (impl.applied.load(std::memory_order_acquire) < seq) {
    Impl::Wait lead = Impl::Wait::kNo;
    bool wake_io = false;
    {
      absl::MutexLock lock(&impl.mu);
      if (impl.core.applied() >= seq) break;
      SALIUS_RETURN_IF_ERROR(impl.WaitableLocked(seq));
      const int64_t now = impl.clock.MonotonicNanos();
      if (now >= end || impl.ApplyHangs(now, bound_ns)) {
        return absl::DeadlineExceededError("the disk is slow");
      }
      if (impl.core.durable() < seq) {
        lead = impl.BecomeLeader();
        if (lead == Impl::Wait::kNo) {
          ++impl.durable_waiters;
          impl.durable_cv.WaitWithTimeout(&impl.mu, absl::Milliseconds(1));
          --impl.durable_waiters;
          // As in WaitDurable.
          wake_io = !impl.leader && impl.durable_waiters == 0 && !impl.waiters.empty() &&
                    (impl.core.durable() >= seq || impl.clock.MonotonicNanos() >= end);
        }
      } else {
        impl.applier_cv.Signal();
        ++impl.applied_waiters;
        impl.applied_cv.WaitWithTimeout(&impl.mu, absl::Nanoseconds(end - now));
        --impl.applied_waiters;
      }
    }
    if (lead != Impl::Wait::kNo) impl.Lead(seq, lead, end);
    if (wake_io) impl.WakeIo();
  }
  return absl::OkStatus();
}

bool Pipeline::ManyWait() const { return impl_->many_wait.load(std::memory_order_relaxed); }

void Pipeline::TryApply() { impl_->ApplySome(Impl::kApplyBurst); }

absl::Status Pipeline::Checkpoint() {
  Impl& impl = *impl_;
  const Seq target = impl.issued.load(std::memory_order_acquire);
  if (target == 0) return absl::OkStatus();
  SALIUS_RETURN_IF_ERROR(WaitApplied(target));
  while (true) {
    Impl::Work work;
    {
      absl::MutexLock lock(&impl.mu);
      SALIUS_RETURN_IF_ERROR(impl.HealthLocked());
      if (impl.core.checkpoint() >= target) return absl::OkStatus();
      if (impl.stopping) return Impl::Stopped();
      impl.core.RequestCheckpoint(impl.clock.MonotonicNanos());
      impl.Collect(&work);
    }
    impl.Perform(work);
    absl::MutexLock lock(&impl.mu);
    if (impl.core.checkpoint() < target && impl.HealthLocked().ok()) {
      impl.checkpoint_cv.WaitWithTimeout(&impl.mu, absl::Milliseconds(100));
    }
  }
}

absl::StatusOr<FileId> Pipeline::NewFileId() {
  Impl& impl = *impl_;
  while (true) {
    Impl::Work work;
    std::optional<FileId> id;
    {
      absl::MutexLock lock(&impl.mu);
      SALIUS_RETURN_IF_ERROR(impl.HealthLocked());
      if (impl.stopping) return Impl::Stopped();
      if (impl.next_file_id < impl.file_id_limit) id = impl.next_file_id++;
      // Ask for the next block when half of this one is used up.
      if (impl.next_file_id + kFileIdBlock / 2 > impl.file_id_limit_wanted) {
        impl.file_id_limit_wanted += kFileIdBlock;
        impl.core.RequestNote(impl.clock.MonotonicNanos());
        impl.Collect(&work);
      }
    }
    impl.Perform(work);
    if (id) return *id;
    absl::MutexLock lock(&impl.mu);
    if (impl.next_file_id >= impl.file_id_limit && !impl.stopping && impl.HealthLocked().ok()) {
      impl.checkpoint_cv.WaitWithTimeout(&impl.mu, absl::Milliseconds(50));
    }
  }
}

Watermarks Pipeline::watermarks() const {
  const Impl& impl = *impl_;
  absl::MutexLock lock(&impl.mu);
  return Watermarks{impl.core.checkpoint(), impl.core.applied(), impl.core.durable(),
                    impl.core.issued()};
}

absl::Status Pipeline::health() const {
  if (!impl_->failed.load(std::memory_order_acquire)) return absl::OkStatus();
  absl::MutexLock lock(&impl_->mu);
  return impl_->HealthLocked();
}

PipelineStatus Pipeline::status() const {
  const Impl& impl = *impl_;
  PipelineStatus out;
  absl::MutexLock lock(&impl.mu);
  const Replicator& core = impl.core;
  const int64_t now = impl.clock.MonotonicNanos();
  out.epoch = impl.epoch;
  out.marks = Watermarks{core.checkpoint(), core.applied(), core.durable(), core.issued()};
  out.mode = impl.ModeLocked();
  out.mode_since_unix_ms = impl.mode_since_unix_ms;
  out.mode_for_ms = static_cast<uint64_t>(now - impl.mode_since_ns) / 1'000'000;
  out.mode_detail = core.ModeDetail(now);
  out.uncheckpointed_bytes = core.uncheckpointed_bytes();
  out.oldest_uncheckpointed_ms =
      static_cast<uint64_t>(core.oldest_uncheckpointed_ns(now)) / 1'000'000;
  out.stable_log_used_bytes = impl.stable_used;
  out.stable_log_capacity_bytes = impl.stable_capacity;
  out.failure = core.failure().ok() ? "" : std::string(core.failure().message());
  uint64_t members = 0, recoverable = 0;
  for (size_t i = 0; i < impl.peers.size(); ++i) {
    const Replicator::ReplicaView view = core.replica(static_cast<int>(i), now);
    ReplicaReport report;
    report.address = impl.peers[i].address;
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
    const absl::Status& place = impl.places.problem(static_cast<int>(i));
    report.problem = place.ok() || view.connected ? view.problem : std::string(place.message());
    const Impl::Peer& peer = impl.peers[i];
    if (view.connected) report.control_problem = peer.control_check.problem(now);
    if (report.problem.empty()) report.problem = report.control_problem;
    report.datagram_bytes = peer.path.datagram_bytes();
    report.route_bytes = peer.path.route_bytes();
    report.group_unheard = peer.path.group_unheard();
    members += report.member ? 1 : 0;
    recoverable += report.member && report.control_problem.empty() ? 1 : 0;
    if (view.same_as >= 0) {
      report.problem = absl::StrCat("it is replica ", impl.peers[view.same_as].address,
                                    " under another address, and counts once");
    }
    report.host = impl.peers[i].host_id;
    if (impl.places.known(static_cast<int>(i))) {
      report.ip = FormatHost(impl.places.at(static_cast<int>(i)));
    }
    out.replicas.push_back(std::move(report));
  }
  const uint64_t needed = members + 1 - std::min<uint64_t>(members, impl.config.acks);
  if (out.mode == "replicated" && recoverable < needed) {
    absl::StrAppend(&out.mode_detail, out.mode_detail.empty() ? "" : "; ",
                    "a recovery would need answers from ", needed, " members and could ask ",
                    recoverable, ": the replicas' problems say why");
  }
  return out;
}

absl::Status Pipeline::Stop() {
  Impl& impl = *impl_;
  SALIUS_RETURN_IF_ERROR(Checkpoint());
  {
    absl::MutexLock lock(&impl.mu);
    SALIUS_RETURN_IF_ERROR(impl.HealthLocked());
    if (impl.core.checkpoint() != impl.core.issued()) {
      return absl::FailedPreconditionError("records were issued while the volume was being closed");
    }
    impl.stopping = true;  // none is issued behind that
  }
  impl.StopThreads();
  {
    absl::MutexLock lock(&impl.note_mu);
    VolumeState next = impl.state.state();
    absl::MutexLock core_lock(&impl.mu);
    next.open = false;
    next.mode = Mode::kLocal;
    next.members.clear();
    next.checkpoint = impl.core.issued();
    next.last_timestamp_ns = impl.last_timestamp;
    next.file_id_limit = impl.next_file_id;
    SALIUS_RETURN_IF_ERROR(impl.state.Write(next));
  }
  // From here on nothing depends on a replica; that they free their memory now is only courtesy. By
  // the session's name: one may hold what another copy of the volume, which nobody has recovered
  // yet, had acknowledged under the same epoch.
  std::vector<std::future<absl::Status>> drops;
  for (Impl::Peer& peer : impl.peers) {
    drops.push_back(std::async(std::launch::async, [&impl, &peer] {
      return peer.control->Drop(impl.config.volume, impl.epoch, impl.session, kDropDeadlineMs);
    }));
  }
  for (size_t i = 0; i < drops.size(); ++i) {
    while (drops[i].wait_for(std::chrono::milliseconds(50)) != std::future_status::ready) {
      for (Impl::Peer& peer : impl.peers) peer.control->EndOverdueCalls();
    }
    const absl::Status dropped = drops[i].get();
    if (!dropped.ok()) {
      SLOG_INFO("{}: replica {} keeps its log until the next session: {}",
                impl.options.session_name, impl.peers[i].address, Sv(dropped.message()));
    }
  }
  SLOG_INFO("{}: session epoch {} closed cleanly", impl.options.session_name, impl.epoch);
  return absl::OkStatus();
}

}  // namespace salius
