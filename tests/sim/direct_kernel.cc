#include "tests/sim/direct_kernel.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "client/direct/window/system.h"
#include "common/check.h"
#include "common/file.h"

namespace salius::sim {
namespace {

constexpr int64_t kUs = 1'000;
constexpr uint16_t kFirstPort = 7000;
constexpr char kRoot[] = "/memory";  // as MemoryBacking::PathOf gives it
constexpr char kDescriptors[] = "/proc/self/fd/";

DirectKernel* g_kernel = nullptr;

long Errno(const absl::Status& status) {
  const int error = StatusErrno(status);
  SALIUS_CHECK(error != 0, "a status without errno");
  return -error;
}

template <typename T>
T* Pointer(long address) {
  return reinterpret_cast<T*>(address);
}

}  // namespace

DirectKernel::DirectKernel(DirectMachine& machine, MemoryBacking& backing, World& world,
                           uint64_t seed)
    : machine_(machine), backing_(backing), world_(world), random_(seed) {
  SALIUS_CHECK(g_kernel == nullptr);
  g_kernel = this;
}

DirectKernel::~DirectKernel() { g_kernel = nullptr; }

DirectKernel* DirectKernel::current() { return g_kernel; }

SocketAddress DirectKernel::AddressOf(size_t replica) {
  SocketAddress address;
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  in.sin_port = htons(static_cast<uint16_t>(kFirstPort + replica));
  std::memcpy(&address.storage, &in, sizeof(in));
  address.length = sizeof(in);
  return address;
}

long DirectKernel::Call(long number, const long (&a)[6]) {
  machine_.Step();
  if (number != SYS_futex) machine_.Sleep(300 + static_cast<int64_t>(random_.Below(2 * kUs)));
  switch (number) {
    case SYS_mmap:
      SALIUS_CHECK(a[4] == kWindowFd);
      return reinterpret_cast<long>(window_);
    case SYS_fstat: {
      const auto st = backing_.Stat(static_cast<int>(a[0]));
      if (!st.ok()) return Errno(st.status());
      *Pointer<struct stat>(a[1]) = *st;
      return 0;
    }
    case SYS_stat: {  // the only path
      SALIUS_CHECK(std::strcmp(Pointer<const char>(a[0]), kRoot) == 0);
      const auto st = backing_.Stat(backing_.root());
      if (!st.ok()) return Errno(st.status());
      *Pointer<struct stat>(a[1]) = *st;
      return 0;
    }
    case SYS_fgetxattr: {
      const auto value = backing_.XattrValue(static_cast<int>(a[0]), Pointer<const char>(a[1]));
      if (!value.ok()) return Errno(value.status());
      if (value->size() > static_cast<size_t>(a[3])) return -ERANGE;
      std::memcpy(Pointer<void>(a[2]), value->data(), value->size());
      return static_cast<long>(value->size());
    }
    case SYS_fsetxattr: {
      const std::string_view value(Pointer<const char>(a[2]), static_cast<size_t>(a[3]));
      const absl::Status set =
          backing_.SetXattr(static_cast<int>(a[0]), Pointer<const char>(a[1]), value);
      return set.ok() ? 0 : Errno(set);
    }
    case SYS_readlinkat:
      return ReadLink(Pointer<const char>(a[1]), Pointer<char>(a[2]), static_cast<size_t>(a[3]));
    case SYS_openat:  // the only directory
      SALIUS_CHECK(std::strcmp(Pointer<const char>(a[1]), kRoot) == 0);
      return backing_.root();
    case SYS_close:
      SALIUS_CHECK(a[0] == backing_.root());
      return 0;
    case SYS_fsync:
    case SYS_fdatasync:
      return SyncFile(static_cast<int>(a[0]));
    case SYS_syncfs:
      return SyncFs();
    case SYS_sendmmsg:
      return Send(Pointer<const mmsghdr>(a[1]), static_cast<unsigned>(a[2]));
    case SYS_recvmmsg:
      return Receive(Pointer<mmsghdr>(a[1]), static_cast<unsigned>(a[2]),
                     (a[3] & MSG_DONTWAIT) == 0);
    case SYS_getppid:
      return 1;
    case SYS_futex:
      return Futex(a[0], a[1], a[2], a[3], a[5]);
    default:
      break;
  }
  SALIUS_CHECK(false, "a system call that is not simulated");
  return -ENOSYS;
}

long DirectKernel::ReadLink(const char* path, char* out, size_t size) const {
  SALIUS_CHECK(absl::StartsWith(path, kDescriptors));
  const auto whole = backing_.PathOf(std::atoi(path + sizeof(kDescriptors) - 1));
  if (!whole.ok()) return Errno(whole.status());
  const size_t bytes = std::min(whole->size(), size);
  std::memcpy(out, whole->data(), bytes);
  return static_cast<long>(bytes);
}

int DirectKernel::SyncFile(int fd) {
  machine_.running().doing = "killed in a real fsync";
  const int64_t time = world_.SyncTime();
  const uint64_t kind = random_.Below(3);
  const int64_t before = kind == 0 ? 0
                         : kind == 1
                             ? time
                             : static_cast<int64_t>(random_.Below(static_cast<uint64_t>(time)));
  machine_.Sleep(before);
  const bool fails = world_.SyncFails();
  if (!fails) SALIUS_CHECK_OK(backing_.Fsync(fd));
  ++file_syncs_;
  machine_.Sleep(time - before);
  return fails ? -EIO : 0;
}

int DirectKernel::SyncFs() {
  std::vector<int> files = files_;
  std::shuffle(files.begin(), files.end(), random_);
  backing_.WriteBackJournal();
  const auto time = static_cast<uint64_t>(world_.SyncTime());
  const auto share = time / (files.size() + 1) + 1;
  for (const int fd : files) {
    machine_.Sleep(static_cast<int64_t>(random_.Below(share)));
    if (std::find(files_.begin(), files_.end(), fd) == files_.end()) continue;  // it was removed
    SALIUS_CHECK_OK(backing_.Fsync(fd));
  }
  machine_.Sleep(static_cast<int64_t>(share));
  return world_.SyncFails() ? -EIO : 0;
}

long DirectKernel::Send(const mmsghdr* messages, unsigned count) {
  machine_.running().doing = "killed while it sends";
  for (unsigned i = 0; i < count; ++i) {
    const msghdr& message = messages[i].msg_hdr;
    const auto* to = static_cast<const sockaddr_in*>(message.msg_name);
    std::string bytes;
    for (size_t k = 0; k < message.msg_iovlen; ++k) {
      bytes.append(static_cast<const char*>(message.msg_iov[k].iov_base),
                   message.msg_iov[k].iov_len);
    }
    world_.SendToReplica(static_cast<size_t>(ntohs(to->sin_port) - kFirstPort), std::move(bytes));
    machine_.Step();
  }
  return static_cast<long>(count);
}

long DirectKernel::Receive(mmsghdr* messages, unsigned count, bool wait) {
  machine_.running().doing = "killed while it receives";
  world_.Receives();
  if (wait && arrived_.empty()) machine_.Block(&arrived_, 1000 * kUs);
  unsigned got = 0;
  for (; got < count && !arrived_.empty(); ++got) {
    const Arrived one = std::move(arrived_.front());
    arrived_.pop_front();
    msghdr& message = messages[got].msg_hdr;
    const SocketAddress from = AddressOf(one.replica);
    SALIUS_CHECK(message.msg_namelen >= sizeof(sockaddr_in) && message.msg_iovlen == 1);
    std::memcpy(message.msg_name, from.get(), sizeof(sockaddr_in));
    message.msg_namelen = sizeof(sockaddr_in);
    const size_t size = std::min(one.bytes.size(), message.msg_iov[0].iov_len);
    std::memcpy(message.msg_iov[0].iov_base, one.bytes.data(), size);
    messages[got].msg_len = static_cast<unsigned>(size);
    world_.Received(one.replica, one.bytes);
  }
  return got > 0 ? static_cast<long>(got) : -EAGAIN;
}

void DirectKernel::Arrive(size_t replica, std::string datagram) {
  arrived_.push_back({std::move(datagram), replica});
  machine_.Wake(&arrived_, 1);
}

long DirectKernel::Futex(long word, long operation, long value, long until, long bits) {
  const auto mask = static_cast<uint32_t>(bits);
  const auto* const at = Pointer<const uint32_t>(word);
  if (operation == FUTEX_WAKE_BITSET) {
    return machine_.Wake(at, static_cast<int>(value), mask);
  }
  SALIUS_CHECK(operation == FUTEX_WAIT_BITSET);
  if (*at != static_cast<uint32_t>(value)) return -EAGAIN;
  machine_.running().doing = "killed while it sleeps";
  const auto* const time = Pointer<const timespec>(until);
  const int64_t ns = time->tv_sec * int64_t{1'000'000'000} + time->tv_nsec - machine_.now();
  return machine_.Block(at, std::max<int64_t>(ns, 1), mask) ? 0 : -ETIMEDOUT;
}

}  // namespace salius::sim

// ---- the way of the shipping code to the kernel

namespace salius::direct {

using salius::sim::DirectKernel;
using salius::sim::DirectMachine;

long RawCall(long number, long a, long b, long c, long d, long e, long f) {
  return DirectKernel::current()->Call(number, {a, b, c, d, e, f});
}
int64_t MonotonicNs() {
  DirectMachine& machine = *DirectMachine::current();
  machine.Step();
  return machine.now();
}
int64_t RealtimeNs() { return DirectKernel::current()->RealtimeNs(); }

}  // namespace salius::direct

namespace {

using salius::sim::DirectKernel;
using salius::sim::DirectMachine;

bool Simulated(const pthread_mutex_t* lock) {
  const DirectMachine* const machine = DirectMachine::current();
  return machine != nullptr && machine->IsShared(lock);
}

}  // namespace

// The linker sends every call of these functions here.
extern "C" {
int __real_pthread_mutex_lock(pthread_mutex_t*);
int __real_pthread_mutex_trylock(pthread_mutex_t*);
int __real_pthread_mutex_unlock(pthread_mutex_t*);
int __real_pthread_mutex_consistent(pthread_mutex_t*);
int __real_sched_getaffinity(pid_t, size_t, cpu_set_t*);

int __wrap_pthread_mutex_lock(pthread_mutex_t* lock) {
  return Simulated(lock) ? DirectMachine::current()->Lock(lock) : __real_pthread_mutex_lock(lock);
}
int __wrap_pthread_mutex_trylock(pthread_mutex_t* lock) {
  return Simulated(lock) ? DirectMachine::current()->TryLock(lock)
                         : __real_pthread_mutex_trylock(lock);
}
int __wrap_pthread_mutex_unlock(pthread_mutex_t* lock) {
  return Simulated(lock) ? DirectMachine::current()->Unlock(lock)
                         : __real_pthread_mutex_unlock(lock);
}
int __wrap_pthread_mutex_consistent(pthread_mutex_t* lock) {
  return Simulated(lock) ? 0 : __real_pthread_mutex_consistent(lock);
}
int __wrap_sched_getaffinity(pid_t process, size_t size, cpu_set_t* cpus) {
  if (DirectKernel::current() == nullptr) return __real_sched_getaffinity(process, size, cpus);
  CPU_ZERO(cpus);
  for (int i = 0; i < DirectKernel::current()->cpus(); ++i) CPU_SET(i, cpus);
  return 0;
}
}  // extern "C"
