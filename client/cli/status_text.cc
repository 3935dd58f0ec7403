#include "client/cli/status_text.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/json.h"
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
    absl::StrAppendFormat(
        &text,
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
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixMillis(static_cast<int64_t>(unix_ms)),
                          absl::UTCTimeZone());
}

// Returns a duration in whole seconds, such as "1m5s".
std::string SecondsText(uint64_t ms) {
  if (ms < 1000) return "less than 1s";
  return absl::FormatDuration(absl::Seconds(ms / 1000));
}

bool IsDirect(const OfflineStatus& status) { return status.config.kind == VolumeKind::kDirect; }

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

Json RecoveryJson(const Recovery& recovery) {
  return Json{{"at_unix_ms", recovery.at_unix_ms()},     {"epoch", recovery.epoch()},
              {"next_epoch", recovery.next_epoch()},     {"decided", recovery.decided()},
              {"records", recovery.records()},           {"forced", recovery.forced()},
              {"acknowledged", recovery.acknowledged()}, {"given_up", recovery.given_up()}};
}

Json GateJson(const control::VolumeStatusResponse& status) {
  if (!status.has_gate()) return nullptr;
  return {{"processes", status.gate().processes()},
          {"waiting_answers", status.gate().waiting_answers()},
          {"waited_answers", status.gate().waited_answers()}};
}

Json PatchesJson(const control::VolumeStatusResponse& status) {
  if (!status.has_patches()) return nullptr;
  const control::VolumeStatusResponse::PatchUse& use = status.patches();
  return {{"fetch", use.fetch()},
          {"bytes", use.bytes()},
          {"limit_bytes", use.limit_bytes()},
          {"put_off_bytes", use.put_off_bytes()},
          {"fetched_pages", use.fetched_pages()},
          {"elided_pages", use.elided_pages()}};
}

// Returns the datagrams that were refused for their seal.
uint64_t RefusedDatagrams(const control::VolumeStatusResponse::SealingUse& use) {
  uint64_t refused = 0;
  for (const auto& refusal : use.refusals()) refused += refusal.datagrams();
  return refused;
}

std::string SealingText(const control::VolumeStatusResponse& status) {
  if (!status.has_sealing()) return "not sealed: others on the network can read and forge them";
  return absl::StrFormat("sealed; %u refused, the key was changed %u times",
                         RefusedDatagrams(status.sealing()), status.sealing().key_changes());
}

Json SealingJson(const control::VolumeStatusResponse& status) {
  if (!status.has_sealing()) return nullptr;
  Json refused = Json::object();
  for (const auto& refusal : status.sealing().refusals()) {
    refused[refusal.reason()] = refusal.datagrams();
  }
  return {{"key_changes", status.sealing().key_changes()}, {"refused", refused}};
}

using Direct = control::VolumeStatusResponse::DirectUse;

void AppendDirect(std::string& text, const Direct& direct) {
  Line(text, "processes", absl::StrCat(direct.processes()));
  std::string syncs =
      absl::StrFormat("%u, %u of them by fsync(2)", direct.syncs(), direct.real_syncs());
  for (int i = 0; i < direct.reasons_size(); ++i) {
    absl::StrAppendFormat(&syncs, "%s %u %s", i == 0 ? ":" : ",", direct.reasons(i).syncs(),
                          direct.reasons(i).name());
  }
  Line(text, "syncs", syncs);
  if (direct.early_syncs() > 0) {
    Line(text, "early syncs",
         absl::StrFormat("%u, %u of them owed to an output", direct.early_syncs(),
                         direct.owed_syncs()));
  }
  if (direct.outputs() > 0) {
    Line(text, "outputs",
         absl::StrFormat("%u waited, %u of them for a real sync; %u refused", direct.outputs(),
                         direct.paid_outputs(), direct.refused_outputs()));
  }
  if (!direct.early_end().empty()) {
    Line(text, "early return", absl::StrCat("has ended: ", direct.early_end()));
  }
}

Json DirectJson(const control::VolumeStatusResponse& status) {
  if (!status.has_direct()) return nullptr;
  const Direct& direct = status.direct();
  Json reasons = Json::object();
  for (const Direct::Reason& reason : direct.reasons()) reasons[reason.name()] = reason.syncs();
  return Json{{"processes", direct.processes()},
              {"records", direct.records()},
              {"record_bytes", direct.record_bytes()},
              {"syncs", direct.syncs()},
              {"real_syncs", direct.real_syncs()},
              {"reasons", reasons},
              {"dead_owners", direct.dead_owners()},
              {"voids", direct.voids()},
              {"early_syncs", direct.early_syncs()},
              {"owed_syncs", direct.owed_syncs()},
              {"outputs", direct.outputs()},
              {"paid_outputs", direct.paid_outputs()},
              {"refused_outputs", direct.refused_outputs()},
              {"early_end", direct.early_end()}};
}

// Returns a peer with its identity, if it has one: "client/web1 at 10.0.0.1".
std::string PeerName(const std::string& identity, const std::string& peer) {
  if (identity.empty()) return peer.empty() ? "-" : peer;
  return peer.empty() ? identity : absl::StrCat(identity, " at ", peer);
}

// Appends a line for a control call.
void AppendCall(std::string& text, const control::ReplicaStatusResponse::Call& call) {
  absl::StrAppendFormat(
      &text, "  %s  %s %s%s by %s%s%s\n", TimeText(call.at_unix_ms()), call.kind(),
      VolumeText(call.volume()), call.epoch() > 0 ? absl::StrFormat(" epoch %u", call.epoch()) : "",
      PeerName(call.identity(), call.peer()), call.accepted() ? "" : ": REFUSED, ", call.reason());
}

Json CallJson(const control::ReplicaStatusResponse::Call& call) {
  return Json{{"at_unix_ms", call.at_unix_ms()}, {"kind", call.kind()},
              {"accepted", call.accepted()},     {"volume", VolumeText(call.volume())},
              {"epoch", call.epoch()},           {"peer", call.peer()},
              {"reason", call.reason()},         {"identity", call.identity()}};
}

Json InventoryJson(const control::ReplicaStatusResponse::Volume& volume) {
  const control::VolumeInventory& held = volume.inventory();
  return Json{{"volume", VolumeText(volume.volume())},
              {"memory_bytes", volume.memory_bytes()},
              {"silent_s", volume.silent_s()},
              {"peer", volume.peer()},
              {"owner", volume.owner()},
              {"known", held.known()},
              {"epoch", held.epoch()},
              {"base", held.base()},
              {"contiguous", held.contiguous()},
              {"highest", held.highest()},
              {"records", held.records()},
              {"bytes", held.bytes()},
              {"trimmed", held.trimmed()},
              {"durable_mark", held.durable_mark()},
              {"checkpoint_mark", held.checkpoint_mark()},
              {"promised_epoch", held.promised_epoch()},
              {"overdue", held.overdue()}};
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
  if (status.has_direct()) {
    Line(text, "kind", "direct");
    if (!status.serving()) Line(text, "run by", "nothing any more: it is being drained");
    AppendDirect(text, status.direct());
  } else {
    Line(text, "mounted on",
         status.serving() ? status.mountpoint() : "nothing any more: it is being drained");
  }
  const std::string detail =
      status.mode_detail().empty() ? "" : absl::StrCat(" (", status.mode_detail(), ")");
  Line(text, "mode", absl::StrCat(status.mode(), detail));
  Line(text, "since",
       absl::StrFormat("%s, for %s", TimeText(status.mode_since_unix_ms()),
                       SecondsText(status.mode_for_ms())));
  if (!status.failure().empty()) Line(text, "FAILED", status.failure());
  Line(text, "epoch", absl::StrCat(status.epoch()));
  Line(text, "durable with",
       absl::StrFormat("%u of %d replicas", status.acks(), status.replicas_size()));
  Line(text, "datagrams", SealingText(status));
  if (!status.contract().empty()) Line(text, "contract", status.contract());
  if (status.has_gate()) {
    Line(text, "gate",
         absl::StrFormat("%u processes inside; %u answers to others wait, %u have waited",
                         status.gate().processes(), status.gate().waiting_answers(),
                         status.gate().waited_answers() - status.gate().waiting_answers()));
  }
  if (!status.names().empty()) Line(text, "names", status.names());
  if (status.has_patches()) {
    const control::VolumeStatusResponse::PatchUse& use = status.patches();
    std::string line = absl::StrFormat("%s of %s, fetch=%s", FormatBytes(use.bytes()),
                                       FormatBytes(use.limit_bytes()), use.fetch());
    if (use.bytes() >= use.limit_bytes()) line += "; full: writers wait";
    Line(text, "patch memory", line);
  }
  Line(text, "checkpoint", absl::StrCat(status.checkpoint()));
  Line(text, "applied", absl::StrCat(status.applied()));
  Line(text, "durable", absl::StrCat(status.durable()));
  Line(text, "issued", absl::StrCat(status.issued()));
  Line(text, "not on disk",
       absl::StrFormat("%s, the oldest for %.1f s", FormatBytes(status.uncheckpointed_bytes()),
                       static_cast<double>(status.oldest_uncheckpointed_ms()) / 1e3));
  if (!status.has_direct())
    Line(text, "stable log",
         absl::StrFormat("%s of %s used", FormatBytes(status.stable_log_used_bytes()),
                         FormatBytes(status.stable_log_capacity_bytes())));
  Line(text, "daemon",
       absl::StrFormat("pid %u, serving since %s, version %s", status.pid(),
                       TimeText(status.started_unix_ms()), status.version()));
  Line(text, "log", status.log_file());
  for (const Recovery& recovery : status.recoveries()) AppendRecovery(text, recovery);
  for (const std::string& warning : status.warnings()) Line(text, "WARNING", warning);
  if (status.replicas_size() > 0) absl::StrAppend(&text, "replicas:\n");
  for (const auto& replica : status.replicas()) AppendReplica(text, replica);
  return Printable(std::move(text), NewLines::kKeep);  // texts come from a peer
}

std::string MountedJson(const control::VolumeStatusResponse& status) {
  Json replicas = Json::array();
  for (const auto& replica : status.replicas()) {
    replicas.push_back(Json{{"address", replica.address()},
                            {"member", replica.member()},
                            {"connected", replica.connected()},
                            {"incarnation", Incarnation16(replica.incarnation())},
                            {"base", replica.base()},
                            {"contiguous", replica.contiguous()},
                            {"lag_records", replica.lag_records()},
                            {"lag_bytes", replica.lag_bytes()},
                            {"rtt_us", replica.rtt_us()},
                            {"free_bytes", replica.free_bytes()},
                            {"resent", replica.resent()},
                            {"problem", replica.problem()},
                            {"datagram_bytes", replica.datagram_bytes()},
                            {"route_bytes", replica.route_bytes()},
                            {"group_unheard", replica.group_unheard()},
                            {"control_problem", replica.control_problem()},
                            {"host", replica.host()}});
  }
  Json recoveries = Json::array();
  for (const Recovery& recovery : status.recoveries()) {
    recoveries.push_back(RecoveryJson(recovery));
  }
  const Verdict verdict = JudgeMounted(status);
  return JsonLine({{"mounted", true},
                   {"health", HealthName(verdict.health)},
                   {"health_detail", verdict.why},
                   {"exit_code", ExitCodeOf(verdict.health)},
                   {"volume", VolumeText(status.volume())},
                   {"backing", status.backing()},
                   {"kind", status.has_direct() ? "direct" : "mount"},
                   {"mountpoint", status.mountpoint()},
                   {"serving", status.serving()},
                   {"mode", status.mode()},
                   {"mode_detail", status.mode_detail()},
                   {"mode_since_unix_ms", status.mode_since_unix_ms()},
                   {"mode_for_ms", status.mode_for_ms()},
                   {"failure", status.failure()},
                   {"epoch", status.epoch()},
                   {"acks", status.acks()},
                   {"contract", status.contract()},
                   {"names", status.names()},
                   {"members", status.members()},
                   {"configured", status.replicas_size()},
                   {"checkpoint", status.checkpoint()},
                   {"applied", status.applied()},
                   {"durable", status.durable()},
                   {"issued", status.issued()},
                   {"uncheckpointed_bytes", status.uncheckpointed_bytes()},
                   {"oldest_uncheckpointed_ms", status.oldest_uncheckpointed_ms()},
                   {"stable_log_used_bytes", status.stable_log_used_bytes()},
                   {"stable_log_capacity_bytes", status.stable_log_capacity_bytes()},
                   {"version", status.version()},
                   {"pid", status.pid()},
                   {"started_unix_ms", status.started_unix_ms()},
                   {"log_file", status.log_file()},
                   {"recoveries", recoveries},
                   {"warnings", status.warnings()},
                   {"direct", DirectJson(status)},
                   {"gate", GateJson(status)},
                   {"patches", PatchesJson(status)},
                   {"sealing", SealingJson(status)},
                   {"replicas", replicas}});
}

Verdict JudgeOffline(const OfflineStatus& status) {
  Verdict verdict = JudgeUnmounted(status.state, status.recoveries, status.in_use_by, status.stuck);
  if (IsDirect(status) && verdict.health == HealthLevel::kNeedsRecovery) {
    verdict.why = "its processes have died: salius-run or salius-recover brings it back";
  }
  return verdict;
}

std::string OfflineText(const OfflineStatus& status) {
  const VolumeState& state = status.state;
  std::string text;
  Line(text, "health", VerdictText(JudgeOffline(status)));
  Line(text, "volume", status.config.volume.ToString());
  Line(text, "backing", status.backing);
  if (IsDirect(status)) Line(text, "kind", "direct");
  if (status.in_use_by.empty()) {
    Line(text, IsDirect(status) ? "run by" : "mounted on",
         "nothing: this is what the state file says");
  } else {
    Line(text, "in use by",
         absl::StrCat(status.in_use_by, ", which answers no status: the state file says"));
  }
  const bool left_open = state.open && status.in_use_by.empty();
  Line(text, "state",
       left_open    ? absl::StrFormat("open: must be recovered (%s or salius-recover does it)",
                                   IsDirect(status) ? "salius-run" : "salius-mount")
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
  Json members = Json::array();
  for (const Member& member : state.members) {
    members.push_back(Json{{"address", member.address},
                           {"incarnation", Incarnation16(member.incarnation)},
                           {"base", member.base}});
  }
  Json recoveries = Json::array();
  for (const RecoveryNote& note : status.recoveries.all()) {
    recoveries.push_back(RecoveryJson(RecoveryOf(note)));
  }
  const Verdict verdict = JudgeOffline(status);
  return JsonLine({{"mounted", false},
                   {"health", HealthName(verdict.health)},
                   {"health_detail", verdict.why},
                   {"exit_code", ExitCodeOf(verdict.health)},
                   {"in_use_by", status.in_use_by},
                   {"volume", status.config.volume.ToString()},
                   {"backing", status.backing},
                   {"kind", IsDirect(status) ? "direct" : "mount"},
                   {"state", state.open ? "open" : "clean"},
                   {"mode", ModeName(state.mode)},
                   {"epoch", state.epoch},
                   {"acks", status.config.acks},
                   {"checkpoint", state.checkpoint},
                   {"recovered_epoch", state.recovered_epoch},
                   {"recovered_seq", state.recovered_seq},
                   {"boot_id", state.boot_id},
                   {"recoveries", recoveries},
                   {"members", members},
                   {"replicas", status.config.replicas}});
}

std::string ErrorJson(std::string_view health, int exit_code, std::string_view error) {
  return JsonLine({{"mounted", false},
                   {"health", health},
                   {"exit_code", static_cast<uint64_t>(exit_code)},
                   {"error", error}});
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
        held.trimmed(), volume.silent_s(), volume.owner().empty() ? PeerName("", volume.peer()) : volume.owner(),
        held.overdue() ? "; OVERDUE: no trim for longer than k*tau" : "");
    if (held.promised_epoch() > 0) {
      absl::StrAppendFormat(&text, "  %36s  promised to a recovery: epoch %u\n", "",
                            held.promised_epoch());
    }
  }
  if (status.calls_size() > 0) absl::StrAppend(&text, "last control calls:\n");
  for (const auto& call : status.calls()) AppendCall(text, call);
  return Printable(std::move(text), NewLines::kKeep);  // texts come from a peer
}

std::string ReplicaJson(const std::string& address, const control::ReplicaStatusResponse& status) {
  Json volumes = Json::array();
  for (const auto& volume : status.volumes()) volumes.push_back(InventoryJson(volume));
  Json calls = Json::array();
  for (const auto& call : status.calls()) calls.push_back(CallJson(call));
  return JsonLine({{"address", address},
                   {"incarnation", Incarnation16(status.incarnation())},
                   {"version", status.version()},
                   {"host", status.host()},
                   {"uptime_s", status.uptime_s()},
                   {"memory_bytes", status.memory_bytes()},
                   {"free_bytes", status.free_bytes()},
                   {"granted_bytes", status.granted_bytes()},
                   {"slots", status.slots()},
                   {"slots_used", status.slots_used()},
                   {"promises", status.promises()},
                   {"promises_most", status.promises_most()},
                   {"store", Incarnation16(status.store())},
                   {"volumes", volumes},
                   {"calls", calls}});
}

}  // namespace salius::cli
