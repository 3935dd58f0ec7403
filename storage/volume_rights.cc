#include "storage/volume_rights.h"

#include <linux/capability.h>

#include <cstdint>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/check.h"
#include "common/file.h"

namespace salius {
namespace {

// The buffers that sockets ask for (UdpSocket::Options).
constexpr uint64_t kSocketBufferBytes = 8 << 20;
constexpr int kFirstOrdinaryPort = 1024;

// Returns whether the kernel refuses such socket buffers to a process without CAP_NET_ADMIN.
bool BuffersAreLimited(const std::string& proc) {
  for (const char* const name : {"rmem_max", "wmem_max"}) {
    const absl::StatusOr<std::string> text =
        ReadWholeFile(absl::StrCat(proc, "/sys/net/core/", name));
    uint64_t bytes = 0;
    // Network namespaces have no such sysctl before Linux 6.10, and the host's limit applies.
    if (!text.ok() || !absl::SimpleAtoi(*text, &bytes) || bytes < kSocketBufferBytes) return true;
  }
  return false;
}

// Returns whether proc shows a process only to its user (mount option hidepid of proc(5)).
bool ProcHidesProcesses(const std::string& proc) {
  const absl::StatusOr<std::string> mounts = ReadWholeFile(absl::StrCat(proc, "/self/mountinfo"));
  if (!mounts.ok()) return false;
  for (const absl::string_view line : absl::StrSplit(*mounts, '\n')) {
    // ID PARENT DEVICE ROOT MOUNTPOINT OPTIONS... - proc SOURCE OPTIONS
    if (absl::StrContains(line, " / /proc ") && absl::StrContains(line, " - proc ") &&
        absl::StrContains(line, "hidepid=") && !absl::StrContains(line, "hidepid=off")) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::vector<Capability> NeededForVolume(const VolumeRights& rights) {
  std::vector<Capability> needed = {
      {CAP_CHOWN, "CAP_CHOWN", "owners of files"},
      {CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE", "files of any user"},
      {CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH", "files by handle"},
      {CAP_FOWNER, "CAP_FOWNER", "modes and times of any user's file"},
      {CAP_FSETID, "CAP_FSETID", "set-id bits"},
      {CAP_MKNOD, "CAP_MKNOD", "device files"},
      {CAP_SETFCAP, "CAP_SETFCAP", "file capabilities"},
      {CAP_SYS_ADMIN, "CAP_SYS_ADMIN", "mount, umount, trusted.* attributes, quotas of users"},
      {CAP_SYS_RESOURCE, "CAP_SYS_RESOURCE", "acknowledged writes beyond a quota; limits"},
      {CAP_SYSLOG, "CAP_SYSLOG", "ext4's messages in the kernel's log"},
  };
  if (BuffersAreLimited(rights.proc)) {
    needed.push_back({CAP_NET_ADMIN, "CAP_NET_ADMIN",
                      "socket buffers of 8 MiB, because net.core.rmem_max or wmem_max is less"});
  }
  if (rights.reads_callers) {
    needed.push_back({CAP_SYS_PTRACE, "CAP_SYS_PTRACE", "salius_notify, commit=external"});
  } else if (ProcHidesProcesses(rights.proc)) {
    needed.push_back(
        {CAP_SYS_PTRACE, "CAP_SYS_PTRACE", "groups of callers, because /proc has hidepid"});
  }
  if (rights.signals_command) {
    needed.push_back({CAP_KILL, "CAP_KILL", "signals to the command"});
  }
  if (rights.metrics_port > 0 && rights.metrics_port < kFirstOrdinaryPort) {
    needed.push_back({CAP_NET_BIND_SERVICE, "CAP_NET_BIND_SERVICE", "the port of the metrics"});
  }
  return needed;
}

absl::StatusOr<std::string> KeepRightsForVolume(const VolumeRights& rights) {
  SALIUS_ASSIGN_OR_RETURN(const std::vector<Capability> kept, KeepOnly(NeededForVolume(rights)));
  return kept.empty() ? "" : absl::StrCat("capabilities kept: ", CapabilitiesText(kept));
}

}  // namespace salius
