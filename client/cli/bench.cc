#include "client/cli/bench.h"

#include <sched.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/bench_target.h"
#include "client/cli/echo.h"
#include "client/cli/exit_code.h"
#include "client/cli/latency.h"
#include "common/check.h"
#include "common/json.h"
#include "common/limits.h"
#include "common/options.h"

namespace salius::cli {
namespace {

struct BenchPlan {
  std::string path;
  FileTarget::Plan write;
  uint64_t seconds = 5;
  uint64_t rounds = 5;
  std::string pin;
  uint64_t replicas = 2;
  uint64_t acks = 2;
  std::string floor_mount, floor_dir;
  bool json = false;
};

// One line of the result: a target and its rounds.
struct Row {
  std::string name, label;
  std::unique_ptr<Target> target;
  std::vector<LatencySummary> rounds;
};

Options BenchOptions(BenchPlan& plan) {
  Options options(
      "salius bench", "PATH",
      "Measures synchronous writes to files of its own in the directory PATH, and beside them,\n"
      "in turn and in the same run, the floors they stand on.");
  options.Bytes("size", "BYTES", &plan.write.size, "bytes per write (4096)");
  options.Number("writers", "N", &plan.write.writers, 1, 256, "writers, each with a file (1)");
  options.Bytes("span", "BYTES", &plan.write.span,
                "bytes of each file that are overwritten (16MiB)");
  options.Switch("append", &plan.write.append, "append instead of overwriting");
  options.Number("fsync-every", "K", &plan.write.fsync_every, 0, 1000000,
                 "one operation is K plain writes and an fdatasync\n"
                 "(0: every write is a synchronous one)");
  options.Number("seconds", "S", &plan.seconds, 1, 86400, "seconds for each target in all (5)");
  options.Number("rounds", "N", &plan.rounds, 1, 10000, "rounds they are split into (5)");
  options.Text("pin", "CPU", &plan.pin,
               "run on this CPU only, echo servers included; start the\n"
               "daemons with `taskset -c CPU` to have everything on one");
  options.Number("replicas", "M", &plan.replicas, 0, kMaxReplicas,
                 "echo servers of the UDP floor (2; 0: leave it out)");
  options.Number("acks", "F", &plan.acks, 1, kMaxReplicas, "answers the UDP floor waits for (2)");
  options.Text("floor-mount", "DIR", &plan.floor_mount,
               "a mounted FUSE floor (//tests/bench:mount_floor)");
  options.Text("floor-dir", "DIR", &plan.floor_dir, "a plain local directory: the O_SYNC floor");
  options.Switch("json", &plan.json, "print JSON, every round included");
  options.Note(
      "Printed are medians over the rounds. `ratio` is the latency of PATH divided by that of the\n"
      "floor, both p50; for throughput look at ops/s.\n"
      "Exit codes: 0 measured, 2 usage, 3 no such directory, 6 no space, 9 no permission, 1 other "
      "errors.");
  return options;
}

absl::Status PinTo(const std::string& text) {
  unsigned cpu = 0;
  if (!absl::SimpleAtoi(text, &cpu) || cpu >= CPU_SETSIZE) {
    return absl::InvalidArgumentError(absl::StrCat("--pin \"", text, "\" is not a CPU"));
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof(set), &set) != 0) {
    return ErrnoStatus(errno, absl::StrCat("--pin ", cpu));
  }
  return absl::OkStatus();
}

absl::Status CheckPlan(const BenchPlan& plan) {
  if (plan.write.size == 0 || plan.write.size > (64 << 20)) {
    return absl::InvalidArgumentError("--size must be from 1 byte to 64MiB");
  }
  if (plan.write.span < plan.write.size) {
    return absl::InvalidArgumentError("--span must not be smaller than --size");
  }
  if (plan.replicas > 0 && plan.acks > plan.replicas) {
    return absl::InvalidArgumentError("--acks must not be larger than --replicas");
  }
  for (const std::string& directory : {plan.path, plan.floor_mount, plan.floor_dir}) {
    struct stat attr {};
    if (directory.empty()) continue;
    if (stat(directory.c_str(), &attr) != 0) return ErrnoStatus(errno, directory);
    if (!S_ISDIR(attr.st_mode)) {
      return absl::InvalidArgumentError(absl::StrCat(directory, " is not a directory"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Row>> MakeRows(const BenchPlan& plan,
                                          const std::optional<EchoServers>& servers) {
  std::vector<Row> rows;
  const auto add_writes = [&](std::string name, const std::string& directory) -> absl::Status {
    SALIUS_ASSIGN_OR_RETURN(auto target, FileTarget::Make(directory, plan.write));
    rows.push_back({std::move(name), directory, std::move(target), {}});
    return absl::OkStatus();
  };
  SALIUS_RETURN_IF_ERROR(add_writes("path", plan.path));
  if (!plan.floor_mount.empty()) {
    SALIUS_RETURN_IF_ERROR(add_writes("floor-mount", plan.floor_mount));
  }
  if (servers.has_value()) {
    std::vector<QuorumPing> pings;
    for (uint64_t i = 0; i < plan.write.writers; ++i) {
      SALIUS_ASSIGN_OR_RETURN(QuorumPing ping,
                              QuorumPing::Connect(servers->addresses(), plan.acks));
      pings.push_back(std::move(ping));
    }
    const uint64_t bytes = std::min<uint64_t>(plan.write.size, kMaxPingBytes);
    rows.push_back({"floor-udp",
                    absl::StrFormat("%u of %u servers, %u bytes", plan.acks, plan.replicas, bytes),
                    std::make_unique<PingTarget>(std::move(pings), bytes),
                    {}});
  }
  if (!plan.floor_dir.empty()) SALIUS_RETURN_IF_ERROR(add_writes("floor-dir", plan.floor_dir));
  return rows;
}

void PrintJson(const BenchPlan& plan, const std::vector<Row>& rows) {
  Json targets = Json::array();
  for (const Row& row : rows) {
    Json rounds = Json::array();
    for (const LatencySummary& round : row.rounds) rounds.push_back(SummaryJson(round));
    targets.push_back(Json{{"name", row.name},
                           {"label", row.label},
                           {"median", SummaryJson(MedianOfRounds(row.rounds))},
                           {"rounds", rounds}});
  }
  const Json text = {{"size", plan.write.size},
                     {"writers", plan.write.writers},
                     {"append", plan.write.append},
                     {"fsync_every", plan.write.fsync_every},
                     {"pin", plan.pin},
                     {"targets", targets}};
  std::printf("%s\n", JsonLine(text).c_str());
}

void PrintTable(const BenchPlan& plan, const std::vector<Row>& rows) {
  const std::string where = plan.pin.empty() ? "" : absl::StrCat(", on CPU ", plan.pin);
  const std::string sync =
      plan.write.o_sync() ? "O_SYNC" : absl::StrCat("fdatasync after ", plan.write.fsync_every);
  std::printf("%s", absl::StrFormat("%u-byte %s, %s, %u writer(s)%s; medians of %u rounds\n",
                                    plan.write.size, plan.write.append ? "appends" : "overwrites",
                                    sync, plan.write.writers, where, plan.rounds)
                        .c_str());
  std::printf("%-12s %10s %9s %9s %9s %10s %7s  %s\n", "target", "ops/s", "p50 us", "p99 us",
              "p99.9 us", "max us", "ratio", "what");
  const LatencySummary path = MedianOfRounds(rows.front().rounds);
  for (const Row& row : rows) {
    const LatencySummary median = MedianOfRounds(row.rounds);
    const double ratio = median.p50_us > 0 ? path.p50_us / median.p50_us : 0;
    std::printf("%-12s %10.0f %9.1f %9.1f %9.1f %10.1f %7.2f  %s\n", row.name.c_str(),
                median.ops_per_second, median.p50_us, median.p99_us, median.p999_us, median.max_us,
                ratio, row.label.c_str());
  }
}

absl::Status Bench(const BenchPlan& plan) {
  SALIUS_RETURN_IF_ERROR(CheckPlan(plan));
  if (!plan.pin.empty()) SALIUS_RETURN_IF_ERROR(PinTo(plan.pin));
  // Forked before any thread is started.
  std::optional<EchoServers> servers;
  if (plan.replicas > 0) {
    SALIUS_ASSIGN_OR_RETURN(EchoServers spawned, EchoServers::Spawn(plan.replicas));
    servers.emplace(std::move(spawned));
  }
  SALIUS_ASSIGN_OR_RETURN(std::vector<Row> rows, MakeRows(plan, servers));
  const int64_t round_ns =
      static_cast<int64_t>(plan.seconds) * 1'000'000'000 / static_cast<int64_t>(plan.rounds);
  for (uint64_t round = 0; round < plan.rounds; ++round) {
    for (Row& row : rows) {
      absl::StatusOr<LatencySummary> summary = row.target->Round(round_ns);
      if (!summary.ok()) {
        return absl::Status(summary.status().code(),
                            absl::StrCat(row.label, ": ", summary.status().message()));
      }
      row.rounds.push_back(*summary);
    }
  }
  if (plan.json) {
    PrintJson(plan, rows);
  } else {
    PrintTable(plan, rows);
  }
  return absl::OkStatus();
}

}  // namespace

int RunBench(absl::Span<const std::string> words) {
  BenchPlan plan;
  Options options = BenchOptions(plan);
  if (const absl::Status parsed = options.Parse(words, 1, 1); !parsed.ok()) {
    return Report("bench", parsed);
  }
  if (options.answer().has_value()) {
    std::printf("%s", options.answer()->c_str());
    return kExitOk;
  }
  plan.path = options.places()[0];
  return Report("bench", Bench(plan));
}

}  // namespace salius::cli
