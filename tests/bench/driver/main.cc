// One subject of measurement as a process. It prints "ready". For every line of standard input, a
// number of seconds, it runs one round and prints it as a line of JSON. It ends with its input. So
// a benchmark can measure several subjects in turn, and look at the machine between two rounds.
//
//   driver files DIR [options]            writes or reads of files (client/cli/bench_target.h)
//   driver floor HOST:PORT... [options]   datagrams to echo servers (floor_target.h)
//   driver redis|etcd|nats HOST:PORT [options], driver postgres CONNINFO [options]: other systems
//   driver sqlite FILE [options]          transactions on a database
//   driver volumes DIR HOST:PORT [options] records of many volumes (volumes_target.h)
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/daemon.h"
#include "common/json.h"
#include "common/options.h"
#include "tests/bench/driver/etcd_target.h"
#include "tests/bench/driver/floor_target.h"
#include "tests/bench/driver/nats_target.h"
#include "tests/bench/driver/postgres_target.h"
#include "tests/bench/driver/redis_target.h"
#include "tests/bench/driver/sqlite_target.h"
#include "tests/bench/driver/volumes_target.h"

namespace salius::bench {
namespace {

using cli::FileTarget;
using cli::Target;

using Words = absl::Span<const std::string>;
using TargetOr = absl::StatusOr<std::unique_ptr<Target>>;

TargetOr MakeFiles(Words words) {
  FileTarget::Plan plan;
  Options options("files", "DIR", "Writes or reads of files in DIR.");
  options.Bytes("size", "BYTES", &plan.size, "bytes per write");
  options.Number("writers", "N", &plan.writers, 1, 1024, "writers, each with a file");
  options.Bytes("span", "BYTES", &plan.span, "bytes of each file");
  options.Switch("append", &plan.append, "append instead of overwriting");
  options.Number("fsync-every", "K", &plan.fsync_every, 0, 1000000, "K plain writes, fdatasync");
  options.Switch("plain", &plan.plain, "no sync at all");
  options.Switch("read", &plan.read, "reads");
  SALIUS_RETURN_IF_ERROR(options.Parse(words, 1, 1));
  return FileTarget::Make(options.places()[0], plan);
}

TargetOr MakeFloor(Words words) {
  FloorTarget::Plan plan;
  Options options("floor", "HOST:PORT...", "Datagrams to echo servers.");
  options.Bytes("size", "BYTES", &plan.size, "bytes per operation");
  options.Number("writers", "N", &plan.writers, 1, 1024, "writers");
  options.Number("acks", "F", &plan.acks, 1, 64, "answers that are awaited");
  options.Text("backing", "DIR", &plan.backing, "a buffered overwrite there too");
  options.Bytes("span", "BYTES", &plan.span, "bytes of each file there");
  options.Bytes("keep", "BYTES", &plan.keep, "bytes of the ring that keeps sent data");
  SALIUS_RETURN_IF_ERROR(options.Parse(words, 1, 64));
  SALIUS_ASSIGN_OR_RETURN(plan.servers, cli::ResolveEcho(options.places()));
  return FloorTarget::Make(std::move(plan));
}

// Declares the options that plans of servers share.
template <typename Plan>
void CommonOptions(Options& options, Plan& plan) {
  options.Bytes("size", "BYTES", &plan.size, "bytes of the value");
  options.Number("writers", "N", &plan.writers, 1, 1024, "writers, each with a connection");
}

TargetOr MakeRedis(Words words) {
  RedisTarget::Plan plan;
  Options options("redis", "HOST:PORT", "SET, and WAIT for replicas.");
  CommonOptions(options, plan);
  options.Number("acks", "N", &plan.acks, 0, 64, "replicas to wait for; 0: no WAIT");
  SALIUS_RETURN_IF_ERROR(options.Parse(words, 1, 1));
  plan.server = options.places()[0];
  return RedisTarget::Make(std::move(plan));
}

TargetOr MakeEtcd(Words words) {
  EtcdTarget::Plan plan;
  Options options("etcd", "HOST:PORT", "Put over gRPC.");
  CommonOptions(options, plan);
  SALIUS_RETURN_IF_ERROR(options.Parse(words, 1, 1));
  plan.server = options.places()[0];
  return EtcdTarget::Make(std::move(plan));
}

TargetOr MakeNats(Words words) {
  NatsTarget::Plan plan;
  Options options("nats", "HOST:PORT", "Publishes to a JetStream stream.");
  CommonOptions(options, plan);
  options.Text("subject", "NAME", &plan.subject, "a subject of the stream");
  SALIUS_RETURN_IF_ERROR(options.Parse(words, 1, 1));
  plan.server = options.places()[0];
  return NatsTarget::Make(std::move(plan));
}

TargetOr MakePostgres(Words words) {
  PostgresTarget::Plan plan;
  Options options("postgres", "CONNINFO", "INSERT of a row per transaction.");
  CommonOptions(options, plan);
  SALIUS_RETURN_IF_ERROR(options.Parse(words, 1, 1));
  plan.server = options.places()[0];
  return PostgresTarget::Make(std::move(plan));
}

TargetOr MakeSqlite(Words words) {
  SqliteTarget::Plan plan;
  Options options("sqlite", "FILE", "INSERT of a row per transaction, synchronous=FULL.");
  options.Bytes("size", "BYTES", &plan.size, "bytes of the value");
  options.Text("journal", "MODE", &plan.journal, "wal, delete, ...");
  SALIUS_RETURN_IF_ERROR(options.Parse(words, 1, 1));
  plan.file = options.places()[0];
  return SqliteTarget::Make(std::move(plan));
}

TargetOr MakeVolumes(Words words) {
  VolumesTarget::Plan plan;
  Options options("volumes", "DIR HOST:PORT", "Volumes in DIR with one replica, a writer each.");
  options.Bytes("size", "BYTES", &plan.size, "bytes per record");
  options.Number("writers", "N", &plan.writers, 1, 10000, "volumes");
  options.Bytes("log-max", "BYTES", &plan.log_max, "of each volume's log");
  options.Switch("keep", &plan.keep, "nothing is ever checkpointed");
  SALIUS_RETURN_IF_ERROR(options.Parse(words, 2, 2));
  plan.directory = options.places()[0];
  plan.replica = options.places()[1];
  return VolumesTarget::Make(std::move(plan));
}

struct Kind {
  const char* name;
  TargetOr (*make)(Words words);
};
constexpr Kind kKinds[] = {
    {"files", MakeFiles},   {"floor", MakeFloor},     {"redis", MakeRedis},
    {"etcd", MakeEtcd},     {"nats", MakeNats},       {"postgres", MakePostgres},
    {"sqlite", MakeSqlite}, {"volumes", MakeVolumes},
};

TargetOr MakeTarget(Words words) {
  for (const Kind& kind : kKinds) {
    if (!words.empty() && words[0] == kind.name) return kind.make(words.subspan(1));
  }
  std::string known;
  for (const Kind& kind : kKinds) known += std::string(" ") + kind.name;
  return absl::InvalidArgumentError("the first word must be one of" + known);
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "driver: %s\n", status.ToString().c_str());
  return EXIT_FAILURE;
}

// Returns the resources that this process has used so far, including threads that have ended.
rusage Used() {
  rusage used{};
  SALIUS_CHECK(getrusage(RUSAGE_SELF, &used) == 0, "getrusage");
  return used;
}

double Micros(const rusage& used) {
  const auto micros = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_usec);
  };
  return micros(used.ru_utime) + micros(used.ru_stime);
}

// Returns the round's figures, and the writers' own cost of an operation.
std::string RoundJson(const cli::LatencySummary& round, const rusage& before, const rusage& after) {
  const double operations = std::max<double>(1, static_cast<double>(round.operations));
  const auto switches = static_cast<double>((after.ru_nvcsw - before.ru_nvcsw) +
                                            (after.ru_nivcsw - before.ru_nivcsw));
  Json json = cli::SummaryJson(round);
  json["cpu_us_writer"] = JsonFraction((Micros(after) - Micros(before)) / operations);
  json["switches_writer"] = JsonFraction(switches / operations);
  return JsonLine(json);
}

int Serve(Target& target) {
  std::puts("ready");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    double seconds = 0;
    if (!absl::SimpleAtod(line, &seconds) || !(seconds > 0 && seconds < 1e6)) {
      return Fail(absl::InvalidArgumentError("\"" + line + "\" is no number of seconds"));
    }
    const rusage before = Used();
    const absl::StatusOr<cli::LatencySummary> round =
        target.Round(static_cast<int64_t>(seconds * 1e9));
    if (!round.ok()) return Fail(round.status());
    std::puts(RoundJson(*round, before, Used()).c_str());
    std::fflush(stdout);
  }
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace salius::bench

int main(int argc, char** argv) {
  salius::UsePlainMutexes();
  const std::vector<std::string> words(argv + 1, argv + argc);
  const salius::bench::TargetOr target = salius::bench::MakeTarget(words);
  return target.ok() ? salius::bench::Serve(**target) : salius::bench::Fail(target.status());
}
