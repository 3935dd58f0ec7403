#include "client/cli/status_text.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "client/cli/json.h"
#include "common/strings.h"

namespace salius::cli {
namespace {

// Returns the 16 bytes of a volume's UUID as text; "unknown" when there are not 16.
std::string VolumeText(std::string_view bytes) {
  VolumeId volume;
  if (bytes.size() != volume.bytes.size()) return "unknown";
  std::copy(bytes.begin(), bytes.end(), volume.bytes.begin());
  return volume.ToString();
}

std::string Incarnation16(uint64_t incarnation) { return absl::StrFormat("%016x", incarnation); }

// Appends "name:   value", aligned.
void Line(std::string& text, std::string_view name, std::string_view value) {
  absl::StrAppendFormat(&text, "%-14s%s\n", absl::StrCat(Av(name), ":"), value);
}

void AppendReplica(std::string& text, const control::VolumeStatusResponse::ReplicaStatus& replica) {
  absl::StrAppendFormat(&text,
                        "  %-24s %-10s %-12s lag %u records, %s; rtt %u us; free %s; resent %u\n",
                        replica.address(), replica.member() ? "member" : "no member",
                        replica.connected() ? "connected" : "disconnected", replica.lag_records(),
                        FormatBytes(replica.lag_bytes()), replica.rtt_us(),
                        FormatBytes(replica.free_bytes()), replica.resent());
  absl::StrAppendFormat(&text, "  %-24s incarnation %s, base %u, contiguous %u\n", "",
                        Incarnation16(replica.incarnation()), replica.base(), replica.contiguous());
  if (replica.datagram_bytes() < replica.route_bytes()) {
    absl::StrAppendFormat(&text,
                          "  %-24s datagrams of more than %u bytes are lost on the way, though the "
                          "route takes %u: check the MTUs and that ICMP passes\n",
                          "", replica.datagram_bytes(), replica.route_bytes());
  }
  if (replica.group_unheard()) {
    absl::StrAppendFormat(&text,
                          "  %-24s the multicast group does not reach it, it is sent to by unicast: "
                          "check IGMP snooping and that there is a querier\n",
                          "");
  }
  if (!replica.problem().empty()) {
    absl::StrAppendFormat(&text, "  %-24s %s\n", "", replica.problem());
  }
}

// Returns "2026-01-31T12:00:00Z"; "unknown" for 0.
std::string TimeText(uint64_t unix_ms) {
  if (unix_ms == 0) return "unknown";
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ",
                          absl::FromUnixMillis(static_cast<int64_t>(unix_ms)), absl::UTCTimeZone());
}

using Recovery = control::VolumeStatusResponse::Recovery;

Recovery RecoveryOf(const RecoveryNote& note) {
  Recovery recovery;
  recovery.set_at_unix_ms(note.at_unix_ms);
  recovery.set_epoch(note.epoch);
  recovery.set_next_epoch(note.next_epoch);
  recovery.set_decided(note.decided);
  recovery.set_records(note.records);
  recovery.set_forced(note.GaveUp());
  recovery.set_acknowledged(note.acknowledged);
  recovery.set_given_up(GivenUpText(note));
  return recovery;
}

void AppendRecovery(std::string& text, const Recovery& recovery) {
  Line(text, "recovered",
       absl::StrFormat("%s: epoch %u up to record %u, %u records replayed%s",
                       TimeText(recovery.at_unix_ms()), recovery.epoch(), recovery.decided(),
                       recovery.records(), recovery.next_epoch() == 0 ? ", not ended yet" : ""));
  if (!recovery.forced()) return;
  Line(text, "GIVEN UP",
       absl::StrCat(recovery.given_up(), recovery.acknowledged() ? " (acknowledged)" : ""));
}

std::string RecoveryJson(const Recovery& recovery) {
  return JsonObject()
      .Number("at_unix_ms", recovery.at_unix_ms())
      .Number("epoch", recovery.epoch())
      .Number("next_epoch", recovery.next_epoch())
      .Number("decided", recovery.decided())
      .Number("records", recovery.records())
      .Bool("forced", recovery.forced())
      .Bool("acknowledged", recovery.acknowledged())
      .Text("given_up", recovery.given_up())
      .ToString();
}

std::string InventoryJson(const control::ReplicaStatusResponse::Volume& volume) {
  const control::VolumeInventory& held = volume.inventory();
  return JsonObject()
      .Text("volume", VolumeText(volume.volume()))
      .Number("memory_bytes", volume.memory_bytes())
      .Number("silent_s", volume.silent_s())
      .Text("peer", volume.peer())
      .Bool("known", held.known())
      .Number("epoch", held.epoch())
      .Number("base", held.base())
      .Number("contiguous", held.contiguous())
      .Number("highest", held.highest())
      .Number("records", held.records())
      .Number("bytes", held.bytes())
      .Number("trimmed", held.trimmed())
      .Number("durable_mark", held.durable_mark())
      .Number("checkpoint_mark", held.checkpoint_mark())
      .Number("promised_epoch", held.promised_epoch())
      .Bool("overdue", held.overdue())
      .ToString();
}

}  // namespace

std::string FormatBytes(uint64_t bytes) {
  static constexpr std::array<std::string_view, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  double value = static_cast<double>(bytes);
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? absl::StrFormat("%u B", bytes)
                   : absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string MountedText(const control::VolumeStatusResponse& status) {
  std::string text;
  Line(text, "health", VerdictText(JudgeMounted(status)));
  Line(text, "volume", VolumeText(status.volume()));
  Line(text, "backing", status.backing());
  Line(text, "mounted on",
       status.serving() ? status.mountpoint() : "nothing any more: it is being drained");
  const std::string detail =
      status.mode_detail().empty() ? "" : absl::StrCat(" (", status.mode_detail(), ")");
  Line(text, "mode", absl::StrCat(status.mode(), detail));
  Line(text, "since",
       absl::StrFormat("%s, for %s", TimeText(status.mode_since_unix_ms()),
                       absl::FormatDuration(absl::Seconds(status.mode_for_ms() / 1000))));
  if (!status.failure().empty()) Line(text, "FAILED", status.failure());
  Line(text, "epoch", absl::StrCat(status.epoch()));
  Line(text, "durable with",
       absl::StrFormat("%u of %d replicas", status.acks(), status.replicas_size()));
  Line(text, "checkpoint", absl::StrCat(status.checkpoint()));
  Line(text, "applied", absl::StrCat(status.applied()));
  Line(text, "durable", absl::StrCat(status.durable()));
  Line(text, "issued", absl::StrCat(status.issued()));
  Line(text, "not on disk",
       absl::StrFormat("%s, the oldest for %.1f s", FormatBytes(status.uncheckpointed_bytes()),
                       static_cast<double>(status.oldest_uncheckpointed_ms()) / 1e3));
  Line(text, "stable log",
       absl::StrFormat("%s of %s used", FormatBytes(status.stable_log_used_bytes()),
                       FormatBytes(status.stable_log_capacity_bytes())));
  Line(text, "daemon", absl::StrFormat("pid %u, serving since %s, version %s", status.pid(),
                                       TimeText(status.started_unix_ms()), status.version()));
  Line(text, "log", status.log_file());
  for (const Recovery& recovery : status.recoveries()) AppendRecovery(text, recovery);
  for (const std::string& warning : status.warnings()) Line(text, "WARNING", warning);
  if (status.replicas_size() > 0) absl::StrAppend(&text, "replicas:\n");
  for (const auto& replica : status.replicas()) AppendReplica(text, replica);
  return Printable(std::move(text), NewLines::kKeep);  // texts come from a peer
}

std::string MountedJson(const control::VolumeStatusResponse& status) {
  std::vector<std::string> replicas;
  for (const auto& replica : status.replicas()) {
    replicas.push_back(JsonObject()
                           .Text("address", replica.address())
                           .Bool("member", replica.member())
                           .Bool("connected", replica.connected())
                           .Text("incarnation", Incarnation16(replica.incarnation()))
                           .Number("base", replica.base())
                           .Number("contiguous", replica.contiguous())
                           .Number("lag_records", replica.lag_records())
                           .Number("lag_bytes", replica.lag_bytes())
                           .Number("rtt_us", replica.rtt_us())
                           .Number("free_bytes", replica.free_bytes())
                           .Number("resent", replica.resent())
                           .Text("problem", replica.problem())
                           .Number("datagram_bytes", replica.datagram_bytes())
                           .Number("route_bytes", replica.route_bytes())
                           .Bool("group_unheard", replica.group_unheard())
                           .Text("control_problem", replica.control_problem())
                           .Text("host", replica.host())
                           .ToString());
  }
  std::vector<std::string> recoveries, warnings;
  for (const Recovery& recovery : status.recoveries()) {
    recoveries.push_back(RecoveryJson(recovery));
  }
  for (const std::string& warning : status.warnings()) warnings.push_back(JsonQuote(warning));
  const Verdict verdict = JudgeMounted(status);
  return JsonObject()
      .Bool("mounted", true)
      .Text("health", HealthName(verdict.health))
      .Text("health_detail", verdict.why)
      .Number("exit_code", ExitCodeOf(verdict.health))
      .Text("volume", VolumeText(status.volume()))
      .Text("backing", status.backing())
      .Text("mountpoint", status.mountpoint())
      .Bool("serving", status.serving())
      .Text("mode", status.mode())
      .Text("mode_detail", status.mode_detail())
      .Number("mode_since_unix_ms", status.mode_since_unix_ms())
      .Number("mode_for_ms", status.mode_for_ms())
      .Text("failure", status.failure())
      .Number("epoch", status.epoch())
      .Number("acks", status.acks())
      .Number("members", status.members())
      .Number("configured", status.replicas_size())
      .Number("checkpoint", status.checkpoint())
      .Number("applied", status.applied())
      .Number("durable", status.durable())
      .Number("issued", status.issued())
      .Number("uncheckpointed_bytes", status.uncheckpointed_bytes())
      .Number("oldest_uncheckpointed_ms", status.oldest_uncheckpointed_ms())
      .Number("stable_log_used_bytes", status.stable_log_used_bytes())
      .Number("stable_log_capacity_bytes", status.stable_log_capacity_bytes())
      .Text("version", status.version())
      .Number("pid", status.pid())
      .Number("started_unix_ms", status.started_unix_ms())
      .Text("log_file", status.log_file())
      .Raw("recoveries", JsonArray(recoveries))
      .Raw("warnings", JsonArray(warnings))
      .Raw("replicas", JsonArray(replicas))
      .ToString();
}

Verdict JudgeOffline(const OfflineStatus& status) {
  return JudgeUnmounted(status.state, status.recoveries, status.in_use_by, status.stuck);
}

std::string OfflineText(const OfflineStatus& status) {
  const VolumeState& state = status.state;
  std::string text;
  Line(text, "health", VerdictText(JudgeOffline(status)));
  Line(text, "volume", status.config.volume.ToString());
  Line(text, "backing", status.backing);
  if (status.in_use_by.empty()) {
    Line(text, "mounted on", "nothing: this is what the state file says");
  } else {
    Line(text, "in use by",
         absl::StrCat(status.in_use_by, ", which answers no status: the state file says"));
  }
  const bool left_open = state.open && status.in_use_by.empty();
  Line(text, "state",
       left_open    ? "open: must be recovered (salius-mount or salius-recover does it)"
       : state.open ? "open"
                    : "clean");
  Line(text, "mode", ModeName(state.mode));
  Line(text, "epoch", absl::StrCat(state.epoch));
  Line(text, "checkpoint", absl::StrCat(state.checkpoint));
  if (state.recovered_epoch > 0 && status.recoveries.Find(state.recovered_epoch) == nullptr) {
    Line(text, "recovered",
         absl::StrFormat("epoch %u up to record %u", state.recovered_epoch, state.recovered_seq));
  }
  for (const RecoveryNote& note : status.recoveries.all()) AppendRecovery(text, RecoveryOf(note));
  Line(text, "durable with",
       absl::StrFormat("%u of %u replicas", status.config.acks, status.config.replicas.size()));
  if (!state.boot_id.empty()) Line(text, "boot id", state.boot_id);
  if (!status.config.replicas.empty()) absl::StrAppend(&text, "replicas:\n");
  for (const std::string& address : status.config.replicas) {
    const auto member = std::find_if(state.members.begin(), state.members.end(),
                                     [&](const Member& m) { return m.address == address; });
    const std::string noted =
        member == state.members.end()
            ? "no member"
            : absl::StrFormat("member, incarnation %s, base %u", Incarnation16(member->incarnation),
                              member->base);
    absl::StrAppendFormat(&text, "  %-24s %s\n", address, noted);
  }
  return Printable(std::move(text), NewLines::kKeep);  // texts come from a peer
}

std::string OfflineJson(const OfflineStatus& status) {
  const VolumeState& state = status.state;
  std::vector<std::string> members, replicas;
  for (const Member& member : state.members) {
    members.push_back(JsonObject()
                          .Text("address", member.address)
                          .Text("incarnation", Incarnation16(member.incarnation))
                          .Number("base", member.base)
                          .ToString());
  }
  for (const std::string& address : status.config.replicas) replicas.push_back(JsonQuote(address));
  std::vector<std::string> recoveries;
  for (const RecoveryNote& note : status.recoveries.all()) {
    recoveries.push_back(RecoveryJson(RecoveryOf(note)));
  }
  const Verdict verdict = JudgeOffline(status);
  return JsonObject()
      .Bool("mounted", false)
      .Text("health", HealthName(verdict.health))
      .Text("health_detail", verdict.why)
      .Number("exit_code", ExitCodeOf(verdict.health))
      .Text("in_use_by", status.in_use_by)
      .Text("volume", status.config.volume.ToString())
      .Text("backing", status.backing)
      .Text("state", state.open ? "open" : "clean")
      .Text("mode", ModeName(state.mode))
      .Number("epoch", state.epoch)
      .Number("acks", status.config.acks)
      .Number("checkpoint", state.checkpoint)
      .Number("recovered_epoch", state.recovered_epoch)
      .Number("recovered_seq", state.recovered_seq)
      .Text("boot_id", state.boot_id)
      .Raw("recoveries", JsonArray(recoveries))
      .Raw("members", JsonArray(members))
      .Raw("replicas", JsonArray(replicas))
      .ToString();
}

std::string ErrorJson(std::string_view health, int exit_code, std::string_view error) {
  return JsonObject()
      .Bool("mounted", false)
      .Text("health", health)
      .Number("exit_code", static_cast<uint64_t>(exit_code))
      .Text("error", error)
      .ToString();
}

std::string ReplicaText(const std::string& address, const control::ReplicaStatusResponse& status) {
  std::string text;
  Line(text, "replica", address);
  Line(text, "incarnation", Incarnation16(status.incarnation()));
  Line(text, "version", status.version());
  Line(text, "up for", absl::StrFormat("%u s", status.uptime_s()));
  Line(text, "memory",
       absl::StrFormat("%s, %s free", FormatBytes(status.memory_bytes()),
                       FormatBytes(status.free_bytes())));
  Line(text, "places",
       absl::StrFormat("%u of %u volumes, %u of %u promises", status.slots_used(), status.slots(),
                       status.promises(), status.promises_most()));
  Line(text, "store", Incarnation16(status.store()));
  absl::StrAppendFormat(&text, "volumes: %d\n", status.volumes_size());
  for (const auto& volume : status.volumes()) {
    const control::VolumeInventory& held = volume.inventory();
    absl::StrAppendFormat(
        &text,
        "  %s  epoch %u, %u records, %s (%s reserved), seqs %u to %u of %u, trimmed %u; silent for "
        "%u s, %s%s\n",
        VolumeText(volume.volume()), held.epoch(), held.records(), FormatBytes(held.bytes()),
        FormatBytes(volume.memory_bytes()), held.base(), held.contiguous(), held.highest(),
        held.trimmed(), volume.silent_s(), volume.peer().empty() ? "-" : volume.peer(),
        held.overdue() ? "; OVERDUE: no trim for longer than k*tau" : "");
    if (held.promised_epoch() > 0) {
      absl::StrAppendFormat(&text, "  %36s  promised to a recovery: epoch %u\n", "",
                            held.promised_epoch());
    }
  }
  return Printable(std::move(text), NewLines::kKeep);  // texts come from a peer
}

std::string ReplicaJson(const std::string& address, const control::ReplicaStatusResponse& status) {
  std::vector<std::string> volumes;
  for (const auto& volume : status.volumes()) volumes.push_back(InventoryJson(volume));
  return JsonObject()
      .Text("address", address)
      .Text("incarnation", Incarnation16(status.incarnation()))
      .Text("version", status.version())
      .Text("host", status.host())
      .Number("uptime_s", status.uptime_s())
      .Number("memory_bytes", status.memory_bytes())
      .Number("free_bytes", status.free_bytes())
      .Number("granted_bytes", status.granted_bytes())
      .Number("slots", status.slots())
      .Number("slots_used", status.slots_used())
      .Number("promises", status.promises())
      .Number("promises_most", status.promises_most())
      .Text("store", Incarnation16(status.store()))
      .Raw("volumes", JsonArray(volumes))
      .ToString();
}

}  // namespace salius::cli
