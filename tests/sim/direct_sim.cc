#include "tests/sim/direct_sim.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/direct/window/robust_lock.h"
#include "common/check.h"
#include "log/state_file.h"

namespace salius::sim {
namespace {

using direct::Phase;
using direct::SharedWindow;
using direct::WindowSpec;

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kWeatherNs = 2 * kMs;
constexpr FileId kFileIdBlock = 64;
constexpr size_t kAlignment = 4096;

VolumeConfig MakeConfig(Random& random) {
  VolumeConfig config = DefaultVolumeConfig(VolumeKind::kDirect);
  for (size_t i = 0; i < config.volume.bytes.size(); ++i) {
    config.volume.bytes[i] = static_cast<uint8_t>(i + 1);
  }
  const uint64_t m = 1 + random.Below(4);
  for (uint64_t i = 0; i < m; ++i) config.replicas.push_back(absl::StrCat("replica:", i + 1));
  config.acks = static_cast<uint32_t>(1 + random.Below(m));
  config.delta_us = 20'000;
  config.tau_ms = 2'000;
  config.k = 2;
  return config;
}

MemoryBacking::Options BackingOptions() {
  MemoryBacking::Options options;
  options.block_bytes = DirectLedger::kCellBytes;
  options.exact_syncs = true;
  options.reuse_inodes = true;
  return options;
}

}  // namespace

DirectSim::DirectSim(uint64_t seed, const DirectOptions& options,
                     std::function<void(std::string)> trace, const std::set<uint64_t>* without)
    : options_(options),
      random_(seed),
      put_back_random_(seed * 0x9E3779B97F4A7C15ull + 1),
      outside_random_(seed * 0x9E3779B97F4A7C15ull + 2),
      trace_(std::move(trace)),
      without_(without),
      config_(MakeConfig(random_)),
      backing_(BackingOptions()),
      machine_(random_.Next(), random_.Chance(options.few_steps) ? 25 : 250),
      kernel_(machine_, backing_, *this, random_.Next()) {
  SALIUS_CHECK_OK(CreateVolume(backing_, backing_.root(), "/volume", config_));
  SALIUS_CHECK_OK(backing_.SyncFs(backing_.root()));
  // Smaller than a volume may have: much happens in a short time.
  config_.log_max_bytes = random_.Chance(options_.small_ring) ? 32 << 10 : 512 << 10;
  config_.bulk_limit_bytes = random_.Chance(options_.small_bulk) ? 4000 : 1 << 20;
  if (random_.Chance(options_.hasty)) {
    config_.tau_ms = 60 + random_.Below(300);
    Count("small tau");
  }
  kernel_.SetCpus(random_.Chance(0.5) ? 2 : 1);
  for (size_t i = 0; i < config_.replicas.size(); ++i) {
    replicas_.push_back(std::make_unique<ReplicaHost>(random_.Next(), 0));
    replicas_.back()->takes_compact = replicas_.size() % 2 == 1;
    replicas_.back()->offset = static_cast<int64_t>(random_.Below(1000 * kMs));
  }
  losses_.resize(replicas_.size());
  put_backs_ = put_back_random_.Chance(options_.put_back_lives);
  external_ = outside_random_.Chance(options_.external);
  machine_.OnKill([this](const DirectMachine::Thread& thread) { OnKill(thread); });
}

DirectSim::~DirectSim() {
  // Before the files that its calls use.
  machine_.OnKill(nullptr);
}

void DirectSim::Break(std::string what) {
  Say("BROKEN %s", what);
  if (outcome_.broken.empty()) outcome_.broken = std::move(what);
}

// ---- a session

void DirectSim::OpenFiles() {
  auto salius = backing_.OpenAt(backing_.root(), kSaliusDir, O_RDONLY | O_DIRECTORY);
  SALIUS_CHECK_OK(salius);
  salius_ = *std::move(salius);
  std::vector<int> fds;
  for (const auto& file : files_) {
    auto fd = backing_.OpenAt(backing_.root(), file->name, O_RDWR);
    SALIUS_CHECK_OK(fd);
    file->fd = *std::move(fd);
    file->failed = false;
    file->finished.reset();
    fds.push_back(file->fd.get());
  }
  kernel_.SetFiles(std::move(fds));
}

void DirectSim::StartSession() {
  OpenFiles();
  auto state = StateFile::Open(backing_, salius_.get(), kStateFileName);
  SALIUS_CHECK_OK(state);
  SALIUS_CHECK(!state->state().open, "recovery comes first");
  const auto root = backing_.Stat(backing_.root());
  SALIUS_CHECK_OK(root);
  WindowSpec spec;
  spec.slots = 1u << (5 + random_.Below(4));
  spec.stripes = 1u << random_.Below(4);
  spec.files = 64;
  spec.ring_bytes = config_.log_max_bytes;
  spec.replicas = static_cast<uint32_t>(config_.replicas.size());
  spec.volume = config_.volume;
  spec.epoch = state->state().epoch + 1;
  spec.session = random_.Next();
  spec.root_device = root->st_dev;
  spec.root_inode = root->st_ino;
  spec.oldest_ns = static_cast<int64_t>(config_.k * config_.tau_ms) * kMs -
                   2 * static_cast<int64_t>(config_.delta_us) * 1000;
  spec.bulk_bytes = config_.bulk_limit_bytes;
  spec.few = random_.Chance(0.5) ? random_.Below(3) : 1000;
  spec.last_timestamp_ns = state->state().last_timestamp_ns;
  spec.next_file_id = state->state().file_id_limit;
  spec.file_id_limit = spec.next_file_id + kFileIdBlock;
  const uint64_t bytes = SharedWindow::BytesFor(spec);
  memory_ = std::make_unique<uint8_t[]>(bytes + kAlignment);
  void* memory = memory_.get();
  size_t space = bytes + kAlignment;
  SALIUS_CHECK(std::align(kAlignment, bytes, memory, space) != nullptr);
  machine_.SetMemory(nullptr, 0);
  window_ = SharedWindow::Format(memory, spec);
  if (external_) {
    window_.header().promises.external.store(1);
    window_.header().promises.lazy.store(outside_random_.Chance(options_.lazy) ? 1 : 0);
  }
  machine_.SetMemory(memory, bytes);
  kernel_.SetWindow(memory);
  kernel_.CloseSocket();
  std::fill(losses_.begin(), losses_.end(), Loss());
  // The memory of an earlier session would forget a fence too.
  put_back_at_.assign(replicas_.size(), std::nullopt);
  for (const auto& host : replicas_) host->Forget();
  acked_ = 0;
  pinned_ = ending_ = recovering_ = cut_now_ = false;
  pinned_at_ = 0;
  last_phase_ = Phase::kLocal;
  coordinator_ = std::make_unique<DirectCoordinator>(machine_, kernel_, *this, config_, window_,
                                                     *std::move(state), spec.session, kFileIdBlock);
  SALIUS_CHECK_OK(coordinator_->Begin());
  // No process attaches before.
  const auto lives = [this] { return direct::HeldByTheLiving(window_.header().life); };
  machine_.Run(machine_.now() + 1000 * kMs, lives);
  SALIUS_CHECK(lives());
  Say("session of epoch %d, m %d, f %d, %d slots, %d stripes, ring %d", spec.epoch,
      replicas_.size(), config_.acks, spec.slots, spec.stripes, spec.ring_bytes);
}

bool DirectSim::ProgramsLive() const {
  return std::any_of(programs_.begin(), programs_.end(),
                     [this](const auto& program) { return machine_.Lives(program->id); });
}

void DirectSim::CheckCalls() {
  for (const auto& [thread, call] : calls_) {
    if (machine_.now() - call.begun > kLongestCallNs) {
      Break(absl::StrCat("a call does not end: ", call.what));
    }
  }
  if (!coordinator_->dishonest().empty()) Break("I10: " + coordinator_->dishonest());
}

void DirectSim::RunSession() {
  const int64_t end =
      machine_.now() + static_cast<int64_t>(1 + random_.Below(options_.most_ms)) * kMs;
  while (machine_.now() < end && !cut_now_ && outcome_.broken.empty()) {
    Weather();
    machine_.Run(machine_.now() + kWeatherNs, [this] { return cut_now_; });
    CheckCalls();
  }
}

// Ends the programs without faults: every call must end, holes must be filled, and the mode must be
// replicated.
void DirectSim::Settle() {
  faults_ = false;
  ending_ = true;
  for (auto& host : replicas_) {
    host->deaf_until = host->mute_until = host->stuck_until = host->down_until = 0;
  }
  const auto settled = [this] {
    if (ProgramsLive()) return false;
    if (!coordinator_->policy().failure().ok()) return true;
    // No replica is left that would know of a fence: it stays local, and reports so.
    const bool in_doubt = absl::StrContains(coordinator_->policy().ModeDetail(machine_.now()),
                                            "may have fenced them");
    return (last_phase_ == Phase::kReplicated || (in_doubt && last_phase_ == Phase::kLocal)) &&
           window_.header().ready.load() == window_.window().issued();
  };
  const int64_t until = machine_.now() + 2 * kLongestCallNs;
  while (machine_.now() < until && !settled() && outcome_.broken.empty()) {
    machine_.Run(machine_.now() + 100 * kMs, settled);
    for (auto& host : replicas_) host->Tick(machine_.now());
    CheckCalls();
  }
  if (settled() || !outcome_.broken.empty()) return;
  const Replicator& policy = coordinator_->policy();
  if (ProgramsLive()) {
    Break("a program does not end");
  } else if (window_.header().ready.load() != window_.window().issued()) {
    Break(absl::StrCat("a hole stays: complete up to ", window_.header().ready.load(), " of ",
                       window_.window().issued()));
  } else {
    Break(absl::StrCat("the mode stays ", policy.ModeDetail(machine_.now())));
  }
}

// Takes what the window counted.
void DirectSim::TakeCounters() {
  const direct::Counters& counters = window_.header().counters;
  outcome_.records += window_.window().issued();
  outcome_.mode_changes += coordinator_->mode_changes();
  outcome_.disk_failures += coordinator_->policy().failure().ok() ? 0 : 1;
  outcome_.of_each["hole filled"] += counters.voids;
  outcome_.of_each["dead owner noticed"] += counters.dead_owners;
  outcome_.of_each["acknowledged sync"] += counters.syncs;
  outcome_.of_each["real sync"] += counters.real_syncs;
  outcome_.of_each["leader taken over"] += counters.take_overs;
  const direct::Promises& promises = window_.header().promises;
  outcome_.of_each["output waited for a real sync"] += promises.paid_outputs;
  outcome_.of_each["sync returned early"] += promises.early_syncs;
  outcome_.of_each["sync left to the next output"] += promises.owed_syncs;
  outcome_.of_each["output refused"] += promises.refused;
  for (size_t i = 0; i < direct::kReasons; ++i) {
    if (counters.reasons[i] > 0) {
      static auto* const names = new std::map<size_t, std::string>;
      std::string& name = (*names)[i];
      if (name.empty()) {
        name = absl::StrCat("real sync for ", direct::ReasonName(static_cast<direct::Reason>(i)));
      }
      outcome_.of_each[name] += counters.reasons[i];
    }
  }
  Say("end: issued %d, ready %d, durable %d, checkpoint %d", window_.window().issued(),
      window_.header().ready.load(), window_.header().durable.load(),
      window_.window().checkpoint());
}

void DirectSim::EndSession(End end) {
  if (end == End::kDrain) {
    Settle();
    if (outcome_.broken.empty() && coordinator_->policy().failure().ok()) {
      coordinator_->DrainWhen([] { return true; });
      const int64_t until = machine_.now() + kLongestCallNs;
      // A sync of a process may have failed right before: the coordinator learns of it now.
      const auto failed = [this] { return !coordinator_->policy().failure().ok(); };
      machine_.Run(until, [this, failed] {
        return (coordinator_->drained() && !CoordinatorLives()) || failed();
      });
      if (coordinator_->drained()) {
        Count("drained");
      } else if (!failed()) {
        Break(absl::StrCat("the coordinator does not drain: ", coordinator_->DrainState()));
      }
    }
  } else if (end == End::kCoordinator && Fault("the coordinator dies", 1)) {
    machine_.KillAfter(coordinator_->process(), random_.Below(1 + random_.Below(3000)));
    for (int i = 0; i < 200 && CoordinatorLives() && outcome_.broken.empty(); ++i) {
      machine_.Run(machine_.now() + kWeatherNs, [this] { return !CoordinatorLives(); });
      CheckCalls();
    }
    if (!CoordinatorLives()) Say("the coordinator is dead");
    machine_.Run(machine_.now() + static_cast<int64_t>(random_.Below(300)) * kMs);
    CheckCalls();
  }
  ending_ = true;
  CountUnnoticedLosses();
  if (end != End::kDrain) LastLosses();
  TakeCounters();
  acked_ = std::max<Seq>(acked_, window_.header().durable.load());
  recovering_ = true;
  for (const auto& program : programs_) machine_.Kill(program->id);
  machine_.Kill(coordinator_->process());
  calls_.clear();
  writing_.clear();
  going_back_.clear();
  using_.clear();
}

Outcome DirectSim::Run() {
  for (int life = 0;
       life < options_.lives && outcome_.broken.empty() && !outcome_.refused && !unknowable_;
       ++life) {
    faults_ = true;
    StartSession();
    const uint64_t programs = 1 + random_.Below(static_cast<uint64_t>(options_.most_programs));
    for (uint64_t i = 0; i < programs; ++i) StartProgram();
    RunSession();
    if (!outcome_.broken.empty()) break;
    const End end = cut_now_                                    ? End::kPower
                    : random_.Chance(options_.drain)            ? End::kDrain
                    : random_.Chance(options_.coordinator_dies) ? End::kCoordinator
                    : random_.Chance(options_.power_cut)        ? End::kPower
                                                                : End::kProcesses;
    EndSession(end);
    if (!outcome_.broken.empty()) break;
    const bool clean = coordinator_->drained();
    const bool power = end == End::kPower || clean || random_.Chance(options_.power_cut);
    coordinator_.reset();
    programs_.clear();
    faults_ = true;
    MachineDies(power);
    if (clean) Judge("I8: after a drain", true);
    if (outcome_.broken.empty()) Recover();
    if (!outcome_.broken.empty() || outcome_.refused || unknowable_) break;
    std::erase_if(files_, [this](const auto& file) {
      return !backing_.StatAt(backing_.root(), file->name).ok();
    });
    for (const auto& file : files_) file->ledger.StartWith(ContentOf(*file));
  }
  return outcome_;
}

}  // namespace salius::sim
