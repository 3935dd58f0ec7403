// A deterministic simulation of a whole cluster, from a 64-bit seed: a primary with the shipping
// replicator, stable log and state file over a simulated disk (tests/sim/disk.h), replicas with the
// shipping arena and acceptor, a network that loses, repeats, delays and damages datagrams, and the
// shipping recovery, which is cut off and run again with other replicas missing. A lifetime is a
// few sessions, each ended by a crash. After every recovery the tree is compared with what was
// issued and acknowledged:
//
//   I1  everything acknowledged is there; it refuses only when more was lost than f allows
//   I2  the tree is what the first T records make, for some T
//   I3  nothing superseded comes back, bulk data included
//   I4  a fenced primary's records never become durable again
//   I5  a memory that was lost never counts (it shows as I1)
//   I6  no replica dropped what the disk does not have (it shows as a refusal), also when nobody
//       comes for long; nothing is issued while the oldest record that the disk does not have is
//       older than k * tau - 2 * delta
//   I7  cut off and run again, recovery comes to the same T and tree
//   I8  nothing that failed is acknowledged
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
#include "tests/sim/primary.h"
#include "tests/sim/replica_host.h"

namespace salius::sim {

// What happened, for people and for the digest that shows that a seed repeats.
struct Outcome {
  std::string broken;    // empty: every guarantee held
  bool refused = false;  // more was lost than f allows, and recovery said so
  uint64_t digest = 0;
  uint64_t faults = 0, records = 0, recoveries = 0, recovery_runs = 0, mode_changes = 0, losses = 0;
  uint64_t cancels = 0, same_lives = 0, disk_failures = 0, memories_full = 0;
  uint64_t late = 0;  // records issued by a frozen primary beside its recovery
  std::map<std::string_view, uint64_t> of_each;  // faults, and what else was drawn, by their names
};

class ClusterSim {
 public:
  // `trace` (may be null) gets one line per event. Faults are numbered from 1; those in `without`
  // (may be null) do not happen.
  ClusterSim(uint64_t seed, const ClusterOptions& options, std::function<void(std::string)> trace,
             const std::set<uint64_t>* without = nullptr);
  ~ClusterSim();
  Outcome Run();

 private:
  class Seat;
  class Connector;
  friend class Connector;
  // What a session did to the tree, in order.
  struct Done {
    RecordHeader header;
    std::string body;
    // Bulk data: the "on disk" record that promises it, or kNever; 0: a record of the log.
    Seq confirmed = 0;
  };
  static constexpr Seq kNever = UINT64_MAX;
  // Data past the log that nothing has promised: it may be in its file or not, or a part of it.
  struct Unsure {
    std::set<uint64_t> bytes;  // positions at which anything may stand
    uint64_t most = 0;         // the file may be as large
  };
  struct Client {
    Seq durable = 0, applied = 0;  // it waits until these are
    // The create-write-rename it is in the middle of; 0: none.
    int save_step = 0;
    std::string temporary;
    FileId file = kNoFileId;
  };
  // What an operation on names keeps others from, until its caller has the result.
  struct Held {
    Seq seq = 0, cancel = 0;
    bool refused = false;
    const Client* client = nullptr;
    std::vector<FileId> files;
    std::vector<std::string> names;
  };
  // What happens lies apart, so that the queue moves little.
  struct Event {
    int64_t time;
    uint64_t order;
    size_t what;  // in happenings_
    bool operator<(const Event& other) const {
      return time != other.time ? time > other.time : order > other.order;
    }
  };

  // cluster_faults.cc. True when this fault happens now.
  bool Fault(const char* what, double chance);
  bool Happens(const char* what);  // a fault that was drawn
  void Count(const char* what) { ++outcome_.of_each[what]; }
  double DrawRate();
  int64_t DrawJump();
  void At(int64_t delay, std::function<void()> what);
  void RunEvents(int64_t until);
  void Step(bool faults);
  void Faults();
  void RecoveryFaults();
  void TickReplicas();
  // Neither a primary nor a recovery is there for `ns`. I6: all that replicas hold is kept, with an
  // alarm, but for what the administrator had them give up.
  void NobodyComes(int64_t ns);
  void Restart(size_t replica);
  void LoseMemory(size_t replica);
  void TakeTimeToStart(size_t replica);
  void PutBackFaults(size_t replica);
  // Takes an acknowledgement that arrives at the primary. True when it names less than one that
  // arrived before the frame that it answers was sent: the memory went back.
  bool ContradictsWhatWasTold(size_t replica, std::string_view datagram);
  // The state names a member whose memory was put back since, as if that had not happened. What a
  // recovery finds then cannot be known.
  bool NotesAMemoryPutBack() const;
  // The primary's monotonic clock.
  int64_t PrimaryClock() const {
    return static_cast<int64_t>(static_cast<double>(now_) * primary_rate_);
  }
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
  // The fsync of bulk data comes back: done_[index], the first `changes` of the file system.
  void BulkSynced(size_t index, uint64_t changes);
  void LoseBulk(uint64_t changes);
  void ConfirmBulk(size_t index);
  // Unless the session has ended by then.
  void AfterDiskTime(std::function<void()> what);
  void SaveStep(Client& client);
  void IssueOne();
  bool CancelOne();
  void TakeRefused();
  // The tree when the first `decided` records are all there are, less those that they cancel and
  // `without`. `unsure` (may be null) gets what data past the log, which nothing promised, may have
  // made of files.
  Tree Expected(Seq decided, std::vector<Seq> without, std::map<FileId, Unsure>* unsure) const;

  bool LossAllowed() const;
  void Deliver(int64_t cut_off_until, std::string bytes,
               std::function<void(const std::string&)> arrives);
  absl::StatusOr<Opening> OpenAt(int replica, Epoch epoch, uint64_t session, Seq base);
  bool StartSession();
  void Heal();
  // No client waits any more; and the mode is replicated, or with `alone` everything is durable.
  bool EverybodyServed(bool alone) const;
  void Crash();
  Death DrawDeath();
  void MachineDies(Death death, bool session);
  void Recover();
  bool RecoverOnce(bool calm);
  bool DrawRecoveryTrouble();
  uint32_t LostMembers();  // noted members whose memory is not the noted one, as bits
  void Judge(Seq decided);
  std::string Compare(Seq decided);
  // The primary that was only frozen goes on: it issues something, and its clock ticks.
  void ZombieActs();
  void CheckZombie();
  // I6: to be called before anything is issued.
  void CheckDeadline(const Primary& primary);
  void Break(std::string what);
  // One line of the trace; its numbers also go into the digest.
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
  Random later_random_;  // of faults that came later: seeds keep what random_ draws for them
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
  int64_t full_until_ = 0;  // the disk

  VolumeConfig config_;
  Disk disk_;
  FsModel fs_;
  std::vector<std::unique_ptr<ReplicaHost>> replicas_;
  // Per replica: what its acknowledgements told this session since it was opened.
  struct Told {
    Incarnation incarnation = 0;
    int64_t opened_ns = 0;
    Seq contiguous = 0;
    int64_t ns = 0;  // when that was told
  };
  bool put_backs_ = false;
  std::vector<Told> told_;
  // Per replica: highest seq issued when an earlier memory was put back in this session.
  std::vector<std::optional<Seq>> put_back_at_;
  bool unknowable_ = false;    // the lifetime ended before a memory put back was noted as lost
  std::vector<Seq> lost_at_;   // per replica: highest seq issued when it last lost its memory
  Seq checkpoint_ = 0;         // the dead primary's
  uint32_t lost_members_ = 0;  // when recovery began
  std::optional<uint64_t> bulk_syncing_;  // an fsync of bulk data is to cover these changes
  std::shared_ptr<Seat> seat_;
  std::unique_ptr<Primary> primary_;
  std::shared_ptr<Seat> zombie_seat_;
  std::unique_ptr<Primary> zombie_;
  std::optional<Seq> zombie_decided_;  // by the recovery that fenced it

  Tree base_;    // when the session began
  Tree wanted_;  // with everything issued
  std::vector<Done> done_;
  std::vector<Client> clients_;
  std::vector<Held> held_;
  std::map<FileId, Seq> last_data_;  // highest data record of each file
  Seq acked_ = 0;
  bool pinned_ = false;  // a run of this recovery came past its decision
  Seq pinned_at_ = 0;
  Seq decided_ = 0;  // by the last recovery
  Outcome outcome_;
};

}  // namespace salius::sim
