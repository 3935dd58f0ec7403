#include "replica/options.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/config.h"
#include "common/strings.h"
#include "replica/arena.h"

namespace salius {
namespace {

enum class Kind { kText, kNumber, kFlag };

struct Option {
  std::string_view name;
  Kind kind;
  std::string_view value_name;
  std::string_view help;
  // Takes the value ("true" or "false" for a flag).
  std::function<absl::Status(const std::string& value, ReplicaOptions& options)> set;
};

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

absl::Status SetPeerShare(const std::string& value, ReplicaOptions& options) {
  uint32_t percent = 0;
  if (!absl::SimpleAtoi(value, &percent) || percent < 1 || percent > 100) {
    return absl::InvalidArgumentError("allowed are 1 to 100");
  }
  options.peer_share_percent = percent;
  return absl::OkStatus();
}

absl::Status SetLogLevel(const std::string& value, ReplicaOptions& options) {
  for (const char* const level : {"debug", "info", "warn", "error", "off"}) {
    if (value == level) {
      options.log_level = value;
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError("allowed are debug, info, warn, error, off");
}

const std::vector<Option>& Options() {
  static const auto* const options = new std::vector<Option>{
      {"listen", Kind::kText, "HOST:PORT",
       "address for sessions (TCP) and records (UDP, same port); default 127.0.0.1:7400",
       [](const std::string& value, ReplicaOptions& o) {
         SALIUS_ASSIGN_OR_RETURN(o.listen, ParseHostPort(value, kDefaultPort));
         return absl::OkStatus();
       }},
      {"memory", Kind::kText, "SIZE",
       "memory to keep logs in, reserved and locked at the start; default 1GiB", SetMemory},
      {"shm-dir", Kind::kText, "DIR",
       "directory of its own on tmpfs for the memory, which outlives the process; others must not "
       "be able to write to it; default /dev/shm/salius-PORT",
       [](const std::string& value, ReplicaOptions& o) {
         o.shm_dir = value;
         o.shm_dir_given = true;
         return value.empty() ? absl::InvalidArgumentError("a directory is required")
                              : absl::OkStatus();
       }},
      {"state-dir", Kind::kText, "DIR",
       "directory on a disk for what must outlive a reboot: promises to recoveries; one for each "
       "replica; default /var/lib/salius/replica-PORT",
       [](const std::string& value, ReplicaOptions& o) {
         o.state_dir = value;
         return value.empty() ? absl::InvalidArgumentError("a directory is required")
                              : absl::OkStatus();
       }},
      {"metrics", Kind::kText, "HOST:PORT", "serve Prometheus metrics there; default: nowhere",
       [](const std::string& value, ReplicaOptions& o) {
         o.metrics = value;
         return value.empty() ? absl::OkStatus() : ParseHostPort(value, 0).status();
       }},
      {"multicast-interface", Kind::kText, "NAME",
       "interface on which multicast groups are joined; default: that of --listen",
       [](const std::string& value, ReplicaOptions& o) {
         o.multicast_interface = value;
         return absl::OkStatus();
       }},
      {"insecure", Kind::kFlag, "",
       "allow an address other than loopback although nothing is authenticated",
       [](const std::string& value, ReplicaOptions& o) {
         o.insecure = value == "true";
         return absl::OkStatus();
       }},
      {"no-mlock", Kind::kFlag, "", "do not lock the memory: it may then be swapped out",
       [](const std::string& value, ReplicaOptions& o) {
         o.no_mlock = value == "true";
         return absl::OkStatus();
       }},
      {"abandon-after", Kind::kText, "TIME",
       "drop the log of a volume that was not written, fenced or fetched for this long (\"72h\"); "
       "default never",
       SetAbandon},
      {"peer-share", Kind::kNumber, "PERCENT",
       "what the volumes of one host may take of the memory, when they are more than one, and of "
       "the places for volumes; default 75",
       SetPeerShare},
      {"log-level", Kind::kText, "LEVEL", "debug, info (default), warn, error or off", SetLogLevel},
  };
  return *options;
}

const Option* FindOption(std::string_view name) {
  for (const Option& option : Options()) {
    if (option.name == name) return &option;
  }
  return nullptr;
}

absl::Status Set(const Option& option, const std::string& value, std::string_view source,
                 ReplicaOptions& options) {
  const absl::Status status = option.set(value, options);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(
      absl::StrFormat("%s%s \"%s\": %s", source, option.name, value, Sv(status.message())));
}

absl::Status ReadConfig(const std::string& path, ReplicaOptions& options) {
  SALIUS_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::ParseFile(path));
  for (const Option& option : Options()) {
    // Ask for it even when missing: Finish() then knows the key and can suggest it.
    const bool has = config.Has(option.name);
    std::string value;
    if (option.kind == Kind::kFlag) {
      value = config.Bool(option.name, false) ? "true" : "false";
    } else if (option.kind == Kind::kNumber) {
      value = absl::StrCat(config.Int(option.name, 0, 0, INT32_MAX));
    } else if (option.name == "memory") {
      value = absl::StrCat(config.Bytes(option.name, options.memory_bytes, 0, UINT64_MAX));
    } else {
      value = config.String(option.name, "");
    }
    if (!has) continue;
    const absl::Status status = option.set(value, options);
    if (!status.ok()) config.AddError(option.name, Sv(status.message()));
  }
  return config.Finish();
}

// Options as given, in order; the value of a flag is "true".
using Given = std::vector<std::pair<const Option*, std::string>>;

absl::StatusOr<Given> ReadArguments(const std::vector<std::string>& arguments,
                                    std::string* config_path, ReplicaOptions& options) {
  Given given;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--help" || argument == "-h") {
      options.help = true;
      continue;
    }
    if (argument == "--version" || argument == "-V") {
      options.version = true;
      continue;
    }
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    const Option* const option = name.rfind("--", 0) == 0 ? FindOption(name.substr(2)) : nullptr;
    if (option == nullptr && name != "--config") {
      return absl::InvalidArgumentError(
          absl::StrFormat("unknown argument \"%s\" (see --help)", argument));
    }
    if (option != nullptr && option->kind == Kind::kFlag) {
      if (equals != std::string::npos) {
        return absl::InvalidArgumentError(absl::StrFormat("%s takes no value", name));
      }
      given.emplace_back(option, "true");
      continue;
    }
    std::string value;
    if (equals != std::string::npos) {
      value = argument.substr(equals + 1);
    } else if (i + 1 < arguments.size()) {
      value = arguments[++i];
    } else {
      return absl::InvalidArgumentError(absl::StrFormat("%s needs a value", name));
    }
    if (option == nullptr) {
      *config_path = value;
    } else {
      given.emplace_back(option, value);
    }
  }
  return given;
}

}  // namespace

absl::StatusOr<ReplicaOptions> ParseReplicaOptions(const std::vector<std::string>& arguments) {
  ReplicaOptions options;
  std::string config_path;
  SALIUS_ASSIGN_OR_RETURN(const Given given, ReadArguments(arguments, &config_path, options));
  if (options.help || options.version) return options;
  if (!config_path.empty()) SALIUS_RETURN_IF_ERROR(ReadConfig(config_path, options));
  for (const auto& [option, value] : given) {
    SALIUS_RETURN_IF_ERROR(Set(*option, value, "--", options));
  }
  if (options.shm_dir.empty()) {
    options.shm_dir = absl::StrFormat("/dev/shm/salius-%d", options.listen.port);
  }
  if (options.state_dir.empty()) {
    options.state_dir = absl::StrFormat("/var/lib/salius/replica-%d", options.listen.port);
  }
  return options;
}

std::string ReplicaUsage() {
  std::string text =
      "Usage: salius-replica [OPTION]...\n"
      "Keeps the logs of Salius volumes in memory, until their primaries have them on disk.\n\n";
  const auto line = [&text](std::string_view left, std::string_view help) {
    absl::StrAppend(&text, absl::StrFormat("  %-29s %s\n", left, help));
  };
  for (const Option& option : Options()) {
    std::string left = absl::StrFormat("--%s", option.name);
    if (option.kind != Kind::kFlag) absl::StrAppend(&left, " ", Av(option.value_name));
    line(left, option.help);
  }
  line("--config FILE", "read options from a TOML file, same names; the command line wins");
  line("--version", "print the version and exit");
  line("--help", "print this and exit");
  absl::StrAppend(&text,
                  "\nSizes: 512MiB, 4GiB. Times: 90s, 72h. SIGTERM ends it and leaves the memory "
                  "in place: the\nnext start takes it over. Exit status: 0 after SIGTERM, 1 when "
                  "it could not run, 2 for\nwrong options.\n");
  return text;
}

}  // namespace salius
