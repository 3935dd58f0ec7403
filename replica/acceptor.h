// The rules by which a replica accepts, refuses and answers (docs/replica.md; I4 to I6; paper §4):
// sessions, fences, records, trims. Each rule has one place in acceptor.cc or acceptor_frames.cc,
// marked with its letter:
//
//   A  a record is stored only for a known volume, the open session's epoch and session id
//   B  below a promise (or a newer session) nothing is stored, trimmed or acknowledged as held
//   C  a fence is accepted when its epoch is above every promise and every session, or repeats the
//      promise in force with the same token
//   D  a session is opened at or above the promise and above every session before; the same session
//      again is the same session; another session id for the same epoch is refused
//   E  only these drop records: a trim mark of the current session, the opening of a newer epoch,
//      DropVolume, Forget, and (if the administrator asked for it) abandonment
//   F  a promise outlives the log it was made for, and needs no slot of the arena
//   G  an unknown volume is answered "unknown", never "empty"; after damage the incarnation changes
//   H  a record older than k*tau without a trim is kept and reported
//   J  no single host can take all slots, memory or promises
//   K  a session that was given a key takes sealed frames only, also after a restart
//
// Promises come in by the constructor, and the caller keeps them. After OpenSession, Fence and
// Forget the result of Promises() must be on a disk before the call is answered
// (replica/promise_keeper.h).
//
// Rule D refuses another session id for the same epoch for this reason: a primary notes its epoch
// durably before it opens a session, so no two runs share an epoch. The same run opens again only
// because this replica answered "unknown". Then there is no session here to collide with.
//
// pure: works on the arena's memory; no thread, lock, socket or clock. Time is monotonic
// nanoseconds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "log/record.h"
#include "proto/frame.h"
#include "replica/age_tracker.h"
#include "replica/arena.h"
#include "replica/log_store.h"
#include "replica/promise.h"
#include "replica/promise_book.h"

namespace salius {

// The reason why a datagram or a record in it had no effect. Names are label values of the metric
// salius_replica_drops_total and are never reused.
enum class Drop : uint8_t {
  kCorruptFrame,   // bad header, or payload that does not match the header
  kTruncated,      // larger than any frame
  kNotForReplica,  // an acknowledgement
  kUnknownVolume,
  kForeignEpoch,
  kBadSession,
  kFenced,
  kCorruptRecord,
  kForeignRecord,  // of another volume or epoch than its frame, or other than its pieces announced
  kTrimmed,
  kBelowBase,
  kDuplicate,
  kConflict,  // a second body for one seq
  kMemoryFull,
  kOutOfWindow,
  kRateLimited,  // an answer to an unknown session that was not sent
  kUnsealed,     // a plain frame of a sealed session
};
inline constexpr size_t kDropReasons = 17;
std::string_view DropName(Drop reason);

struct AcceptorCounters {
  uint64_t frames = 0;
  uint64_t records = 0;  // stored
  uint64_t bytes = 0;    // of the stored records
  uint64_t trims = 0;
  std::array<uint64_t, kDropReasons> drops{};
};

struct SessionParams {
  VolumeId volume{};
  Epoch epoch = 0;
  uint64_t session = 0;
  Seq base = 0;
  uint64_t tau_ms = 0;
  uint32_t k = 0;
  uint64_t memory_bytes = 0;  // 0: kDefaultLogMaxBytes
  std::string multicast;
  bool existing_only = false;  // open no session that is not open already
  bool sealed = false;         // take sealed frames only from now on, until the session ends (K)
  PeerId peer{};  // the host that opens the session; zero: unknown, and without a bound
};

// The log of one volume. `known` is false when there is no session here. Then nothing is held, and
// nothing may be concluded from that (I5). `promised_epoch` counts even then.
struct Inventory {
  bool known = false;
  Epoch epoch = 0;
  uint64_t session = 0;
  Seq base = 0;
  Seq contiguous = 0;
  Seq highest = 0;
  uint64_t records = 0;
  uint64_t bytes = 0;
  Seq trimmed = 0;
  Seq durable_mark = 0;
  Seq checkpoint_mark = 0;
  Epoch promised_epoch = 0;
  bool overdue = false;
};

class Acceptor {
 public:
  struct Options {
    // Time since the last frame of its session, fence or fetch. 0: never.
    int64_t abandon_after_ns = 0;
    ForEach for_each = InTurn;      // for the segments of a log that is taken over
    std::vector<Promise> promises;  // the contents of the promise file
    size_t most_promises = kMaxPromises;
    // Share of the slots, of the memory and of the promises that one host may have, in percent (J).
    // Its first session takes as much as it needs.
    uint32_t peer_share_percent = 75;
  };
  struct AttachReport {
    uint64_t volumes = 0;
    uint64_t records = 0;
    uint64_t damaged = 0;  // > 0: the incarnation was changed
  };

  // Takes over the arena's contents. `report` may be null. The arena must outlive the acceptor.
  Acceptor(Arena& arena, const Options& options, int64_t now_ns, AttachReport* report);
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // ---- control plane. Changes are in the arena when these functions return.
  // Opens a session and returns the bytes that it can store. Errors: INVALID_ARGUMENT (zero volume,
  // epoch, session, base; epoch or base too large; multicast too long), FAILED_PRECONDITION
  // (rule D), ABORTED (the session is open with a larger base), RESOURCE_EXHAUSTED (memory, slots,
  // promises), NOT_FOUND (params.existing_only, and it is not open).
  absl::StatusOr<uint64_t> OpenSession(int64_t now_ns, const SessionParams& params);
  struct FenceResult {
    bool accepted = false;
    Epoch promised_epoch = 0;  // in force after the call
  };
  // Promises to accept no record of an epoch below `epoch`. Errors: INVALID_ARGUMENT (zero volume,
  // epoch, token; epoch too large), RESOURCE_EXHAUSTED (no room for a promise).
  absl::StatusOr<FenceResult> Fence(const VolumeId& volume, Epoch epoch, uint64_t token,
                                    const PeerId& peer = {});
  // Returns whether there is a log of the volume or a promise.
  bool Knows(const VolumeId& volume) const {
    return Find(volume) != nullptr || promises_.Of(volume).fence_epoch() != 0;
  }
  Inventory GetInventory(int64_t now_ns, const VolumeId& volume) const;
  // Drops the log when its epoch is <= `epoch`; returns the bytes of records that were in it.
  // FAILED_PRECONDITION when a newer session is open, or when `session` is not 0 and the log of
  // `epoch` belongs to another session.
  absl::StatusOr<uint64_t> DropVolume(const VolumeId& volume, Epoch epoch, uint64_t session = 0);

  struct Forgotten {
    bool known = false;  // there was a log or a promise
    uint64_t bytes = 0;  // of the records that were dropped
    Epoch promised = 0;
  };
  // Drops log, slot and promise of a volume that is used no more. FAILED_PRECONDITION gives the
  // reason: a primary or a recovery called lately, or records are held that may be nowhere else.
  // `force` overrides both.
  absl::StatusOr<Forgotten> Forget(int64_t now_ns, const VolumeId& volume, bool force);

  struct FetchStart {
    uint64_t count = 0;  // records in (start, upto]
    Seq upto = 0;
    Seq start = 0;  // `after`, or the trim mark when that is larger
  };
  // Begins to read records. NOT_FOUND when no session of that epoch is here.
  absl::StatusOr<FetchStart> StartFetch(const VolumeId& volume, Epoch epoch, Seq after);
  // Appends the next records to `out`, like VolumeLog::Read, and advances `*cursor`, which begins
  // as fetch.start. At fetch.upto all have been read. Returns how many were appended. ABORTED when
  // the log was dropped or trimmed beyond the cursor meanwhile.
  absl::StatusOr<uint64_t> ReadRecords(const VolumeId& volume, Epoch epoch, const FetchStart& fetch,
                                       Seq* cursor, size_t max_bytes, std::string* out);

  // ---- data plane
  // The standing of a frame's sender.
  enum class Standing { kCurrent, kFenced, kUnknownVolume, kForeignEpoch, kBadSession };
  struct FrameResult {
    bool reply = false;  // answer with MakeAck
    Standing standing = Standing::kUnknownVolume;
    uint16_t flags = 0;  // for MakeAck, or-ed over the frames answered together
  };
  // Takes a frame. `sealed`: it came sealed with a key of its session.
  FrameResult OnFrame(int64_t now_ns, const FrameHeader& header, absl::Span<const uint8_t> payload,
                      bool sealed = false);
  // Returns the present answer to frames of (volume, epoch, session).
  AckPayload MakeAck(int64_t now_ns, const VolumeId& volume, Epoch epoch, uint64_t session,
                     uint16_t flags) const;
  // Counts a datagram that never reached OnFrame.
  void CountDrop(Drop reason) { ++counters_.drops[static_cast<size_t>(reason)]; }

  // ---- periodic work (about once a second)
  struct TickReport {
    std::vector<VolumeId> became_overdue;
    std::vector<VolumeId> abandoned;
  };
  TickReport Tick(int64_t now_ns);

  struct VolumeStatus {
    VolumeId volume{};
    Inventory inventory;
    uint64_t memory_bytes = 0;
    int64_t silent_ns = 0;  // since a frame, a fence or a fetch
    PeerId peer{};
  };
  // Returns the volumes with a slot or a promise to a recovery.
  std::vector<VolumeStatus> Status(int64_t now_ns) const;
  // Returns the present promises; leaves them out when `known` is their version.
  PromiseSnapshot Promises(uint64_t known) const { return promises_.Snapshot(known); }
  size_t promise_count() const { return promises_.size(); }
  size_t most_promises() const { return promises_.most(); }
  uint32_t slot_count() const { return arena_.geometry().slot_count; }
  uint64_t granted_bytes() const;
  // Returns the multicast groups of the open sessions, each once.
  std::vector<std::string> MulticastGroups() const;
  Incarnation incarnation() const { return arena_.incarnation(); }
  uint64_t memory_bytes() const { return arena_.geometry().total_bytes; }
  uint64_t free_bytes() const;  // not granted to any session
  uint64_t used_bytes() const;  // segments in use
  size_t volume_count() const { return volumes_.size(); }
  size_t overdue_count(int64_t now_ns) const;
  size_t plain_sessions() const;  // that take plain frames
  const AcceptorCounters& counters() const { return counters_; }

 private:
  struct Volume {
    uint32_t slot_index = 0;
    VolumeSlot slot;                 // its promise is also in promises_, and the same
    std::unique_ptr<VolumeLog> log;  // present exactly when slot.epoch != 0
    AgeTracker age{0};
    int64_t last_life_ns = 0;  // start of the time of --abandon-after
    bool overdue_reported = false;
  };

  const Volume* Find(const VolumeId& volume) const;
  Volume* Find(const VolumeId& volume);
  // Returns OK when one more promise fits, for `peer` (PromiseBook::MakeRoom).
  absl::Status RoomForPromise(const PeerId& peer);
  absl::Status CheckShare(const Volume* volume, const PeerId& peer, uint32_t wanted) const;
  int64_t LifeOf(const VolumeId& volume) const;
  Standing StandingOf(const Volume* volume, const VolumeId& id, Epoch epoch,
                      uint64_t session) const;
  absl::Status CheckOpen(const Volume* volume, const SessionParams& params) const;
  absl::StatusOr<uint32_t> Grant(const Volume* volume, const SessionParams& params,
                                 uint64_t memory_bytes) const;
  void StartLog(Volume& volume, int64_t now_ns);
  void DropLog(Volume& volume);
  // Notes that a recovery reads the log, at the time of the last Tick: precise enough for
  // abandonment.
  void NoteLife(Volume& volume) const;
  void TakeMarks(Volume& volume, const FrameHeader& header);
  // Writes the marks into the slot when they differ.
  void WriteMarks(const Volume& volume);
  uint16_t TakeRecords(Volume& volume, const FrameHeader& header,
                       absl::Span<const uint8_t> payload);
  uint16_t TakePiece(Volume& volume, absl::Span<const uint8_t> payload);
  uint16_t CountResult(Volume& volume, VolumeLog::Result result, const RecordHeader& record);
  bool Overdue(const Volume& volume, int64_t now_ns) const;
  Inventory InventoryOf(const Volume& volume, int64_t now_ns) const;

  Arena& arena_;
  const Options options_;
  int64_t tick_ns_;  // the last Tick
  absl::flat_hash_map<VolumeId, std::unique_ptr<Volume>> volumes_;
  PromiseBook promises_;
  AcceptorCounters counters_;
};

}  // namespace salius
