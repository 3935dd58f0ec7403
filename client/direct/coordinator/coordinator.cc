#include "client/direct/coordinator/coordinator.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "client/direct/coordinator/policy_round.h"
#include "client/direct/coordinator/shared_keys.h"
#include "client/direct/coordinator/shared_records.h"
#include "client/direct/coordinator/window_memory.h"
#include "client/direct/window/acks.h"
#include "client/direct/window/reason.h"
#include "client/direct/window/robust_lock.h"
#include "client/direct/window/system.h"
#include "client/direct/window/waits.h"
#include "client/gate/gate.h"
#include "client/session/disk_writers.h"
#include "client/session/gathering.h"
#include "client/session/replica_links.h"
#include "client/session/shared_core.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/host.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/random.h"
#include "common/strings.h"
#include "log/applied_mark.h"
#include "transport/datagram_channel.h"
#include "transport/key_ring.h"

namespace salius::direct {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kRefreshNs = 50 * kMs;
constexpr int64_t kKernelLogNs = 5'000 * kMs;
// Shared memory for records; a session holds no more without a checkpoint.
constexpr uint64_t kMostRingBytes = 64u << 20;
constexpr size_t kBatch = 16;
constexpr int kMostRounds = 64;

WindowSpec SpecFor(const VolumeConfig& config, const VolumeState& before, uint64_t session,
                   const struct stat& root) {
  WindowSpec spec;
  const FileId block = SessionTuning().file_id_block;
  spec.ring_bytes = config.log_max_bytes;
  spec.replicas = static_cast<uint32_t>(config.replicas.size());
  spec.volume = config.volume;
  spec.epoch = before.epoch + 1;
  spec.session = session;
  spec.root_device = root.st_dev;
  spec.root_inode = root.st_ino;
  spec.oldest_ns = static_cast<int64_t>(config.k * config.tau_ms) * kMs -
                   2 * static_cast<int64_t>(config.delta_us) * 1000;
  spec.bulk_bytes = config.bulk_limit_bytes;
  spec.last_timestamp_ns = before.last_timestamp_ns;
  spec.next_file_id = before.file_id_limit;
  spec.file_id_limit = before.file_id_limit + block;
  spec.few = FewRecords(AvailableCpus());
  return spec;
}

// Returns why sync calls do not return early any more; "": they do.
std::string EarlyEndText(uint32_t reasons) {
  std::vector<std::string> texts;
  if ((reasons & gate::kSharedMap) != 0) texts.push_back("a shared map of a file outside");
  if ((reasons & gate::kLentPages) != 0) texts.push_back("pages lent to a pipe or socket outside");
  if ((reasons & gate::kSharedMemory) != 0) texts.push_back("System V shared memory");
  if ((reasons & gate::kFileOutside) != 0) texts.push_back("a file of the volume that is outside");
  return absl::StrJoin(texts, ", ");
}

DirectUse Use(const Header& header) {
  const Counters& counters = header.counters;
  const Promises& promises = header.promises;
  DirectUse use;
  use.early_syncs = promises.early_syncs.load();
  use.owed_syncs = promises.owed_syncs.load();
  use.outputs = promises.outputs.load();
  use.paid_outputs = promises.paid_outputs.load();
  use.refused_outputs = promises.refused.load();
  use.early_end = EarlyEndText(promises.early_end.load());
  use.records = counters.records.load();
  use.record_bytes = counters.record_bytes.load();
  use.syncs = counters.syncs.load();
  const uint64_t local = counters.local_syncs.load();
  use.real_syncs = counters.real_syncs.load() + local;
  use.dead_owners = counters.dead_owners.load();
  use.voids = counters.voids.load();
  if (local > 0) use.reasons.push_back({"local", local});
  for (size_t i = 0; i < kReasons; ++i) {
    const uint64_t syncs = counters.reasons[i].load();
    if (syncs > 0) use.reasons.push_back({ReasonName(static_cast<Reason>(i)), syncs});
  }
  return use;
}

// Adds the datagrams that the processes refused.
void AddRefusals(const SealState& seal, SealingUse& use) {
  for (SealingUse::Refusal& refusal : use.refusals) {
    for (size_t i = 1; i < kSealRefusals; ++i) {
      if (refusal.reason != SealRefusalName(static_cast<SealRefusal>(i))) continue;
      refusal.datagrams += seal.refused[i].load(std::memory_order_relaxed);
    }
  }
}

class SharedCoordinator final : public Coordinator, private PolicyRound::Session {
 public:
  SharedCoordinator(const VolumeDir& dir, WindowMemory memory, StateFile state, AppliedMark mark,
                    StreamOptions options, Clock& clock)
      : dir_(dir),
        options_(std::move(options)),
        memory_(std::move(memory)),
        mark_(std::move(mark)),
        records_(memory_.window()),
        shared_(options_, clock, &records_),
        links_(shared_),
        notes_(shared_, std::move(state)),
        round_(memory_.window(), *this) {}
  ~SharedCoordinator() override {
    StopThreads();
    // Before the memory goes: the thread's list of robust locks leads to it.
    if (lives_) GiveLock(window().header().life);
  }

  absl::Status Begin(uint64_t session);

  Handles handles() const override {
    return {memory_.fd(), memory_.bytes(),
            links_.channel() != nullptr ? socket() : spare_socket_.get()};
  }
  const SharedWindow& window() const override { return memory_.window(); }
  SessionStatus status() const override;
  absl::Status Stop() override;

 private:
  // PolicyRound::Session
  void Feed(int64_t now, const Input& input) override {
    SharedCore::Turn turn(shared_);
    turn.Feed(now, input);
  }
  bool TakeStripesWanted() override {
    absl::MutexLock lock(&shared_.mu);
    return std::exchange(shared_.stripes_wanted, false);
  }
  int socket() const override { return links_.channel() != nullptr ? links_.channel()->fd() : -1; }

  void StopThreads();
  void PolicyLoop();
  void SyncLoop();
  int64_t SleepNs();
  // Receives what arrived while no process receives, and lets it count.
  void Receive();
  // Takes the notices of replicas that have no key.
  void TakeNotices();
  void Refresh();

  const VolumeDir& dir_;
  const StreamOptions options_;
  WindowMemory memory_;
  // Every record is in the page cache when it is issued. So the mark says only whether a sync of
  // the session failed or was cut off.
  AppliedMark mark_;
  SharedRecords records_;
  SharedCore shared_;
  ReplicaLinks links_;
  NoteWriter notes_;
  PolicyRound round_;      // only the policy thread uses it
  bool lives_ = false;     // it holds the life lock
  UniqueFd spare_socket_;  // without replicas
  BackingFd sync_;         // only the sync thread uses it: an error is reported on it once
  // The policy thread alone uses these.
  int64_t refresh_at_ns_ = 0, kernel_log_at_ns_ = 0;
  std::vector<std::thread> threads_;
};

absl::Status SharedCoordinator::Begin(uint64_t session) {
  SALIUS_CHECK(TakeLock(window().header().life) == Taken::kYes);
  lives_ = true;
  if (links_.sealed()) {
    window().header().seal.sealed.store(1);
    links_.ShareKeys([this](const KeysInUse& keys) { PublishKeys(window(), keys); });
  }
  SALIUS_RETURN_IF_ERROR(links_.Begin());
  if (links_.channel() == nullptr) {
    spare_socket_.Reset(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!spare_socket_.valid()) return ErrnoStatus(errno, "socket");
  } else {
    // A process that receives for all must notice time.
    SALIUS_RETURN_IF_ERROR(links_.channel()->SetReceiveTimeout(1000));
  }
  SALIUS_ASSIGN_OR_RETURN(sync_, dir_.backing->OpenAt(dir_.root_fd, ".", O_RDONLY | O_DIRECTORY));
  StateNotes::Place place;
  SALIUS_ASSIGN_OR_RETURN(place.boot_id, BootId());
  const absl::StatusOr<uint64_t> mount_id = dir_.backing->MountIdOf(dir_.root_fd);
  if (mount_id.ok()) place.mount_id = *mount_id;
  const absl::StatusOr<uint64_t> complaints = dir_.backing->ComplaintsOf(dir_.root_fd);
  mark_.Reset(notes_.next_epoch(), complaints.ok() ? *complaints : AppliedMark::kUnknownComplaints);
  SALIUS_RETURN_IF_ERROR(notes_.Begin(place, session));
  SLOG_INFO("{}: session epoch {} started, mode local, {} replicas, acks {}", options_.session_name,
            shared_.key().epoch, links_.size(), options_.config.acks);
  threads_.emplace_back([this] { PolicyLoop(); });
  threads_.emplace_back([this] { SyncLoop(); });
  threads_.emplace_back([this] { notes_.Loop(); });
  for (size_t i = 0; i < links_.size(); ++i) {
    threads_.emplace_back([this, i] { links_.SessionLoop(static_cast<int>(i)); });
  }
  return absl::OkStatus();
}

void SharedCoordinator::StopThreads() {
  {
    SharedCore::Turn turn(shared_);
    turn.Feed(input::Stopping{});
    shared_.WakeCallers();
    shared_.WakeThreads();
  }
  Kick(window(), kTroubleWaiting);
  links_.StopOpening();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void SharedCoordinator::PolicyLoop() {
  while (true) {
    const int64_t sleep_ns = SleepNs();
    if (sleep_ns < 0) return;
    SleepUntilKicked(window(), sleep_ns);
    const uint32_t trouble = TakeTrouble(window());
    Receive();
    if ((trouble & kTroubleNoKey) != 0) TakeNotices();
    round_.Run(trouble);
    shared_.Feed(input::TimePassed{});
    Refresh();
  }
}

// Returns how long the policy thread may sleep; -1: the session ends.
int64_t SharedCoordinator::SleepNs() {
  absl::MutexLock lock(&shared_.mu);
  if (shared_.core.stopping()) return -1;
  const int64_t now = shared_.clock.MonotonicNanos();
  return round_.SleepNs(now, shared_.core.policy().NextTick(now), shared_.stripes_wanted);
}

void SharedCoordinator::Receive() {
  if (links_.wire() == nullptr) return;
  if (PolicyRound::IsLed(window(), MonotonicNs())) return;
  static thread_local InBatch batch(kBatch, kAckDatagramBytes);
  for (int round = 0; round < kMostRounds; ++round) {
    // As the processes receive: keys and replay windows are in the shared window.
    const absl::StatusOr<size_t> got = links_.wire()->Receive(batch, /*wait=*/false);
    if (!got.ok() || *got == 0) return;
    batch.Filter([this](const InDatagram& datagram, absl::Span<uint8_t> bytes) {
      if (datagram.truncated) return false;
      Advanced advanced;
      TakeDatagram(window(), bytes.data(), bytes.size(), datagram.from->get(), MonotonicNs(),
                   &advanced);
      Wake(window(), advanced);
      return false;
    });
  }
}

void SharedCoordinator::TakeNotices() {
  for (size_t i = 0; i < links_.size(); ++i) {
    SealPrefix notice;
    {
      const WindowLock lock(window());
      notice = std::exchange(window().header().seal.notices[i], SealPrefix{});
    }
    if (notice.key_id == 0) continue;
    const bool ours = notice.sender == kProcessSender
                          ? links_.SealsWith(notice.key_id) &&
                                notice.counter < window().header().seal.next_counter.load()
                          : links_.Sealed(notice);
    if (ours) links_.NoKey(static_cast<int>(i));
  }
}

void SharedCoordinator::Refresh() {
  const int64_t now = shared_.clock.MonotonicNanos();
  if (now < refresh_at_ns_) return;
  refresh_at_ns_ = now + kRefreshNs;
  links_.Refresh();
  if (links_.channel() != nullptr) {
    absl::MutexLock lock(&shared_.mu);
    for (size_t i = 0; i < links_.size(); ++i) records_.SetAddress(i, shared_.sender->peer(i));
  }
  if (dir_.ext4 != nullptr && now >= kernel_log_at_ns_) {
    kernel_log_at_ns_ = now + kKernelLogNs;
    dir_.ext4->KeepUp();
  }
}

void SharedCoordinator::SyncLoop() {
  while (true) {
    {
      absl::MutexLock lock(&shared_.mu);
      while (!shared_.core.stopping() && !shared_.sync_wanted) shared_.sync_cv.Wait(&shared_.mu);
      if (shared_.core.stopping()) return;
      shared_.sync_wanted = false;
    }
    mark_.SyncBegins();
    // Each record was written before it was issued.
    const Seq before = window().window().issued();
    absl::Status status = SyncVolume(*dir_.backing, sync_.get(), dir_.lock_fd);
    if (status.ok()) status = dir_.CheckSynced();
    mark_.SyncEnds(status.ok());
    shared_.Feed(input::Synced{before, status});
    {
      absl::MutexLock lock(&shared_.mu);
      shared_.checkpoint_cv.SignalAll();
    }
    Kick(window(), kTroubleWaiting);
  }
}

SessionStatus SharedCoordinator::status() const {
  SessionStatus out;
  absl::MutexLock lock(&shared_.mu);
  const Replicator& policy = shared_.core.policy();
  const int64_t now = shared_.clock.MonotonicNanos();
  out.epoch = shared_.core.key().epoch;
  const Seq issued = window().window().issued();
  out.marks = {policy.checkpoint(), issued, window().durable(), issued};
  out.mode = shared_.core.mode();
  out.mode_since_unix_ms = shared_.mode_since.unix_ms;
  out.mode_for_ms = static_cast<uint64_t>(now - shared_.mode_since.ns) / kMs;
  out.mode_detail = policy.ModeDetail(now);
  out.uncheckpointed_bytes = policy.uncheckpointed_bytes();
  out.oldest_uncheckpointed_ms = static_cast<uint64_t>(policy.oldest_uncheckpointed_ns(now)) / kMs;
  out.failure = std::string(shared_.health().message());
  out.replicas = links_.Reports(now);
  out.sealing = links_.Sealing();
  if (out.sealing) AddRefusals(window().header().seal, *out.sealing);
  out.direct = Use(window().header());
  return out;
}

absl::Status SharedCoordinator::Stop() {
  uint64_t wanted = 0;
  {
    SharedCore::Turn turn(shared_);
    wanted = shared_.core.policy().syncs_begun() + 1;
    turn.Feed(input::SyncWanted{});
  }
  {
    absl::MutexLock lock(&shared_.mu);
    const Replicator& policy = shared_.core.policy();
    while (shared_.health().ok() &&
           (policy.clean_sync() < wanted || policy.checkpoint() != policy.issued())) {
      shared_.checkpoint_cv.WaitFor(&shared_.mu, 100 * kMs);
    }
    SALIUS_RETURN_IF_ERROR(shared_.health());
  }
  StopThreads();
  SALIUS_RETURN_IF_ERROR(notes_.Close());
  records_.End();
  links_.DropLogs();
  SLOG_INFO("{}: session epoch {} closed cleanly", options_.session_name, shared_.key().epoch);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Start(const VolumeDir& dir,
                                                                StateFile state,
                                                                StreamOptions options) {
  SALIUS_RETURN_IF_ERROR(ValidateVolumeConfig(options.config));
  if (state.state().open) {
    return absl::FailedPreconditionError(
        "the volume was not closed cleanly: recover it first (salius-recover)");
  }
  options.config.log_max_bytes = std::min(options.config.log_max_bytes, kMostRingBytes);
  // The processes seal for all replicas, or for none. Without keys the replicas are on this host: the
  // key goes to them by their unix sockets.
  if (options.keys == nullptr && !options.sealed) {
    options.sealed = !options.insecure;
    options.plain = options.insecure;
  }
  SALIUS_ASSIGN_OR_RETURN(const struct stat root, dir.backing->Stat(dir.root_fd));
  const uint64_t session = SecureRandom64();
  SALIUS_ASSIGN_OR_RETURN(WindowMemory memory, WindowMemory::Make(SpecFor(
                                                   options.config, state.state(), session, root)));
  SALIUS_ASSIGN_OR_RETURN(AppliedMark mark,
                          AppliedMark::IsReliedOn(*dir.backing, dir.root_fd)
                              ? AppliedMark::Open(dir.salius_fd)
                              : absl::StatusOr<AppliedMark>(AppliedMark::InMemory()));
  auto coordinator = std::make_unique<SharedCoordinator>(
      dir, std::move(memory), std::move(state), std::move(mark), std::move(options), SystemClock());
  SALIUS_RETURN_IF_ERROR(coordinator->Begin(session));
  return coordinator;
}

}  // namespace salius::direct
