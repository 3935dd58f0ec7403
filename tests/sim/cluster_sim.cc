#include "tests/sim/cluster_sim.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "storage/backing.h"
#include "tests/sim/cluster_seat.h"

namespace salius::sim {
namespace {

constexpr int64_t kUs = 1'000;
constexpr int64_t kMs = 1'000'000;

VolumeConfig MakeConfig(Random& random) {
  VolumeConfig config;
  for (size_t i = 0; i < config.volume.bytes.size(); ++i)
    config.volume.bytes[i] = static_cast<uint8_t>(i + 1);
  const uint64_t m = 1 + random.Below(4);
  for (uint64_t i = 0; i < m; ++i) config.replicas.push_back(absl::StrCat("replica:", i));
  config.acks = static_cast<uint32_t>(1 + random.Below(m));
  config.delta_us = 20'000;
  config.tau_ms = 2'000;
  config.k = 2;
  config.log_max_bytes = random.Chance(0.5) ? 32 << 10 : 256 << 10;
  config.stable_log_bytes = 1 << 20;
  return config;
}

// Returns a clean volume: made once, and copied to every lifetime's disk.
std::shared_ptr<const Disk::Image> NewVolume(Disk& disk, const VolumeConfig& config) {
  using Kind = std::pair<uint32_t, uint64_t>;
  static auto* const images = new std::map<Kind, std::shared_ptr<const Disk::Image>>;
  std::shared_ptr<const Disk::Image>& image = (*images)[{config.acks, config.stable_log_bytes}];
  if (image == nullptr) {
    VolumeState state;
    state.volume = config.volume;
    state.acks = config.acks;
    state.file_id_limit = 100;
    SALIUS_CHECK_OK(StateFile::Create(LinuxBacking(), disk.dirfd(), kStateFileName, state));
    SALIUS_CHECK_OK(StableLog::Create(LinuxBacking(), disk.dirfd(), kStableLogFileName,
                                      config.volume, config.stable_log_bytes));
    image = disk.TakeImage();
  }
  return image;
}

}  // namespace

void ClusterSim::AfterDiskTime(std::function<void()> what) {
  seat_->At(seat_->DiskTime(), [this, seat = seat_.get(), what = std::move(what)] {
    if (seat_.get() == seat) what();
  });
}

ClusterSim::ClusterSim(uint64_t seed, const ClusterOptions& options,
                       std::function<void(std::string)> trace, const std::set<uint64_t>* without)
    : options_(options),
      random_(seed),
      put_back_random_(seed * 0x9E3779B97F4A7C15ull + 1),
      later_random_(~seed),
      last_random_(seed * 0x9E3779B97F4A7C15ull + 2),
      seal_random_(seed * 0x9E3779B97F4A7C15ull + 3),
      trace_(std::move(trace)),
      without_(without),
      config_(MakeConfig(random_)),
      disk_(random_.Next(), options.sector),
      fs_(options_) {
  bulky_ = random_.Chance(options_.bulky);
  huge_ = random_.Chance(options_.huge);
  if (random_.Chance(options_.hasty)) {
    config_.tau_ms = 60 + random_.Below(300);
    Count("small tau");
  }
  if (huge_) {
    config_.log_max_bytes = 3 << 20;
    config_.stable_log_bytes = 4 << 20;
  }
  disk_.SetImage(*NewVolume(disk_, config_));
  const bool drift = random_.Chance(options_.drift);
  if (drift) Count("drift of the replicas' clocks");
  int64_t abandon_after_ns = 0;
  if (later_random_.Chance(options_.abandon)) {
    abandon_after_ns = later_random_.Between(static_cast<int64_t>(options_.abandon_least_s),
                                             static_cast<int64_t>(options_.abandon_most_s)) *
                       1000 * kMs;
    Count("abandon-after");
  }
  DrawSealing();
  for (size_t i = 0; i < config_.replicas.size(); ++i) {
    replicas_.push_back(
        std::make_unique<ReplicaHost>(random_.Next(), abandon_after_ns, judge_.get(), plain_too_));
    replicas_.back()->takes_compact = replicas_.size() % 2 == 1;
    replicas_.back()->offset = static_cast<int64_t>(random_.Below(1000 * kMs));
    if (drift) replicas_.back()->rate = DrawRate();
  }
  if (random_.Chance(options_.primary_drift)) {
    primary_rate_ = DrawRate();
    Count("drift of the primary's clock");
  }
  loss_.resize(replicas_.size());
  last_acks_.resize(replicas_.size());
  put_back_at_.resize(replicas_.size());
  put_backs_ = abandon_after_ns == 0 && put_back_random_.Chance(options_.put_back_lives);
  DrawClients();
  disk_.OnSyncFs([this](bool fails) {
    if (fails) {
      fs_.FailSync(fs_.changes(), random_);
    } else {
      fs_.SyncUpTo(fs_.changes());
    }
  });
}

ClusterSim::~ClusterSim() = default;

void ClusterSim::Break(std::string what) {
  Say("BROKEN %s", what);
  if (outcome_.broken.empty()) outcome_.broken = std::move(what);
}

void ClusterSim::At(int64_t delay, std::function<void()> what) {
  if (free_happenings_.empty()) {
    free_happenings_.push_back(happenings_.size());
    happenings_.emplace_back();
  }
  const size_t place = free_happenings_.back();
  free_happenings_.pop_back();
  happenings_[place] = std::move(what);
  queue_.push({now_ + delay, order_++, place});
}

void ClusterSim::RunEvents(int64_t until) {
  while (!queue_.empty() && queue_.top().time <= until) {
    now_ = std::max(now_, queue_.top().time);
    const size_t place = queue_.top().what;
    queue_.pop();
    const std::function<void()> what = std::exchange(happenings_[place], nullptr);
    free_happenings_.push_back(place);
    what();
  }
  now_ = until;
}

// ---- the network

void ClusterSim::Deliver(int64_t cut_off_until, std::string bytes,
                         std::function<void(const std::string&)> arrives) {
  if (now_ < cut_off_until) return;
  int copies = 1;
  if (faults_) {
    if (Fault("loss", options_.loss)) return;
    if (Fault("duplicate", options_.duplicate)) copies = 2;
    if (Fault("damaged datagram", options_.corrupt)) {
      bytes[random_.Below(bytes.size())] ^= static_cast<char>(1 << random_.Below(8));
    }
  }
  for (int i = 1; i <= copies; ++i) {
    int64_t delay = static_cast<int64_t>(options_.least_delay_us * kUs +
                                         random_.Below(options_.jitter_us * kUs));
    if (Fault("late datagram", options_.late))
      delay += static_cast<int64_t>(random_.Below(300 * kMs));
    if (i < copies) {
      At(delay, [bytes, arrives] { arrives(bytes); });
    } else {
      At(delay, [bytes = std::move(bytes), arrives = std::move(arrives)] { arrives(bytes); });
    }
  }
}

absl::StatusOr<Opening> ClusterSim::OpenAt(int replica, Epoch epoch, uint64_t session, Seq base,
                                           const KeyOffer* offer) {
  ReplicaHost& host = *replicas_[replica];
  if (!host.Reachable(now_) || now_ < host.stuck_until ||
      Fault("open fails", options_.open_fails)) {
    return absl::UnavailableError("unreachable");
  }
  SessionParams params;
  params.volume = config_.volume;
  params.epoch = epoch;
  params.session = session;
  params.base = base;
  params.tau_ms = config_.tau_ms;
  params.k = config_.k;
  params.sealed = offer != nullptr;
  // Two segments instead of all three.
  params.memory_bytes = huge_ && Fault("small grant", options_.small_grant) ? 4096 : 700 << 10;
  const auto opened = host.Open(now_, params, offer);
  if (!host.broken_promise().empty()) {
    Break(absl::StrCat("I4: replica ", replica, " ", host.broken_promise()));
  }
  return opened;
}

// ---- a session

bool ClusterSim::StartSession() {
  base_ = wanted_ = fs_.tree();
  done_.clear();
  held_.clear();
  bulk_syncing_.reset();
  std::fill(clients_.begin(), clients_.end(), Client());
  last_data_.clear();
  acked_ = 0;
  pinned_ = false;
  pinned_at_ = 0;
  full_until_ = 0;
  std::fill(loss_.begin(), loss_.end(), Loss());
  std::fill(last_acks_.begin(), last_acks_.end(), LastAck());
  std::fill(put_back_at_.begin(), put_back_at_.end(), std::nullopt);
  for (auto& host : replicas_) host->Forget();
  const bool dies = Fault("the session's start is cut off", options_.start_dies);
  if (dies) disk_.DieAfter(1 + random_.Below(4), false);
  seat_ = std::make_shared<Seat>(*this);
  auto started = Primary::Start(*seat_, disk_, fs_, config_, random_.Next());
  if (!started.ok()) {
    if (!dies) Break(absl::StrCat("a clean volume does not start: ", started.status().ToString()));
    return false;
  }
  disk_.Mend();
  primary_ = *std::move(started);
  seat_->Sit(primary_.get());
  Say("session of epoch %d, m %d, f %d", primary_->epoch(), replicas_.size(), config_.acks);
  return true;
}

void ClusterSim::Step(bool faults) {
  faults_ = faults;
  if (heal_alone_) {
    // No more work; but an operation without room gets its answer, through a record of its own.
    if (primary_->CanIssue(0) && primary_->core().failure().ok()) CancelOne();
  } else if (random_.Chance(options_.issue)) {
    IssueOne();
  }
  if (faults) {
    Faults();
  } else {
    for (auto& host : replicas_) {
      host->deaf_until = host->mute_until = host->stuck_until = host->slow_until = 0;
      host->down_until = 0;
    }
    for (size_t i = 0; i < replicas_.size(); ++i) {
      if ((stay_away_ >> i & 1) != 0) replicas_[i]->deaf_until = now_ + 1000 * kMs;
    }
  }
  ZombieActs();
  Attack();
  int64_t pause = static_cast<int64_t>(random_.Below(3 * kMs));
  if (random_.Chance(0.05)) pause = static_cast<int64_t>(random_.Below(400 * kMs));
  const int64_t until = now_ + pause;
  // The core names the times of the session's clock ticks, as it does for the pipeline's thread.
  while (now_ < until) {
    const int64_t clock = PrimaryClock();
    const auto wait = static_cast<double>(primary_->core().NextTick(clock) - clock) / primary_rate_;
    const auto most = static_cast<double>(until - now_);
    const auto tick = now_ + static_cast<int64_t>(std::min(wait, most));
    RunEvents(std::min(until, std::max(tick, now_ + kMs / 2)));
    primary_->Tick();
    seat_->RefreshKeys();
    TickReplicas();
  }
  if (primary_->apply_failed() && primary_->core().failure().ok()) {
    Break("I8: a record could not be applied, and the volume goes on");
  }
  if (primary_->notified_too_early()) Break("I1: a caller returned before its record was durable");
  acked_ = std::max(acked_, primary_->core().durable());
  CheckZombie();
  if (judge_ != nullptr && !judge_->broken().empty()) Break("keys: " + judge_->broken());
}

bool ClusterSim::AllServed(bool alone) const {
  const Replicator& core = primary_->core();
  if (std::any_of(clients_.begin(), clients_.end(),
                  [&](const Client& client) { return Waits(client); })) {
    return false;
  }
  if (alone) return core.durable() == core.issued();
  if (core.durable() + 64 <= core.issued()) return false;
  // No replica is left that would know of a fence: it stays local, and reports so.
  return core.counting_acks() ||
         absl::StrContains(core.ModeDetail(PrimaryClock()), "may have fenced them");
}

void ClusterSim::Heal() {
  const bool alone = random_.Chance(options_.heal_alone);
  // How many come back: too few, as many as are needed, or all.
  size_t back = replicas_.size();
  if (alone) {
    back = config_.acks - 1;
  } else if (random_.Chance(options_.heal_few)) {
    back -= random_.Below(back - config_.acks + 1);
  }
  stay_away_ = (1u << replicas_.size()) - 1;
  for (size_t came = 0; came < back;) {
    const uint32_t one = 1u << random_.Below(replicas_.size());
    came += (stay_away_ & one) != 0 ? 1 : 0;
    stay_away_ &= ~one;
  }
  Count(alone                      ? "faults stop with too few replicas"
        : back == replicas_.size() ? "faults stop with all replicas"
                                   : "faults stop with fewer replicas");
  Say("faults stop, %d of %d replicas come back", back, replicas_.size());
  full_until_ = 0;
  heal_alone_ = alone;
  for (int i = 0; i < 4000; ++i) {
    if (!primary_->core().failure().ok()) break;  // a disk that failed earlier
    Step(false);
    if (i > 50 && AllServed(alone)) break;
    if (i == 3999) {
      Break(absl::StrCat("liveness: durable ", primary_->core().durable(), " of ",
                         primary_->core().issued(), ", ",
                         primary_->core().ModeDetail(PrimaryClock())));
    }
  }
  heal_alone_ = false;
  stay_away_ = 0;
}

// ---- the crash

void ClusterSim::MachineDies(Death death, bool session) {
  Say("%s", death == Death::kPower     ? "power cut"
            : death == Death::kRemount ? "the process dies, the file system is mounted again"
                                       : "the process dies");
  // Unpromised bulk data may be in the page cache and never reach the disk. It must not become a
  // part of the tree with which the next session begins.
  if (std::any_of(done_.begin(), done_.end(),
                  [](const Done& done) { return done.confirmed == kNever; })) {
    fs_.DropLost();
  }
  disk_.Crash(death);
  fs_.Crash(random_, death, session);
}

void ClusterSim::Crash() {
  faults_ = true;
  if (bulk_syncing_ && Fault("unheard error of a bulk fsync", options_.last_sync)) {
    LoseBulk(*bulk_syncing_);
  }
  bulk_syncing_.reset();
  oldest_needed_ = 1;
  if (primary_ == nullptr) {  // it died while it began
    seat_->Clear();
    return MachineDies(DrawDeath(), true);
  }
  // It may have heard of a memory that is lost only after its last record: by a late answer.
  CountUnnoticedLosses(*primary_);
  LastLosses();
  oldest_needed_ = primary_->OldestNeeded();
  TakeRefused();
  acked_ = std::max(acked_, primary_->core().durable());
  outcome_.mode_changes += static_cast<uint64_t>(primary_->mode_changes());
  outcome_.disk_failures += primary_->core().failure().ok() ? 0 : 1;
  Say("end: issued %d, acknowledged %d, applied %d, checkpoint %d", primary_->core().issued(),
      acked_, primary_->core().applied(), primary_->core().checkpoint());
  if (Fault("zombie", options_.zombie)) {
    // Another machine takes its disk over; data in its page cache may be there or not.
    Say("the primary is frozen");
    if (zombie_seat_ != nullptr) zombie_seat_->Clear();
    zombie_seat_ = std::move(seat_);
    zombie_ = std::move(primary_);
    zombie_->LoseDisk();
    zombie_decided_.reset();
    return MachineDies(random_.Chance(0.5) ? Death::kRemount : Death::kPower, true);
  }
  primary_->Die();
  seat_->Clear();
  MachineDies(DrawDeath(), true);
}

Outcome ClusterSim::Run() {
  for (int life = 0; life < options_.lives && outcome_.broken.empty() && !outcome_.refused && !unknowable_;
       ++life) {
    if (StartSession()) {
      const int steps =
          1 + static_cast<int>(random_.Below(static_cast<uint64_t>(options_.steps) * 2));
      for (int i = 0; i < steps && outcome_.broken.empty(); ++i) Step(true);
      if (outcome_.broken.empty() && random_.Chance(options_.heal)) Heal();
    }
    if (!outcome_.broken.empty()) break;
    Crash();
    Recover();
    primary_.reset();
    if (random_.Chance(0.5)) {
      zombie_.reset();
      if (zombie_seat_ != nullptr) zombie_seat_->Clear();
    }
  }
  return outcome_;
}

}  // namespace salius::sim
