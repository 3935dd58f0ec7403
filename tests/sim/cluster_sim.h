// A deterministic simulation of a whole cluster, from a 64-bit seed:
// - a primary with the shipping replicator, stable log and state file over a simulated disk
//   (tests/sim/disk.h)
// - replicas with the shipping arena and acceptor
// - a network that loses, repeats, delays and damages datagrams
// - the shipping recovery, which is cut off and run again with other replicas missing
//
// A lifetime is a few sessions, each ended by a crash. After every recovery the tree is compared
// with the issued and the acknowledged records:
//
//   I1  every acknowledged record is there; recovery refuses only when f members were lost after
//       the issue of every acknowledged record
//   I2  the tree is the result of the first T records, for some T
//   I3  nothing superseded comes back, bulk data included
//   I4  a fenced primary's records never become durable again
//   I5  a lost memory never counts (a violation shows as I1)
//   I6  no replica dropped a record that the disk lacks (a violation shows as a refusal), even when
//       no recovery comes for long; nothing is issued while the oldest record that the disk lacks
//       is older than k * tau - 2 * delta
//   I7  cut off and run again, recovery reaches the same T and tree
//   I8  nothing that failed is acknowledged
//
// In half of the lifetimes datagrams are sealed (tests/sim/sealed_ends.h), keys change, and an
// attacker who hears all of them, but has no key, replays, damages and forges some.
//
// Threads: one.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/random.h"
#include "tests/sim/cluster_options.h"
#include "tests/sim/disk.h"
#include "tests/sim/fs_model.h"
#include "tests/sim/outcome.h"
#include "tests/sim/primary.h"
#include "tests/sim/replica_host.h"
#include "tests/sim/sealed_ends.h"

namespace salius::sim {

class ClusterSim {
 public:
  // Draws a lifetime from `seed`. `trace` (may be null) gets one line per event. Faults are
  // numbered from 1; those in `without` (may be null) do not happen.
  ClusterSim(uint64_t seed, const ClusterOptions& options, std::function<void(std::string)> trace,
             const std::set<uint64_t>* without = nullptr);
  ~ClusterSim();
  Outcome Run();

 private:
  class Seat;
  // The changes that a session made to the tree, in order.
  struct Done {
    RecordHeader header;
    std::string body;
    // Bulk data: the "on disk" record that promises it, or kNever. 0: a record of the log.
    Seq confirmed = 0;
  };
  static constexpr Seq kNever = UINT64_MAX;
  // Data past the log that nothing has promised: all, a part or none of it may be in its file.
  struct Unsure {
    std::set<uint64_t> bytes;  // positions whose bytes may be anything
    uint64_t most = 0;         // the largest size that the file may have
  };
  struct Client {
    Seq durable = 0, applied = 0;  // it waits until these seqs are durable and applied
    // The current step of its create-write-rename; 0: none.
    int save_step = 0;
    std::string temporary;
    FileId file = kNoFileId;
  };
  // The files and names that an operation on names locks until its caller has the result.
  struct Held {
    Seq seq = 0, cancel = 0;
    bool refused = false;
    const Client* client = nullptr;
    std::vector<FileId> files;
    std::vector<std::string> names;
  };
  // The function of an event is stored apart, so that the queue moves little data.
  struct Event {
    int64_t time;
    uint64_t order;
    size_t what;  // in happenings_
    bool operator<(const Event& other) const {
      return time != other.time ? time > other.time : order > other.order;
    }
  };

  // cluster_faults.cc. Returns whether this fault happens now.
  bool Fault(const char* what, double chance);
  bool Happens(const char* what);  // notes a fault that was drawn; false when it is left out
  void Count(const char* what) { ++outcome_.of_each[what]; }
  double DrawRate();
  int64_t DrawJump();
  void At(int64_t delay, std::function<void()> what);
  void RunEvents(int64_t until);
  void Step(bool faults);
  void Faults();
  void RecoveryFaults();
  void TickReplicas();
  // Lets `ns` pass without a primary or a recovery. I6: replicas keep everything that they hold,
  // with an alarm, except logs that the administrator had them give up.
  void PassWithoutPrimary(int64_t ns);
  void Restart(size_t replica);
  void LoseMemory(size_t replica);
  void TakeTimeToStart(size_t replica);
  void PutBackFaults(size_t replica);
  // Takes an acknowledgement that arrives at the primary. Returns whether the memory went back: the
  // acknowledgement names less than one that arrived before the frame that it answers was sent.
  bool AckGoesBack(size_t replica, std::string_view datagram);
  // Returns whether the state names, unchanged, a member whose memory was put back since. The
  // result of a recovery is then undefined.
  bool NotesAMemoryPutBack() const;
  // Returns the primary's monotonic clock.
  int64_t PrimaryClock() const {
    return static_cast<int64_t>(static_cast<double>(now_) * primary_rate_);
  }
  // cluster_attacker.cc: sealed lifetimes.
  struct Overheard {
    int replica = 0;
    bool to_replica = false;
    std::string bytes;
    std::function<void(const std::string&)> arrives;
  };
  void DrawSealing();
  bool SealFault(const char* what, double chance) {
    return faults_ && seal_random_.Chance(chance) && Happens(what);
  }
  // Gives a key to a replica, whose session is open. I5: the answer names no loss where there is
  // none.
  absl::StatusOr<Opening> GiveKeyAt(int replica, const Primary& primary, const KeyOffer& offer);
  // Lets the attacker keep a datagram.
  void Overhear(int replica, bool to_replica, const std::string& bytes,
                const std::function<void(const std::string&)>& arrives);
  void Attack();
  void Inject(const Overheard& to, std::string bytes);
  std::string Forged(const Overheard& like);
  std::string ForgedFrame(const Overheard& like);
  // cluster_workload.cc
  void DrawClients();
  std::string AnyName();
  bool Waits(const Client& client) const;
  bool Busy(FileId file, std::initializer_list<std::string_view> names) const;
  Seq Put(RecordHeader header, std::string body, SendWhen when = SendWhen::kNow);
  void PutName(Client& client, RecordHeader header, std::string body, std::vector<FileId> files,
               std::vector<std::string> names);
  void Create(Client& client, const std::string& name, FileId id);
  void Rename(Client& client, const std::string& from, FileId id, const std::string& to);
  void Write(Client& client, FileId id, bool sync);
  void WriteBulk(Client& client, FileId id);
  // Ends an fsync of bulk data: done_[index], the first `changes` of the file system.
  void BulkSynced(size_t index, uint64_t changes);
  void LoseBulk(uint64_t changes);
  void ConfirmBulk(size_t index);
  // Calls `what` after a disk's time, unless the session has ended by then.
  void AfterDiskTime(std::function<void()> what);
  void SaveStep(Client& client);
  void IssueOne();
  bool CancelOne();
  void TakeRefused();
  // Returns the tree of the first `decided` records, less those that they cancel and those in
  // `without`. `unsure` (may be null) gets the possible effects of unpromised data past the log.
  Tree Expected(Seq decided, std::vector<Seq> without, std::map<FileId, Unsure>* unsure) const;

  // Returns whether this loss keeps the contract of f: of no record that may still depend on
  // replicas do f of them lose their memory, counted from its issue on.
  bool LossAllowed(size_t replica) const;
  // Notes that the replica loses its memory, which may come back under its incarnation.
  void CountLoss(size_t replica, bool same_incarnation);
  // Counts losses that the primary has not noticed as losses after the issue of its last record.
  void CountUnnoticedLosses(const Primary& primary);
  // Has replicas lose their memory, as many as f allows, right before the primary crashes.
  void LastLosses();
  // Returns the replicas that lost their memory after the record was issued, as bits.
  uint32_t LostSince(Seq seq) const;
  void Deliver(int64_t cut_off_until, std::string bytes,
               std::function<void(const std::string&)> arrives);
  // `offer` (may be null): a key for the session's datagrams.
  absl::StatusOr<Opening> OpenAt(int replica, Epoch epoch, uint64_t session, Seq base,
                                 const KeyOffer* offer);
  bool StartSession();
  void Heal();
  // Returns whether no client waits any more and the mode is replicated; with `alone`, whether
  // everything is durable.
  bool AllServed(bool alone) const;
  void Crash();
  Death DrawDeath();
  void MachineDies(Death death, bool session);
  void Recover();
  bool RecoverOnce(bool calm);
  bool DrawRecoveryTrouble();
  uint32_t LostMembers();  // noted members whose memory is not the noted one, as bits
  void Judge(Seq decided);
  std::string Compare(Seq decided);
  // Lets the frozen primary continue: it issues a record, and its clock ticks.
  void ZombieActs();
  void CheckZombie();
  // Checks I6; call it before anything is issued.
  void CheckDeadline(const Primary& primary);
  void Break(std::string what);
  // Adds one line to the trace; its numbers also go into the digest.
  template <typename... Args>
  void Say(const absl::FormatSpec<Args...>& format, const Args&... args) {
    (Mix(args), ...);
    Mix(now_);
    if (trace_) trace_(absl::StrFormat("%d us  ", now_ / 1000) + absl::StrFormat(format, args...));
  }
  template <typename Number>
  void Mix(const Number& value) {
    if constexpr (std::is_integral_v<Number>) {
      outcome_.digest = (outcome_.digest ^ static_cast<uint64_t>(value)) * 0x9E3779B97F4A7C15ull;
      outcome_.digest ^= outcome_.digest >> 29;
    }
  }

  const ClusterOptions options_;
  Random random_;
  Random put_back_random_;
  Random later_random_;  // for faults that were added later: random_ draws the same for old seeds
  Random last_random_;   // for LastLosses
  Random seal_random_;   // for sealed lifetimes
  std::function<void(std::string)> trace_;
  const std::set<uint64_t>* const without_;
  int64_t now_ = 1'000'000'000;
  int64_t realtime_offset_ = 0;
  double primary_rate_ = 1;
  std::priority_queue<Event> queue_;
  std::vector<std::function<void()>> happenings_;
  std::vector<size_t> free_happenings_;
  uint64_t order_ = 0;
  bool faults_ = true, heal_alone_ = false;
  uint32_t stay_away_ = 0;  // replicas that do not come back when the faults stop
  bool bulky_ = false, huge_ = false, tight_ = false;
  int names_ = 0;
  double plain_ = 1;
  int64_t full_until_ = 0;  // until then the disk is full

  std::unique_ptr<SealJudge> judge_;  // null: datagrams are plain
  bool plain_too_ = false;            // replicas open plain frames, too
  int64_t key_rotation_ns_ = 0;       // 0: keys do not change
  std::vector<Overheard> overheard_;
  VolumeConfig config_;
  Disk disk_;
  FsModel fs_;
  std::vector<std::unique_ptr<ReplicaHost>> replicas_;
  // Per replica: its latest acknowledgement in this session since it was opened.
  struct LastAck {
    Incarnation incarnation = 0;
    int64_t opened_ns = 0;
    Seq contiguous = 0;
    int64_t ns = 0;  // when that acknowledgement arrived
  };
  bool put_backs_ = false;
  std::vector<LastAck> last_acks_;
  // Per replica: highest seq issued when an earlier memory was put back in this session.
  std::vector<std::optional<Seq>> put_back_at_;
  bool unknowable_ = false;    // the lifetime ended before a memory put back was noted as lost
  // A replica's losses of memory in this session.
  struct Loss {
    Seq upto = 0;                   // counts for the records up to this one
    bool unnoticed = false;         // the primary may not have noticed the last one
    bool same_incarnation = false;  // nor can its incarnation show that
  };
  std::vector<Loss> loss_;     // per replica
  Seq oldest_needed_ = 0;      // of the dead primary: Primary::OldestNeeded
  uint32_t lost_members_ = 0;  // when recovery began
  // The changes that a running fsync of bulk data will cover.
  std::optional<uint64_t> bulk_syncing_;
  std::shared_ptr<Seat> seat_;
  std::unique_ptr<Primary> primary_;
  std::shared_ptr<Seat> zombie_seat_;
  std::unique_ptr<Primary> zombie_;
  std::optional<Seq> zombie_decided_;  // T of the recovery that fenced it

  Tree base_;    // at the start of the session
  Tree wanted_;  // with every issued record
  std::vector<Done> done_;
  std::vector<Client> clients_;
  std::vector<Held> held_;
  std::map<FileId, Seq> last_data_;  // highest data record of each file
  Seq acked_ = 0;
  bool pinned_ = false;  // a run of this recovery passed its decision
  Seq pinned_at_ = 0;
  Seq decided_ = 0;  // T of the last recovery
  Outcome outcome_;
};

}  // namespace salius::sim
