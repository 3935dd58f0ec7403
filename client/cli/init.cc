#include "client/cli/init.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/exit_code.h"
#include "client/status/placement.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/keys/key_file.h"
#include "common/net.h"
#include "common/options.h"
#include "common/runbook.h"
#include "common/strings.h"
#include "log/state_file.h"
#include "storage/host_claim.h"
#include "storage/volume_config.h"

namespace salius::cli {
namespace {

struct InitPlan {
  std::string directory;
  VolumeConfig config = DefaultVolumeConfig();
  uint64_t acks = 0;  // 0: not given
  uint64_t k = 0;
  uint64_t datagram = 0;
  std::string names{NameModeText(kNewVolumeNames)};
  bool local = false;
  bool direct = false;
  bool copy = false;
  bool force = false;
  std::vector<PlacedReplica> placed;
};

Options InitOptions(InitPlan& plan) {
  VolumeConfig& config = plan.config;
  plan.k = config.k;
  Options options(
      "salius init", "DIR",
      "Makes the directory DIR, which must exist, a volume: its files stay where they are,\n"
      "Salius's own go to DIR/.salius. Mount it with salius-mount afterwards, and change its\n"
      "files through the mount only. With --direct, run programs on it with salius-run instead.");
  options.Switch("direct", &plan.direct,
                 "a direct volume, for salius-run --direct: no mount, no root. DIR must\n"
                 "belong to the caller; takes no --stable-log, --ballast, --names");
  options.List("replicas", "HOST[:PORT],...", &config.replicas,
               "the replicas; they need not run yet, but must resolve (port\n7400)");
  options.Number("acks", "F", &plan.acks, 1, UINT32_MAX,
                 "how many of them must hold a record before it is durable\n"
                 "(default: all of them)");
  options.Switch("local", &plan.local, "no replicas: mode local only");
  options.Switch("allow-same-host", &config.allow_same_host,
                 "replicas on this host, or two on one host, are meant: do not\n"
                 "warn of them");
  options.Micros("delta", "TIME", &config.delta_us, "link delay bound (50ms)");
  options.Millis("tau", "TIME", &config.tau_ms,
                 "longest time until a record is on this host's disk (30s)");
  options.Number("k", "N", &plan.k, 1, 1000, "slack factor of tau (2)");
  options.Bytes("log-max", "BYTES", &config.log_max_bytes,
                "bytes not yet on this host's disk; every replica reserves\n"
                "a quarter more of memory (64MiB)");
  options.Bytes("stable-log", "BYTES", &config.stable_log_bytes,
                "local log of last resort, preallocated; at least 1.25\n"
                "times log-max and 1MiB (default: 1.5 times, and 1MiB)");
  options.Bytes("bulk-limit", "BYTES", &config.bulk_limit_bytes,
                "unsynced bytes of a file beyond which it goes past the log\n"
                "(8MiB; direct: 1MiB)");
  options.Text("multicast", "GROUP:PORT", &config.multicast,
               "send records once, to this multicast group");
  options.Bytes("datagram", "BYTES", &plan.datagram,
                "UDP payload, 512 to 65507 (default: what the route's MTU carries)");
  options.Text("keys", "FILE", &config.keys,
               "this host's key and certificate, of `salius keys`, beside ca.pem: mount,\n"
               "recovery and doctor use it. Every replica needs keys too");
  options.Choice("names", {"wait", "async"}, &plan.names,
                 absl::StrCat("operations on names return when durable, or when issued\n(",
                              plan.names, ")"));
  options.Bytes("ballast", "BYTES", &config.ballast_bytes, "space held back for recovery (16MiB)");
  options.Switch("copy", &plan.copy,
                 "DIR is the copy of a volume: make it a volume of its own, with the\n"
                 "copy's values and a new UUID; takes no option but --force");
  options.Switch("force", &plan.force,
                 "with --copy: also when DIR was not unmounted cleanly and no volume with\n"
                 "its UUID is in use here, so that it may be no copy, and is to be recovered");
  options.Note(
      "Exit codes: 0 made, 2 a value that is not allowed, 3 no such directory, 4 there is a "
      "volume\n"
      "already, 5 read-only, a file system that cannot keep the guarantees (FUSE, NFS,\n"
      "overlayfs; direct: tmpfs), another user's (direct), a volume above or below, one that has\n"
      "lost its .salius, or (--copy) one that is in use or may be no copy, 6 not enough\n"
      "space, 7 a replica's name does not resolve, 9 no permission, 1 "
      "other errors.");
  return options;
}

// Makes the config that of a direct volume.
absl::Status MakeDirect(const Options& options, VolumeConfig* config) {
  for (const char* other : {"stable-log", "ballast", "names"}) {
    if (!options.Given(other)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", other, " has no meaning in a direct volume"));
  }
  const VolumeConfig defaults = DefaultVolumeConfig(VolumeKind::kDirect);
  config->kind = defaults.kind;
  config->stable_log_bytes = defaults.stable_log_bytes;
  config->ballast_bytes = defaults.ballast_bytes;
  if (!options.Given("bulk-limit")) config->bulk_limit_bytes = defaults.bulk_limit_bytes;
  return absl::OkStatus();
}

// Makes the path of the keys absolute, and checks that the file can be used here.
absl::Status CheckKeys(VolumeConfig& config) {
  std::error_code error;
  config.keys = std::filesystem::absolute(config.keys, error).lexically_normal();
  if (error) return ErrnoStatus(error.value(), config.keys);
  const absl::StatusOr<keys::Keys> read =
      keys::LoadKeys(config.keys, SystemClock().RealtimeNanos() / 1'000'000'000);
  // For a directory some of these codes have a meaning of their own.
  if (absl::IsPermissionDenied(read.status())) return read.status();
  if (!read.ok()) return absl::InvalidArgumentError(absl::StrCat("--keys ", read.status().message()));
  if (read->certificate.content.identity->kind != keys::Kind::kReplica) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "--keys %s: is the certificate of %s, which may not call: give this host's own, of "
      "`salius keys issue DIR client/NAME`",
      config.keys, read->certificate.content.identity->ToString()));
}

// Turns the given options into a config and derives the others from them.
absl::Status CompletePlan(const Options& options, InitPlan& plan) {
  VolumeConfig& config = plan.config;
  if (config.replicas.empty() != plan.local) {
    return absl::InvalidArgumentError("give --replicas HOST:PORT,... or --local, one of the two");
  }
  if (options.Given("acks")) {
    config.acks = static_cast<uint32_t>(plan.acks);
  } else {
    config.acks = plan.local ? 1 : static_cast<uint32_t>(config.replicas.size());
  }
  if (!plan.local && config.acks > config.replicas.size()) {
    return absl::InvalidArgumentError(absl::StrFormat("--acks %u is more than the %u replicas",
                                                      config.acks, config.replicas.size()));
  }
  config.k = static_cast<uint32_t>(plan.k);
  config.datagram_bytes = static_cast<uint32_t>(std::min<uint64_t>(plan.datagram, UINT32_MAX));
  SALIUS_ASSIGN_OR_RETURN(config.names, ParseNameMode(plan.names));
  if (options.Given("log-max") && !options.Given("stable-log")) {
    // The ratio of the two defaults, and room for the headers of entries.
    config.stable_log_bytes = config.log_max_bytes / 2 * 3 + (1 << 20);
    config.stable_log_bytes = (config.stable_log_bytes + 4095) / 4096 * 4096;
  }
  if (plan.direct) SALIUS_RETURN_IF_ERROR(MakeDirect(options, &config));
  NormalizeReplicas(&config);
  if (!config.keys.empty()) SALIUS_RETURN_IF_ERROR(CheckKeys(config));
  SALIUS_RETURN_IF_ERROR(ValidateVolumeConfig(config));
  const absl::StatusOr<std::vector<SocketAddress>> addresses = ResolveReplicas(config.replicas);
  for (size_t i = 0; addresses.ok() && i < addresses->size(); ++i) {
    plan.placed.push_back({config.replicas[i], FormatHost((*addresses)[i]), ""});
  }
  const absl::Status resolved = addresses.status();
  // For a directory these codes mean "missing" and "unsuitable"; a replica gets other codes.
  if (absl::IsNotFound(resolved)) {
    return absl::UnavailableError(
        absl::StrCat(resolved.message(), "; ", SeeRunbook("name-does-not-resolve")));
  }
  if (absl::IsFailedPrecondition(resolved)) return absl::InvalidArgumentError(resolved.message());
  return resolved;
}

// Checks that the directory is a copy. If it is the only directory of a volume with unrecovered
// records, they must not be lost by mistake.
absl::Status CheckIsCopy(VolumeDir& dir, bool force) {
  if (absl::IsUnavailable(ClaimOnThisHost(dir)) || force) return absl::OkStatus();
  const absl::StatusOr<StateFile> state =
      StateFile::Open(*dir.backing, dir.salius_fd, kStateFileName);
  if (state.ok() && !state->state().open) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      dir.path,
      " was not unmounted cleanly, and no volume with its UUID is in use on this host: it may be no copy. "
      "If it is the volume itself, recover it with salius-recover; if it is a copy, and what it lacks may be "
      "given up, add --force"));
}

absl::Status InitCopy(const Options& options, const InitPlan& plan) {
  for (const char* other :
       {"direct", "replicas", "acks", "local", "delta", "tau", "k", "log-max", "stable-log",
        "bulk-limit", "multicast", "datagram", "keys", "names", "ballast", "allow-same-host"}) {
    if (!options.Given(other)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--copy takes the values of the copy's volume.toml, and no --", other,
        "; options of the mount change most of them for a session"));
  }
  absl::StatusOr<VolumeDir> dir = VolumeDir::Open(plan.directory, /*lock=*/true);
  if (absl::IsUnavailable(dir.status())) return absl::FailedPreconditionError(dir.status().message());
  SALIUS_RETURN_IF_ERROR(dir.status());
  SALIUS_RETURN_IF_ERROR(CheckIsCopy(*dir, plan.force));
  VolumeConfig config = dir->config;
  config.volume = VolumeId::Random();
  SALIUS_RETURN_IF_ERROR(MakeCopyItsOwn(*dir, config));
  std::printf("%s, a copy of volume %s, is volume %s now, with the files that are there\n", dir->path.c_str(),
              dir->config.volume.ToString().c_str(), config.volume.ToString().c_str());
  return absl::OkStatus();
}

absl::Status Init(const Options& options, InitPlan& plan) {
  if (plan.copy) return InitCopy(options, plan);
  if (plan.force) return absl::InvalidArgumentError("--force goes with --copy only");
  SALIUS_RETURN_IF_ERROR(CompletePlan(options, plan));
  SALIUS_RETURN_IF_ERROR(CreateVolume(plan.directory, plan.config));
  const VolumeConfig& config = plan.config;
  std::printf("volume %s made in %s\n", config.volume.ToString().c_str(), plan.directory.c_str());
  if (plan.local) {
    std::printf("no replicas: every synchronous write waits for this host's disk\n");
  } else {
    // A quarter more than log-max, for headers.
    const unsigned long long reserved = config.log_max_bytes + config.log_max_bytes / 4;
    std::printf("durable with %u of %zu replicas; each reserves about %llu MiB of memory for it\n",
                config.acks, config.replicas.size(), reserved >> 20);
  }
  const std::string directory = ShellQuote(plan.directory);
  std::printf(plan.direct ? "next: salius doctor %s; salius-run --direct %s -- COMMAND\n"
                          : "next: salius doctor %s; salius-mount %s MOUNTPOINT\n",
              directory.c_str(), directory.c_str());
  if (config.allow_same_host) return absl::OkStatus();
  for (const std::string& warning : SharedHostWarnings(plan.placed, ThisHost())) {
    std::fprintf(stderr, "salius init: warning: %s; %s\n", warning.c_str(), kSharedHostAdvice);
  }
  return absl::OkStatus();
}

}  // namespace

int RunInit(absl::Span<const std::string> words) {
  InitPlan plan;
  Options options = InitOptions(plan);
  if (const absl::Status parsed = options.Parse(words, 1, 1); !parsed.ok()) {
    return Report("init", parsed);
  }
  if (options.answer().has_value()) {
    std::printf("%s", options.answer()->c_str());
    return kExitOk;
  }
  plan.directory = options.places()[0];
  return Report("init", Init(options, plan));
}

}  // namespace salius::cli
