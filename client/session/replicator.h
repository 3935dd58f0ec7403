// The replicator: every decision of a session about records, acknowledgements, modes, members,
// notes and checkpoints, as a state machine. docs/protocol.md; I1, I5, I6, I8.
//
// pure: no thread, lock, socket or clock. Every input carries `now` (monotonic ns). The work that
// follows is left in Outputs, which the caller takes with TakeOutputs() after every input.
//
// The records of a direct volume are issued, sent and acknowledged by other processes, and there is
// no stable log (ReplicatorOptions::noticed; replicator_notice.cc): a record is durable by members
// or by a checkpoint. Its way between the modes:
//
//     LOCAL --enough candidates, one sync--> STAMPING --every stripe lock passed, one more sync,
//       ^                                       |        note `replicated` returned--> REPLICATED
//       |<-------too few candidates, or late----'                                          |
//       '---note `local` returned, its checkpoint is all that was issued--- GOING LOCAL <--'
//
// Its parts: the configurations and the rule when a record is durable (configurations.h), which
// replicas may have forgotten a promise (promises.h), which records are kept back (gathering.h) and
// which are wanted in the stable log (stable_cursor.h). The replicator has the links to the
// replicas, the mode, and the plan of notes and checkpoints.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/session/configurations.h"
#include "client/session/gathering.h"
#include "client/session/heard_set.h"
#include "client/session/late_ticks.h"
#include "client/session/promises.h"
#include "client/session/rtt.h"
#include "client/session/send_when.h"
#include "client/session/setbacks.h"
#include "client/session/stable_cursor.h"
#include "client/session/window.h"
#include "common/ids.h"
#include "log/state_file.h"
#include "proto/frame.h"

namespace salius {

struct ReplicatorOptions {
  int replicas = 0;            // m
  int acks = 1;                // f
  int64_t delta_ns = 0;        // link delay bound
  int64_t tau_ns = 0;          // longest wait for the primary's disk
  int k = 2;                   // slack factor
  uint64_t log_max_bytes = 0;  // uncheckpointed bytes the session may hold (ring bytes)
  // With at most `few` records under way, now and lately, a record (SendWhen::kSoon) is sent at
  // once and does not wait until those before it are durable. That hides the time that CPUs take to
  // wake up. With one CPU, or with many writers, records that are sent together cost less.
  Seq few = 0;
  // No caller counts as waiting for a record when it is issued: it is kept back until Send asks for
  // it, or the bounds of OutputTriggered are reached.
  bool output_triggered = false;
  // Other processes issue and send records, and what they did is noticed: NoticeIssued, NoticeSent
  // and NoticeDurable instead of Issue, Send and OnApplied. There is no stable log, so nothing is
  // hedged.
  bool noticed = false;
};

// The phase of a direct volume: it decides about each write and each sync call of a process.
enum class StampPhase : uint8_t {
  kLocal,       // stamps nothing; a sync is a real fsync(2)
  kStamping,    // stamps; a sync waits for the end of the phase
  kReplicated,  // stamps; a sync waits until the record is durable
  kGoingLocal,  // stamps nothing; a sync waits for the end of the phase
  kFailed,      // stamps nothing; a sync fails
};

// A line for the log. The replica is an index: the caller, which knows its address, names it.
struct ReplicatorEvent {
  enum class Level : uint8_t { kInfo, kWarning, kError };
  Level level = Level::kInfo;
  int replica = -1;  // -1: none
  std::string text;
};

class Replicator {
 public:
  struct SendRange {
    int replica = 0;
    Seq first = 0, last = 0;  // inclusive
    bool again = false;       // a re-send
  };
  struct OpenRequest {
    int replica = 0;
    Seq base = 0;  // first seq the replica will hold
  };
  struct Outputs {
    std::vector<SendRange> sends;
    ReplicaMask probes = 0;          // send a probe now
    std::vector<OpenRequest> opens;  // open a session (gRPC), answer with OnOpened/OnOpenFailed
    std::optional<Note> note;        // write durably, answer with OnNoteWritten
    bool start_sync = false;         // SyncApplied, answer with OnSynced(applied at its start)
    bool pass_stripes = false;       // take and give back every stripe lock, answer OnStripesPassed
    bool durable_advanced = false;   // or never will
    bool window_opened = false;
    bool stable_wanted = false;       // TakeStableBatch has something
    std::optional<Seq> cut;           // the noted checkpoint moved: cut the stable log, trim, free
    // For the log: losses, refusals, and every change of mode.
    std::vector<ReplicatorEvent> events;
    bool failed = false;
  };

  // Returns the number of slots of the window for a session that may hold `log_max_bytes` bytes
  // without a checkpoint.
  static uint32_t WindowSlots(uint64_t log_max_bytes);
  // `window`: empty; it outlives the replicator.
  Replicator(const ReplicatorOptions& options, Window& window, int64_t now);

  // ---- issuing
  // Returns whether there is room for one more record of `ring_bytes`. False also near the k*tau
  // deadline (I6).
  bool CanIssue(int64_t now, uint64_t ring_bytes) const;
  // Registers the next record; returns its seq.
  Seq Issue(int64_t now, uint64_t ring_bytes, SendWhen when = SendWhen::kNow);
  // Decides whether the records gathered so far are sent now, because one of them is to be sent as
  // `when` says.
  void Send(int64_t now, SendWhen when);

  // ---- what other processes did (ReplicatorOptions::noticed). The caller holds the lock under
  // which they issue, claim and count, from its first notice until the outputs and the phase are
  // published.
  // Takes the records that they added to the window.
  void NoticeIssued() { applied_ = issued(); }  // each was written before it was stamped
  // Takes the records up to `upto` as sent to every replica with an open session: a process has
  // claimed them, and may have died before it sent them.
  void NoticeSent(int64_t now, Seq upto);
  // Takes the records up to `durable` as durable by the rule that was published last.
  void NoticeDurable(Seq durable);
  // Takes the replica as lost: a process heard that its memory went back (I5).
  void OnWentBack(int64_t now, int replica);
  // Answers Outputs::pass_stripes: each stripe lock was free once since then.
  void OnStripesPassed(int64_t now);
  // Asks for a sync even when everything issued is synced: for changes that are in no record.
  void RequestSync(int64_t now);

  // ---- inputs
  void OnAck(int64_t now, int replica, int64_t rtt_ns, const AckPayload& ack);
  // Takes a session as open. `store`: the identity of the replica's promise file; 0: it keeps no
  // promises over a reboot.
  void OnOpened(int64_t now, int replica, Incarnation incarnation, StoreId store, Seq base,
                uint64_t free_bytes);
  void OnOpenFailed(int64_t now, int replica, const std::string& why, bool fenced);
  // Takes the replica as lost: another replica has its address.
  void OnAddressTaken(int64_t now, int replica);
  // Returns seqs to append to the stable log now, at most `max_bytes` (at least one when any is
  // wanted). They count as in flight until OnStable.
  std::vector<Seq> TakeStableBatch(uint64_t max_bytes);
  void OnStable(int64_t now, const std::vector<Seq>& seqs, const absl::Status& status);
  void OnApplied(Seq applied);  // monotone
  // Returns whether a checkpoint will soon be wanted that durable records which are not applied
  // hold up.
  bool AwaitsApplied(int64_t now) const;
  void OnSynced(int64_t now, Seq applied_before, const absl::Status& status);
  void OnNoteWritten(int64_t now, const absl::Status& status);
  void OnApplyFailed(const absl::Status& status) { Fail(status); }
  void Tick(int64_t now);
  // Asks for a checkpoint of everything applied, now. Like RequestNote it lets no time pass: the
  // caller may not have read the acknowledgements that Tick needs to judge replicas.
  void RequestCheckpoint(int64_t now);
  // Asks for a note although nothing else changed (a new file id limit).
  void RequestNote(int64_t now);

  Outputs TakeOutputs();
  // Returns the latest time at which Tick must run (ns); INT64_MAX: only after another input.
  int64_t NextTick(int64_t now) const;
  // Returns when the next Tick was due, as of the last one.
  int64_t tick_due() const { return ticks_.due_ns(); }

  // ---- views
  Seq issued() const { return window_.issued(); }
  Seq sendable() const { return gathering_.sendable(); }  // later records are gathered
  Seq durable() const { return durable_; }
  Seq applied() const { return applied_; }
  Seq checkpoint() const { return configurations_.noted().checkpoint; }
  const Note& noted() const { return configurations_.noted(); }
  bool counting_acks() const { return counting_; }
  const Configurations& configurations() const { return configurations_; }
  // Returns the phase to publish (ReplicatorOptions::noticed).
  StampPhase phase() const;
  // Returns the number of syncs begun; of the last sync whose effect on uncovered files counts,
  // because no record that was issued before it is replayed any more.
  uint64_t syncs_begun() const { return syncs_begun_; }
  uint64_t clean_sync() const { return clean_sync_; }
  Seq base(int index) const { return replicas_[index].base; }
  // Returns the send time from which acknowledgements of the replica count (ns).
  int64_t counts_from_ns(int index) const { return replicas_[index].counts_from_ns; }
  const absl::Status& failure() const { return failure_; }
  uint64_t uncheckpointed_bytes() const;
  int64_t oldest_uncheckpointed_ns(int64_t now) const;
  // Returns the reason for the mode, for the operator.
  std::string ModeDetail(int64_t now) const;
  struct ReplicaView {
    bool member = false, connected = false;
    Incarnation incarnation = 0;
    Seq base = 0, contiguous = 0;
    uint64_t lag_bytes = 0, free_bytes = 0, resent = 0;
    int64_t srtt_ns = 0;
    int same_as = -1;  // the replica that has the same memory and counts instead
    std::string problem;
  };
  ReplicaView replica(int index, int64_t now) const;
  // Returns how long it lately takes until enough members have answered (ns); INT64_MAX when there
  // are too few members.
  int64_t AnswersNs() const;
  // Returns the replicas with an open session, whether they answer or not.
  ReplicaMask connected() const;
  // Returns those of them that have room.
  ReplicaMask targets() const;

 private:
  enum class Link : uint8_t { kClosed, kOpening, kOpen };
  static constexpr int64_t kAnyTime = std::numeric_limits<int64_t>::min();
  static constexpr int kMostSetbacks = 5;  // of a replica
  static constexpr int kMostSpells = 6;
  struct Replica {
    Replica(const RttEstimator& estimator, int64_t hold_off_ns)
        : setbacks(hold_off_ns, kMostSetbacks), rtt(estimator) {}
    Link link = Link::kClosed;
    Seq base = 0;             // first seq it holds (ours: never older than the replica's)
    Seq contiguous = 0;       // base-1 when nothing
    Seq sent = 0;             // highest seq sent
    int64_t heard_ns = 0;     // last valid ack
    int64_t progress_ns = 0;  // last time its held set grew or something was first outstanding
    int64_t probe_ns = 0;     // last probe
    // When one record was sent again after a time-out, and what had been sent by then; -1: it was
    // answered. Of many that are lost some are sent again for each answer: asked_from are next.
    int64_t asked_ns = -1;
    Seq asked_from = 0, asked_upto = 0;
    int64_t waiting_ns = -1;  // since when something sent has gone without any answer; -1: nothing
    int64_t keepup_since_ns = -1;
    int64_t open_after_ns = 0;
    int open_failures = 0;
    bool heard_since_open = false;
    Incarnation life = 0;     // the incarnation that was opened last; stays when it is lost
    // When the session was opened again under the same incarnation. An acknowledgement of a frame
    // sent earlier may name records that the replica has lost since. kAnyTime: opened once.
    int64_t counts_from_ns = kAnyTime;
    HeardSet heard;
    uint64_t free_bytes = 0;
    bool memory_full = false;
    Setbacks setbacks;    // recent losses: how long it must keep up before it is a candidate
    int64_t well_since_ns = -1;  // since when it has been a member without a loss; -1: no member
    uint64_t resent = 0;
    std::string problem;
    std::string logged_problem;  // the last problem in the log, without its digits
    RttEstimator rtt;
  };
  void AdvanceDurable();

  void Lose(int64_t now, int replica, const std::string& why, bool memory_lost);
  static void BackOffOpening(int64_t now, Replica& replica);

  // replicator_time.cc
  void CheckReplica(int64_t now, int replica);
  bool KeepsUp(int64_t now, int replica) const;
  // Returns since when acknowledgements of `seq` have been due: a gathered record was sent late.
  int64_t AwaitedSince(Seq seq) const;
  int64_t PartitionTimeout() const;
  int64_t HedgeDelay() const;

  // replicator_send.cc
  void SendNew(int64_t now, int replica);
  // Sends records from `from` up to `upto` that the replica lacks again, at most `most`. Returns the
  // first that it did not look at.
  Seq Resend(int64_t now, int replica, Seq from, Seq upto, int most);
  // Sends the first record again that the replica lacks: its answer tells which others are lost.
  // Most time-outs come from a busy host, and then nothing is.
  void ResendFirst(int64_t now, int replica);
  // Sends again what is lost, as far as an acknowledgement of a frame sent at `sent` shows it.
  void ResendLost(int64_t now, int replica, int64_t sent, const AckPayload& ack, bool grew);

  // replicator_plan.cc: modes, members, notes.
  void Plan(int64_t now);
  void BeginLocal(int64_t now, const std::string& why);
  void PlanGoingLocal();
  void PlanLocal(int64_t now);
  void PlanReplicated(int64_t now);
  // replicator_notice.cc: the way back to mode replicated without a stable log.
  void PlanHealing(int64_t now);
  void StepHealing(int64_t now, ReplicaMask candidates);
  void AbandonHealing(int64_t now, const char* why);
  void AwaitSync();
  // Takes the sync of number `sync` as good for uncovered files, once it is.
  void NoteClean();
  Configuration MakeConfig(Mode mode, ReplicaMask members) const;
  void StartNote(const Configuration& config);
  ReplicaMask Candidates(int64_t now, bool* base_too_new) const;
  // Returns another replica with the very same memory (one process under two addresses) that counts
  // instead of this one, or -1.
  int SameMemoryAs(int replica) const;
  void MaybeCheckpoint(int64_t now);
  void Fail(const absl::Status& status);
  using Level = ReplicatorEvent::Level;
  void Event(Level level, std::string text, int replica = -1) {
    out_.events.push_back({level, replica, std::move(text)});
  }
  // Keeps the reason why the replica is of no use now, and logs it unless it was logged last.
  void Problem(int replica, const std::string& why);

  ReplicatorOptions options_;
  std::vector<Replica> replicas_;

  Window& window_;  // of (noted checkpoint, issued]
  Configurations configurations_;
  Promises promises_;
  Gathering gathering_;
  StableCursor stable_;
  LateTicks ticks_;
  Seq durable_ = 0, applied_ = 0, synced_ = 0;
  bool counting_ = false;     // acks count: mode replicated, and not on the way to local
  bool going_local_ = false;  // first step of the way to local was taken, its note is not back yet
  bool sync_in_flight_ = false;
  bool checkpoint_requested_ = false;
  bool note_requested_ = false;
  // Used only with ReplicatorOptions::noticed.
  enum class Heal : uint8_t { kNone, kFirstSync, kStripes, kSync };
  Heal heal_ = Heal::kNone;
  int64_t stamping_since_ns_ = 0;  // from Heal::kStripes on
  uint64_t awaited_sync_ = 0;      // the sync that ends kFirstSync or kSync
  bool sync_requested_ = false;    // even when nothing was issued
  uint64_t syncs_begun_ = 0, syncs_done_ = 0;
  uint64_t noted_sync_ = 0;  // the last sync done when the pending note was started
  uint64_t clean_sync_ = 0;
  int64_t heal_after_ns_ = 0;  // no return to replicated before
  Setbacks spells_;            // periods in mode local: they set the wait before the next return
  int64_t well_since_ns_ = 0;  // since when the mode has been replicated
  std::string local_reason_ = "session start";
  absl::Status failure_;
  Outputs out_;
};

}  // namespace salius
