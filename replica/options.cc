#include "replica/options.h"

#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/config.h"
#include "common/options.h"
#include "replica/arena.h"

namespace salius {
namespace {

absl::Status SetMemory(const std::string& value, ReplicaOptions& options) {
  SALIUS_ASSIGN_OR_RETURN(options.memory_bytes, ParseBytes(value));
  if (options.memory_bytes < kMinArenaBytes || options.memory_bytes > kMaxArenaBytes) {
    return absl::InvalidArgumentError("allowed are 2MiB to 4TiB");
  }
  return absl::OkStatus();
}

absl::Status SetAbandon(const std::string& value, ReplicaOptions& options) {
  if (value == "never") {
    options.abandon_after_us = 0;
    return absl::OkStatus();
  }
  SALIUS_ASSIGN_OR_RETURN(options.abandon_after_us, ParseDurationUs(value));
  constexpr int64_t kMinuteUs = int64_t{60} * 1'000'000;
  constexpr int64_t kYearUs = 365 * 24 * 60 * kMinuteUs;
  if (options.abandon_after_us < kMinuteUs || options.abandon_after_us > 100 * kYearUs) {
    return absl::InvalidArgumentError(
        "allowed are \"never\" and one minute (\"1m\") to a hundred years");
  }
  return absl::OkStatus();
}

absl::Status SetDirectory(const std::string& value, std::string* directory) {
  *directory = value;
  return value.empty() ? absl::InvalidArgumentError("a directory is required") : absl::OkStatus();
}

void DeclareAddresses(Options& table, ReplicaOptions& o) {
  table.Value(
      "listen", "HOST:PORT",
      [&o](const std::string& value) {
        SALIUS_ASSIGN_OR_RETURN(o.listen, ParseHostPort(value, kDefaultPort));
        return absl::OkStatus();
      },
      "address for sessions (TCP) and records (UDP, same port); default 127.0.0.1:7400");
  table.Value(
      "metrics", "HOST:PORT",
      [&o](const std::string& value) {
        o.metrics = value;
        return value.empty() ? absl::OkStatus() : ParseHostPort(value, 0).status();
      },
      "serve Prometheus metrics there; default: nowhere");
  table.Text("multicast-interface", "NAME", &o.multicast_interface,
             "interface on which multicast groups are joined; default: that of\n--listen");
  table.Text("keys", "FILE", &o.keys,
             "this replica's key and certificate, of `salius keys`; beside it ca.pem");
  table.Switch("insecure", &o.insecure,
               "allow an address other than loopback, and control calls by TCP,\nalthough nothing is "
               "authenticated");
}

void DeclareMemory(Options& table, ReplicaOptions& o) {
  table.Size(
      "memory", "SIZE", [&o](const std::string& value) { return SetMemory(value, o); },
      "memory to keep logs in, reserved and locked at the start; default 1GiB");
  table.Value(
      "shm-dir", "DIR",
      [&o](const std::string& value) {
        o.shm_dir_given = true;
        return SetDirectory(value, &o.shm_dir);
      },
      "directory of its own on tmpfs for the memory, which outlives the process;\n"
      "others must not be able to write to it; default /dev/shm/salius-PORT");
  table.Value(
      "state-dir", "DIR",
      [&o](const std::string& value) { return SetDirectory(value, &o.state_dir); },
      "directory on a disk for what must outlive a reboot: promises to recoveries;\n"
      "one for each replica; default /var/lib/salius/replica-PORT");
  table.Switch("no-mlock", &o.no_mlock, "do not lock the memory: it may then be swapped out");
}

// Returns the table of all options, which sets `o`.
Options Table(ReplicaOptions& o) {
  Options table("salius-replica", "",
                "Keeps the logs of Salius volumes in memory, until their primaries have them on "
                "disk.");
  DeclareAddresses(table, o);
  DeclareMemory(table, o);
  table.Value(
      "abandon-after", "TIME", [&o](const std::string& value) { return SetAbandon(value, o); },
      "drop the log of a volume that was not written, fenced or fetched for this\n"
      "long (\"72h\"); default never");
  table.Number("peer-share", "PERCENT", &o.peer_share_percent, 1, 100,
               "what the volumes of one host may take of the memory, when they are more\n"
               "than one, and of the places for volumes; default 75");
  table.LogLevel(&o.log_level);
  table.Config(
      "read options from a TOML file, with \"_\" for \"-\" in their names; the\n"
      "command line wins");
  table.Version(absl::StrFormat("salius-replica %s", kReplicaVersion));
  table.Note(
      "Sizes: 512MiB, 4GiB. Times: 90s, 72h. SIGTERM ends it and leaves the memory in place: the\n"
      "next start takes it over. Exit status: 0 after SIGTERM, 1 when it could not run, 2 for\n"
      "wrong options.");
  return table;
}

}  // namespace

absl::StatusOr<ReplicaOptions> ParseReplicaOptions(const std::vector<std::string>& arguments) {
  ReplicaOptions options;
  Options table = Table(options);
  SALIUS_RETURN_IF_ERROR(table.Parse(arguments, 0, 0));
  options.answer = table.answer();
  if (options.shm_dir.empty()) {
    options.shm_dir = absl::StrFormat("/dev/shm/salius-%d", options.listen.port);
  }
  if (options.state_dir.empty()) {
    options.state_dir = absl::StrFormat("/var/lib/salius/replica-%d", options.listen.port);
  }
  return options;
}

}  // namespace salius
