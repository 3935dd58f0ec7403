// Every bound of the system in one place, each with the reason for its value.
#ifndef SALIUS_COMMON_LIMITS_H_
#define SALIUS_COMMON_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace salius {

// --- Numbers -----------------------------------------------------------------------------------

// Epochs, seqs, marks and generations count from 1 and never come near the end of 64 bits. A number
// near it is damage or a forgery, and "the next one" would be 0. Every decoder refuses larger ones.
inline constexpr uint64_t kMaxCount = uint64_t{1} << 62;

// --- Members -----------------------------------------------------------------------------------

// Replicas of one volume. An ack mask is one byte, and the state slot lists every member in 4 KiB.
inline constexpr size_t kMaxReplicas = 8;

// --- Records -----------------------------------------------------------------------------------

// Body of one record. Larger writes (FUSE hands over up to 1 MiB in one request) are cut into
// several, so that one lost record costs little to re-send. The largest xattr value with its names
// fits, too.
inline constexpr size_t kMaxRecordBody = 128 * 1024;

// Linux NAME_MAX and XATTR_SIZE_MAX; PATH_MAX without the terminating zero.
inline constexpr size_t kMaxNameBytes = 255;
inline constexpr size_t kMaxXattrNameBytes = 255;
inline constexpr size_t kMaxXattrValue = 65536;
inline constexpr size_t kMaxPathBytes = 4095;
inline constexpr size_t kMaxSymlinkBytes = 4095;

// MAX_HANDLE_SZ of name_to_handle_at(2).
inline constexpr size_t kMaxFileHandleBytes = 128;

// --- Datagrams ---------------------------------------------------------------------------------

// Smallest payload that is used: headers of a frame and of a fragment, and a piece worth sending.
inline constexpr size_t kDatagramPayloadMin = 512;
// UDP payload that fits one packet: MTU 1500 less 20 bytes of IPv4 and 8 of UDP.
inline constexpr size_t kDatagramPayloadDefault = 1472;
// The payload that every path of IPv6 carries: the least MTU, 1280, less 40 bytes of IPv6 and 8 of
// UDP. Tunnels over Ethernet leave more, so it suits IPv4 too.
inline constexpr size_t kDatagramPayloadAnyPath = 1232;
// Largest UDP payload: 65535 less the same headers. Loopback's MTU is 65536.
inline constexpr size_t kDatagramPayloadLoopback = 65507;

// --- Time (docs/protocol.md, "Time-outs": delta, tau, k) ---------------------------------------

// Link delay bound in microseconds. It is well above the delay of a busy LAN. A pause of 2*delta,
// before the volume goes to mode local, is still too short to be noticed.
inline constexpr int64_t kDefaultDeltaUs = 50000;
// Longest time, in milliseconds, a record may wait before it is on the primary's disk: the kernel's
// own dirty_expire interval, so Salius keeps data in memory no longer than Linux does.
inline constexpr int64_t kDefaultTauMs = 30000;
// Slack factor of the paper: a record older than k*tau and not checkpointed is an alarm.
inline constexpr int64_t kDefaultK = 2;

// --- Memory and disk ---------------------------------------------------------------------------

// One slot of the state file: one page, the unit a disk and the page cache write whole.
inline constexpr size_t kStateSlotBytes = 4096;

// Uncheckpointed bytes a session may hold. Every replica reserves as much for the volume.
inline constexpr size_t kDefaultLogMaxBytes = size_t{64} << 20;
// The stable log must take everything uncheckpointed (kDefaultLogMaxBytes), its headers, and the
// records that arrive until the checkpoint that lets it be cut: half as much again.
inline constexpr size_t kDefaultStableLogBytes = size_t{96} << 20;
// Unsynced data of one file above which it becomes a bulk file and goes past the log: past this
// size one sequential disk sync is cheaper than f copies over the network.
inline constexpr size_t kDefaultBulkLimitBytes = size_t{8} << 20;
// A replica's log grows by segments of this size: small enough that many idle volumes fit, large
// enough that a segment is filled by hundreds of records.
inline constexpr size_t kSegmentBytes = size_t{1} << 20;

}  // namespace salius

#endif  // SALIUS_COMMON_LIMITS_H_
