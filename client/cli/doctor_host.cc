#include <fcntl.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/doctor.h"
#include "client/cli/status_text.h"
#include "common/clock.h"
#include "common/file.h"

namespace salius::cli {
namespace {

// The first kernels with FUSE's extended setxattr, which the mount needs, and with unique mount
// ids.
constexpr int kKernelNeeded = 5'013;
constexpr int kKernelWanted = 6'008;

// A mount keeps a descriptor per inode in use and per file open until a checkpoint.
constexpr uint64_t kOpenFilesWanted = 65536;

// A socket buffer of this size holds the default window of records in flight
// (transport/udp_socket.h).
constexpr uint64_t kReceiveBufferWanted = 8 << 20;

// 2024-01-01 and 2100-01-01: outside this range the clock was never set.
constexpr int64_t kEarliestTime = 1'704'067'200;
constexpr int64_t kLatestTime = 4'102'444'800;

// A clock that steps more than a second between two successive readings cannot measure delta.
constexpr int64_t kMonotonicStepMaxNs = 1'000'000'000;

// A drain may take this long (client/mount/mount_daemon.cc), and a request waits for the same disk.
constexpr uint64_t kDrainSeconds = 15 * 60;

uint64_t HardLimit(int resource) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return 0;
  return limit.rlim_max == RLIM_INFINITY ? UINT64_MAX : limit.rlim_max;
}

void JudgeKernel(const std::string& release, Findings& findings) {
  int major = 0, minor = 0;
  if (std::sscanf(release.c_str(), "%d.%d", &major, &minor) != 2) {
    findings.Warn("kernel", absl::StrCat("\"", release, "\" is no version"),
                  "make sure that it is Linux 5.13 or newer");
    return;
  }
  const int version = major * 1000 + minor;
  if (version < kKernelNeeded) {
    findings.Fail("kernel", release, "Linux 5.13 or newer is needed for the mount");
  } else if (version < kKernelWanted) {
    findings.Warn("kernel", release,
                  "before Linux 6.8 mounts have no unique ids: after a crash of the mount process "
                  "recovery asks the replicas, as after a power cut");
  } else {
    findings.Ok("kernel", release);
  }
}

void JudgeFuse(const HostFacts& facts, Findings& findings) {
  if (facts.fuse_device.ok()) {
    findings.Ok("/dev/fuse", "can be opened");
  } else {
    findings.Fail("/dev/fuse", std::string(facts.fuse_device.message()),
                  "load the kernel module (modprobe fuse); in a container, pass the device in");
  }
  if (!facts.fusermount.empty()) {
    findings.Ok("fusermount3", facts.fusermount);
  } else {
    findings.Warn("fusermount3", "not found", "install the package fuse3, to unmount as a user");
  }
  if (facts.root) {
    findings.Ok("user", "root");
  } else {
    findings.Fail("user", "not root",
                  "run it as root: owners, trusted xattrs and file handles need it");
  }
}

// Judges the kernel's request time-out: the kernel ends a mount whose daemon leaves one request
// unanswered for that long.
void JudgeRequestTimeout(const HostFacts& facts, Findings& findings) {
  uint64_t seconds = facts.fuse_default_timeout_s;
  if (seconds == 0 || (facts.fuse_max_timeout_s > 0 && facts.fuse_max_timeout_s < seconds)) {
    seconds = facts.fuse_max_timeout_s;
  }
  if (seconds == 0) {
    findings.Ok("FUSE request time-out", "none");
  } else if (seconds >= kDrainSeconds) {
    findings.Ok("FUSE request time-out", absl::StrCat(seconds, " s"));
  } else {
    findings.Warn("FUSE request time-out", absl::StrCat(seconds, " s"),
                  "a disk that stalls for longer ends the mount, which may drain for 15 min: sysctl "
                  "-w fs.fuse.default_request_timeout=0 fs.fuse.max_request_timeout=0");
  }
}

// Returns the value of a sysctl; 0 when this kernel does not have it.
uint64_t SysctlOf(const std::string& name) {
  const absl::StatusOr<std::string> text = ReadWholeFile("/proc/sys/" + name);
  uint64_t value = 0;
  return text.ok() && absl::SimpleAtoi(absl::StripAsciiWhitespace(*text), &value) ? value : 0;
}

void JudgeLimits(const HostFacts& facts, Findings& findings) {
  const std::string files = absl::StrCat(facts.open_files_limit);
  if (facts.open_files_limit >= kOpenFilesWanted) {
    findings.Ok("open files", absl::StrCat("limit ", files));
  } else {
    findings.Warn("open files", absl::StrCat("limit ", files),
                  absl::StrCat("raise it to ", kOpenFilesWanted, " (LimitNOFILE=, ulimit -n)"));
  }
  if (facts.memlock_limit == UINT64_MAX || facts.root) {
    findings.Ok("locked memory", "unlimited");
  } else {
    findings.Warn("locked memory", absl::StrCat("limit ", FormatBytes(facts.memlock_limit)),
                  "a replica on this host must lock its memory: LimitMEMLOCK=infinity");
  }
  const std::string buffer = FormatBytes(facts.receive_buffer_max);
  if (facts.receive_buffer_max >= kReceiveBufferWanted || facts.root) {
    findings.Ok("socket buffers", absl::StrCat("net.core.rmem_max ", buffer,
                                               facts.root ? " (root may exceed it)" : ""));
  } else {
    findings.Warn("socket buffers", absl::StrCat("net.core.rmem_max ", buffer),
                  "sysctl -w net.core.rmem_max=8388608, or bursts are lost and sent again");
  }
}

void JudgeClock(const HostFacts& facts, Findings& findings) {
  if (facts.monotonic_step_ns < 0 || facts.monotonic_step_ns > kMonotonicStepMaxNs) {
    findings.Fail("monotonic clock", absl::StrFormat("stepped %d ns", facts.monotonic_step_ns),
                  "time-outs cannot be kept on this host; look at its clock source");
  } else {
    findings.Ok("monotonic clock", "goes forward");
  }
  if (facts.realtime_s < kEarliestTime || facts.realtime_s > kLatestTime) {
    findings.Warn(
        "time of day", absl::StrFormat("%d s since 1970", facts.realtime_s),
        "set the clock (NTP): records carry it, though their order does not depend on it");
  } else {
    findings.Ok("time of day", absl::StrFormat("%d s since 1970", facts.realtime_s));
  }
}

}  // namespace

HostFacts GatherHostFacts() {
  HostFacts facts;
  utsname name{};
  if (uname(&name) == 0) facts.kernel = name.release;
  facts.fuse_device = OpenAt(AT_FDCWD, "/dev/fuse", O_RDWR).status();
  for (const char* const path :
       {"/usr/bin/fusermount3", "/bin/fusermount3", "/usr/local/bin/fusermount3"}) {
    if (facts.fusermount.empty() && access(path, X_OK) == 0) facts.fusermount = path;
  }
  facts.root = geteuid() == 0;
  facts.open_files_limit = HardLimit(RLIMIT_NOFILE);
  facts.memlock_limit = HardLimit(RLIMIT_MEMLOCK);
  facts.receive_buffer_max = SysctlOf("net/core/rmem_max");
  facts.fuse_default_timeout_s = SysctlOf("fs/fuse/default_request_timeout");
  facts.fuse_max_timeout_s = SysctlOf("fs/fuse/max_request_timeout");
  const int64_t before = SystemClock().MonotonicNanos();
  facts.monotonic_step_ns = SystemClock().MonotonicNanos() - before;
  facts.realtime_s = SystemClock().RealtimeNanos() / 1'000'000'000;
  return facts;
}

void JudgeHost(const HostFacts& facts, Findings& findings) {
  JudgeKernel(facts.kernel, findings);
  if (facts.mounts) {
    JudgeFuse(facts, findings);
    JudgeRequestTimeout(facts, findings);
  }
  JudgeLimits(facts, findings);
  JudgeClock(facts, findings);
}

}  // namespace salius::cli
