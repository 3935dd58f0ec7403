#include "client/mount/mount_options.h"

#include <sys/mount.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/check.h"
#include "common/config.h"
#include "common/limits.h"
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

// With less a writer would wait for nearly every page.
constexpr uint64_t kMinPatchMemory = uint64_t{64} << 10;

// One option of Salius' own.
struct OwnOption {
  const char* name;
  const char* value;  // as the help shows it; with '|': one of these; "": a word without a value
  const char* help;
  // Sets the value. The status is INVALID_ARGUMENT with what the value must be.
  absl::Status (*set)(absl::string_view value, MountOptions& options);
  // Returns whether a mounted volume has the wanted value already; null: it has one value, or no
  // effect while it is mounted.
  bool (*same)(const MountOptions& now, const VolumeConfig& config, const MountOptions& wanted);
};

absl::Status MustBe(std::string_view allowed) {
  return absl::InvalidArgumentError(absl::StrCat("must be ", Av(allowed)));
}

template <typename T>
absl::Status SetNumber(absl::string_view value, uint64_t low, uint64_t high, T& out) {
  uint64_t number = 0;
  if (!absl::SimpleAtoi(value, &number) || number < low || number > high) {
    return MustBe(Sv(absl::StrCat("a number from ", low, " to ", high)));
  }
  out = static_cast<T>(number);
  return absl::OkStatus();
}

template <typename T>
absl::Status SetBytes(absl::string_view value, uint64_t most, std::optional<T>& out) {
  const absl::StatusOr<uint64_t> bytes = ParseBytes(Sv(value));
  if (!bytes.ok()) return MustBe("a size such as 4096, 64MiB or 1GiB");
  if (*bytes > most) return MustBe(Sv(absl::StrCat("at most ", most, " bytes")));
  out = static_cast<T>(*bytes);
  return absl::OkStatus();
}

absl::Status SetTime(absl::string_view value, int64_t unit_us, std::optional<uint64_t>& out) {
  const absl::StatusOr<int64_t> us = ParseDurationUs(Sv(value));
  if (!us.ok() || *us == 0) return MustBe("a time such as 50ms or 30s");
  if (*us % unit_us != 0) return MustBe("a whole number of milliseconds");
  out = static_cast<uint64_t>(*us / unit_us);
  return absl::OkStatus();
}

absl::Status SetSpin(absl::string_view value, MountOptions& options) {
  const absl::StatusOr<int64_t> us = ParseDurationUs(Sv(value));
  if (!us.ok() || *us > kMaxSpinUs) return MustBe("a time from 0us to 1ms");
  options.spin_us = static_cast<uint64_t>(*us);
  return absl::OkStatus();
}

absl::Status SetReplicas(absl::string_view value, MountOptions& options) {
  std::vector<std::string> replicas;
  for (absl::string_view one : absl::StrSplit(value, ';', absl::SkipEmpty())) {
    replicas.emplace_back(absl::StripAsciiWhitespace(one));
  }
  options.replicas = std::move(replicas);
  return absl::OkStatus();
}

absl::Status SetNames(absl::string_view value, MountOptions& options) {
  SALIUS_ASSIGN_OR_RETURN(options.names, ParseNameMode(Sv(value)));
  return absl::OkStatus();
}

absl::Status SetCommit(absl::string_view value, MountOptions& options) {
  options.contract.commit = value == "external"  ? Commit::kExternal
                            : value == "ordered" ? Commit::kOrdered
                                                 : Commit::kSync;
  return absl::OkStatus();
}

absl::Status SetFetch(absl::string_view value, MountOptions& options) {
  SALIUS_ASSIGN_OR_RETURN(options.fetch, ParseFetchMode(Sv(value)));
  return absl::OkStatus();
}

absl::Status SetPatchMemory(absl::string_view value, MountOptions& options) {
  const absl::StatusOr<uint64_t> bytes = ParseBytes(Sv(value));
  if (!bytes.ok() || *bytes < kMinPatchMemory) return MustBe("a size from 64KiB, such as 64MiB");
  options.patch_memory_bytes = *bytes;
  return absl::OkStatus();
}

absl::Status SetLog(absl::string_view value, MountOptions& options) {
  if (!absl::StartsWith(value, "/")) return MustBe("an absolute path");
  options.log_file = std::string(value);
  return absl::OkStatus();
}

absl::Status SetKeys(absl::string_view value, MountOptions& options) {
  if (!value.empty() && !absl::StartsWith(value, "/")) {
    return MustBe("an absolute path, or empty for none");
  }
  options.keys = std::string(value);
  return absl::OkStatus();
}

template <auto kField>
absl::Status SetText(absl::string_view value, MountOptions& options) {
  options.*kField = std::string(value);
  return absl::OkStatus();
}

// Whether an option that overrides a value of the volume names the value in use.
template <auto kWanted, auto kUsed>
bool SameAsVolume(const MountOptions&, const VolumeConfig& config, const MountOptions& wanted) {
  return (wanted.*kWanted).value_or(config.*kUsed) == config.*kUsed;
}

// Whether an option of the mount names the value that the mount has.
template <auto kField>
bool SameAsNow(const MountOptions& now, const VolumeConfig&, const MountOptions& wanted) {
  return wanted.*kField == now.*kField;
}

using Text = absl::string_view;
using O = MountOptions;
using C = VolumeConfig;

constexpr OwnOption kOwn[] = {
    {"replicas", "HOST[:PORT];...", "the replicas; empty: none, mode local only", SetReplicas,
     SameAsVolume<&O::replicas, &C::replicas>},
    {"acks", "N", "how many of them must hold a record before it is durable",
     [](Text v, O& o) { return SetNumber(v, 1, kMaxReplicas, o.acks.emplace()); },
     SameAsVolume<&O::acks, &C::acks>},
    {"delta", "TIME", "link delay bound", [](Text v, O& o) { return SetTime(v, 1, o.delta_us); },
     SameAsVolume<&O::delta_us, &C::delta_us>},
    {"tau", "TIME", "longest time until a record is on this host's disk",
     [](Text v, O& o) { return SetTime(v, 1000, o.tau_ms); }, SameAsVolume<&O::tau_ms, &C::tau_ms>},
    {"k", "N", "slack factor of tau",
     [](Text v, O& o) { return SetNumber(v, 1, 1000, o.k.emplace()); }, SameAsVolume<&O::k, &C::k>},
    {"log_max", "BYTES", "bytes not yet on this host's disk",
     [](Text v, O& o) { return SetBytes(v, UINT64_MAX, o.log_max_bytes); },
     SameAsVolume<&O::log_max_bytes, &C::log_max_bytes>},
    {"bulk_limit", "BYTES", "unsynced bytes of a file beyond which it goes past the log",
     [](Text v, O& o) { return SetBytes(v, UINT64_MAX, o.bulk_limit_bytes); },
     SameAsVolume<&O::bulk_limit_bytes, &C::bulk_limit_bytes>},
    {"multicast", "GROUP:PORT", "send records once, to this multicast group",
     SetText<&O::multicast>, SameAsVolume<&O::multicast, &C::multicast>},
    {"datagram", "BYTES", "UDP payload; 0: what the route's MTU carries",
     [](Text v, O& o) { return SetBytes(v, kDatagramPayloadLoopback, o.datagram_bytes); },
     SameAsVolume<&O::datagram_bytes, &C::datagram_bytes>},
    {"keys", "FILE", "this host's key and certificate, of `salius keys`; empty: none", SetKeys,
     SameAsVolume<&O::keys, &C::keys>},
    {"names", "wait|async", "operations on names return when durable, or when issued", SetNames,
     SameAsVolume<&O::names, &C::names>},
    {"insecure", "", "replicas may be on other hosts: a trusted network",
     [](Text, O& o) {
       o.insecure = true;
       return absl::OkStatus();
     },
     [](const O& now, const C&, const O&) { return now.insecure; }},
    {"key-rotation", "SECONDS", "how often the key of sealed datagrams changes; 0: never (3600)",
     [](Text v, O& o) { return SetNumber(v, 0, kMostKeyRotationS, o.key_rotation_s); },
     SameAsNow<&O::key_rotation_s>},
    {"commit", "sync|external|ordered",
     "synchronous calls wait; or outputs do; or calls only order (sync)", SetCommit,
     [](const O& now, const C&, const O& wanted) {
       return now.contract.commit == wanted.contract.commit;
     }},
    {"fsync", "dsync|osync", "fsync and O_SYNC wait, or only order (osync with commit=ordered)",
     [](Text v, O& o) {
       o.fsync_orders = v == "osync";
       return absl::OkStatus();
     },
     [](const O& now, const C&, const O& wanted) {
       return now.contract.fsync_orders == wanted.contract.fsync_orders;
     }},
    {"osync-exempt", "o_sync|none", "files open with O_SYNC wait where fsync only orders (none)",
     [](Text v, O& o) {
       o.contract.exempts_o_sync = v == "o_sync";
       return absl::OkStatus();
     },
     [](const O& now, const C&, const O& wanted) {
       return now.contract.exempts_o_sync == wanted.contract.exempts_o_sync;
     }},
    {"trigger", "eager|output", "when commit=external sends: at once, or when an output waits (eager)",
     [](Text v, O& o) {
       o.output_triggered = v == "output";
       return absl::OkStatus();
     },
     SameAsNow<&O::output_triggered>},
    {"fetch", "blocking|async-fg|async-bg|lazy",
     "who fetches a page that a write changes in part, and when (async-bg)", SetFetch,
     SameAsNow<&O::fetch>},
    {"patch_memory", "BYTES", "unapplied data at which writers wait (64MiB)", SetPatchMemory,
     SameAsNow<&O::patch_memory_bytes>},
    {"recover", "auto|refuse", "what to do with a volume that was not unmounted (auto)",
     [](Text v, O& o) {
       o.recover = v == "auto" ? RecoverMode::kAuto : RecoverMode::kRefuse;
       return absl::OkStatus();
     },
     nullptr},
    {"threads", "N", "requests handled at once (two for each CPU, at most 8)",
     [](Text v, O& o) { return SetNumber(v, 1, kMaxThreads, o.threads); }, SameAsNow<&O::threads>},
    {"spin", "TIME", "how long a thread polls before it sleeps (80us)", SetSpin,
     SameAsNow<&O::spin_us>},
    {"metrics", "HOST:PORT", "serve Prometheus metrics there", SetText<&O::metrics>,
     SameAsNow<&O::metrics>},
    {"log", "FILE", "log of a daemon in the background", SetLog, SameAsNow<&O::log_file>},
    {"log_level", "debug|info|warn|error|off", "least severe messages that are logged (info)",
     SetText<&O::log_level>, SameAsNow<&O::log_level>},
};

const OwnOption* FindOwn(absl::string_view name) {
  const auto* const found = std::find_if(std::begin(kOwn), std::end(kOwn),
                                         [&](const OwnOption& o) { return name == o.name; });
  return found == std::end(kOwn) ? nullptr : found;
}

bool TakesValue(const OwnOption& option) { return option.value[0] != 0; }

// Returns the option as the help shows it: "acks=N", "insecure".
std::string Shown(const OwnOption& option) {
  return absl::StrCat(option.name, TakesValue(option) ? "=" : "", option.value);
}

std::vector<absl::string_view> KernelFlagNames() {
  std::vector<absl::string_view> names;
  for (const KernelFlag& flag : kKernelFlags) names.push_back(flag.name);
  return names;
}

// Returns the names as indented lines of at most 100 columns.
std::string Lines(const std::vector<absl::string_view>& names) {
  std::string text, line;
  for (const absl::string_view name : names) {
    if (line.size() + name.size() > 95) {
      absl::StrAppend(&text, line, ",\n");
      line.clear();
    }
    absl::StrAppend(&line, line.empty() ? "  " : ", ", name);
  }
  return absl::StrCat(text, line, "\n");
}

absl::Status Unknown(absl::string_view word) {
  const std::string name(word.substr(0, word.find('=')));
  const std::string meant = absl::StrReplaceAll(name, {{"-", "_"}});
  if (name != meant && FindOwn(meant) != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("option ", name, " is spelled ", meant));
  }
  const auto shown = [](std::string* out, const OwnOption& own) { out->append(Shown(own)); };
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown option \"", word, "\"; Salius knows ", absl::StrJoin(kOwn, ", ", shown),
      "; of mount(8) ", absl::StrJoin(KernelFlagNames(), ", "), "; and takes without effect ",
      absl::StrJoin(kIgnored, ", "), ", ", absl::StrJoin(kShown, ", "), ", x-..."));
}

// Checks a choice, "auto|refuse", and sets the value.
absl::Status CheckAndSet(const OwnOption& option, absl::string_view value, MountOptions& options) {
  const std::vector<std::string> choices = absl::StrSplit(option.value, '|');
  if (choices.size() > 1 && std::find(choices.begin(), choices.end(), value) == choices.end()) {
    const std::vector<std::string> first(choices.begin(), choices.end() - 1);
    return MustBe(Sv(absl::StrCat(absl::StrJoin(first, ", "), " or ", choices.back())));
  }
  return option.set(value, options);
}

// Sets an option of Salius' own, "name=value" or "name". Returns false for another word.
absl::StatusOr<bool> SetOwn(absl::string_view word, MountOptions& options) {
  const size_t equals = word.find('=');
  const bool has_value = equals != absl::string_view::npos;
  const OwnOption* const option = FindOwn(word.substr(0, equals));
  if (option == nullptr || TakesValue(*option) != has_value) return false;
  const absl::string_view value = has_value ? word.substr(equals + 1) : "";
  if (const absl::Status set = CheckAndSet(*option, value, options); !set.ok()) {
    return absl::Status(set.code(), absl::StrCat("option ", word, ": ", set.message()));
  }
  options.given.emplace_back(option->name);
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
  if (word == "remount" || word == "bind") {
    (word == "bind" ? options->bind : options->remount) = true;
    return absl::OkStatus();
  }
  if (SetStandard(word, options)) return absl::OkStatus();
  SALIUS_ASSIGN_OR_RETURN(const bool own, SetOwn(word, *options));
  return own ? absl::OkStatus() : Unknown(word);
}

// Checks the contract's options against each other and the rest, and completes it.
absl::Status SettleContract(MountOptions& options) {
  MountContract& contract = options.contract;
  contract.fsync_orders = options.fsync_orders.value_or(contract.commit == Commit::kOrdered);
  if (options.remount) return absl::OkStatus();  // CheckRemount compares with the mount
  if (contract.commit == Commit::kOrdered && !contract.fsync_orders) {
    return absl::InvalidArgumentError(
        "option fsync=dsync contradicts commit=ordered, under which fsync only orders: leave one out");
  }
  if (contract.commit == Commit::kExternal && contract.fsync_orders) {
    return absl::InvalidArgumentError(
        "option fsync=osync contradicts commit=external: leave one out");
  }
  if (contract.exempts_o_sync && !contract.fsync_orders) {
    return absl::InvalidArgumentError(
        "option osync-exempt: only with commit=ordered or fsync=osync");
  }
  if (options.output_triggered && contract.commit != Commit::kExternal) {
    return absl::InvalidArgumentError("option trigger=output: only with commit=external");
  }
  if (!contract.relaxed()) return absl::OkStatus();
  if (options.names == NameMode::kWait || SyncsNames(options)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "option ", SyncsNames(options) ? "dirsync (or sync)" : "names=wait", " contradicts ",
        contract.commit == Commit::kSync ? "fsync=osync" : "this commit=",
        ", under which operations on names do not wait: leave one out"));
  }
  return absl::OkStatus();
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
  SALIUS_RETURN_IF_ERROR(SettleContract(options));
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
  config->names = options.names.value_or(config->names);
  config->multicast = options.multicast.value_or(config->multicast);
  config->keys = options.keys.value_or(config->keys);
  if (options.contract.relaxed()) config->names = NameMode::kAsync;
  return ValidateVolumeConfig(*config);
}

absl::Status CheckRemount(const MountOptions& now, const VolumeConfig& config,
                          const MountOptions& wanted) {
  for (const std::string& name : wanted.given) {
    const OwnOption* const option = FindOwn(name);
    if (option == nullptr || option->same == nullptr || option->same(now, config, wanted)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "option ", name, " cannot change while the volume is mounted: unmount, and mount with it"));
  }
  if ((wanted.mount_flags & ~now.mount_flags & MS_DIRSYNC) != 0) {
    return absl::InvalidArgumentError(
        "option dirsync cannot change while the volume is mounted: unmount, and mount with it");
  }
  if (now.contract.relaxed() && SyncsNames(wanted)) {
    return absl::InvalidArgumentError(
        "option sync contradicts the mount's contract, under which synchronous calls do not wait: "
        "unmount, and mount with commit=sync");
  }
  return absl::OkStatus();
}

std::string ContractText(const MountContract& contract) {
  static constexpr const char* kNames[] = {"sync", "external", "ordered"};
  std::string text = kNames[static_cast<size_t>(contract.commit)];
  if (contract.commit != Commit::kOrdered && contract.fsync_orders) text += ",fsync=osync";
  if (contract.exempts_o_sync) text += ",osync-exempt=o_sync";
  return text;
}

std::string MountOptionsHelp() {
  std::string text = "Options of -o; those up to names override volume.toml for this session:\n";
  constexpr size_t kColumn = 26;  // of the explanations, as in the rest of the help
  for (const OwnOption& option : kOwn) {
    const std::string shown = Shown(option);
    const std::string gap = shown.size() < kColumn ? std::string(kColumn - shown.size(), ' ')
                                                   : "\n  " + std::string(kColumn, ' ');
    absl::StrAppend(&text, "  ", shown, gap, option.help, "\n");
  }
  std::vector<absl::string_view> flags = KernelFlagNames();
  flags.insert(flags.end(), {"remount", "bind"});
  std::vector<absl::string_view> ignored(std::begin(kIgnored), std::end(kIgnored));
  ignored.insert(ignored.end(), std::begin(kShown), std::end(kShown));
  ignored.insert(ignored.end(), {"x-*", "X-*", "comment=", "fsname=", "subtype=", "uhelper="});
  absl::StrAppend(&text, "\nOf mount(8):\n", Lines(flags), "Without effect:\n", Lines(ignored));
  text.pop_back();
  return text;
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

bool SyncsNames(const MountOptions& options) {
  return (options.mount_flags & (MS_DIRSYNC | MS_SYNCHRONOUS)) != 0;
}

}  // namespace salius
