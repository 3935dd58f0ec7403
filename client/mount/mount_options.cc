#include "client/mount/mount_options.h"

#include <sys/mount.h>

#include <algorithm>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/check.h"
#include "common/config.h"
#include "common/strings.h"

namespace salius {
namespace {

// Each worker may be in the middle of a write of 1 MiB whose room it has not reserved
// (kSpaceMargin).
constexpr int kMaxThreads = 48;

struct KernelFlag {
  const char* name;
  unsigned long flag;
  bool on;
};
constexpr KernelFlag kKernelFlags[] = {
    {"ro", MS_RDONLY, true},
    {"rw", MS_RDONLY, false},
    {"nosuid", MS_NOSUID, true},
    {"suid", MS_NOSUID, false},
    {"nodev", MS_NODEV, true},
    {"dev", MS_NODEV, false},
    {"noexec", MS_NOEXEC, true},
    {"exec", MS_NOEXEC, false},
    {"noatime", MS_NOATIME, true},
    {"atime", MS_NOATIME, false},
    {"nodiratime", MS_NODIRATIME, true},
    {"diratime", MS_NODIRATIME, false},
    {"relatime", MS_RELATIME, true},
    {"norelatime", MS_RELATIME, false},
    {"strictatime", MS_STRICTATIME, true},
    {"nostrictatime", MS_STRICTATIME, false},
    {"sync", MS_SYNCHRONOUS, true},
    {"async", MS_SYNCHRONOUS, false},
    {"dirsync", MS_DIRSYNC, true},
    {"silent", MS_SILENT, true},
    {"loud", MS_SILENT, false},
};

// Options for mount(8), systemd and readers of fstab; they mean nothing to the daemon.
constexpr const char* kIgnored[] = {
    "defaults", "auto",       "noauto", "_netdev", "nofail",  "user",        "nouser",
    "users",    "owner",      "group",  "noowner", "nogroup", "allow_other", "default_permissions",
    "lazytime", "nolazytime",
};
constexpr const char* kIgnoredPrefixes[] = {
    "x-", "X-", "comment=", "fsname=", "subtype=", "uhelper="};
// Options that the kernel shows in /proc/mounts, from where users copy them into fstab.
constexpr const char* kShown[] = {"user_id=0", "group_id=0"};

constexpr int64_t kMaxSpinUs = 1000;

constexpr const char* kOwn[] = {
    "replicas=HOST[:PORT][;HOST[:PORT]...]",
    "acks=N",
    "delta=TIME",
    "tau=TIME",
    "k=N",
    "commit=sync",
    "recover=auto|refuse",
    "log_max=BYTES",
    "bulk_limit=BYTES",
    "multicast=GROUP:PORT",
    "datagram=BYTES",
    "insecure",
    "metrics=HOST:PORT",
    "log_level=debug|info|warn|error|off",
    "log=FILE",
    "threads=N",
    "spin=TIME",
};

absl::Status Bad(std::string_view option, std::string_view value, std::string_view allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat("option ", Av(option), "=", Av(value), ": must be ", Av(allowed)));
}

absl::Status Unknown(absl::string_view word) {
  std::vector<absl::string_view> standard;
  for (const KernelFlag& flag : kKernelFlags) standard.push_back(flag.name);
  return absl::InvalidArgumentError(
      absl::StrCat("unknown option \"", word, "\"; Salius knows ", absl::StrJoin(kOwn, ", "),
                   "; of mount(8) ", absl::StrJoin(standard, ", "), "; and takes without effect ",
                   absl::StrJoin(kIgnored, ", "), ", ", absl::StrJoin(kShown, ", "), ", x-..."));
}

template <typename T>
absl::Status Number(std::string_view name, absl::string_view value, T low, T high, T* out) {
  uint64_t number = 0;
  if (!absl::SimpleAtoi(value, &number) || number < uint64_t(low) || number > uint64_t(high)) {
    return Bad(name, Sv(value), Sv(absl::StrCat("a number from ", low, " to ", high)));
  }
  *out = static_cast<T>(number);
  return absl::OkStatus();
}

absl::Status SetReplicas(absl::string_view value, MountOptions* options) {
  std::vector<std::string> replicas;
  for (absl::string_view one : absl::StrSplit(value, ';', absl::SkipEmpty())) {
    replicas.emplace_back(absl::StripAsciiWhitespace(one));
  }
  options->replicas = std::move(replicas);
  return absl::OkStatus();
}

// Sets a time or a size: a value with a unit.
absl::Status SetMeasure(const std::string& name, absl::string_view value, MountOptions* options) {
  if (name == "spin") {
    const absl::StatusOr<int64_t> us = ParseDurationUs(Sv(value));
    if (!us.ok() || *us > kMaxSpinUs) return Bad(name, Sv(value), "a time from 0us to 1ms");
    options->spin_us = static_cast<uint64_t>(*us);
    return absl::OkStatus();
  }
  if (name == "delta" || name == "tau") {
    const absl::StatusOr<int64_t> us = ParseDurationUs(Sv(value));
    if (!us.ok() || *us == 0) return Bad(name, Sv(value), "a time such as 50ms or 30s");
    if (name == "delta") {
      options->delta_us = static_cast<uint64_t>(*us);
    } else if (*us % 1000 != 0) {
      return Bad(name, Sv(value), "a whole number of milliseconds");
    } else {
      options->tau_ms = static_cast<uint64_t>(*us / 1000);
    }
    return absl::OkStatus();
  }
  const absl::StatusOr<uint64_t> bytes = ParseBytes(Sv(value));
  if (!bytes.ok()) return Bad(name, Sv(value), "a size such as 4096, 64M or 1G");
  if (name == "log_max") {
    options->log_max_bytes = *bytes;
  } else if (name == "bulk_limit") {
    options->bulk_limit_bytes = *bytes;
  } else if (*bytes > 65507) {
    return Bad(name, Sv(value), "at most 65507 bytes");
  } else {
    options->datagram_bytes = static_cast<uint32_t>(*bytes);
  }
  return absl::OkStatus();
}

absl::Status SetChoice(const std::string& name, absl::string_view value, MountOptions* options) {
  if (name == "commit") {
    if (value == "sync") return absl::OkStatus();
    if (value == "external" || value == "ordered") {
      return absl::UnimplementedError(absl::StrCat(
          "option commit=", value, ": not in this version, which has commit=sync only"));
    }
    return Bad(name, Sv(value), "sync");
  }
  if (name == "recover") {
    if (value != "auto" && value != "refuse") return Bad(name, Sv(value), "auto or refuse");
    options->recover = value == "auto" ? RecoverMode::kAuto : RecoverMode::kRefuse;
    return absl::OkStatus();
  }
  static constexpr const char* kLevels[] = {"debug", "info", "warn", "error", "off"};
  if (std::find(std::begin(kLevels), std::end(kLevels), value) == std::end(kLevels)) {
    return Bad(name, Sv(value), "debug, info, warn, error or off");
  }
  options->log_level = std::string(value);
  return absl::OkStatus();
}

// Sets one "name=value". Returns false for an unknown name.
absl::StatusOr<bool> SetValue(const std::string& name, absl::string_view value,
                              MountOptions* options) {
  using Setter = absl::Status (*)(const std::string&, absl::string_view, MountOptions*);
  static const auto* const setters = new std::map<std::string, Setter>{
      {"replicas",
       [](const std::string&, absl::string_view v, MountOptions* o) { return SetReplicas(v, o); }},
      {"acks", [](const std::string& n, absl::string_view v,
                  MountOptions* o) { return Number<uint32_t>(n, v, 1, 8, &o->acks.emplace()); }},
      {"k", [](const std::string& n, absl::string_view v,
               MountOptions* o) { return Number<uint32_t>(n, v, 1, 1000, &o->k.emplace()); }},
      {"threads", [](const std::string& n, absl::string_view v,
                     MountOptions* o) { return Number<int>(n, v, 1, kMaxThreads, &o->threads); }},
      {"delta", SetMeasure},
      {"tau", SetMeasure},
      {"spin", SetMeasure},
      {"log_max", SetMeasure},
      {"bulk_limit", SetMeasure},
      {"datagram", SetMeasure},
      {"commit", SetChoice},
      {"recover", SetChoice},
      {"log_level", SetChoice},
      {"multicast",
       [](const std::string&, absl::string_view v, MountOptions* o) {
         o->multicast = std::string(v);
         return absl::OkStatus();
       }},
      {"metrics",
       [](const std::string&, absl::string_view v, MountOptions* o) {
         o->metrics = std::string(v);
         return absl::OkStatus();
       }},
      {"log",
       [](const std::string& n, absl::string_view v, MountOptions* o) {
         if (!absl::StartsWith(v, "/")) return Bad(n, Sv(v), "an absolute path");
         o->log_file = std::string(v);
         return absl::OkStatus();
       }},
  };
  const auto found = setters->find(name);
  if (found == setters->end()) return false;
  SALIUS_RETURN_IF_ERROR(found->second(name, value, options));
  return true;
}

// Sets a standard option without a value. Returns false when `word` is none.
bool SetStandard(absl::string_view word, MountOptions* options) {
  for (const KernelFlag& flag : kKernelFlags) {
    if (word != flag.name) continue;
    options->mount_flags =
        flag.on ? options->mount_flags | flag.flag : options->mount_flags & ~flag.flag;
    return true;
  }
  return std::find(std::begin(kIgnored), std::end(kIgnored), word) != std::end(kIgnored) ||
         std::find(std::begin(kShown), std::end(kShown), word) != std::end(kShown) ||
         std::any_of(std::begin(kIgnoredPrefixes), std::end(kIgnoredPrefixes),
                     [&](const char* prefix) { return absl::StartsWith(word, prefix); });
}

absl::Status SetWord(absl::string_view word, MountOptions* options) {
  if (word == "insecure") {
    options->insecure = true;
    options->given.emplace_back(word);
    return absl::OkStatus();
  }
  if (word == "remount" || word == "bind") {
    (word == "bind" ? options->bind : options->remount) = true;
    return absl::OkStatus();
  }
  if (SetStandard(word, options)) return absl::OkStatus();
  const std::pair<std::string, absl::string_view> parts =
      absl::StrSplit(word, absl::MaxSplits('=', 1));
  if (absl::StrContains(word, '=')) {
    const absl::StatusOr<bool> known = SetValue(parts.first, parts.second, options);
    if (!known.ok()) return known.status();
    if (*known) {
      options->given.push_back(parts.first);
      return absl::OkStatus();
    }
  }
  return Unknown(word);
}

}  // namespace

absl::StatusOr<MountOptions> ParseMountOptions(const std::vector<std::string>& option_lists) {
  MountOptions options;
  for (const std::string& list : option_lists) {
    for (absl::string_view word : absl::StrSplit(list, ',', absl::SkipEmpty())) {
      SALIUS_RETURN_IF_ERROR(SetWord(word, &options));
    }
  }
  if (options.bind && !options.remount) {
    return absl::InvalidArgumentError(
        "option bind: only with remount; `mount --bind` binds a mounted volume elsewhere");
  }
  return options;
}

absl::Status OverrideConfig(const MountOptions& options, VolumeConfig* config) {
  if (options.replicas.has_value()) {
    config->replicas = *options.replicas;
    NormalizeReplicas(config);
    // Without replicas acks means nothing; with too few of them it is an error.
    if (config->replicas.empty() && !options.acks.has_value()) config->acks = 1;
  }
  config->acks = options.acks.value_or(config->acks);
  config->delta_us = options.delta_us.value_or(config->delta_us);
  config->tau_ms = options.tau_ms.value_or(config->tau_ms);
  config->k = options.k.value_or(config->k);
  config->log_max_bytes = options.log_max_bytes.value_or(config->log_max_bytes);
  config->bulk_limit_bytes = options.bulk_limit_bytes.value_or(config->bulk_limit_bytes);
  config->datagram_bytes = options.datagram_bytes.value_or(config->datagram_bytes);
  config->multicast = options.multicast.value_or(config->multicast);
  return ValidateVolumeConfig(*config);
}

absl::Status CheckRemount(const MountOptions& now, const VolumeConfig& config,
                          const MountOptions& wanted) {
  const std::map<std::string, bool> same = {
      {"replicas", wanted.replicas.value_or(config.replicas) == config.replicas},
      {"acks", wanted.acks.value_or(config.acks) == config.acks},
      {"delta", wanted.delta_us.value_or(config.delta_us) == config.delta_us},
      {"tau", wanted.tau_ms.value_or(config.tau_ms) == config.tau_ms},
      {"k", wanted.k.value_or(config.k) == config.k},
      {"log_max", wanted.log_max_bytes.value_or(config.log_max_bytes) == config.log_max_bytes},
      {"bulk_limit",
       wanted.bulk_limit_bytes.value_or(config.bulk_limit_bytes) == config.bulk_limit_bytes},
      {"multicast", wanted.multicast.value_or(config.multicast) == config.multicast},
      {"datagram", wanted.datagram_bytes.value_or(config.datagram_bytes) == config.datagram_bytes},
      {"insecure", now.insecure},
      {"metrics", wanted.metrics == now.metrics},
      {"log_level", wanted.log_level == now.log_level},
      {"log", wanted.log_file == now.log_file},
      {"threads", wanted.threads == now.threads},
      {"spin", wanted.spin_us == now.spin_us},
  };
  for (const std::string& name : wanted.given) {
    const auto found = same.find(name);
    // The other options (commit, recover) have one value, or no effect while it is mounted.
    if (found == same.end() || found->second) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "option ", name, " cannot change while the volume is mounted: unmount, and mount with it"));
  }
  if ((wanted.mount_flags & ~now.mount_flags & MS_DIRSYNC) != 0) {
    return absl::InvalidArgumentError(
        "option dirsync cannot change while the volume is mounted: unmount, and mount with it");
  }
  return absl::OkStatus();
}

int DefaultThreads(unsigned cpus) { return static_cast<int>(std::clamp(2 * cpus, 2u, 8u)); }

int WorkerCount(const MountOptions& options, unsigned cpus) {
  return options.threads > 0 ? options.threads : DefaultThreads(cpus);
}

int64_t SpinNanos(const MountOptions& options, unsigned cpus) {
  return cpus > 1 ? static_cast<int64_t>(options.spin_us) * 1000 : 0;
}

bool LeavesAtime(const MountOptions& options) {
  return (options.mount_flags & (MS_NOATIME | MS_RDONLY)) != 0;
}

bool LeavesDirAtime(const MountOptions& options) {
  return (options.mount_flags & MS_NODIRATIME) != 0;
}

}  // namespace salius
