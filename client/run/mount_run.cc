#include "client/run/mount_run.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/api/ioctl.h"
#include "client/direct/process/attach.h"
#include "client/fuse/mount_table.h"
#include "client/gate/client.h"
#include "client/gate/mount_gates.h"
#include "client/run/await_command.h"
#include "client/run/child.h"
#include "client/run/program.h"
#include "client/run/supervisor.h"
#include "common/check.h"
#include "common/file.h"
#include "common/random.h"

namespace salius::run {
namespace {

// Processes that have not ended this long after the command were left behind by it.
constexpr int kLeftBehindMs = 500;

// A mount whose gate takes the command.
struct GatedMount {
  std::string mountpoint;
  uint64_t device = 0;
  salius_ioc_gate gate{};
  // Open until the end: the mount stays, so that no other file system gets its device number.
  UniqueFd root;
};

// Returns the mounts with commit=external. `reasons` gets why others were left out.
absl::StatusOr<std::vector<GatedMount>> FindMounts(std::vector<std::string>* reasons) {
  SALIUS_ASSIGN_OR_RETURN(const std::vector<MountEntry> table, ReadMountTable());
  std::vector<GatedMount> found;
  std::set<uint64_t> devices;
  for (const MountEntry& entry : table) {
    if (entry.type != kMountType) continue;
    const auto leave = [&](const std::string& why) {
      reasons->push_back(absl::StrCat(entry.mountpoint, ": ", why));
    };
    GatedMount mount{.mountpoint = entry.mountpoint};
    mount.root.Reset(::open(entry.mountpoint.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    struct stat root {};
    if (!mount.root.valid() || ::fstat(mount.root.get(), &root) != 0) {
      leave(std::strerror(errno));
    } else if (::ioctl(mount.root.get(), SALIUS_IOC_GATE, &mount.gate) != 0) {
      leave(errno == ENOTSUP ? "it has another contract than commit=external"
                             : std::strerror(errno));
    } else if (devices.insert(root.st_dev).second) {  // else a bind mount
      mount.device = root.st_dev;
      found.push_back(std::move(mount));
    }
  }
  if (found.size() > gate::kMostMounts) {
    for (size_t i = gate::kMostMounts; i < found.size(); ++i) {
      reasons->push_back(absl::StrCat(found[i].mountpoint, ": more than ", gate::kMostMounts,
                                      " mounts have commit=external; programs wait there"));
    }
    found.resize(gate::kMostMounts);
    for (const std::string& reason : *reasons) Say(reason);
  }
  return found;
}

absl::Status NoMount(const std::vector<std::string>& reasons) {
  std::string text =
      "there is no mount with commit=external here: mount a volume with `-o commit=external`, or "
      "give a direct volume by --direct DIR";
  if (!reasons.empty()) absl::StrAppend(&text, " (", absl::StrJoin(reasons, "; "), ")");
  return absl::FailedPreconditionError(text);
}

// Returns whether the kernel reports when the last process with a filter has ended (Linux 5.9).
bool ReportsLastEnd() {
  utsname name{};
  int major = 0, minor = 0;
  return ::uname(&name) == 0 && std::sscanf(name.release, "%d.%d", &major, &minor) == 2 &&
         (major > 5 || (major == 5 && minor >= 9));
}

// The gates of the mounts, in this process and in the shared memory. Used by one thread.
class Gates {
 public:
  absl::Status Begin(const std::vector<GatedMount>& mounts);
  // Has the command's outputs gated.
  void GateOutputs(ChildOptions& child);
  // Waits for the last process of the command, and until everything is durable. Returns 0 or an
  // errno.
  int End();

 private:
  UniqueFd memory_;
  gate::MountGates gates_;
  Surroundings surroundings_;
  std::optional<Supervisor> supervisor_;
};

absl::Status Gates::Begin(const std::vector<GatedMount>& mounts) {
  memory_.Reset(::memfd_create("salius-gates", MFD_CLOEXEC));
  if (!memory_.valid() || ::ftruncate(memory_.get(), sizeof(gate::Shared)) != 0) {
    return ErrnoStatus(errno, "the shared memory of the gates");
  }
  void* const at = ::mmap(nullptr, sizeof(gate::Shared), PROT_READ | PROT_WRITE, MAP_SHARED,
                          memory_.get(), 0);
  if (at == MAP_FAILED) return ErrnoStatus(errno, "the shared memory of the gates");
  auto* const shared = static_cast<gate::Shared*>(at);
  shared->magic = gate::kSharedMagic;
  shared->count = static_cast<uint32_t>(mounts.size());
  while (shared->session == 0) shared->session = static_cast<uint32_t>(SecureRandom64());
  for (size_t i = 0; i < mounts.size(); ++i) {
    gate::Shared::Mount& mount = shared->mounts[i];
    static_assert(sizeof(mount.gate) >= sizeof(mounts[i].gate.path));
    mount.device = mounts[i].device;
    std::memcpy(mount.gate, mounts[i].gate.path, sizeof(mounts[i].gate.path));
    surroundings_.devices.insert(mounts[i].device);
  }
  ::munmap(at, sizeof(gate::Shared));
  if (const int error = gates_.Attach(memory_.get()); error != 0) {
    // The reason is the daemon's.
    for (const GatedMount& mount : mounts) {
      gate::Joined tried = gate::Join(mount.gate.path);
      if (tried.error != 0) {
        return ErrnoStatus(tried.error, absl::StrCat("cannot register at the gate of ",
                                                     mount.mountpoint, ": ", tried.text));
      }
      gate::Leave(tried);
    }
    return ErrnoStatus(error, "cannot register at the gates of the mounts");
  }
  struct stat memory {};
  if (::fstat(memory_.get(), &memory) != 0) return ErrnoStatus(errno, "fstat");
  surroundings_.window = {memory.st_dev, memory.st_ino};
  return absl::OkStatus();
}

void Gates::GateOutputs(ChildOptions& child) {
  surroundings_.held = OpenStreams();
  child.held = HeldText(surroundings_.held);
  child.gates = absl::StrCat("/proc/", ::getpid(), "/fd/", memory_.get());
  child.supervise = [this](UniqueFd listener) {
    supervisor_.emplace(std::move(listener), gates_, surroundings_);
  };
}

int Gates::End() {
  if (supervisor_.has_value() && !supervisor_->AwaitLast(kLeftBehindMs)) {
    Say("the command has ended; waiting for processes that it left behind");
    supervisor_->AwaitLast(-1);
  }
  return gates_.Await();
}

}  // namespace

absl::StatusOr<int> RunAtMounts(const RunCommand& command) {
  if (std::getenv(direct::kAttachVariable) != nullptr) {
    return absl::FailedPreconditionError(
        "this is within a command of salius-run --direct, whose outputs are not gated for mounts: "
        "start salius-run outside of it");
  }
  if (std::getenv(gate::kGatesVariable) != nullptr) {
    return absl::FailedPreconditionError(
        "this is within a command of salius-run already: start the program itself");
  }
  if (!ReportsLastEnd()) {
    return absl::FailedPreconditionError(
        "outputs cannot be gated for mounts here: Linux 5.9 is needed");
  }
  SALIUS_ASSIGN_OR_RETURN(ChildOptions child, PrepareChild(command.command, Programs::kGated));
  std::vector<std::string> reasons;
  const absl::StatusOr<std::vector<GatedMount>> mounts = FindMounts(&reasons);
  if (!mounts.ok()) return absl::FailedPreconditionError(mounts.status().message());
  if (mounts->empty()) return NoMount(reasons);
  Gates gates;
  if (const absl::Status begun = gates.Begin(*mounts); !begun.ok()) {
    return absl::FailedPreconditionError(begun.message());
  }
  gates.GateOutputs(child);
  SALIUS_ASSIGN_OR_RETURN(const pid_t started, StartChild(child));
  const int code = AwaitCommand(started);
  if (const int error = gates.End(); error != 0) {
    Say(absl::StrCat("not everything that the command did is durable: ", std::strerror(error)));
    return kExitFailure;
  }
  return code;
}

}  // namespace salius::run
