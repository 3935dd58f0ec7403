// The inside of Pipeline: the threads and I/O around the replicator. Included by pipeline*.cc only.
//
// Locks
//   apply_mu    held while records are applied; before mu
//   sync_mu     held over a sync of the backing file system; before mu, and before a node's state
//   settle_mu   one address change at a time; before mu
//   mu          the core and the records. Never held over a system call other than a futex, nor
//               over a write to stderr once the program logs in the background
//   stable_mu   the stable log's file; held over disk writes by the thread that writes
//   note_mu     the state file; likewise. Begin and Stop take mu under it
//
// Threads
//   io          acknowledgements when no waiting thread receives them, timers, replicas' addresses
//   applier     records that became durable and that no waiting thread applied
//   stable      appends to the stable log
//   sync        SyncApplied for checkpoints
//   note        writes the state file
//   session[i]  opens sessions at replica i
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/session/control_check.h"
#include "client/session/frame_sender.h"
#include "client/session/peer_path.h"
#include "client/session/pipeline.h"
#include "client/session/places.h"
#include "client/session/replicator.h"
#include "client/session/session_client.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/deadline.h"
#include "common/host.h"
#include "common/lookup.h"
#include "common/monotonic_cond.h"
#include "common/net.h"
#include "common/spinner.h"
#include "log/applied_mark.h"
#include "log/stable_log.h"
#include "transport/datagram_channel.h"
#include "transport/udp_socket.h"

namespace salius {

struct Pipeline final : public RecordStream {
  struct Peer {
    std::string address;  // as configured
    HostPort host;        // the same
    std::unique_ptr<SessionClient> control;
    // Guarded by mu: the base with which a session is to be opened; the properties of the network
    // path; whether the control port answers, and whether it is to be asked.
    std::optional<Seq> open_base;
    PeerPath path;
    ControlCheck control_check;
    bool check_wanted = false;
    int64_t silent_since_ns = -1;  // io thread only: it has a session and does not answer
    // Guarded by mu: the boot id of its host, as it says; empty: not known.
    std::string host_id;
    // The io thread alone uses these: the look-up under way, when the last one began and when the
    // next may begin, and when a problem with its answer may be logged again.
    std::shared_ptr<Lookup> lookup;
    int64_t looked_up_ns = 0, look_up_at_ns = 0, tell_at_ns = 0;
  };

  Pipeline(const VolumeDir& dir, StateFile state, StableLog stable, AppliedMark mark,
           ApplySink& sink, StreamOptions options);
  ~Pipeline() override;

  absl::StatusOr<RecordRef> Issue(RecordDraft draft) override;
  absl::Status WaitDurable(Seq seq) override;
  void WhenDurable(Seq seq, DurableCallback done) override;
  bool ManyWait() const override;
  absl::Status WaitApplied(Seq seq) override;
  absl::Status WaitAppliedFor(Seq seq, int64_t bound_ns) override;
  void TryApply() override;
  absl::Status Checkpoint() override;
  absl::Status SyncNow() override;
  absl::StatusOr<FileId> NewFileId() override;
  Watermarks watermarks() const override;
  absl::Status health() const override;
  SessionStatus status() const override;
  absl::Status Stop() override;

  absl::Status Begin();  // makes socket and peers, the first note, and the threads
  void StopThreads();
  // Waits until the window has room for a record of `ring_bytes`.
  absl::Status AwaitWindow(uint64_t ring_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // pipeline_io.cc
  // The most records that one waiter applies for others before it returns to its own caller.
  static constexpr size_t kApplyBurst = 64;
  // The most records that are given to the sink at once.
  static constexpr Seq kApplyTogether = 16;
  // A leader that completed other callers' waits may leave up to kApplyAtLeast - 1 records
  // unapplied: several are applied together at a fraction of the cost, and no caller waits for
  // that. The io thread has the last ones applied when no more come.
  static constexpr Seq kApplyAtLeast = 8;
  static absl::Status Stopped() { return absl::UnavailableError("the volume is being unmounted"); }

  struct Waiter {
    Seq seq;
    DurableCallback done;
  };
  static bool Later(const Waiter& a, const Waiter& b) { return a.seq > b.seq; }
  struct Work {  // to be done without mu
    std::vector<FrameSender::Job> jobs;
    absl::Status failure;
    std::vector<Waiter> done;    // their seq is durable
    std::vector<Waiter> failed;  // their wait ends with `why`
    absl::Status why;
    std::vector<RecordRef> dropped;  // a checkpoint covers them; freeing them takes a while
  };
  // Turns the core's outputs into work, and wakes the threads that do the blocking parts.
  void Collect(Work* work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Chooses for each job from `begin` on how it goes to each of its targets: group or unicast, and
  // the largest datagram.
  void ChooseWays(size_t begin, Work* work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Logs the core's events, with the replicas' addresses.
  void TellEvents(absl::Span<const ReplicatorEvent> events) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Returns the mode that the volume is really in (I10): replicated, local or failed.
  std::string_view ModeLocked() const ABSL_SHARED_LOCKS_REQUIRED(mu);
  // Keeps the time at which the mode changed, if it has changed.
  void NoteMode() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void Perform(Work& work) ABSL_LOCKS_EXCLUDED(mu);
  enum class Wait { kNo, kSleep, kLookThenSleep };
  // Receives the datagrams that have arrived and feeds the core. Waits for them as `wait` says, at
  // most until the socket's time-out.
  void ReceiveSome(Wait wait) ABSL_LOCKS_EXCLUDED(mu);
  // Returns how the leader waits now. It polls for acknowledgements when they are near and few
  // callers wait.
  Wait HowToWait() const ABSL_SHARED_LOCKS_REQUIRED(mu);
  void HandleDatagram(int64_t now, const InDatagram& datagram) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Moves the waiters whose wait is over, or all of them with an error, to `work`.
  void CollectWaiters(Work* work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Makes the calling thread the leader, which receives acknowledgements, unless there is one or
  // acknowledgements do not count now: then returns kNo. Otherwise the caller must call Lead with
  // the value returned.
  Wait BecomeLeader() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Receives acknowledgements for all waiters, until `mine` is durable or its wait fails; for 0,
  // until no waiter of WhenDurable is left. Ends at `end` at the latest. Then a thread that
  // still waits takes over, or the io thread.
  void Lead(Seq mine, Wait wait, Deadline end = Deadline::Never()) ABSL_LOCKS_EXCLUDED(mu);
  // Sends the gathered records if `seq` is one of them: a caller waits for it.
  void SendGathered(Seq seq, SendWhen when) ABSL_LOCKS_EXCLUDED(mu);
  void WakeIo();
  // Wakes every caller that waits, because the session ends or has failed.
  void WakeCallers() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void IoLoop();

  // pipeline_workers.cc
  void ApplierLoop();
  void StableLoop();
  void SyncLoop();
  // Has the sink sync. Sets `*before` to the last record that the sync covers.
  absl::Status SyncLocked(Seq* before) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sync_mu);
  void NoteLoop();
  VolumeState ComposeState(const Note& note) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Applies durable records in order while it can have apply_mu: all when `limit` is 0, else it
  // ends with the batch (kApplyTogether) that reaches it.
  void ApplySome(size_t limit);
  void ApplyLocked(size_t limit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(apply_mu);
  // Returns whether an apply has been under way for longer than `bound_ns`.
  bool ApplyHangs(int64_t now, int64_t bound_ns) const {
    const int64_t since = apply_since_ns.load(std::memory_order_relaxed);
    return since != 0 && now - since > bound_ns;
  }
  void Publish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);  // updates the watermarks' mirrors

  // pipeline_sessions.cc
  absl::Status BeginPeers();  // makes the socket, and resolves the replicas' names
  void SessionLoop(int index);
  // Returns the largest payload of a datagram to `address`, as far as the kernel knows.
  uint32_t DatagramBytesTo(const SocketAddress& address) const;
  // Makes the sender and the control client use the present address of replica `index`.
  void Settle(int index) ABSL_LOCKS_EXCLUDED(mu, settle_mu);
  // Moves replica `index`, which does not answer, to its name's next address, if there is one.
  void TryNextAddress(int index) ABSL_LOCKS_EXCLUDED(mu, settle_mu);
  // Returns a bound socket that sends to all of `addresses`: of both families if both occur.
  absl::StatusOr<UdpSocket> BindSocket(std::vector<std::vector<SocketAddress>>& addresses);
  // Tries the next address of each replica that has a session and is silent. Runs on the io thread.
  void TendSilence() ABSL_LOCKS_EXCLUDED(mu);
  // Has the control port of each answering replica asked when that is due. Runs on the io thread.
  void TendControl() ABSL_LOCKS_EXCLUDED(mu);
  // Asks replica `index` over a new connection what it holds.
  void CheckControl(int index) ABSL_LOCKS_EXCLUDED(mu);
  // Asks the resolver for replicas' addresses where that is due, and takes its answers. Runs on the
  // io thread.
  void TendPlaces() ABSL_LOCKS_EXCLUDED(mu);
  void TakeAnswer(int index, const Lookup::Answer& answer) ABSL_LOCKS_EXCLUDED(mu);

  const RecordRef& RecordAt(Seq seq) const ABSL_SHARED_LOCKS_REQUIRED(mu) {
    return records[seq - records_first];
  }
  // Returns OK if a wait for `seq` can succeed.
  absl::Status WaitableLocked(Seq seq) const ABSL_SHARED_LOCKS_REQUIRED(mu) {
    SALIUS_CHECK(seq <= core.issued(), "waits for a record that was never issued");
    return stopping ? Stopped() : HealthLocked();
  }
  absl::Status HealthLocked() const ABSL_SHARED_LOCKS_REQUIRED(mu) { return core.failure(); }

  const VolumeDir& dir;
  ApplySink& sink;
  StreamOptions options;
  const VolumeConfig& config;
  Clock& clock;
  Epoch epoch = 0;
  uint64_t session = 0;
  std::unique_ptr<DatagramChannel> channel;  // null: there are no replicas
  UniqueFd io_wake;  // an eventfd that ends the io thread's sleep
  std::vector<Peer> peers;
  std::optional<FrameSender> sender;
  uint32_t most_datagram = 0;   // to any replica
  std::string group_interface;  // by which multicast leaves; empty: the default route, or no group

  absl::Mutex apply_mu ABSL_ACQUIRED_BEFORE(mu);
  // Held over each sync and the report of its result: the kernel reports an error once, and a later
  // sync succeeds.
  absl::Mutex sync_mu ABSL_ACQUIRED_BEFORE(mu);
  AppliedMark applied_mark;

  absl::Mutex settle_mu ABSL_ACQUIRED_BEFORE(mu);  // one address change at a time
  bool both_families = false;                      // of the socket; constant after BeginPeers

  mutable absl::Mutex mu;
  const OwnedWindow window;  // core's
  Replicator core ABSL_GUARDED_BY(mu);
  Places places ABSL_GUARDED_BY(mu);
  std::deque<RecordRef> records ABSL_GUARDED_BY(mu);  // (min(checkpoint, applied), issued]
  Seq records_first ABSL_GUARDED_BY(mu) = 1;
  uint64_t last_timestamp ABSL_GUARDED_BY(mu) = 0;
  bool leader ABSL_GUARDED_BY(mu) = false;          // a waiter is receiving acknowledgements
  bool leader_seen ABSL_GUARDED_BY(mu) = false;     // ... or did since the io thread last looked
  std::vector<Waiter> waiters ABSL_GUARDED_BY(mu);  // WhenDurable's: a heap, lowest seq first
  int64_t io_wakes_ns ABSL_GUARDED_BY(mu) = 0;      // when the io thread ends its sleep
  int durable_waiters ABSL_GUARDED_BY(mu) = 0;      // followers on durable_cv
  int applied_waiters ABSL_GUARDED_BY(mu) = 0;
  int window_waiters ABSL_GUARDED_BY(mu) = 0;
  MonotonicCond durable_cv, applied_cv, window_cv, checkpoint_cv;  // callers wait
  absl::CondVar applier_cv, stable_cv, sync_cv, note_cv, session_cv;
  bool stopping ABSL_GUARDED_BY(mu) = false;
  bool stable_wanted ABSL_GUARDED_BY(mu) = false;
  bool sync_wanted ABSL_GUARDED_BY(mu) = false;
  std::optional<VolumeState> note_wanted ABSL_GUARDED_BY(mu);
  std::optional<Seq> cut_wanted ABSL_GUARDED_BY(mu);
  bool failure_reported ABSL_GUARDED_BY(mu) = false;
  std::string_view noted_mode ABSL_GUARDED_BY(mu);  // as ModeLocked(), and since when
  int64_t mode_since_ns ABSL_GUARDED_BY(mu) = 0;
  uint64_t mode_since_unix_ms ABSL_GUARDED_BY(mu) = 0;
  FileId next_file_id ABSL_GUARDED_BY(mu) = 0;
  FileId file_id_limit ABSL_GUARDED_BY(mu) = 0;  // noted
  FileId file_id_limit_wanted ABSL_GUARDED_BY(mu) = 0;

  std::atomic<Seq> issued{0}, sendable{0}, durable{0}, applied{0}, checkpoint{0};
  std::atomic<uint64_t> stable_used{0}, stable_capacity{0};
  std::atomic<bool> failed{false};
  std::atomic<int64_t> apply_since_ns{0};  // when the apply under way began; 0: none is
  // The number of waiters, smoothed, in 64ths. many_wait: more than there are CPUs.
  int64_t waiting_64ths ABSL_GUARDED_BY(mu) = 0;
  std::atomic<bool> many_wait{false};
  const int64_t cpus = AvailableCpus();

  absl::Mutex stable_mu;
  StableLog stable ABSL_GUARDED_BY(stable_mu);
  absl::Mutex note_mu;
  StateFile state ABSL_GUARDED_BY(note_mu);
  Spinner spinner;     // of the leader
  VolumeState opened;  // the first note of this session; constant after Begin

  std::vector<std::thread> threads;
};

}  // namespace salius
