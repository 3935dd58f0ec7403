#include "storage/volume_config.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/config.h"
#include "common/limits.h"
#include "common/net.h"
#include "common/runbook.h"
#include "common/strings.h"

namespace salius {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kTiB = uint64_t{1} << 40;
constexpr uint64_t kPageBytes = 4096;

// Enough for recovery to make inodes, directories and names on a full disk; small beside a volume.
constexpr uint64_t kDefaultBallastBytes = 16 * kMiB;
// A direct volume has no patches to hold unsynced data in: a long unsynced write is cheaper as one
// fsync than as records.
constexpr uint64_t kDefaultDirectBulkBytes = kMiB;
constexpr char kDirectKind[] = "direct";
constexpr char kMountKind[] = "mount";
// Keys that a direct volume does not have, with their former names.
constexpr std::array<const char*, 5> kMountOnlyKeys = {"stable_log", "stable_log_bytes", "ballast",
                                                       "ballast_bytes", "names"};
// Least log: two records of the largest size. Less could block a single write for ever.
constexpr uint64_t kMinLogMaxBytes = 256 * 1024;
// Least delta. Below it a process that waits a little for its CPU looks like a partition, and a
// healthy volume changes its mode all the time.
constexpr uint64_t kMinDeltaUs = 1000;
constexpr uint64_t kMaxDeltaUs = 60'000'000;
constexpr uint64_t kMaxTauMs = 24 * 3'600'000;
constexpr uint32_t kMaxK = 1000;
constexpr size_t kMaxAddressBytes = 200;  // of a member in the state (log/state_file.h)

absl::Status Bad(const std::string& what) { return absl::InvalidArgumentError("volume: " + what); }

// `text` writes a value as the file has it.
template <typename Text>
absl::Status CheckRange(const char* name, uint64_t value, uint64_t low, uint64_t high, Text text) {
  if (value >= low && value <= high) return absl::OkStatus();
  return Bad(
      absl::StrFormat("%s = %s, allowed is %s to %s", name, text(value), text(low), text(high)));
}

std::string MicrosText(uint64_t us) {
  return DurationText(static_cast<int64_t>(std::min<uint64_t>(us, INT64_MAX)));
}

std::string MillisText(uint64_t ms) {
  return MicrosText(std::min<uint64_t>(ms, INT64_MAX / 1000) * 1000);
}

// Returns "host:port" with a port, in one spelling.
absl::StatusOr<std::string> NormalAddress(const std::string& text) {
  if (text.size() > kMaxAddressBytes) {
    return Bad(absl::StrFormat("address \"%s\" is longer than %d bytes", text, kMaxAddressBytes));
  }
  // With other bytes the file that the address is written to could not be read again.
  if (!std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; })) {
    return Bad(absl::StrFormat("address \"%s\" has a space or a byte that is not printable ASCII",
                               absl::CHexEscape(text)));
  }
  const absl::StatusOr<HostPort> address = ParseHostPort(text, 0);
  if (!address.ok()) return Bad(absl::StrFormat("address \"%s\" is not \"host:port\"", text));
  if (address->port == 0) return Bad(absl::StrFormat("address \"%s\" has no port", text));
  return address->ToString();
}

absl::Status CheckReplicas(const VolumeConfig& config) {
  const size_t m = config.replicas.size();
  if (m > kMaxReplicas) return Bad(absl::StrFormat("%d replicas, at most %d", m, kMaxReplicas));
  std::vector<std::string> seen;
  for (const std::string& replica : config.replicas) {
    SALIUS_ASSIGN_OR_RETURN(std::string address, NormalAddress(replica));
    if (std::find(seen.begin(), seen.end(), address) != seen.end()) {
      return Bad(absl::StrFormat("replica %s is named twice: its copy would count twice", address));
    }
    seen.push_back(std::move(address));
  }
  const uint64_t most = std::max<uint64_t>(m, 1);
  if (config.acks < 1 || config.acks > most) {
    return Bad(
        absl::StrFormat("acks = %d, allowed is 1 to %d with %d replicas", config.acks, most, m));
  }
  return absl::OkStatus();
}

absl::Status CheckMulticast(const std::string& text) {
  if (text.empty()) return absl::OkStatus();
  SALIUS_RETURN_IF_ERROR(NormalAddress(text).status());
  SALIUS_ASSIGN_OR_RETURN(const HostPort group, ParseHostPort(text, 0));
  // Numbers only: a group has no name.
  SocketAddress address;
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (inet_pton(AF_INET, group.host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    address.length = sizeof(*v4);
  } else if (inet_pton(AF_INET6, group.host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    address.length = sizeof(*v6);
  }
  if (address.length == 0 || !IsMulticast(address)) {
    return Bad(absl::StrFormat("multicast = \"%s\" is not a multicast group", text));
  }
  return absl::OkStatus();
}

absl::Status CheckTimes(const VolumeConfig& config) {
  const absl::Status delta =
      CheckRange("delta", config.delta_us, kMinDeltaUs, kMaxDeltaUs, MicrosText);
  if (!delta.ok()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: shorter than a busy host's scheduling, a healthy replica would be taken for a lost "
        "one; it bounds the link's delay, and synchronous calls do not wait for it; %s",
        delta.message(), SeeRunbook("delta-too-short")));
  }
  SALIUS_RETURN_IF_ERROR(CheckRange("tau", config.tau_ms, 1, kMaxTauMs, MillisText));
  SALIUS_RETURN_IF_ERROR(
      CheckRange("k", config.k, 1, kMaxK, [](uint64_t k) { return absl::StrCat(k); }));
  // I6: nothing is issued while the oldest record is older than k*tau - 2*delta.
  if (config.k * config.tau_ms * 1000 <= 2 * config.delta_us) {
    return Bad(absl::StrFormat("k * tau (%d * %s) must be larger than 2 * delta (2 * %s)", config.k,
                               MillisText(config.tau_ms), MicrosText(config.delta_us)));
  }
  return absl::OkStatus();
}

// Checks the sizes that only a mount volume has.
absl::Status CheckMountSizes(const VolumeConfig& config) {
  // Add room for entry headers, and for records that arrive until a checkpoint lets the log be cut.
  const uint64_t least = config.log_max_bytes + config.log_max_bytes / 4 + kMiB;
  SALIUS_RETURN_IF_ERROR(CheckRange("stable_log", config.stable_log_bytes, least, kTiB, BytesText));
  if (config.stable_log_bytes % kPageBytes != 0) {
    return Bad(absl::StrFormat("stable_log = %s is not a multiple of %d",
                               BytesText(config.stable_log_bytes), kPageBytes));
  }
  return CheckRange("ballast", config.ballast_bytes, 0, kTiB, BytesText);
}

absl::Status CheckSizes(const VolumeConfig& config) {
  SALIUS_RETURN_IF_ERROR(
      CheckRange("log_max", config.log_max_bytes, kMinLogMaxBytes, kTiB / 2, BytesText));
  if (config.kind == VolumeKind::kMount) {
    SALIUS_RETURN_IF_ERROR(CheckMountSizes(config));
  } else if (config.stable_log_bytes != 0 || config.ballast_bytes != 0) {
    return Bad("a direct volume has no stable_log and no ballast");
  }
  SALIUS_RETURN_IF_ERROR(CheckRange("bulk_limit", config.bulk_limit_bytes, 1, kTiB, BytesText));
  if (config.datagram_bytes != 0) {
    SALIUS_RETURN_IF_ERROR(CheckRange("datagram", config.datagram_bytes, kDatagramPayloadMin,
                                      kDatagramPayloadLoopback, BytesText));
  }
  return absl::OkStatus();
}

absl::Status CheckKeysPath(const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  // With other bytes the file that the path is written to could not be read again.
  if (!std::all_of(path.begin(), path.end(), [](char c) { return c >= ' ' && c < 0x7f; })) {
    return Bad(absl::StrFormat("keys = \"%s\" has a byte that is not printable ASCII",
                               absl::CHexEscape(path)));
  }
  if (path[0] != '/') return Bad(absl::StrFormat("keys = \"%s\" is not an absolute path", path));
  return absl::OkStatus();
}

// Refuses text other than printable ASCII without tables, which is all that the file needs of TOML.
// For some other text the library has undefined behaviour or a failed assertion: "=" and U+03E7,
// "[" and a control character or "$" (found by tests/fuzz). So the library never sees it.
absl::Status CheckText(std::string_view text, std::string_view source) {
  int line = 1;
  bool line_begins = true;
  for (const unsigned char c : text) {
    if (c >= 0x7f || (c < 0x20 && c != '\t' && c != '\n' && c != '\r')) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s:%d: a byte that is not printable ASCII", source, line));
    }
    if (c == '[' && line_begins) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s:%d: a table, which has no meaning here", source, line));
    }
    if (c == '\n') ++line;
    line_begins = c == '\n' || c == '\r' || (line_begins && (c == ' ' || c == '\t'));
  }
  return absl::OkStatus();
}

// Returns a TOML basic string of printable ASCII.
std::string Quote(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

}  // namespace

std::string_view NameModeText(NameMode mode) { return mode == NameMode::kWait ? "wait" : "async"; }

absl::StatusOr<NameMode> ParseNameMode(std::string_view text) {
  for (const NameMode mode : {NameMode::kWait, NameMode::kAsync}) {
    if (text == NameModeText(mode)) return mode;
  }
  return absl::InvalidArgumentError("must be wait or async");
}

absl::Status CheckVolumeKind(const VolumeConfig& config, const std::string& path,
                             VolumeKind wanted) {
  if (config.kind == wanted) return absl::OkStatus();
  return absl::FailedPreconditionError(
      wanted == VolumeKind::kMount
          ? absl::StrFormat("%s is a direct volume, which cannot be mounted; run programs on it "
                            "with `salius-run --direct %s -- COMMAND`; %s",
                            path, ShellQuote(path), SeeRunbook("other-kind-of-volume"))
          : absl::StrFormat("%s is a volume for a mount, not a direct volume; mount it with "
                            "`salius-mount %s MOUNTPOINT` and run programs there; %s",
                            path, ShellQuote(path), SeeRunbook("other-kind-of-volume")));
}

VolumeConfig DefaultVolumeConfig(VolumeKind kind) {
  VolumeConfig config;
  config.kind = kind;
  config.volume = VolumeId::Random();
  config.delta_us = kDefaultDeltaUs;
  config.tau_ms = kDefaultTauMs;
  config.k = kDefaultK;
  config.log_max_bytes = kDefaultLogMaxBytes;
  config.stable_log_bytes = kDefaultStableLogBytes;
  config.bulk_limit_bytes = kDefaultBulkLimitBytes;
  config.ballast_bytes = kDefaultBallastBytes;
  config.names = kNewVolumeNames;
  if (kind == VolumeKind::kDirect) {
    config.stable_log_bytes = config.ballast_bytes = 0;
    config.bulk_limit_bytes = kDefaultDirectBulkBytes;
  }
  return config;
}

absl::Status ValidateVolumeConfig(const VolumeConfig& config) {
  if (config.volume == VolumeId{}) return Bad("no volume id");
  SALIUS_RETURN_IF_ERROR(CheckReplicas(config));
  SALIUS_RETURN_IF_ERROR(CheckTimes(config));
  SALIUS_RETURN_IF_ERROR(CheckSizes(config));
  SALIUS_RETURN_IF_ERROR(CheckMulticast(config.multicast));
  return CheckKeysPath(config.keys);
}

void NormalizeReplicas(VolumeConfig* config) {
  for (std::string& replica : config->replicas) {
    absl::StatusOr<std::string> address = ReplicaAddress(replica);
    if (address.ok()) replica = *std::move(address);
  }
}

std::string VolumeConfigToToml(const VolumeConfig& config) {
  std::string replicas;
  for (const std::string& replica : config.replicas) {
    replicas += (replicas.empty() ? "" : ", ") + Quote(replica);
  }
  std::string text = "# A Salius volume, made by `salius init`.\n";
  text += absl::StrFormat("volume = %s\n", Quote(config.volume.ToString()));
  const bool direct = config.kind == VolumeKind::kDirect;
  // Versions without direct volumes do not know the key.
  if (direct) text += absl::StrFormat("kind = %s\n", Quote(kDirectKind));
  text += absl::StrFormat("replicas = [%s]\n", replicas);
  text += absl::StrFormat("acks = %d\n", config.acks);
  text += absl::StrFormat("delta = \"%s\"\n", MicrosText(config.delta_us));
  text += absl::StrFormat("tau = \"%s\"\n", MillisText(config.tau_ms));
  text += absl::StrFormat("k = %d\n", config.k);
  text += absl::StrFormat("log_max = \"%s\"\n", BytesText(config.log_max_bytes));
  if (!direct) {
    text += absl::StrFormat("stable_log = \"%s\"\n", BytesText(config.stable_log_bytes));
  }
  text += absl::StrFormat("bulk_limit = \"%s\"\n", BytesText(config.bulk_limit_bytes));
  if (!direct) text += absl::StrFormat("ballast = \"%s\"\n", BytesText(config.ballast_bytes));
  text += absl::StrFormat("datagram = \"%s\"\n", BytesText(config.datagram_bytes));
  text += absl::StrFormat("multicast = %s\n", Quote(config.multicast));
  if (!direct) {
    text += absl::StrFormat("names = %s\n", Quote(std::string(NameModeText(config.names))));
  }
  text += absl::StrFormat("allow_same_host = %s\n", config.allow_same_host ? "true" : "false");
  // Versions without it do not know the key.
  if (!config.keys.empty()) text += absl::StrFormat("keys = %s\n", Quote(config.keys));
  return text;
}

absl::StatusOr<VolumeConfig> VolumeConfigFromToml(std::string_view text, std::string_view source) {
  SALIUS_RETURN_IF_ERROR(CheckText(text, source));
  SALIUS_ASSIGN_OR_RETURN(ConfigReader reader, ConfigReader::Parse(text, source));
  const std::string kind = reader.String("kind", kMountKind);
  const bool direct = kind == kDirectKind;
  if (!direct && kind != kMountKind) reader.AddError("kind", "must be mount or direct");
  VolumeConfig config = DefaultVolumeConfig(direct ? VolumeKind::kDirect : VolumeKind::kMount);
  for (const char* key : kMountOnlyKeys) {
    if (direct && reader.Has(key)) reader.AddError(key, "has no meaning in a direct volume");
  }
  const absl::StatusOr<VolumeId> volume = ParseVolumeId(reader.RequiredString("volume"));
  if (volume.ok()) {
    config.volume = *volume;
  } else if (reader.Has("volume")) {
    reader.AddError("volume", "not a UUID");
  }
  // Returns whether the file has the former name of a key, as volumes of earlier versions do.
  const auto has_former = [&](const char* key, const char* former) {
    if (!reader.Has(former) || !reader.Has(key)) return reader.Has(former);
    reader.Scalar(former);  // known, so that there is one error
    reader.AddError(former, absl::StrCat("the former name of ", key, ", which is there too"));
    return false;
  };
  // Check only the range of the types here; ValidateVolumeConfig checks the meaning.
  const auto number = [&](const char* key, uint64_t value) {
    return static_cast<uint64_t>(
        reader.Int(key, static_cast<int64_t>(value), 0, static_cast<int64_t>(kTiB)));
  };
  const auto bytes = [&](const char* key, const char* former, uint64_t value) {
    return reader.Bytes(has_former(key, former) ? former : key, value, 0, kTiB);
  };
  // Reads a time in units of `unit_us`; the former key has their number.
  const auto time = [&](const char* key, const char* former, uint64_t value, int64_t unit_us) {
    if (has_former(key, former)) return number(former, value);
    const int64_t us = reader.DurationUs(key, static_cast<int64_t>(value) * unit_us, 0, INT64_MAX);
    if (us % unit_us != 0) reader.AddError(key, "must be a whole number of milliseconds");
    return static_cast<uint64_t>(us / unit_us);
  };
  config.replicas = reader.Strings("replicas", {});
  config.acks = static_cast<uint32_t>(std::min<uint64_t>(number("acks", config.acks), UINT32_MAX));
  config.delta_us = time("delta", "delta_us", config.delta_us, 1);
  config.tau_ms = time("tau", "tau_ms", config.tau_ms, 1000);
  config.k = static_cast<uint32_t>(std::min<uint64_t>(number("k", config.k), UINT32_MAX));
  config.log_max_bytes = bytes("log_max", "log_max_bytes", config.log_max_bytes);
  config.stable_log_bytes = bytes("stable_log", "stable_log_bytes", config.stable_log_bytes);
  config.bulk_limit_bytes = bytes("bulk_limit", "bulk_limit_bytes", config.bulk_limit_bytes);
  config.ballast_bytes = bytes("ballast", "ballast_bytes", config.ballast_bytes);
  config.datagram_bytes = static_cast<uint32_t>(
      std::min<uint64_t>(bytes("datagram", "datagram_bytes", config.datagram_bytes), UINT32_MAX));
  config.multicast = reader.String("multicast", "");
  const absl::StatusOr<NameMode> names =
      ParseNameMode(reader.String("names", NameModeText(kDefaultNames)));
  if (names.ok()) {
    config.names = *names;
  } else {
    reader.AddError("names", Sv(names.status().message()));
  }
  config.allow_same_host = reader.Bool("allow_same_host", false);
  config.keys = reader.String("keys", "");
  SALIUS_RETURN_IF_ERROR(reader.Finish());
  NormalizeReplicas(&config);
  if (absl::Status status = ValidateVolumeConfig(config); !status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: %s", source, std::string(status.message())));
  }
  return config;
}

}  // namespace salius
