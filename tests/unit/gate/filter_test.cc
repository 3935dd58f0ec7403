#include "client/gate/filter.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <vector>

#include "client/gate/call_page.h"
#include "client/gate/gate.h"

namespace salius::gate {
namespace {

constexpr uint32_t kRefused = SECCOMP_RET_ERRNO | ENOSYS;

// Runs the filter as the kernel does (seccomp(2)): the subset of instructions that it uses.
uint32_t Judge(const seccomp_data& data) {
  static const std::vector<sock_filter> program = GateFilter();
  uint32_t accumulator = 0;
  for (size_t at = 0; at < program.size(); ++at) {
    const sock_filter& code = program[at];
    const auto jump = [&](bool condition) { at += condition ? code.jt : code.jf; };
    switch (code.code) {
      case BPF_LD | BPF_W | BPF_ABS:
        if (code.k + 4 > sizeof(data)) return 0;
        std::memcpy(&accumulator, reinterpret_cast<const char*>(&data) + code.k, 4);
        break;
      case BPF_ALU | BPF_AND | BPF_K:
        accumulator &= code.k;
        break;
      case BPF_JMP | BPF_JA:
        at += code.k;
        break;
      case BPF_JMP | BPF_JEQ | BPF_K:
        jump(accumulator == code.k);
        break;
      case BPF_JMP | BPF_JGE | BPF_K:
        jump(accumulator >= code.k);
        break;
      case BPF_JMP | BPF_JSET | BPF_K:
        jump((accumulator & code.k) != 0);
        break;
      case BPF_RET | BPF_K:
        return code.k;
      default:
        ADD_FAILURE() << "instruction " << code.code;
        return 0;
    }
  }
  ADD_FAILURE() << "the filter ends without an answer";
  return 0;
}

seccomp_data Call(int number, std::vector<uint64_t> arguments = {}, uint64_t from = 0x401000) {
  seccomp_data data{};
  data.nr = number;
  data.arch = AUDIT_ARCH_X86_64;
  data.instruction_pointer = from;
  for (size_t i = 0; i < arguments.size(); ++i) data.args[i] = arguments[i];
  return data;
}

uint32_t Elsewhere(int number, std::vector<uint64_t> arguments = {}) {
  return Judge(Call(number, std::move(arguments)));
}

TEST(FilterTest, EachOutputGoesToTheSupervisor) {
  for (const OutputCall& call : OutputCalls()) {
    std::vector<uint64_t> arguments(6, 0);
    // Arguments that make it an output.
    if (call.number == SYS_ioctl) arguments[1] = TCSBRK;
    if (call.number == SYS_fcntl) arguments[1] = F_SETLK;
    if (call.number == SYS_mmap) arguments[3] = MAP_SHARED;
    if (call.number == SYS_open) arguments[1] = O_CREAT;
    if (call.number == SYS_openat) arguments[2] = O_TRUNC;
    EXPECT_EQ(Elsewhere(call.number, arguments), SECCOMP_RET_USER_NOTIF) << call.number;
    // Any address in the page will do, and none beside it.
    EXPECT_EQ(Judge(Call(call.number, arguments, kCallPage + 6)), SECCOMP_RET_ALLOW) << call.number;
    EXPECT_EQ(Judge(Call(call.number, arguments, kCallPage - 1)), SECCOMP_RET_USER_NOTIF);
    EXPECT_EQ(Judge(Call(call.number, arguments, kCallPage + kCallPageBytes)),
              SECCOMP_RET_USER_NOTIF);
    // The upper half counts too.
    EXPECT_EQ(Judge(Call(call.number, arguments, kCallPage & 0xFFFFFFFF)), SECCOMP_RET_USER_NOTIF);
  }
}

TEST(FilterTest, EachOutputIsListedOnceAndFound) {
  std::set<int> numbers;
  for (const OutputCall& call : OutputCalls()) {
    EXPECT_TRUE(numbers.insert(call.number).second) << call.number;
    EXPECT_EQ(FindOutputCall(call.number), &call);
  }
  EXPECT_EQ(FindOutputCall(SYS_read), nullptr);
}

// By their numbers: older headers do not have the names.
TEST(FilterTest, NewCallsThatChangeAttributesAreOutputs) {
  for (const int number : {452 /* fchmodat2 */, 463 /* setxattrat */, 466 /* removexattrat */}) {
    EXPECT_EQ(Elsewhere(number), SECCOMP_RET_USER_NOTIF) << number;
    const OutputCall* const call = FindOutputCall(number);
    ASSERT_NE(call, nullptr) << number;
    EXPECT_EQ(call->where, Where::kPath);
    EXPECT_EQ(call->a, 0);
    EXPECT_EQ(call->b, 1);
  }
}

TEST(FilterTest, QuestionsAndPrivateCallsPass) {
  EXPECT_EQ(Elsewhere(SYS_read), SECCOMP_RET_ALLOW);
  EXPECT_EQ(Elsewhere(SYS_fsync), SECCOMP_RET_ALLOW);
  EXPECT_EQ(Elsewhere(SYS_ioctl, {1, TCGETS}), SECCOMP_RET_ALLOW);
  EXPECT_EQ(Elsewhere(SYS_fcntl, {1, F_GETFL}), SECCOMP_RET_ALLOW);
  EXPECT_EQ(Elsewhere(SYS_fcntl, {1, F_GETLK}), SECCOMP_RET_ALLOW);
  EXPECT_EQ(Elsewhere(SYS_mmap, {0, 1, PROT_WRITE, MAP_PRIVATE}), SECCOMP_RET_ALLOW);
  EXPECT_EQ(Elsewhere(SYS_mmap, {0, 1, PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS}), SECCOMP_RET_ALLOW);
  EXPECT_EQ(Elsewhere(SYS_openat, {0, 0, O_RDWR}), SECCOMP_RET_ALLOW);
  EXPECT_EQ(Elsewhere(SYS_open, {0, O_WRONLY}), SECCOMP_RET_ALLOW);
  EXPECT_EQ(Elsewhere(SYS_shmat, {0, 0, SHM_RDONLY}), SECCOMP_RET_ALLOW);
  EXPECT_EQ(Elsewhere(SYS_prctl, {15}), SECCOMP_RET_ALLOW);
}

TEST(FilterTest, SharedMapsOfFilesAreOutputsInBothForms) {
  EXPECT_EQ(Elsewhere(SYS_mmap, {0, 1, PROT_READ, MAP_SHARED}), SECCOMP_RET_USER_NOTIF);
  EXPECT_EQ(Elsewhere(SYS_mmap, {0, 1, PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC}),
            SECCOMP_RET_USER_NOTIF);
}

TEST(FilterTest, UnseenWritesAreRefusedAlsoFromThePage) {
  for (const int number : {SYS_io_uring_setup, SYS_io_setup}) {
    EXPECT_EQ(Elsewhere(number), kRefused);
    EXPECT_EQ(Judge(Call(number, {}, kCallPage + 6)), kRefused);
  }
}

TEST(FilterTest, OtherAbisAreRefused) {
  seccomp_data data = Call(4);  // write(2) of i386
  data.arch = AUDIT_ARCH_I386;
  EXPECT_EQ(Judge(data), kRefused);
  EXPECT_EQ(Judge(Call(0x40000000 + SYS_write)), kRefused);
}

TEST(FilterTest, ProbeIsAnswered) {
  EXPECT_EQ(Elsewhere(SYS_prctl, {kGateProbe}), SECCOMP_RET_ERRNO | EALREADY);
}

TEST(CallPageTest, CallsGoThroughThePageOnceItIsMapped) {
  EXPECT_EQ(salius_gate_call(SYS_getpid, 0, 0, 0, 0, 0, 0), getpid());
  ASSERT_EQ(MapCallPage(), 0);
  EXPECT_EQ(salius_gate_call(SYS_getpid, 0, 0, 0, 0, 0, 0), getpid());
  EXPECT_EQ(salius_gate_call(SYS_close, -1, 0, 0, 0, 0, 0), -EBADF);
  // Six arguments arrive: a page at an offset of a file.
  const int fd = memfd_create("page", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(fd, 8192), 0);
  ASSERT_EQ(pwrite(fd, "x", 1, 4096), 1);
  const long at = salius_gate_call(SYS_mmap, 0, 4096, PROT_READ, MAP_PRIVATE, fd, 4096);
  ASSERT_GT(at, 0);
  EXPECT_EQ(*reinterpret_cast<const char*>(at), 'x');
  close(fd);
  // A second object of the process uses the same page.
  EXPECT_EQ(MapCallPage(), 0);
}

TEST(CallPageTest, OtherMemoryAtItsPlaceIsLeftAlone) {
  void* const place = reinterpret_cast<void*>(kCallPage);
  munmap(place, kCallPageBytes);
  ASSERT_EQ(mmap(place, kCallPageBytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            place);
  EXPECT_EQ(MapCallPage(), EEXIST);
  munmap(place, kCallPageBytes);
  EXPECT_EQ(MapCallPage(), 0);
}

}  // namespace
}  // namespace salius::gate
