// A deterministic simulation of a direct volume, from a 64-bit seed:
// - several processes with the shipping client/direct/process and client/direct/window, which share
//   a window and are killed or stopped at any of their steps (tests/sim/direct_machine.h)
// - the coordinator with the shipping session core and policy rounds (direct_coordinator.h)
// - replicas with the shipping arena and acceptor, over a network that loses, repeats, delays and
//   damages datagrams
// - files in memory with a page cache and a disk (direct_kernel.h)
// - the shipping recovery, which is cut off and run again with other replicas missing
//
// A lifetime is a few sessions. After each the files are compared with an outside ledger
// (direct_ledger.h):
//
//   I1  what an acknowledged sync covered is there; recovery refuses only when f members were lost
//       after the issue of every acknowledged record
//   I3  nothing older comes back over acknowledged bytes
//   I4  a replica that promised a recovery opens no older session
//   I5  a lost memory never counts (a violation shows as I1); a replica that names less than before
//       does not count any more
//   I6  nothing is issued beside a record that is older than k * tau - 2 * delta
//   I7  cut off and run again, recovery reaches the same decision
//   I8  no sync succeeds after the coordinator's death, after the volume failed, or after a failed
//       sync of its file
//   I9  under external synchrony (in some lifetimes): no output is made while a record that was
//       issued before it is not durable, and what every process had done before it is there;
//       what a ticket stands for is there when its wait has ended
//   I10 the mode shown is the one that processes see
//
// Each sync and output of a living process ends within kLongestCallNs.
//
// Threads: one, with fibers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/strings/str_format.h"
#include "client/direct/process/process.h"
#include "client/direct/window/layout.h"
#include "common/random.h"
#include "tests/sim/direct_coordinator.h"
#include "tests/sim/direct_kernel.h"
#include "tests/sim/direct_ledger.h"
#include "tests/sim/direct_machine.h"
#include "tests/sim/direct_options.h"
#include "tests/sim/outcome.h"
#include "tests/sim/replica_host.h"
#include "tests/unit/storage/memory_backing.h"

namespace salius::sim {

class DirectSim : public DirectCoordinator::World {
 public:
  // Draws a lifetime from `seed`. `trace` (may be null) gets one line per event. Faults are
  // numbered from 1; those in `without` (may be null) do not happen.
  DirectSim(uint64_t seed, const DirectOptions& options, std::function<void(std::string)> trace,
            const std::set<uint64_t>* without = nullptr);
  ~DirectSim() override;
  Outcome Run();

 private:
  // No call of a living process takes longer, whatever happens.
  static constexpr int64_t kLongestCallNs = 30'000'000'000;
  struct SimFile {
    std::string name;
    BackingFd fd;
    DirectLedger ledger;
    bool failed = false;  // a sync of it failed in mode replicated
    // Under external synchrony: what the calls that returned have written. An output shows it.
    std::optional<DirectLedger::Marks> finished;
  };
  struct Program {
    DirectMachine::ProcessId id = 0;
    direct::Process process;
    std::map<const SimFile*, direct::File> handles;
    bool lived_on = false;  // it has threads, or had
  };
  // A write that was made, and whose record was not: of these cells.
  struct Writing {
    const SimFile* file = nullptr;
    uint32_t cells = 0;  // as bits
  };
  // A sync call or an output that has not returned.
  struct Call {
    int64_t begun = 0;
    const char* what = "";
  };
  // An acknowledgement that names less than was heard before.
  struct GoesBack {
    size_t replica = 0;
    direct::Heard heard{};  // when it was received
    direct::Peer peer{};
  };
  struct Loss {
    Seq upto = 0;            // counts for the records up to this one
    bool unnoticed = false;  // the coordinator has not noticed the last one
  };
  enum class End { kDrain, kPower, kProcesses, kCoordinator };

  // direct_faults.cc
  bool Fault(const char* what, double chance);
  bool Happens(const char* what);  // notes a fault that was drawn; false when it is left out
  void Count(std::string_view what) { ++outcome_.of_each[what]; }
  void Weather();
  void CutOff(int64_t longest_ns, bool all);
  void Restart(size_t replica);
  void LoseMemory(size_t replica);
  void TakeTimeToStart(size_t replica);
  bool LossAllowed(size_t replica) const;
  void PutBackFaults(size_t replica);
  // Returns whether the noted state has a member whose memory was put back since, and the
  // coordinator has not noticed. Recovery cannot know: this is the limit of I5.
  bool NotesAMemoryPutBack();
  bool NamesLess(size_t replica, const std::string& datagram) const;
  void LastLosses();
  // Counts losses that the coordinator has not noticed as losses after the issue of the last record.
  void CountUnnoticedLosses();
  uint32_t LostSince(Seq seq) const;
  void Deliver(int64_t cut_off_until, std::string bytes,
               std::function<void(const std::string&)> arrives);
  void Arrives(size_t replica, const std::string& bytes);
  void OnKill(const DirectMachine::Thread& thread);
  void MachineDies(bool power);
  // DirectCoordinator::World
  int64_t SyncTime() override;
  bool SyncFails() override;
  void SendToReplica(size_t replica, std::string datagram) override;
  void Receives() override;
  void Received(size_t replica, const std::string& datagram) override;
  int64_t NoteTime() override { return SyncTime(); }
  bool NoteFails() override;
  int64_t OpenTime() override { return static_cast<int64_t>(random_.Below(3'000'000)); }
  absl::StatusOr<Opening> OpenAt(int replica, Epoch epoch, uint64_t session, Seq base) override;
  void Changed(std::string_view mode, direct::Phase phase) override;

  // direct_programs.cc
  void StartProgram();
  void RunThread(Program& program);
  void Fork(Program& parent);
  SimFile& AnyFile();
  SimFile& NewFile();
  // Removes a file that no call uses, and makes another one.
  void Replace(Program& program);
  direct::File HandleOf(Program& program, SimFile& file, bool made);
  void DoOne(Program& program);
  void Write(Program& program, SimFile& file, bool sync);
  void WriteUnlogged(Program& program, SimFile& file);
  void Truncate(Program& program, SimFile& file);
  void Sync(Program& program, SimFile& file);
  void SyncAll(Program& program);
  // Ends a sync call that began at `begun` and covers `covered`.
  struct Covered {
    SimFile* file;
    DirectLedger::Marks marks;
  };
  void Synced(int result, const std::vector<Covered>& covered, direct::PhaseWord before,
              bool was_dead, uint64_t real_syncs, uint64_t file_syncs, bool all);
  // Notes that the call that wrote `cells` (as bits) up to `written` has returned.
  static void Finish(SimFile& file, uint32_t cells, const DirectLedger::Marks& written);
  // Draws an output, a dsync, or the end of early return, after a call.
  void ActOutside(Program& program);
  void Output(Program& program);
  void Dsync(Program& program);
  // Returns whether an output or a dsync was made; it may fail for a reason only.
  bool Kept(int result, const char* what);
  // Cuts the power now, by chance.
  void MayCut();
  void CheckDeadline(Seq seq);
  void DrawFate(Program& program);
  void Doing(std::string_view what) { machine_.running().doing = what; }

  // direct_sim.cc
  void StartSession();
  void OpenFiles();
  void RunSession();
  void Settle();
  void CheckCalls();
  void TakeCounters();
  bool CoordinatorLives() const { return machine_.Lives(coordinator_->process()); }
  bool ProgramsLive() const;
  void EndSession(End end);
  void Break(std::string what);

  // direct_recovery.cc
  void Recover();
  bool RecoverOnce(bool calm);
  void RecoveryFaults();
  VolumeState NotedState();
  uint32_t LostMembers();  // noted members whose memory is not the noted one, as bits
  void Judge(const char* when, bool newest);
  std::string ContentOf(const SimFile& file);

  template <typename... Args>
  void Say(const absl::FormatSpec<Args...>& format, const Args&... args) {
    (Mix(args), ...);
    Mix(machine_.now());
    if (trace_) {
      trace_(absl::StrFormat("%d us  ", machine_.now() / 1000) + absl::StrFormat(format, args...));
    }
  }
  template <typename Number>
  void Mix(const Number& value) {
    if constexpr (std::is_integral_v<Number>) {
      outcome_.digest = (outcome_.digest ^ static_cast<uint64_t>(value)) * 0x9E3779B97F4A7C15ull;
      outcome_.digest ^= outcome_.digest >> 29;
    }
  }

  const DirectOptions options_;
  Random random_, put_back_random_, outside_random_;
  std::function<void(std::string)> trace_;
  const std::set<uint64_t>* const without_;
  VolumeConfig config_;
  MemoryBacking backing_;
  DirectMachine machine_;
  DirectKernel kernel_;
  BackingFd salius_;
  std::vector<std::unique_ptr<ReplicaHost>> replicas_;
  std::vector<std::unique_ptr<SimFile>> files_;
  uint64_t next_value_ = 1, next_name_ = 1;
  bool faults_ = true;
  bool put_backs_ = false;   // memories are put back in this lifetime
  bool external_ = false;    // syncs return early in this lifetime, and outputs wait
  bool unknowable_ = false;  // it ended before a memory put back was noted as lost

  // ---- of the session
  std::unique_ptr<uint8_t[]> memory_;
  direct::SharedWindow window_;
  std::unique_ptr<DirectCoordinator> coordinator_;
  std::vector<std::unique_ptr<Program>> programs_;
  bool ending_ = false;                                   // no new call begins
  bool cut_now_ = false;                                  // the power is cut right after an output
  bool recovering_ = false;                               // there is no session
  std::map<uint32_t, Call> calls_;                        // by thread
  std::map<uint32_t, Writing> writing_;                   // by thread
  std::map<uint32_t, const SimFile*> using_;              // by thread; null: all files
  std::map<uint32_t, std::vector<GoesBack>> going_back_;  // by thread
  std::vector<Loss> losses_;                              // per replica
  std::vector<std::optional<Seq>> put_back_at_;           // per replica: issued at that time
  direct::Phase last_phase_ = direct::Phase::kLocal;
  uint64_t heals_ = 0;

  uint32_t lost_members_ = 0;  // when recovery began
  Seq acked_ = 0;
  bool pinned_ = false;
  Seq pinned_at_ = 0;
  Outcome outcome_;
};

}  // namespace salius::sim
