#include "client/gate/filter.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "client/gate/call_page.h"
#include "client/gate/descriptor_kind.h"
#include "client/gate/gate.h"
#include "client/gate/newer_calls.h"

namespace salius::gate {
namespace {

// The frequent ones first.
constexpr OutputCall kCalls[] = {
    {SYS_write, Where::kDescriptor, 0},
    {SYS_close, Where::kClose, 0},
    {SYS_pwrite64, Where::kDescriptor, 0},
    {SYS_writev, Where::kDescriptor, 0},
    {SYS_openat, Where::kPath, 0, 1},
    {SYS_fcntl, Where::kDescriptor, 0},
    {SYS_mmap, Where::kMap, 4},
    {SYS_ioctl, Where::kDescriptor, 0},
    {SYS_sendto, Where::kDescriptor, 0},
    {SYS_sendmsg, Where::kSendMessage, 0},
    {SYS_sendmmsg, Where::kSendMessage, 0},
    {SYS_dup2, Where::kClose, 1},
    {SYS_dup3, Where::kClose, 1},
    {SYS_pwritev, Where::kDescriptor, 0},
    {SYS_pwritev2, Where::kDescriptor, 0},
    {SYS_open, Where::kPath, -1, 0},
    {SYS_openat2, Where::kPath, 0, 1},
    {SYS_creat, Where::kPath, -1, 0},
    {SYS_close_range, Where::kScan},
    // Copies.
    {SYS_sendfile, Where::kDescriptor, 0},
    {SYS_splice, Where::kDescriptor, 2},
    {SYS_tee, Where::kDescriptor, 1},
    {SYS_vmsplice, Where::kLend, 0},
    {SYS_copy_file_range, Where::kDescriptor, 2},
    // Connections.
    {SYS_connect, Where::kDescriptor, 0},
    {SYS_bind, Where::kDescriptor, 0},
    {SYS_listen, Where::kDescriptor, 0},
    {SYS_shutdown, Where::kDescriptor, 0},
    // Processes.
    {SYS_execve, Where::kScan},
    {SYS_execveat, Where::kScan},
    {SYS_exit_group, Where::kScan},
    {SYS_exit, Where::kScan},
    {SYS_kill, Where::kSignal, 0, 1},
    {SYS_tkill, Where::kSignal, 0, 1},
    {SYS_tgkill, Where::kSignal, 1, 2},
    {SYS_rt_sigqueueinfo, Where::kSignal, 0, 1},
    {SYS_rt_tgsigqueueinfo, Where::kSignal, 1, 2},
    {SYS_pidfd_send_signal, Where::kAlways},
    {SYS_process_vm_writev, Where::kAlways},
    {SYS_ptrace, Where::kAlways},
    // Locks, queues and memory that processes outside may have.
    {SYS_flock, Where::kDescriptor, 0},
    {SYS_mq_open, Where::kAlways},
    {SYS_mq_unlink, Where::kAlways},
    {SYS_mq_timedsend, Where::kAlways},
    {SYS_msgget, Where::kAlways},
    {SYS_msgsnd, Where::kAlways},
    {SYS_msgctl, Where::kAlways},
    {SYS_semget, Where::kAlways},
    {SYS_semop, Where::kAlways},
    {SYS_semtimedop, Where::kAlways},
    {SYS_semctl, Where::kAlways},
    {SYS_shmget, Where::kAlways},
    {SYS_shmctl, Where::kAlways},
    {SYS_shmat, Where::kAttach},
    {SYS_add_key, Where::kAlways},
    {SYS_keyctl, Where::kAlways},
    // Files outside.
    {SYS_truncate, Where::kPath, -1, 0},
    {SYS_ftruncate, Where::kDescriptor, 0},
    {SYS_fallocate, Where::kDescriptor, 0},
    {SYS_mkdir, Where::kPath, -1, 0},
    {SYS_mkdirat, Where::kPath, 0, 1},
    {SYS_mknod, Where::kPath, -1, 0},
    {SYS_mknodat, Where::kPath, 0, 1},
    {SYS_rmdir, Where::kPath, -1, 0},
    {SYS_unlink, Where::kPath, -1, 0},
    {SYS_unlinkat, Where::kPath, 0, 1},
    {SYS_rename, Where::kPath, -1, 0, -1, 1},
    {SYS_renameat, Where::kPath, 0, 1, 2, 3},
    {SYS_renameat2, Where::kPath, 0, 1, 2, 3},
    {SYS_link, Where::kPath, -1, 0, -1, 1},
    {SYS_linkat, Where::kPath, 0, 1, 2, 3},
    {SYS_symlink, Where::kPath, -1, 1},
    {SYS_symlinkat, Where::kPath, 1, 2},
    {SYS_chmod, Where::kPath, -1, 0},
    {SYS_fchmod, Where::kDescriptor, 0},
    {SYS_fchmodat, Where::kPath, 0, 1},
    {SYS_fchmodat2, Where::kPath, 0, 1},
    {SYS_chown, Where::kPath, -1, 0},
    {SYS_lchown, Where::kPath, -1, 0},
    {SYS_fchown, Where::kDescriptor, 0},
    {SYS_fchownat, Where::kPath, 0, 1},
    {SYS_utime, Where::kPath, -1, 0},
    {SYS_utimes, Where::kPath, -1, 0},
    {SYS_futimesat, Where::kPath, 0, 1},
    {SYS_utimensat, Where::kPath, 0, 1},
    {SYS_setxattr, Where::kPath, -1, 0},
    {SYS_lsetxattr, Where::kPath, -1, 0},
    {SYS_fsetxattr, Where::kDescriptor, 0},
    {SYS_removexattr, Where::kPath, -1, 0},
    {SYS_lremovexattr, Where::kPath, -1, 0},
    {SYS_fremovexattr, Where::kDescriptor, 0},
    {SYS_setxattrat, Where::kPath, 0, 1},
    {SYS_removexattrat, Where::kPath, 0, 1},
};

constexpr uint32_t kLockCommands[] = {F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW, F_SETLEASE};

constexpr uint32_t kX32 = 0x40000000;

uint32_t ArgumentAt(int argument) {
  return static_cast<uint32_t>(offsetof(seccomp_data, args) + 8 * static_cast<size_t>(argument));
}

// Writes a filter with forward jumps to marks.
class Writer {
 public:
  enum Mark : uint8_t { kAllow, kCheck, kNotify, kRefuse, kProbed, kMarks };

  void Load(uint32_t offset) { Add(BPF_LD | BPF_W | BPF_ABS, offset); }
  void And(uint32_t mask) { Add(BPF_ALU | BPF_AND | BPF_K, mask); }
  // Each of these goes on behind itself when the condition does not hold.
  void IfEqual(uint32_t value, Mark to) { Jump(BPF_JEQ, value, to, true); }
  void IfNotEqual(uint32_t value, Mark to) { Jump(BPF_JEQ, value, to, false); }
  void IfAtLeast(uint32_t value, Mark to) { Jump(BPF_JGE, value, to, true); }
  void IfAny(uint32_t bits, Mark to) { Jump(BPF_JSET, bits, to, true); }
  void GoTo(Mark to) {
    jumps_.push_back({code_.size(), to, kAlways});
    Add(BPF_JMP | BPF_JA, 0);
  }
  void Place(Mark mark) { places_[mark] = code_.size(); }
  void Return(uint32_t action) { Add(BPF_RET | BPF_K, action); }
  size_t at() const { return code_.size(); }
  // Skips to the current end when the word of instruction `from` is not equal.
  size_t BeginIfEqual(uint32_t value) {
    Add(BPF_JMP | BPF_JEQ | BPF_K, value);
    return code_.size() - 1;
  }
  void EndIf(size_t begin) { code_[begin].jf = static_cast<uint8_t>(code_.size() - begin - 1); }

  std::vector<sock_filter> Finish() {
    for (const Fixup& jump : jumps_) {
      const size_t distance = places_[jump.to] - jump.at - 1;
      sock_filter& code = code_[jump.at];
      if (jump.when == kAlways) code.k = static_cast<uint32_t>(distance);
      if (jump.when == kTrue) code.jt = static_cast<uint8_t>(distance);
      if (jump.when == kFalse) code.jf = static_cast<uint8_t>(distance);
    }
    return std::move(code_);
  }

 private:
  enum When : uint8_t { kAlways, kTrue, kFalse };
  struct Fixup {
    size_t at;
    Mark to;
    When when;
  };
  void Add(int code, uint32_t k) { code_.push_back({static_cast<uint16_t>(code), 0, 0, k}); }
  void Jump(int condition, uint32_t value, Mark to, bool when) {
    jumps_.push_back({code_.size(), to, when ? kTrue : kFalse});
    Add(BPF_JMP | condition | BPF_K, value);
  }

  std::vector<sock_filter> code_;
  std::vector<Fixup> jumps_;
  size_t places_[kMarks] = {};
};

using enum Writer::Mark;

// Looks at the arguments of calls that are outputs for some only.
void AddConditions(Writer& writer) {
  size_t call = writer.BeginIfEqual(SYS_ioctl);
  writer.Load(ArgumentAt(1));
  for (const uint32_t request : kHarmlessIoctls) writer.IfEqual(request, kAllow);
  writer.GoTo(kCheck);
  writer.EndIf(call);
  call = writer.BeginIfEqual(SYS_fcntl);
  writer.Load(ArgumentAt(1));
  for (const uint32_t command : kLockCommands) writer.IfEqual(command, kCheck);
  writer.GoTo(kAllow);
  writer.EndIf(call);
  call = writer.BeginIfEqual(SYS_mmap);
  writer.Load(ArgumentAt(3));
  writer.And(MAP_TYPE | MAP_ANONYMOUS);
  writer.IfEqual(MAP_SHARED, kCheck);
  writer.IfEqual(MAP_SHARED_VALIDATE, kCheck);
  writer.GoTo(kAllow);
  writer.EndIf(call);
  for (const auto& [number, flags] : {std::pair{SYS_open, 1}, std::pair{SYS_openat, 2}}) {
    call = writer.BeginIfEqual(static_cast<uint32_t>(number));
    writer.Load(ArgumentAt(flags));
    writer.IfAny(O_CREAT | O_TRUNC, kCheck);
    writer.GoTo(kAllow);
    writer.EndIf(call);
  }
  call = writer.BeginIfEqual(SYS_shmat);
  writer.Load(ArgumentAt(2));
  writer.IfAny(SHM_RDONLY, kAllow);
  writer.GoTo(kCheck);
  writer.EndIf(call);
  call = writer.BeginIfEqual(SYS_prctl);
  writer.Load(ArgumentAt(0));
  writer.IfEqual(kGateProbe, kProbed);
  writer.GoTo(kAllow);
  writer.EndIf(call);
}

bool HasCondition(int number) {
  return number == SYS_ioctl || number == SYS_fcntl || number == SYS_mmap || number == SYS_open ||
         number == SYS_openat || number == SYS_shmat;
}

}  // namespace

std::span<const OutputCall> OutputCalls() { return kCalls; }

const OutputCall* FindOutputCall(int number) {
  const auto* const found =
      std::find_if(std::begin(kCalls), std::end(kCalls),
                   [number](const OutputCall& call) { return call.number == number; });
  return found == std::end(kCalls) ? nullptr : found;
}

std::vector<sock_filter> GateFilter() {
  constexpr auto kHigh = static_cast<uint32_t>(kCallPage >> 32);
  constexpr auto kLow = static_cast<uint32_t>(kCallPage);
  constexpr auto kInstruction = static_cast<uint32_t>(offsetof(seccomp_data, instruction_pointer));
  Writer writer;
  writer.Load(offsetof(seccomp_data, arch));
  writer.IfNotEqual(AUDIT_ARCH_X86_64, kRefuse);
  writer.Load(offsetof(seccomp_data, nr));
  writer.IfAtLeast(kX32, kRefuse);
  for (const OutputCall& call : kCalls) {
    if (!HasCondition(call.number)) writer.IfEqual(static_cast<uint32_t>(call.number), kCheck);
  }
  writer.IfEqual(SYS_io_uring_setup, kRefuse);
  writer.IfEqual(SYS_io_setup, kRefuse);
  AddConditions(writer);
  writer.Place(kAllow);
  writer.Return(SECCOMP_RET_ALLOW);
  writer.Place(kCheck);
  writer.Load(kInstruction + 4);
  writer.IfNotEqual(kHigh, kNotify);
  writer.Load(kInstruction);
  writer.And(~static_cast<uint32_t>(kCallPageBytes - 1));
  writer.IfNotEqual(kLow, kNotify);
  writer.Return(SECCOMP_RET_ALLOW);
  writer.Place(kNotify);
  writer.Return(SECCOMP_RET_USER_NOTIF);
  writer.Place(kRefuse);
  writer.Return(SECCOMP_RET_ERRNO | ENOSYS);
  writer.Place(kProbed);
  writer.Return(SECCOMP_RET_ERRNO | EALREADY);
  return writer.Finish();
}

}  // namespace salius::gate
