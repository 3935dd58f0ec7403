#include "replica/acceptor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/limits.h"

namespace salius {
namespace {

constexpr int64_t kNanosPerMilli = 1'000'000;
constexpr int64_t kNanosPerSecond = 1'000'000'000;
// A primary sends something every second, also when it is idle. A recovery works for minutes at
// most between two of its calls.
constexpr int64_t kFreshNs = 60 * kNanosPerSecond;
// A longer time between two Ticks means that the process was stopped, not only late.
constexpr int64_t kStoppedNs = int64_t{5} * 1'000'000'000;

// Returns k*tau in nanoseconds; 0 when the session set no such limit.
int64_t OverdueAfterNs(const VolumeSlot& slot) {
  constexpr uint64_t kMaxMs = uint64_t{1} << 40;
  const uint64_t tau = std::min(slot.tau_ms, kMaxMs);
  return static_cast<int64_t>(std::min<uint64_t>(tau * std::min<uint32_t>(slot.k, 1000), kMaxMs)) *
         kNanosPerMilli;
}

}  // namespace

Acceptor::Acceptor(Arena& arena, const Options& options, int64_t now_ns, AttachReport* report)
    : arena_(arena),
      options_(options),
      tick_ns_(now_ns),
      promises_(options.most_promises, options.peer_share_percent) {
  AttachReport result;
  result.damaged = arena_.damaged();
  promises_.Load(options_.promises, now_ns);
  for (uint32_t i = 0; i < arena_.geometry().slot_count; ++i) {
    const VolumeSlot* const slot = arena_.slot(i);
    if (slot == nullptr) continue;
    if (Find(slot->volume) != nullptr) {
      // No process writes two slots of one volume.
      ++result.damaged;
      arena_.NewIncarnation();  // G, before anything is freed
      arena_.FreeSlot(i);
      for (const uint32_t segment : arena_.SegmentsOf(i)) arena_.FreeSegment(segment);
      continue;
    }
    auto volume = std::make_unique<Volume>();
    volume->slot_index = i;
    volume->slot = *slot;
    ++result.volumes;
    // Each may know more than the other: a process was killed before it wrote the file, or the file
    // is newer than an arena on a disk.
    Promise promise = promises_.Of(slot->volume);
    promise.volume = slot->volume;
    promise.opened = std::max(promise.opened, slot->epoch);
    if (slot->promise_epoch > promise.promised) {
      promise.promised = slot->promise_epoch;
      promise.token = slot->promise_token;
    } else if (slot->promise_epoch < promise.promised) {
      volume->slot.promise_epoch = promise.promised;
      volume->slot.promise_token = promise.token;
      arena_.WriteSlot(i, volume->slot);
      arena_.WriteSlot(i, volume->slot);
    }
    promises_.Keep(promise, promises_.LifeOf(slot->volume));
    if (slot->epoch != 0) {
      StartLog(*volume, now_ns);
      const VolumeLog::RebuildReport rebuilt = volume->log->Rebuild(options_.for_each);
      result.records += rebuilt.records;
      result.damaged += rebuilt.damaged;
      volume->slot.durable_mark = std::max(slot->durable_mark, rebuilt.durable_mark);
      volume->slot.checkpoint_mark = std::max(slot->checkpoint_mark, rebuilt.checkpoint_mark);
      // The records that carry these marks may be gone at the next restart.
      arena_.WriteSlot(i, volume->slot);
      // It is not known any more when the records came: the alarm's time begins again.
      volume->age.Note(now_ns, volume->log->held().highest());
      volume->age.TrimTo(volume->log->floor());
    }
    volumes_[volume->slot.volume] = std::move(volume);
  }
  if (result.damaged > 0) arena_.NewIncarnation();  // G
  if (report != nullptr) *report = result;
}

const Acceptor::Volume* Acceptor::Find(const VolumeId& volume) const {
  const auto it = volumes_.find(volume);
  return it == volumes_.end() ? nullptr : it->second.get();
}
Acceptor::Volume* Acceptor::Find(const VolumeId& volume) {
  const auto it = volumes_.find(volume);
  return it == volumes_.end() ? nullptr : it->second.get();
}

absl::Status Acceptor::RoomForPromise(const PeerId& peer) {
  return promises_.MakeRoom(peer,
                            [this](const VolumeId& volume) { return Find(volume) != nullptr; });
}

// ---- sessions -----------------------------------------------------------------------------------

absl::Status Acceptor::CheckOpen(const Volume* volume, const SessionParams& params) const {
  if (params.volume == VolumeId{} || params.epoch == 0 || params.session == 0 || params.base == 0) {
    return absl::InvalidArgumentError("volume, epoch, session and base must not be zero");
  }
  if (params.epoch > kMaxCount || params.base > kMaxCount) {
    return absl::InvalidArgumentError(
        absl::StrFormat("epoch %d, base %d: at most %d", params.epoch, params.base, kMaxCount));
  }
  if (params.multicast.size() > kMaxMulticastBytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("multicast address of %d bytes: at most %d are allowed",
                        params.multicast.size(), kMaxMulticastBytes));
  }
  const Promise promise = promises_.Of(params.volume);
  // D
  if (params.epoch < promise.promised) {
    return absl::FailedPreconditionError(
        absl::StrFormat("fenced: epoch %d was promised to a recovery, the session has epoch %d",
                        promise.promised, params.epoch));
  }
  if (params.epoch < promise.opened) {
    return absl::FailedPreconditionError(
        absl::StrFormat("fenced: a session of epoch %d was opened here, this one has epoch %d",
                        promise.opened, params.epoch));
  }
  if (volume == nullptr || params.epoch > volume->slot.epoch) return absl::OkStatus();
  const VolumeSlot& slot = volume->slot;
  if (params.session != slot.session) {
    return absl::FailedPreconditionError(
        absl::StrFormat("epoch %d is open with another session", params.epoch));
  }
  // A later call of the same primary, under another of this replica's names, came first: no fence.
  if (params.base < slot.base) {
    return absl::AbortedError(absl::StrFormat(
        "the session is open with base %d, it cannot become %d", slot.base, params.base));
  }
  return absl::OkStatus();
}

// Checks rule J for a session of `volume` (null: it has no slot yet) that needs `wanted` segments.
absl::Status Acceptor::CheckShare(const Volume* volume, const PeerId& peer, uint32_t wanted) const {
  if (peer == PeerId{}) return absl::OkStatus();
  uint64_t slots = 0, segments = 0;
  for (const auto& [id, other] : volumes_) {
    if (other.get() == volume || promises_.Of(id).peer != peer) continue;
    ++slots;
    segments += other->slot.grant_segments;
  }
  if (slots == 0) return absl::OkStatus();
  const ArenaGeometry& g = arena_.geometry();
  const uint64_t share = options_.peer_share_percent;
  const char* const advice =
      "`salius forget` volumes of it that are used no more, or raise --peer-share";
  if ((slots + 1) * 100 > share * g.slot_count) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%s has %d of the %d volume slots of this replica, all that one host may "
                        "have: %s",
                        PeerText(peer), slots, g.slot_count, advice));
  }
  if ((segments + wanted) * 100 > share * g.segment_count) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "%s has %d of the %d segments of this replica, and this session needs %d: one host may "
        "have %d percent; %s",
        PeerText(peer), segments, g.segment_count, wanted, share, advice));
  }
  return absl::OkStatus();
}

// Returns the segments for a session of `volume`, whose present grant (if any) is given back first.
absl::StatusOr<uint32_t> Acceptor::Grant(const Volume* volume, const SessionParams& params,
                                         uint64_t memory_bytes) const {
  uint64_t granted = 0;
  for (const auto& [id, other] : volumes_) {
    if (other.get() != volume) granted += other->slot.grant_segments;
  }
  const ArenaGeometry& g = arena_.geometry();
  const uint32_t wanted = VolumeLog::GrantSegments(memory_bytes, g.segment_bytes);
  if (granted + wanted > g.segment_count) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "a session of %d bytes needs %d segments of %d bytes; %d of %d are granted to others "
        "(`salius forget` volumes that are used no more, or give this replica more --memory)",
        memory_bytes, wanted, g.segment_bytes, granted, g.segment_count));
  }
  SALIUS_RETURN_IF_ERROR(CheckShare(volume, params.peer, wanted));
  return wanted;
}

absl::StatusOr<uint64_t> Acceptor::OpenSession(int64_t now_ns, const SessionParams& params) {
  Volume* volume = Find(params.volume);
  SALIUS_RETURN_IF_ERROR(CheckOpen(volume, params));
  if (volume != nullptr && volume->slot.epoch == params.epoch) {
    volume->last_life_ns = now_ns;
    if (params.sealed && !volume->slot.sealed) {  // K
      volume->slot.sealed = true;
      arena_.WriteSlot(volume->slot_index, volume->slot);
    }
    return volume->log->free_bytes();
  }
  if (params.existing_only) {
    return absl::NotFoundError(
        absl::StrFormat("no session of epoch %d is open here: its memory was lost", params.epoch));
  }
  const uint64_t memory = params.memory_bytes != 0 ? params.memory_bytes : kDefaultLogMaxBytes;
  SALIUS_ASSIGN_OR_RETURN(const uint32_t grant, Grant(volume, params, memory));
  Promise promise = promises_.Of(params.volume);
  if (promise.fence_epoch() == 0) SALIUS_RETURN_IF_ERROR(RoomForPromise(params.peer));

  VolumeSlot slot;
  slot.volume = params.volume;
  slot.promise_epoch = promise.promised;  // F: the promise stays
  slot.promise_token = promise.token;
  slot.epoch = params.epoch;
  slot.session = params.session;
  slot.base = params.base;
  slot.tau_ms = params.tau_ms;
  slot.k = params.k;
  slot.memory_bytes = memory;
  slot.grant_segments = grant;
  slot.multicast = params.multicast;
  slot.sealed = params.sealed;
  if (volume == nullptr) {
    SALIUS_ASSIGN_OR_RETURN(const uint32_t index, arena_.NewSlot(slot));
    auto added = std::make_unique<Volume>();
    added->slot_index = index;
    volume = added.get();
    volumes_[params.volume] = std::move(added);
  } else {
    // Write the slot first. If the process is killed here, the next process recognises the rest of
    // the older epoch's log by its epoch and drops it.
    arena_.WriteSlot(volume->slot_index, slot);
    DropLog(*volume);  // E
  }
  volume->slot = std::move(slot);
  promise.volume = params.volume;
  promise.opened = params.epoch;
  promise.peer = params.peer;
  promises_.Keep(promise, now_ns);
  promises_.Changed();
  StartLog(*volume, now_ns);
  return volume->log->free_bytes();
}

void Acceptor::StartLog(Volume& volume, int64_t now_ns) {
  volume.log = std::make_unique<VolumeLog>(arena_, volume.slot_index, volume.slot);
  volume.age = AgeTracker(OverdueAfterNs(volume.slot) / 32);
  volume.last_life_ns = now_ns;
  volume.overdue_reported = false;
}

void Acceptor::DropLog(Volume& volume) {
  if (volume.log != nullptr) volume.log->DropAll();
  volume.log.reset();
}

void Acceptor::NoteLife(Volume& volume) const {
  volume.last_life_ns = std::max(volume.last_life_ns, tick_ns_);
}

absl::StatusOr<Acceptor::FenceResult> Acceptor::Fence(const VolumeId& volume_id, Epoch epoch,
                                                      uint64_t token, const PeerId& peer) {
  if (volume_id == VolumeId{} || epoch == 0 || token == 0) {
    return absl::InvalidArgumentError("volume, epoch and token must not be zero");
  }
  if (epoch > kMaxCount) {
    return absl::InvalidArgumentError(absl::StrFormat("epoch %d: at most %d", epoch, kMaxCount));
  }
  Promise promise = promises_.Of(volume_id);
  // C
  const bool newer = epoch > promise.fence_epoch();
  const bool again = epoch == promise.promised && token == promise.token;
  if (!newer && !again) return FenceResult{false, promise.promised};
  if (promise.fence_epoch() == 0) {
    SALIUS_RETURN_IF_ERROR(RoomForPromise(peer));
    promise.volume = volume_id;
    promise.peer = peer;
  }
  promise.promised = epoch;
  promise.token = token;
  promises_.Keep(promise, tick_ns_);
  if (newer) promises_.Changed();
  if (Volume* const volume = Find(volume_id); volume != nullptr) {
    VolumeSlot& slot = volume->slot;
    slot.promise_epoch = epoch;
    slot.promise_token = token;
    // Write both copies. If one is damaged later, that looks like an update that was cut off, and
    // must not bring back the time before the promise (I4). Write them also when the promise is
    // repeated: the process that promised may have been killed between the two.
    arena_.WriteSlot(volume->slot_index, slot);
    arena_.WriteSlot(volume->slot_index, slot);
    NoteLife(*volume);
  }
  return FenceResult{true, epoch};
}

absl::StatusOr<uint64_t> Acceptor::DropVolume(const VolumeId& volume_id, Epoch epoch,
                                              uint64_t session) {
  Volume* const volume = Find(volume_id);
  if (volume == nullptr) return uint64_t{0};
  if (volume->slot.epoch > epoch) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "a session of epoch %d is open, asked to drop epochs up to %d", volume->slot.epoch, epoch));
  }
  if (session != 0 && volume->slot.epoch == epoch && volume->slot.session != session) {
    return absl::FailedPreconditionError(
        absl::StrFormat("the log of epoch %d is another session's", epoch));
  }
  const uint64_t bytes = volume->log != nullptr ? volume->log->bytes() : 0;
  // F: the promise is in promises_, and has been on a disk since before it was answered. That a
  // session was open is forgotten with its log.
  promises_.CloseSession(volume_id, LifeOf(volume_id));
  promises_.Changed();
  arena_.FreeSlot(volume->slot_index);
  DropLog(*volume);
  volumes_.erase(volume_id);
  return bytes;
}

int64_t Acceptor::LifeOf(const VolumeId& volume_id) const {
  const int64_t life = promises_.LifeOf(volume_id);
  const Volume* const volume = Find(volume_id);
  return volume == nullptr ? life : std::max(life, volume->last_life_ns);
}

absl::StatusOr<Acceptor::Forgotten> Acceptor::Forget(int64_t now_ns, const VolumeId& volume_id,
                                                     bool force) {
  Volume* const volume = Find(volume_id);
  const Promise promise = promises_.Of(volume_id);
  Forgotten result;
  if (volume == nullptr && promise.fence_epoch() == 0) return result;
  result.known = true;
  result.promised = promise.promised;
  const VolumeLog* const log = volume != nullptr ? volume->log.get() : nullptr;
  result.bytes = log != nullptr ? log->bytes() : 0;
  const int64_t silent_ns = std::max<int64_t>(now_ns - LifeOf(volume_id), 0);
  if (!force && silent_ns < kFreshNs) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s %d s ago%s: unmount the volume, or let its recovery end, and try again after %d s",
        log != nullptr ? absl::StrFormat("its session of epoch %d was in use", volume->slot.epoch)
                       : absl::StrFormat("a recovery with epoch %d was here", promise.promised),
        silent_ns / kNanosPerSecond,
        PeerText(promise.peer).empty() ? "" : absl::StrFormat(" (%s)", PeerText(promise.peer)),
        kFreshNs / kNanosPerSecond));
  }
  if (!force && log != nullptr && log->records() > 0) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%d records of epoch %d are held that its primary has not reported to be on its disk: "
        "recover the volume, or if it is gone for good, use --force",
        log->records(), volume->slot.epoch));
  }
  if (volume != nullptr) {
    arena_.FreeSlot(volume->slot_index);
    DropLog(*volume);
    volumes_.erase(volume_id);
  }
  promises_.Forget(volume_id);
  promises_.Changed();
  return result;
}

// ---- reading ------------------------------------------------------------------------------------

bool Acceptor::Overdue(const Volume& volume, int64_t now_ns) const {
  const int64_t limit = OverdueAfterNs(volume.slot);
  return volume.log != nullptr && limit > 0 && volume.age.AgeNs(now_ns) > limit;
}

Inventory Acceptor::InventoryOf(const Volume& volume, int64_t now_ns) const {
  Inventory i;
  i.promised_epoch = volume.slot.promise_epoch;
  if (volume.log == nullptr) return i;  // G
  i.known = true;
  i.epoch = volume.slot.epoch;
  i.session = volume.slot.session;
  i.base = volume.slot.base;
  i.contiguous = volume.log->held().contiguous();
  i.highest = volume.log->held().highest();
  i.records = volume.log->records();
  i.bytes = volume.log->bytes();
  i.trimmed = volume.slot.trimmed;
  i.durable_mark = volume.slot.durable_mark;
  i.checkpoint_mark = volume.slot.checkpoint_mark;
  i.overdue = Overdue(volume, now_ns);
  return i;
}

Inventory Acceptor::GetInventory(int64_t now_ns, const VolumeId& volume_id) const {
  const Volume* const volume = Find(volume_id);
  if (volume != nullptr) return InventoryOf(*volume, now_ns);
  Inventory promised;
  promised.promised_epoch = promises_.Of(volume_id).promised;
  return promised;
}

absl::StatusOr<Acceptor::FetchStart> Acceptor::StartFetch(const VolumeId& volume_id, Epoch epoch,
                                                          Seq after) {
  Volume* const volume = Find(volume_id);
  if (volume == nullptr || volume->log == nullptr || volume->slot.epoch != epoch) {
    return absl::NotFoundError(
        absl::StrFormat("no log of epoch %d of volume %s here", epoch, volume_id.ToString()));
  }
  NoteLife(*volume);
  const VolumeLog& log = *volume->log;
  return FetchStart{log.records_above(after), log.held().highest(), std::max(after, log.floor())};
}

absl::StatusOr<uint64_t> Acceptor::ReadRecords(const VolumeId& volume_id, Epoch epoch,
                                               const FetchStart& fetch, Seq* cursor,
                                               size_t max_bytes, std::string* out) {
  Volume* const volume = Find(volume_id);
  if (volume == nullptr || volume->log == nullptr || volume->slot.epoch != epoch) {
    return absl::AbortedError("the log was dropped while it was read");
  }
  if (volume->log->floor() > std::max(*cursor, fetch.start)) {
    return absl::AbortedError("the log was trimmed while it was read");
  }
  NoteLife(*volume);
  return volume->log->Read(*cursor, fetch.upto, max_bytes, out, cursor);
}

// ---- periodic work ------------------------------------------------------------------------------

Acceptor::TickReport Acceptor::Tick(int64_t now_ns) {
  TickReport report;
  // A process that was stopped has received nothing; frames sent meanwhile may lie unread.
  const bool stopped = now_ns - std::exchange(tick_ns_, now_ns) > kStoppedNs;
  for (const auto& [id, volume] : volumes_) {
    if (volume->log == nullptr) continue;
    volume->age.Note(now_ns, volume->log->held().highest());
    volume->age.TrimTo(volume->log->floor());
    const bool overdue = Overdue(*volume, now_ns);
    if (overdue && !volume->overdue_reported) report.became_overdue.push_back(id);
    volume->overdue_reported = overdue;
    if (stopped) volume->last_life_ns = now_ns;
    // E: only if the administrator asked for it.
    if (options_.abandon_after_ns > 0 &&
        now_ns - volume->last_life_ns > options_.abandon_after_ns) {
      report.abandoned.push_back(id);
    }
  }
  for (const VolumeId& id : report.abandoned) {
    SALIUS_CHECK_OK(DropVolume(id, Find(id)->slot.epoch));
  }
  return report;
}

std::vector<Acceptor::VolumeStatus> Acceptor::Status(int64_t now_ns) const {
  std::vector<VolumeStatus> status;
  status.reserve(volumes_.size());
  for (const auto& [id, kept] : promises_.all()) {
    const Volume* const volume = Find(id);
    if (volume == nullptr && kept.promise.promised == 0) continue;
    const uint64_t segments = volume != nullptr ? volume->slot.grant_segments : 0;
    status.push_back({id, GetInventory(now_ns, id), segments * arena_.geometry().segment_bytes,
                      std::max<int64_t>(now_ns - LifeOf(id), 0), kept.promise.peer});
  }
  std::sort(status.begin(), status.end(),
            [](const VolumeStatus& a, const VolumeStatus& b) { return a.volume < b.volume; });
  return status;
}

std::vector<std::string> Acceptor::MulticastGroups() const {
  std::vector<std::string> groups;
  for (const auto& [id, volume] : volumes_) {
    const std::string& group = volume->slot.multicast;
    if (group.empty() || std::find(groups.begin(), groups.end(), group) != groups.end()) continue;
    groups.push_back(group);
  }
  return groups;
}

uint64_t Acceptor::granted_bytes() const {
  uint64_t granted = 0;
  for (const auto& [id, volume] : volumes_) granted += volume->slot.grant_segments;
  return granted * arena_.geometry().segment_bytes;
}

uint64_t Acceptor::free_bytes() const {
  const ArenaGeometry& g = arena_.geometry();
  const uint64_t all = g.segment_count * g.segment_bytes;
  return all - std::min(all, granted_bytes());
}

uint64_t Acceptor::used_bytes() const {
  const ArenaGeometry& g = arena_.geometry();
  return (g.segment_count - arena_.free_segments()) * g.segment_bytes;
}

size_t Acceptor::overdue_count(int64_t now_ns) const {
  size_t count = 0;
  for (const auto& [id, volume] : volumes_) count += Overdue(*volume, now_ns) ? 1 : 0;
  return count;
}

size_t Acceptor::plain_sessions() const {
  size_t count = 0;
  for (const auto& [id, volume] : volumes_) {
    count += volume->log != nullptr && !volume->slot.sealed ? 1 : 0;
  }
  return count;
}

}  // namespace salius
