// Runs a program and kills it (SIGKILL) at the N-th system call that changes a file or sends a
// message. Calls are counted over all its threads and children; without N the tool only counts.
//
// How: a seccomp filter stops the program at the calls of the table below (PTRACE_O_TRACESECCOMP).
// All other calls run at full speed. Every process that the program starts inherits the filter. A
// stopped call is a point in these cases:
// - a write to a file, a socket or /dev/fuse; not to standard output or error, a pipe or an
//   eventfd, which no outside process sees
// - an open that creates or truncates
// - a call that changes a name or an attribute, or syncs
// A store to shared memory is no system call, and no point.
//
// "Before" kills before the call has begun: the kernel drops a call whose thread is killed in its
// seccomp stop. "After" kills when the call has returned. For a program of one thread, after N is
// before N+1; with more threads the others are at other places.
//
// The number of messages may differ between two runs of the same work, the calls on files hardly.
// --only counts one of the two kinds. A reply on /dev/fuse is a message. "--only calls" counts every
// system call, whatever it does.
//
// With --armed, SIGUSR1 begins the counting. The tool passes SIGTERM and SIGINT on. Its tracees die
// with it (PTRACE_O_EXITKILL), but some time later: a test that needs the program's end must kill
// the program and wait for "ended". Single-threaded.
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr int kExitUsage = 2;
constexpr int kExitFailure = 125;
constexpr int kExitKilled = 128 + SIGKILL;

// The condition under which a stopped call is a point.
enum class Kind {
  kAlways,   // always: it changes a name or an attribute, or syncs
  kFd,       // argument `index` is a descriptor that an outside process sees
  kOpen,     // the flags in argument `index` create or truncate
  kOpenHow,  // the same, with the flags in the struct open_how that it points to
  kIoctl,    // the command in argument `index` changes a file
};

struct Call {
  int number;
  const char* name;
  Kind kind;
  int index;
};

#define SALIUS_CALL(name, kind, index) \
  { SYS_##name, #name, Kind::kind, index }
constexpr Call kCalls[] = {
    SALIUS_CALL(write, kFd, 0),
    SALIUS_CALL(writev, kFd, 0),
    SALIUS_CALL(pwrite64, kFd, 0),
    SALIUS_CALL(pwritev, kFd, 0),
    SALIUS_CALL(pwritev2, kFd, 0),
    SALIUS_CALL(sendfile, kFd, 0),
    SALIUS_CALL(splice, kFd, 2),
    SALIUS_CALL(copy_file_range, kFd, 2),
    SALIUS_CALL(sendto, kFd, 0),
    SALIUS_CALL(sendmsg, kFd, 0),
    SALIUS_CALL(sendmmsg, kFd, 0),
    SALIUS_CALL(truncate, kAlways, 0),
    SALIUS_CALL(ftruncate, kAlways, 0),
    SALIUS_CALL(fallocate, kAlways, 0),
    SALIUS_CALL(fsync, kAlways, 0),
    SALIUS_CALL(fdatasync, kAlways, 0),
    SALIUS_CALL(sync, kAlways, 0),
    SALIUS_CALL(syncfs, kAlways, 0),
    SALIUS_CALL(sync_file_range, kAlways, 0),
    SALIUS_CALL(msync, kAlways, 0),
#ifdef SYS_open
    SALIUS_CALL(open, kOpen, 1),
    SALIUS_CALL(creat, kAlways, 0),
    SALIUS_CALL(rename, kAlways, 0),
    SALIUS_CALL(link, kAlways, 0),
    SALIUS_CALL(symlink, kAlways, 0),
    SALIUS_CALL(unlink, kAlways, 0),
    SALIUS_CALL(mkdir, kAlways, 0),
    SALIUS_CALL(rmdir, kAlways, 0),
    SALIUS_CALL(mknod, kAlways, 0),
    SALIUS_CALL(chmod, kAlways, 0),
    SALIUS_CALL(chown, kAlways, 0),
    SALIUS_CALL(lchown, kAlways, 0),
    SALIUS_CALL(utime, kAlways, 0),
    SALIUS_CALL(utimes, kAlways, 0),
    SALIUS_CALL(futimesat, kAlways, 0),
#endif
    SALIUS_CALL(openat, kOpen, 2),
    SALIUS_CALL(openat2, kOpenHow, 2),
    SALIUS_CALL(renameat2, kAlways, 0),
    SALIUS_CALL(linkat, kAlways, 0),
    SALIUS_CALL(symlinkat, kAlways, 0),
    SALIUS_CALL(unlinkat, kAlways, 0),
    SALIUS_CALL(mkdirat, kAlways, 0),
    SALIUS_CALL(mknodat, kAlways, 0),
    SALIUS_CALL(fchmod, kAlways, 0),
    SALIUS_CALL(fchmodat, kAlways, 0),
    SALIUS_CALL(fchown, kAlways, 0),
    SALIUS_CALL(fchownat, kAlways, 0),
    SALIUS_CALL(utimensat, kAlways, 0),
    SALIUS_CALL(setxattr, kAlways, 0),
    SALIUS_CALL(lsetxattr, kAlways, 0),
    SALIUS_CALL(fsetxattr, kAlways, 0),
    SALIUS_CALL(removexattr, kAlways, 0),
    SALIUS_CALL(lremovexattr, kAlways, 0),
    SALIUS_CALL(fremovexattr, kAlways, 0),
#ifdef SYS_renameat
    SALIUS_CALL(renameat, kAlways, 0),
#endif
    SALIUS_CALL(ioctl, kIoctl, 1),
};
#undef SALIUS_CALL

// Names of calls that change nothing, for reports of "--only calls".
struct Name {
  uint64_t number;
  const char* name;
};
#define SALIUS_NAME(name) \
  { SYS_##name, #name }
constexpr Name kNames[] = {
    SALIUS_NAME(read),      SALIUS_NAME(close),    SALIUS_NAME(lseek),      SALIUS_NAME(fstat),
    SALIUS_NAME(fcntl),     SALIUS_NAME(futex),    SALIUS_NAME(newfstatat), SALIUS_NAME(readlinkat),
    SALIUS_NAME(fgetxattr), SALIUS_NAME(recvmmsg),
#ifdef SYS_readlink
    SALIUS_NAME(readlink),
#endif
};
#undef SALIUS_NAME

std::string NameOf(uint64_t number) {
  for (const Name& each : kNames) {
    if (each.number == number) return each.name;
  }
  return "call" + std::to_string(number);
}

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "kill_at: %s: %s\n", what, std::strerror(errno));
  std::exit(kExitFailure);
}

struct Options {
  uint64_t at = 0;  // 0: only count
  bool after = false;
  bool armed = false;  // count from SIGUSR1 on
  bool files = true;   // which calls count
  bool messages = true;
  bool all = false;  // every call counts
  std::string report;
  char** program = nullptr;
};

Options Parse(int argc, char** argv) {
  static const option kLong[] = {
      {"at", required_argument, nullptr, 'n'},     {"after", no_argument, nullptr, 'a'},
      {"armed", no_argument, nullptr, 'u'},        {"only", required_argument, nullptr, 'o'},
      {"report", required_argument, nullptr, 'r'}, {nullptr, 0, nullptr, 0}};
  Options options;
  for (int c; (c = getopt_long(argc, argv, "+", kLong, nullptr)) != -1;) {
    switch (c) {
      case 'n':
        options.at = std::strtoull(optarg, nullptr, 10);
        break;
      case 'a':
        options.after = true;
        break;
      case 'u':
        options.armed = true;
        break;
      case 'o':
        options.files = std::strcmp(optarg, "files") == 0;
        options.messages = std::strcmp(optarg, "messages") == 0;
        options.all = std::strcmp(optarg, "calls") == 0;
        break;
      case 'r':
        options.report = optarg;
        break;
      default:
        std::exit(kExitUsage);
    }
  }
  if (optind == argc || options.report.empty() ||
      (!options.files && !options.messages && !options.all)) {
    std::fprintf(
        stderr,
        "usage: kill_at [--at N [--after]] [--only files|messages|calls] [--armed] --report FILE "
        "-- PROGRAM [ARGUMENT]...\n"
        "FILE gets \"program PID\", a line for each point (number, system call, file), \"killed\"\n"
        "when it was, and \"ended\" when the program has ended\n");
    std::exit(kExitUsage);
  }
  options.program = argv + optind;
  return options;
}

// Lets every call pass except those of kCalls, which stop for the tracer; with `all` none pass.
void InstallFilter(bool all) {
  std::vector<sock_filter> filter;
  filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
  for (const Call& call : kCalls) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call.number), 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, all ? SECCOMP_RET_TRACE : SECCOMP_RET_ALLOW));
  const sock_fprog program = {static_cast<unsigned short>(filter.size()), filter.data()};
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) Die("seccomp (needs root)");
}

pid_t g_child = 0;
volatile sig_atomic_t g_armed = 0;

void OnSignal(int number) {
  if (number == SIGUSR1) {
    g_armed = 1;
  } else {
    kill(g_child, number);
  }
}

// Starts the program, attached, before it runs its first instruction.
pid_t Start(const Options& options) {
  int gate[2];
  if (pipe2(gate, O_CLOEXEC) != 0) Die("pipe");
  const pid_t child = fork();
  if (child < 0) Die("fork");
  if (child == 0) {
    close(gate[1]);
    char go;
    if (read(gate[0], &go, 1) != 1) _exit(kExitFailure);
    InstallFilter(options.all);
    execvp(options.program[0], options.program);
    Die(options.program[0]);
  }
  close(gate[0]);
  const long events = PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                      PTRACE_O_TRACEEXEC | PTRACE_O_TRACESECCOMP | PTRACE_O_TRACESYSGOOD |
                      PTRACE_O_EXITKILL;
  if (ptrace(PTRACE_SEIZE, child, 0, events) != 0) Die("ptrace");
  if (write(gate[1], "g", 1) != 1) Die("write");
  close(gate[1]);
  return child;
}

class Tracer {
 public:
  Tracer(const Options& options, pid_t child) : options_(options), child_(child) {
    report_ =
        open(options.report.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
    if (report_ < 0) Die(options.report.c_str());
    Report("program " + std::to_string(child));
  }

  // Runs until the program has ended; returns its exit status.
  int Run() {
    for (;;) {
      int status = 0;
      const pid_t tid = waitpid(-1, &status, __WALL);
      if (tid < 0 && errno == EINTR) continue;
      if (tid < 0) Die("waitpid");
      if (WIFEXITED(status) || WIFSIGNALED(status)) {
        if (tid != child_) continue;
        Report("ended");
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      }
      if (!killed_) Stopped(tid, status);
    }
  }

 private:
  void Stopped(pid_t tid, int status) {
    const int event = status >> 16;
    const int number = WSTOPSIG(status);
    if (event == PTRACE_EVENT_SECCOMP) {
      AtCall(tid);
    } else if (number == (SIGTRAP | 0x80)) {
      // Only the N-th call is ever followed to its end.
      if (tid == followed_) return Kill();
      Resume(PTRACE_CONT, tid, 0);
    } else if (event == PTRACE_EVENT_STOP && number != SIGTRAP) {
      Resume(PTRACE_LISTEN, tid, 0);  // a group stop: stays stopped until SIGCONT
    } else if (event != 0) {
      Resume(PTRACE_CONT, tid, 0);
    } else {
      Resume(tid == followed_ ? PTRACE_SYSCALL : PTRACE_CONT, tid, number);
    }
  }

  void AtCall(pid_t tid) {
    std::string name;
    if ((options_.armed && !g_armed) || !IsPoint(tid, &name)) {
      Resume(PTRACE_CONT, tid, 0);
      return;
    }
    ++points_;
    Report(std::to_string(points_) + " " + name);
    if (points_ != options_.at) {
      Resume(PTRACE_CONT, tid, 0);
    } else if (options_.after) {
      followed_ = tid;
      Resume(PTRACE_SYSCALL, tid, 0);
    } else {
      Kill();
    }
  }

  bool IsPoint(pid_t tid, std::string* name) {
    __ptrace_syscall_info info = {};
    if (ptrace(PTRACE_GET_SYSCALL_INFO, tid, sizeof info, &info) <= 0) return false;  // killed
    *name = NameOf(info.seccomp.nr);
    for (const Call& call : kCalls) {
      if (static_cast<uint64_t>(call.number) != info.seccomp.nr) continue;
      if (options_.all) {
        *name = call.name;
        return true;
      }
      const uint64_t argument = info.seccomp.args[call.index];
      *name = call.name;
      switch (call.kind) {
        case Kind::kAlways:
          return options_.files;
        case Kind::kFd:
          return IsWanted(tid, static_cast<int>(argument), name);
        case Kind::kOpen:
          return options_.files && Creates(argument);
        case Kind::kOpenHow:
          return options_.files && Creates(Peek(tid, argument));
        case Kind::kIoctl:
          return options_.files && (argument == FS_IOC_SETFLAGS || argument == FS_IOC_FSSETXATTR ||
                                    argument == FICLONE || argument == FICLONERANGE);
      }
    }
    return options_.all;
  }

  static bool Creates(uint64_t flags) {
    return (flags & (O_CREAT | O_TRUNC)) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  }

  static uint64_t Peek(pid_t tid, uint64_t address) {
    uint64_t value = 0;
    const iovec local = {&value, sizeof value};
    const iovec remote = {reinterpret_cast<void*>(address), sizeof value};
    return process_vm_readv(tid, &local, 1, &remote, 1, 0) == sizeof value ? value : 0;
  }

  bool IsWanted(pid_t tid, int fd, std::string* name) const {
    if (fd == STDOUT_FILENO || fd == STDERR_FILENO) return false;
    char target[PATH_MAX];
    const std::string link = "/proc/" + std::to_string(tid) + "/fd/" + std::to_string(fd);
    const ssize_t size = readlink(link.c_str(), target, sizeof target);
    if (size < 0) return false;  // the call will fail with EBADF
    const std::string path(target, static_cast<size_t>(size));
    if (path.rfind("pipe:", 0) == 0 || path.rfind("anon_inode:", 0) == 0 || path == "/dev/null") {
      return false;
    }
    const bool socket = path.rfind("socket:", 0) == 0;
    *name += " " + (socket ? "socket" : path);
    return socket || path == "/dev/fuse" ? options_.messages : options_.files;
  }

  void Kill() {
    killed_ = true;
    kill(child_, SIGKILL);
    Report("killed");
  }

  void Report(std::string line) {
    line += "\n";
    if (write(report_, line.data(), line.size()) < 0) Die("report");
  }

  void Resume(__ptrace_request request, pid_t tid, int number) {
    // ESRCH: the thread was killed meanwhile, and waitpid will report that.
    if (ptrace(request, tid, 0, static_cast<long>(number)) != 0 && errno != ESRCH) Die("resume");
  }

  const Options& options_;
  const pid_t child_;
  int report_ = -1;
  uint64_t points_ = 0;
  pid_t followed_ = 0;
  bool killed_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  g_child = Start(options);
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  for (const int number : {SIGUSR1, SIGTERM, SIGINT}) sigaction(number, &action, nullptr);
  const int status = Tracer(options, g_child).Run();
  static_assert(kExitKilled == 137);
  return status;
}
