// The shared memory of a direct volume's session: one memfd of fixed size, mapped by the
// coordinator and by every process of the command. It holds no pointer, so each maps it where it
// likes. Every change to it is a store that leaves it valid: a process may be killed at any
// instruction.
//
//     Header | Stripe[] | FileEntry[] | Window, Window::Slot[] | RecordSlot[] | ring of records
//
//     Header      identity and state of the session, locks, counters
//     Stripe      a robust lock for the files with the same index mod stripes
//     FileEntry   the state of one file, by inode number (file_table.h)
//     Window      the slots of (checkpoint, issued] (client/session/window.h)
//     RecordSlot  where a record lies in the ring, and whether it is complete
//     ring        the encoded records; each lies in one piece
//
// Locks, in this order: a stripe, then the window lock. No other nesting. Neither is held over a
// system call that may block, except that the preload library holds a stripe over the write itself.
//
// The coordinator's calls, all under the window lock (RobustLock::Hold) unless said otherwise:
//
//     Format, SharedWindow            (this file) make the memory; no lock
//     TryTakeLock(Header::life)       (robust_lock.h) hold it from the first thread; no lock
//     SetPhase                        (waits.h) phase and generation; WakeAll after unlocking
//     Header::rule, counting, peers   publish by assignment; AdvanceDurable afterwards
//     Header::heard[i].Forget         when replica i is opened again
//     AdvanceDurable                  (acks.h) after a change of the rule; Wake after unlocking
//     Window::Hold, Forget            directly, after the policy's own decisions
//     PublishCheckpoint               (acks.h) cuts the window; WakeAll after unlocking
//     BeginSync, EndSync              (file_table.h) sync_epoch and clean_epoch
//     FillHoles                       (stamp.h) voids for records of dead processes; takes stripes,
//                                     so call it without the window lock
//     VisitStripes                    (stripes.h) takes and gives back each stripe; no window lock
//     Claim, SendClaimed              (claim.h) as a process does, for records left unsent
//     TakeDatagram                    (acks.h) as a process does, when it receives; no lock
//     Header::mail                    read under the lock: the newest acknowledgements
//     SleepUntilKicked, TakeTrouble   (waits.h) no lock
//     Header::file_ids                limit by assignment, after the note that names it
//     Header::seal                    keys by assignment (coordinator/shared_keys.h)
//
// Needs the standard library and POSIX only.
#pragma once

#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "client/direct/window/file.h"
#include "client/direct/window/reason.h"
#include "client/direct/window/seal_state.h"
#include "client/gate/inside.h"
#include "client/session/durable_rule.h"
#include "client/session/window.h"
#include "common/id_types.h"
#include "common/limits.h"

namespace salius::direct {

inline constexpr uint64_t kWindowMagic = 0x31574453554C4153;  // "SALUSDW1"
// Changes with every change of this file that is not an addition to the end of Header.
inline constexpr uint32_t kWindowVersion = 5;

// The session's treatment of writes and syncs. Changed by the coordinator only.
enum class Phase : uint32_t {
  kLocal = 0,       // nothing is stamped; a sync is a real fsync(2)
  kStamping = 1,    // healing: writes are stamped; a sync waits until the phase ends
  kReplicated = 2,  // writes are stamped; acknowledgements count if the rule says so
  kGoingLocal = 3,  // nothing is stamped, nothing counts; a sync waits until the phase ends
  kEnded = 4,       // drained and noted clean; as kLocal
  kFailed = 5,      // every sync fails
};

// Phase and generation in one word, on which waiters sleep. Each change of phase or of the rule
// makes a new generation.
struct PhaseWord {
  uint32_t value = 0;
  Phase phase() const { return static_cast<Phase>(value & 7); }
  uint32_t generation() const { return value >> 3; }
  static PhaseWord Of(Phase phase, uint32_t generation) {
    return {(generation << 3) | static_cast<uint32_t>(phase)};
  }
  bool operator==(const PhaseWord&) const = default;
};

// A robust process-shared lock (robust_lock.h).
struct RobustWord {
  pthread_mutex_t mutex;
};

struct alignas(64) Stripe {
  RobustWord lock;
  // The file that the lock was taken for; kNoFile when it is free. If the owner is dead, that file
  // may have bytes that were not logged.
  std::atomic<uint32_t> file;
};

// FileEntry::sticky is a set of these. While it is not empty, nothing is logged for the file, and
// each sync of it is a real fsync(2).
enum Sticky : uint8_t {
  kStickySession = 1u << 0,  // a map or a stream: until the session ends
  kStickyNoId = 1u << 1,     // until an open can read the file's id, or give it one
};

// A file of the volume. Entries are never removed: the table is of one session.
// `uncovered` is a pair of numbers in one word: (sync epoch << 32) | counter. The file is covered
// when the epoch is 0 or at most Header::clean_epoch, and `sticky` is 0. The counter changes with
// every uncovering, so that a real fsync(2) notices another one meanwhile. Epochs from kUnseenEpoch
// on are no epochs: they count the changes under way that are not logged.
struct alignas(64) FileEntry {
  std::atomic<uint64_t> inode;      // 0: free. Set last when the entry is inserted, then constant
  std::atomic<uint64_t> id;         // the file id; 0: not known yet. With kStickyNoId the file may
                                    // be another one. Under the stripe
  std::atomic<uint64_t> uncovered;  // see above. Any time
  std::atomic<uint64_t> syncing;    // the value of `uncovered` at which the last real sync began:
                                    // writes since are logged. Under the stripe
  std::atomic<uint64_t> last_seq;   // the last record of the file. Under the stripe
  std::atomic<uint64_t> unsynced;   // bytes written since the last sync. Under the stripe
  std::atomic<uint32_t> tag;        // changes when the entry is given to another file
  std::atomic<uint32_t> reasons;    // bit i: uncovered for Reason i. Any time
  std::atomic<int32_t> failed;      // errno of an fsync(2) that failed: every later sync fails
  std::atomic<uint8_t> sticky;      // a set of Sticky
};
static_assert(sizeof(FileEntry) == 64);
// One such change is under way; one more for each further one. A process that died in one stays
// counted, so that its file is uncovered until the session ends.
inline constexpr uint64_t kUnseenEpoch = 0xFFFF0000;
inline constexpr uint64_t kManyUnseenEpoch = 0xFFFFFFFF;

// Where a record lies; beside Window::Slot, with the same index. `ready` is stored last.
struct RecordSlot {
  uint32_t bytes;               // of the record: header and body. 0: only after a crash
  std::atomic<uint32_t> ready;  // 0: reserved, being written. 1: complete
  uint32_t file;                // the index of its file: its stripe is held until it is ready
  // 1: the first of the records that were claimed together. Under the window lock
  uint32_t first_of_claim;
  uint64_t timestamp_ns;  // of the record
};
static_assert(sizeof(RecordSlot) == 24);

// A replica, as the processes must know it. Published by the coordinator under the window lock.
struct Peer {
  sockaddr_in6 address;     // where frames go and acknowledgements come from; IPv4 as sockaddr_in
  uint32_t address_bytes;   // of the address. 0: nothing is sent to it
  uint32_t datagram_bytes;  // the most UDP payload on the way to it
  // An acknowledgement counts for this life of its memory only. 0: none counts.
  Incarnation incarnation;
  Seq base;  // the first seq that it holds
  // An acknowledgement that answers a frame sent earlier does not count (monotonic ns).
  int64_t counts_from_ns;
};
static_assert(sizeof(sockaddr_in6) >= sizeof(sockaddr_in));

// The processes' knowledge of a replica, under one incarnation (I5: memory that goes back).
// Under the window lock. The coordinator clears it when it opens the replica again.
struct Heard {
  Incarnation incarnation;  // the others are of this one
  Seq contiguous;           // the largest that was acknowledged
  int64_t contiguous_ns;    // when it was heard first (monotonic)
  Seq trimmed;
  Epoch promise;
  uint64_t lost;     // 1: its memory went back. It does not count until this is cleared
  int64_t marks_ns;  // when the last two changed
  // Smoothed round trip; 0: not known. Threads read it without the lock, so it is stored atomically.
  int64_t rtt_ns;

  // Forgets all but the round trip, for acknowledgements of this incarnation.
  void Forget(Incarnation now_of) {
    incarnation = now_of;
    contiguous = trimmed = promise = lost = 0;
    contiguous_ns = marks_ns = 0;
  }
};

inline constexpr size_t kMailBytes = 704;  // the largest acknowledgement; checked in acks.cc
// The largest datagram with an acknowledgement.
inline constexpr size_t kAckDatagramBytes = kMailBytes + kSealBytes;

// An acknowledgement as it came from the network, for the coordinator. Under the window lock. If a
// process was killed while it wrote one, the datagram's own checksums do not match.
struct Mail {
  uint64_t count;       // grows with each one
  int64_t received_ns;  // monotonic
  uint32_t bytes;
  uint8_t datagram[kMailBytes];
};
struct Mailbox {
  Mail good;  // the newest one that is plain: no flags, the right incarnation, nothing went back
  Mail odd;   // the newest of all others; each kicks the coordinator
};

// Reasons for which the coordinator must look at once (Header::trouble).
enum Trouble : uint32_t {
  kTroubleRoom = 1u << 0,        // no room in ring or slots, or the deadline is near: checkpoint
  kTroubleOdd = 1u << 1,         // an odd acknowledgement is in a mailbox
  kTroubleWentBack = 1u << 2,    // a replica's memory went back: lose it
  kTroubleFileIds = 1u << 3,     // few file ids are left
  kTroubleSyncFailed = 1u << 4,  // an fsync(2) of a process failed: fail the volume
  kTroubleCheckpoint = 1u << 5,  // a process waits for a checkpoint or a clean epoch
  kTroubleWaiting = 1u << 6,     // a process waits longer than it should
  kTroubleFirst = 1u << 7,       // the first record after a pause
  kTroubleDeadOwner = 1u << 8,   // a lock's owner was dead: there may be holes
  kTroubleNoKey = 1u << 9,       // a replica says that it has no key: SealState::notices
};

// Counters for status and metrics. Relaxed; each process adds to them.
struct Counters {
  std::atomic<uint64_t> records, record_bytes, voids;
  std::atomic<uint64_t> syncs;              // sync calls that succeeded
  std::atomic<uint64_t> real_syncs;         // of them, in mode replicated, by a real fsync(2)
  std::atomic<uint64_t> reasons[kReasons];  // of those, by reason: one call may have several
  std::atomic<uint64_t> frames, acks, foreign_datagrams;
  std::atomic<uint64_t> dead_owners;  // locks whose owner was dead
  std::atomic<uint64_t> leaders, take_overs;
  std::atomic<uint64_t> local_syncs;  // of the syncs, those in mode local, by a real fsync(2)
};

// External synchrony (docs/external-synchrony.md): sync calls return early, outputs wait.
struct Promises {
  // Constant before the first process attaches. 1: sync calls of gated processes return early.
  alignas(64) std::atomic<uint32_t> external;
  // 1: records are sent when an output waits, or enough of them are gathered. 0: at once.
  std::atomic<uint32_t> lazy;
  std::atomic<uint32_t> early_end;  // a set of gate::EarlyEnd: sync calls wait as without a gate
  std::atomic<uint32_t> passed;     // 1: a descriptor may have been passed outside
  // Something changed that no record vouches for, or a sync of such a file returned early: an output
  // waits until clean_epoch reaches this.
  std::atomic<uint64_t> owed_epoch;
  // Changes of the volume that the supervisor let continue: each may be made a little later.
  std::atomic<uint64_t> noticed;
  // Counters, relaxed.
  std::atomic<uint64_t> outputs;       // outputs while something was pending
  std::atomic<uint64_t> paid_outputs;  // of them, those that waited for a real sync
  std::atomic<uint64_t> early_syncs;   // sync calls that returned early
  std::atomic<uint64_t> owed_syncs;    // of them, those that left a real sync to the next output
  std::atomic<uint64_t> refused;       // outputs that failed, since the volume had failed
  // Pipes and sockets of gated processes (gate::Inside).
  std::atomic<uint64_t> inside[gate::kInsideSlots];
};

struct Header {
  // ---- identity and sizes; constant once formatted
  uint64_t magic;
  uint32_t version;
  uint32_t header_bytes;
  uint64_t total_bytes;
  uint64_t stripes_at, files_at, window_at, records_at, ring_at;  // offsets from the header
  uint32_t stripes, files, slots;                                 // counts; powers of two
  uint32_t replicas;                                              // m
  uint64_t ring_bytes;                                            // a multiple of 8
  VolumeId volume;
  Epoch epoch;
  uint64_t session;      // the number in each frame
  uint64_t root_device;  // st_dev of the volume's files
  uint64_t root_inode;
  int64_t oldest_ns;         // k*tau - 2*delta: no record is issued beside one that is older
  uint64_t bulk_bytes;       // of unsynced writes to a file, above which it is not logged
  uint64_t in_flight_bytes;  // the most that is sent and not durable
  // With at most this many records under way, now and lately, a process sends its record at once.
  uint64_t few;

  // ---- the locks
  alignas(64) RobustWord window_lock;
  // Held by the coordinator's first thread as long as it lives. The kernel marks it at its death.
  alignas(64) RobustWord life;

  // ---- words on which waiters sleep
  alignas(64) std::atomic<uint32_t> phase;  // a PhaseWord
  std::atomic<uint32_t> news;               // grows when durable, checkpoint or clean_epoch moves
  std::atomic<uint32_t> sleepers;           // about how many sleep on `news`
  alignas(64) std::atomic<uint32_t> kicks;  // the coordinator sleeps on it
  std::atomic<uint32_t> coordinator_sleeps;
  std::atomic<uint32_t> trouble;  // a set of Trouble
  // The thread that receives for all: 0, or a number that is unique while it leads.
  alignas(64) std::atomic<uint64_t> leader;
  std::atomic<int64_t> leader_beat_ns;
  std::atomic<uint64_t> next_leader;

  // ---- watermarks: checkpoint and issued are in the Window. Written under the window lock
  alignas(64) std::atomic<uint64_t> sent;  // every record up to here was claimed for sending
  std::atomic<uint64_t> durable;
  // Every record up to here is complete. Room is reused up to the smaller of this and the
  // checkpoint: a process that was stopped while it copied may still write into its record.
  std::atomic<uint64_t> ready;
  std::atomic<int64_t> last_claim_ns;
  uint64_t gather_upto;        // records up to here go together (Claim)
  uint64_t last_timestamp_ns;  // of the last record

  // ---- covered files
  std::atomic<uint64_t> sync_epoch;    // the next sync's; at least 1
  std::atomic<uint64_t> clean_epoch;   // of the last sync whose checkpoint is noted
  uint64_t files_used;                 // entries of the file table; under the window lock
  std::atomic<uint64_t> epoch_wanted;  // a process waits until clean_epoch reaches this

  // ---- published by the coordinator under the window lock
  alignas(64) DurableRule rule;
  uint32_t counting;  // 1: acknowledgements count
  uint32_t reserved;
  Peer peers[kMaxReplicas];
  struct {
    FileId next;   // taken by processes, under the window lock
    FileId limit;  // every id below it may be taken
    FileId few;    // with fewer left a process kicks
  } file_ids;

  // ---- written by processes under the window lock
  Heard heard[kMaxReplicas];
  Mailbox mail[kMaxReplicas];

  Counters counters;

  // 1: ring or slots are at least half full (NoteUse). Written under the window lock
  std::atomic<uint32_t> half_full;
  Promises promises;
  SealState seal;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<uint32_t>::is_always_lock_free);

// The sizes and the constants of a new window.
struct WindowSpec {
  uint32_t slots = 1u << 16;
  uint32_t stripes = 1024;
  uint32_t files = 65536;
  uint64_t ring_bytes = uint64_t{64} << 20;
  // Header's fields of the same names.
  uint32_t replicas = 0;
  VolumeId volume{};
  Epoch epoch = 0;
  uint64_t session = 0;
  uint64_t root_device = 0, root_inode = 0;
  int64_t oldest_ns = 0;
  uint64_t bulk_bytes = uint64_t{1} << 20;
  uint64_t in_flight_bytes = uint64_t{2} << 20;
  uint64_t few = ~uint64_t{0};
  uint64_t last_timestamp_ns = 0;
  FileId next_file_id = 0, file_id_limit = 0;
};

// The mapped memory, as one process sees it: a value, to be copied.
class SharedWindow {
 public:
  SharedWindow() = default;

  // Returns the bytes that a window for `spec` needs; the counts must be powers of two.
  static uint64_t BytesFor(const WindowSpec& spec);
  // Makes a window in zeroed memory of BytesFor(spec) bytes, aligned to a page: phase kLocal,
  // generation 1, nothing issued. Initialises the locks; the life lock is free.
  static SharedWindow Format(void* memory, const WindowSpec& spec);
  // Takes memory of `bytes` bytes that another process formatted. Invalid (valid() is false) when
  // magic, version or sizes do not match.
  static SharedWindow Attach(void* memory, uint64_t bytes);

  bool valid() const { return header_ != nullptr; }
  Header& header() const { return *header_; }
  Window& window() const { return *At<Window>(header_->window_at); }
  Stripe& stripe(uint32_t file) const {
    return At<Stripe>(header_->stripes_at)[file & (header_->stripes - 1)];
  }
  FileEntry& file(uint32_t index) const { return At<FileEntry>(header_->files_at)[index]; }
  RecordSlot& record(Seq seq) const {
    return At<RecordSlot>(header_->records_at)[seq & (header_->slots - 1)];
  }
  // Returns where in the ring an issued record begins. Its bytes end where its slot's bytes_upto says.
  uint64_t record_at(Seq seq) const {
    const uint64_t end = window().At(seq).bytes_upto;
    return (end - Padded(record(seq).bytes)) % header_->ring_bytes;
  }
  uint8_t* record_bytes(Seq seq) const {
    return At<uint8_t>(header_->ring_at) + record_at(seq);
  }
  PhaseWord phase() const { return {header_->phase.load(std::memory_order_acquire)}; }
  Seq durable() const { return header_->durable.load(std::memory_order_acquire); }

  // Returns the ring bytes of a record, without padding before it.
  static constexpr uint64_t Padded(uint64_t record_bytes) {
    return (record_bytes + 7) & ~uint64_t{7};
  }

 private:
  template <typename T>
  T* At(uint64_t offset) const {
    return reinterpret_cast<T*>(reinterpret_cast<char*>(header_) + offset);
  }
  Header* header_ = nullptr;
};

}  // namespace salius::direct
