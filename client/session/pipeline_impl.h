// Inside of Pipeline: the threads and I/O around the replicator. Included by pipeline*.cc only.
//
// Locks, in order: apply_mu (held while records are applied), mu (the core and the records;
// never held over a system call other than a futex, nor over a write to stderr once the
// program logs in the background), stable_mu (the stable log's file),
// note_mu (the state file). stable_mu and note_mu are held over disk writes by the one thread that
// writes.
//
// Threads
//   io          acknowledgements when no waiting thread receives them, timers, where replicas are
//   applier     records that became durable with nobody waiting
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
#include "common/host.h"
#include "common/lookup.h"
#include "common/net.h"
#include "common/spinner.h"
#include "log/applied_mark.h"
#include "log/stable_log.h"
#include "transport/udp_socket.h"

namespace salius {

struct Pipeline final : public RecordStream {
  struct Peer {
    std::string address;  // as configured
    HostPort host;        // the same
    std::unique_ptr<SessionClient> control;
    // Guarded by mu: a session is to be opened with this base; what was learnt of the way to it;
    // whether its control port answers, and that it is to be asked.
    std::optional<Seq> open_base;
    PeerPath path;
    ControlCheck control_check;
    bool check_wanted = false;
    int64_t silent_since_ns = -1;  // of the io thread: it has a session and does not answer
    // Guarded by mu: the boot id of its host, as it says; empty: not known.
    std::string host_id;
    // Of the io thread: the resolver is being asked, when it was and may be again, and when it may
    // be told again what is wrong with its answer.
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

  absl::Status Begin();  // the first note, socket, peers, threads
  void StopThreads();
  // Waits until the window has room for a record of `ring_bytes`.
  absl::Status AwaitWindow(uint64_t ring_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // pipeline_io.cc
  // Records that one waiter applies for others before it returns to its own caller.
  static constexpr size_t kApplyBurst = 64;
  // Records that are given to the sink at once.
  static constexpr Seq kApplyTogether = 16;
  // Who has told others that their records are durable leaves up to so many, less one, unapplied:
  // several are applied at a fraction of the cost, and nobody waits for it. The io thread sees to
  // what is left when no more come.
  static constexpr Seq kApplyAtLeast = 8;
  static absl::Status Stopped() { return absl::UnavailableError("the volume is being unmounted"); }

  struct Waiter {
    Seq seq;
    DurableCallback done;
  };
  static bool Later(const Waiter& a, const Waiter& b) { return a.seq > b.seq; }
  struct Work {  // what must be done without mu
    std::vector<FrameSender::Job> jobs;
    absl::Status failure;
    std::vector<Waiter> done;    // their seq is durable
    std::vector<Waiter> failed;  // their wait ends with `why`
    absl::Status why;
    std::vector<RecordRef> dropped;  // that a checkpoint covers: freeing them takes a while
  };
  void Collect(Work* work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // How each job from `begin` on goes to each of its targets.
  void ChooseWays(size_t begin, Work* work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Logs what the core tells, with the replicas' addresses.
  void TellEvents(absl::Span<const ReplicatorEvent> events) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // The mode the volume is really in (I10): replicated, local or failed.
  std::string_view ModeLocked() const ABSL_SHARED_LOCKS_REQUIRED(mu);
  // Keeps since when the volume has been in its mode, where that has changed.
  void NoteMode() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void Perform(Work& work) ABSL_LOCKS_EXCLUDED(mu);
  enum class Wait { kNo, kSleep, kLookThenSleep };
  // Receives what is there (waiting up to the socket's time-out, if at all), feeds the core.
  void ReceiveSome(Wait wait) ABSL_LOCKS_EXCLUDED(mu);
  // How the leader waits now: looks for acknowledgements when they are near and few wait.
  Wait HowToWait() const ABSL_SHARED_LOCKS_REQUIRED(mu);
  void HandleDatagram(int64_t now, const InDatagram& datagram) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Moves the waiters whose wait is over, or all of them with an error, to `work`.
  void CollectWaiters(Work* work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Makes the calling thread the one that receives acknowledgements when nobody is: it must call
  // Lead then, with what this returns. kNo: another is.
  Wait BecomeLeader() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Receives them for all who wait, until `mine` is durable or its wait fails; for 0, until nobody
  // is left of WhenDurable's. Whoever still waits then takes over.
  // Not beyond `until_ns` (monotonic), if it is given.
  void Lead(Seq mine, Wait wait, int64_t until_ns = INT64_MAX) ABSL_LOCKS_EXCLUDED(mu);
  // Sends what was gathered when `seq` is among it: somebody waits for it.
  void SendGathered(Seq seq, SendWhen when) ABSL_LOCKS_EXCLUDED(mu);
  void WakeIo();
  void IoLoop();

  // pipeline_workers.cc
  void ApplierLoop();
  void StableLoop();
  void SyncLoop();
  // Has the sink sync. `*before`: what it covers.
  absl::Status SyncLocked(Seq* before) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sync_mu);
  void NoteLoop();
  VolumeState ComposeState(const Note& note) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Applies durable records in order while it can have apply_mu: all when `limit` is 0, else it
  // ends with the batch (kApplyTogether) that reaches it.
  void ApplySome(size_t limit);
  void ApplyLocked(size_t limit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(apply_mu);
  // Whether an apply has been under way for longer than `bound_ns`.
  bool ApplyHangs(int64_t now, int64_t bound_ns) const {
    const int64_t since = apply_since_ns.load(std::memory_order_relaxed);
    return since != 0 && now - since > bound_ns;
  }
  void Publish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);  // mirrors of the watermarks

  // pipeline_sessions.cc
  absl::Status BeginPeers();  // the socket, and who is where
  void SessionLoop(int index);
  // What a datagram to `address` may have, as far as can be told.
  uint32_t DatagramBytesTo(const SocketAddress& address) const;
  // Replica `index` is sent to where it is now, and called there.
  void Settle(int index) ABSL_LOCKS_EXCLUDED(mu, settle_mu);
  // It does not answer there: goes to its name's next address, if there is one.
  void TryNextAddress(int index) ABSL_LOCKS_EXCLUDED(mu, settle_mu);
  // The socket that sends to all of them, of both families where some names have both.
  absl::Status BindSocket(std::vector<std::vector<SocketAddress>>& addresses);
  // Tries the next address of each replica that has a session and is silent. Of the io thread.
  void TendSilence() ABSL_LOCKS_EXCLUDED(mu);
  // Has each replica that answers asked by its control port now and then. Of the io thread.
  void TendControl() ABSL_LOCKS_EXCLUDED(mu);
  // Asks replica `index` what it holds, over a new connection.
  void CheckControl(int index) ABSL_LOCKS_EXCLUDED(mu);
  // Asks the resolver for those that are silent, and takes its answers. Of the io thread.
  void TendPlaces() ABSL_LOCKS_EXCLUDED(mu);
  void TakeAnswer(int index, const Lookup::Answer& answer) ABSL_LOCKS_EXCLUDED(mu);

  const RecordRef& RecordAt(Seq seq) const ABSL_SHARED_LOCKS_REQUIRED(mu) {
    return records[seq - records_first];
  }
  // Whether a wait for `seq` can end well.
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
  std::optional<UdpSocket> socket;
  UniqueFd io_wake;  // an eventfd that ends the io thread's sleep
  std::vector<Peer> peers;
  std::optional<FrameSender> sender;
  uint32_t most_datagram = 0;   // to any replica
  std::string group_interface;  // by which multicast leaves; empty: by the default route, or none

  absl::Mutex apply_mu ABSL_ACQUIRED_BEFORE(mu);
  // Around each sync and what follows from it: the kernel tells an error once, and a sync after it
  // succeeds.
  absl::Mutex sync_mu ABSL_ACQUIRED_BEFORE(mu);
  AppliedMark applied_mark;

  absl::Mutex settle_mu ABSL_ACQUIRED_BEFORE(mu);  // one address at a time is told to the sender
  bool both_families = false;                      // of the socket; constant after BeginPeers

  mutable absl::Mutex mu;
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
  absl::CondVar durable_cv, applied_cv, window_cv, checkpoint_cv;
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
  // How many wait, smoothed, in 64ths; many: more than there are CPUs.
  int64_t waiting_64ths ABSL_GUARDED_BY(mu) = 0;
  std::atomic<bool> many_wait{false};
  const int64_t cpus = AvailableCpus();

  absl::Mutex stable_mu;
  StableLog stable ABSL_GUARDED_BY(stable_mu);
  absl::Mutex note_mu;
  StateFile state ABSL_GUARDED_BY(note_mu);
  Spinner spinner;     // of who receives acknowledgements
  VolumeState opened;  // the first note of this session; constant after Begin

  std::vector<std::thread> threads;
};

}  // namespace salius
