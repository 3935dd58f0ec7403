#include "tests/sim/seed_runner.h"

#include <signal.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/check.h"
#include "common/log.h"

// A function of the sanitizers' runtime, in builds that have one.
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*)());

namespace salius::sim {
namespace {

constexpr time_t kMostCpuSeconds = 60;  // for a lifetime; it takes a few milliseconds

std::atomic<uint64_t> g_seed{0};  // the running seed

// Prints the seed that ends the process. Async-signal-safe.
void ReportSeed(std::string_view why) {
  std::array<char, 100> line;
  char* at = line.data();
  const auto add = [&](std::string_view text) { at = std::copy(text.begin(), text.end(), at); };
  add("seed ");
  at = std::to_chars(at, line.data() + line.size(), g_seed.load()).ptr;
  add(" BROKEN: ");
  add(why);
  add("\n");
  static_cast<void>(!write(STDOUT_FILENO, line.data(), static_cast<size_t>(at - line.data())));
}

void OnSignal(int number) {
  ReportSeed(number == SIGPROF ? "takes more than a minute" : "ends the process");
  signal(number, SIG_DFL);
  raise(number);
}

void ReportSeedsThatCrash() {
  std::vector<int> signals = {SIGABRT, SIGPROF};
  if (__sanitizer_set_death_callback != nullptr) {
    __sanitizer_set_death_callback([] { ReportSeed("a sanitizer ends the process"); });
  } else {
    signals.insert(signals.end(), {SIGSEGV, SIGBUS, SIGFPE, SIGILL});
  }
  for (const int number : signals) {
    struct sigaction action {};
    action.sa_handler = OnSignal;
    SALIUS_CHECK(sigaction(number, &action, nullptr) == 0);
  }
}

struct Arguments {
  uint64_t first = 1, count = 1000, seed = 0, shrink = 0;
  double seconds = 0;
  bool trace = false;
  std::string seeds;
};

int Usage(const Simulator& simulator) {
  std::fprintf(
      stderr,
      "usage: %s [--first N] [--count N] [--seconds S] | --seed N [--trace] | --shrink N |\n"
      "       --seeds FILE\n",
      simulator.program);
  return 2;
}

void Print(std::string line) { std::printf("%s\n", line.c_str()); }

double CpuSeconds() {
  timespec used;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

// Adds up the outcomes of lifetimes.
class Sum {
 public:
  void Add(const Outcome& outcome) {
    ++lifetimes_;
    refused_ += outcome.refused ? 1 : 0;
    sum_.digest = sum_.digest * 31 + outcome.digest;
    sum_.faults += outcome.faults;
    sum_.records += outcome.records;
    sum_.recoveries += outcome.recoveries;
    sum_.recovery_runs += outcome.recovery_runs;
    sum_.mode_changes += outcome.mode_changes;
    sum_.losses += outcome.losses;
    sum_.cancels += outcome.cancels;
    sum_.same_lives += outcome.same_lives;
    sum_.disk_failures += outcome.disk_failures;
    sum_.memories_full += outcome.memories_full;
    sum_.late += outcome.late;
    for (const auto& [what, times] : outcome.of_each) sum_.of_each[what] += times;
  }
  uint64_t lifetimes() const { return lifetimes_; }
  void Print(const Simulator& simulator) const {
    std::printf(
        "%lu lifetimes, %lu faults, %lu records, %lu recoveries in %lu runs, %s; "
        "digest %016lx; %.0f lifetimes per CPU second\n",
        lifetimes_, sum_.faults, sum_.records, sum_.recoveries, sum_.recovery_runs,
        simulator.totals(sum_, refused_).c_str(), sum_.digest,
        static_cast<double>(lifetimes_) / CpuSeconds());
  }
  // Prints how often each kind of fault happened.
  void PrintEach() const {
    std::printf("of each:");
    for (const auto& [what, times] : sum_.of_each) {
      std::printf(" %.*s=%lu;", static_cast<int>(what.size()), what.data(), times);
    }
    std::printf("\n");
  }

 private:
  Outcome sum_;
  uint64_t lifetimes_ = 0, refused_ = 0;
};

// Runs the seeds of one simulator.
class Runner {
 public:
  explicit Runner(const Simulator& simulator) : simulator_(simulator) {}

  // Runs a seed; returns false when it is broken.
  bool RunSeed(uint64_t seed, bool trace, Sum* sum) const;
  int Shrink(uint64_t seed) const;
  int RunFile(const std::string& name) const;
  int RunMany(const Arguments& arguments) const;

 private:
  Outcome Live(uint64_t seed, bool trace, const std::set<uint64_t>* without = nullptr) const;

  const Simulator& simulator_;
};

Outcome Runner::Live(uint64_t seed, bool trace, const std::set<uint64_t>* without) const {
  g_seed = seed;
  const itimerval most{{0, 0}, {kMostCpuSeconds, 0}};
  SALIUS_CHECK(setitimer(ITIMER_PROF, &most, nullptr) == 0);
  return simulator_.live(seed, trace ? Print : std::function<void(std::string)>(), without);
}

bool Runner::RunSeed(uint64_t seed, bool trace, Sum* sum) const {
  const Outcome outcome = Live(seed, trace);
  sum->Add(outcome);
  if (outcome.broken.empty()) return true;
  std::printf("seed %lu digest %016lx\nseed %lu BROKEN: %s\n", seed, outcome.digest, seed,
              outcome.broken.c_str());
  return false;
}

// Returns how many faults a lifetime had. Without others a lifetime may have more of them.
uint64_t Needed(const Outcome& outcome, const std::set<uint64_t>& without) {
  const auto beyond = without.upper_bound(outcome.faults);
  return outcome.faults - static_cast<uint64_t>(std::distance(without.begin(), beyond));
}

// Leaves out the faults, in ever smaller groups, without which the seed is still broken (delta
// debugging). Tells of the lifetime with the fewest on this way.
int Runner::Shrink(uint64_t seed) const {
  std::set<uint64_t> without;
  const auto run = [&](const std::set<uint64_t>& left_out, bool trace) {
    return Live(seed, trace, &left_out);
  };
  Outcome outcome = run(without, false);
  if (outcome.broken.empty()) {
    std::printf("seed %lu is not broken\n", seed);
    return 2;
  }
  const uint64_t before = outcome.faults;
  std::set<uint64_t> best;
  uint64_t fewest = before;
  for (uint64_t size = before; size > 0; size /= 2) {
    for (uint64_t begin = 1; begin <= outcome.faults; begin += size) {
      std::set<uint64_t> more = without;
      for (uint64_t i = begin; i < begin + size; ++i) more.insert(i);
      if (more == without) continue;
      const Outcome now = run(more, false);
      if (now.broken.empty()) continue;
      without = std::move(more);
      outcome = now;
      if (Needed(outcome, without) >= fewest) continue;
      best = without;
      fewest = Needed(outcome, without);
    }
  }
  const std::string broken = run(best, true).broken;
  std::printf("seed %lu with %lu of %lu faults BROKEN: %s\n", seed, fewest, before, broken.c_str());
  return 1;
}

int Runner::RunFile(const std::string& name) const {
  std::ifstream file(name);
  if (!file) {
    std::fprintf(stderr, "cannot read %s\n", name.c_str());
    return 2;
  }
  Sum sum;
  std::string line;
  while (std::getline(file, line)) {
    const uint64_t seed = std::strtoull(line.c_str(), nullptr, 10);
    if (seed != 0 && !RunSeed(seed, false, &sum)) return 1;
  }
  if (sum.lifetimes() == 0) {
    std::fprintf(stderr, "%s has no seeds\n", name.c_str());
    return 2;
  }
  sum.Print(simulator_);
  return 0;
}

int Runner::RunMany(const Arguments& arguments) const {
  const auto begin = std::chrono::steady_clock::now();
  Sum sum;
  for (uint64_t seed = arguments.first; sum.lifetimes() < arguments.count; ++seed) {
    if (!RunSeed(seed, arguments.trace, &sum)) return 1;
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    if (arguments.seconds > 0 && passed.count() >= arguments.seconds) break;
  }
  sum.PrintEach();
  std::printf("seeds %lu to %lu: ", arguments.first, arguments.first + sum.lifetimes() - 1);
  sum.Print(simulator_);
  return 0;
}

// Returns false when they cannot be understood.
bool Read(int argc, char** argv, Arguments& arguments) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--trace") {
      arguments.trace = true;
      continue;
    }
    if (i + 1 == argc) return false;
    const char* const value = argv[++i];
    const uint64_t number = std::strtoull(value, nullptr, 10);
    if (word == "--first") {
      arguments.first = number;
    } else if (word == "--count") {
      arguments.count = number;
    } else if (word == "--seconds") {
      arguments.seconds = std::strtod(value, nullptr);
    } else if (word == "--seed") {
      arguments.seed = number;
    } else if (word == "--shrink") {
      arguments.shrink = number;
    } else if (word == "--seeds") {
      arguments.seeds = value;
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace

int RunSeeds(const Simulator& simulator, int argc, char** argv) {
  // Line by line: the trace of a seed that ends the process is complete.
  setvbuf(stdout, nullptr, _IOLBF, 0);
  ReportSeedsThatCrash();
  SALIUS_CHECK_OK(InitLogging(simulator.program, "off"));  // the trace holds everything of interest
  Arguments arguments;
  if (!Read(argc, argv, arguments)) return Usage(simulator);
  const Runner runner(simulator);
  if (arguments.shrink != 0) return runner.Shrink(arguments.shrink);
  if (!arguments.seeds.empty()) return runner.RunFile(arguments.seeds);
  if (arguments.seed != 0) arguments.first = arguments.seed, arguments.count = 1;
  return runner.RunMany(arguments);
}

}  // namespace salius::sim
