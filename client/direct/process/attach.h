// How a process gets the shared memory of a direct volume: a SEQPACKET unix socket of the
// coordinator's, whose path is in the environment.
//
//     process                                  coordinator
//        | connect                                  |
//        | -------- AttachRequest ----------------> |
//        | <------- AttachReply, descriptors ------ |
//        |                                          |
//        |       the connection stays open          |
//        '--------- end of file when the -----------'
//                   process has ended
//
// The connection is the process's sign of life: it has close-on-exec, and a forked child shares it.
// So the coordinator reads end of file when the process that attached and all its children without
// an exec have ended. Nothing else is ever sent on it. A program that was started by exec attaches
// again.
//
// The descriptors, in this order (AttachDescriptor): the memfd of the window, the UDP socket from
// which all processes send and on which all receive, the lock of the volume (an open file
// description of .salius/lock that holds flock(2), so that the volume stays locked while a process
// has it), and the volume's directory, open for reading.
//
// Needs the standard library and POSIX only.
#pragma once

#include <sys/un.h>

#include <cstddef>
#include <cstdint>

namespace salius::direct {

// The environment variable with the path of the socket.
inline constexpr char kAttachVariable[] = "SALIUS_DIRECT_SOCKET";

inline constexpr uint64_t kAttachMagic = 0x314154414C415353;  // "SSALATA1"
inline constexpr uint32_t kAttachVersion = 1;

enum AttachDescriptor : uint32_t {
  kWindowDescriptor = 0,
  kSocketDescriptor,
  kLockDescriptor,
  kRootDescriptor,
  kAttachDescriptors,
};

struct AttachRequest {
  uint64_t magic = kAttachMagic;
  uint32_t version = kAttachVersion;
  uint32_t window_version = 0;  // kWindowVersion of the process
  int32_t pid = 0;              // in the process's own PID namespace
  uint32_t pid_namespace = 0;   // OwnPidNamespace()
};
static_assert(sizeof(AttachRequest) == 24);

// The exit code of a program that cannot take part.
inline constexpr int kNotAttached = 125;
// Why a process of another PID namespace is refused.
inline constexpr char kOtherNamespace[] =
    "it is in another PID namespace than the volume's salius-run, where the kernel could take a "
    "living owner of a lock for dead: start both in one PID namespace";

struct AttachReply {
  uint64_t magic = kAttachMagic;
  uint32_t version = kAttachVersion;
  int32_t error = 0;          // an errno: refused, without descriptors, for the reason `text`
  uint64_t window_bytes = 0;  // of the memfd
  char text[232] = {};        // ends with a zero
};
static_assert(sizeof(AttachReply) == 256);

// ---- the process's end
struct Attached {
  int error = 0;        // an errno; 0: all below is good
  char text[232] = {};  // the step that failed, or the reason of the coordinator
  int connection = -1;
  int descriptors[kAttachDescriptors] = {-1, -1, -1, -1};
  uint64_t window_bytes = 0;
};
// Sets `*address` to that of a socket at `path`. An address holds 107 bytes: a longer path is reached
// through its directory, which is opened, and which the caller closes after connect(2) or bind(2).
// Otherwise `*directory` is -1. Returns 0 or an errno.
int SocketAddress(const char* path, sockaddr_un* address, int* directory);

// Connects to the socket at `path` and attaches. All descriptors have close-on-exec and high
// numbers (MoveHigh). On an error all are closed. Blocks for at most 10 s.
Attached AttachTo(const char* path);
// Moves the descriptor to a free number near the limit of the process, with close-on-exec, out of
// the way of programs that expect low numbers. Returns the new number; `fd` when there is none.
int MoveHigh(int fd);

// Returns the inode number of this process's PID namespace: another for each on the host. 0 when
// /proc does not show it.
uint32_t OwnPidNamespace();

// ---- the coordinator's end
// Reads the request on an accepted connection. Returns 0, or an errno: EPROTO when it is none of
// this version; EAGAIN when nothing came within the socket's receive time-out.
int ReadAttachRequest(int connection, AttachRequest* request);
// Answers with the descriptors (kAttachDescriptors of them), which stay the caller's. Returns 0 or
// an errno.
int AcceptAttach(int connection, uint64_t window_bytes, const int* descriptors);
// Refuses. `text` is cut to what fits. Returns 0 or an errno.
int RefuseAttach(int connection, int error, const char* text);

}  // namespace salius::direct
