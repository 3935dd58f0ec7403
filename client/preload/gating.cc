#include "client/preload/gating.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/prctl.h>

#include <cerrno>
#include <cstring>

#include "client/gate/descriptor_kind.h"
#include "client/preload/library.h"
#include "client/preload/look.h"
#include "client/preload/section.h"

namespace salius::preload {
namespace {

// Reads a hexadecimal number and moves `at` behind it.
uint64_t ReadHex(const char*& at) {
  uint64_t value = 0;
  for (;; ++at) {
    const char digit = *at;
    if (digit >= '0' && digit <= '9') {
      value = value << 4 | static_cast<uint64_t>(digit - '0');
    } else if (digit >= 'a' && digit <= 'f') {
      value = value << 4 | static_cast<uint64_t>(digit - 'a' + 10);
    } else {
      return value;
    }
  }
}

}  // namespace

constinit Gating gating;

// Noticed() at this thread's last call.
__attribute__((tls_model("initial-exec"))) static thread_local uint64_t seen = 0;

bool Gating::IsWatched() { return Raw(SYS_prctl, gate::kGateProbe, 0, 0, 0, 0) == -EALREADY; }

void Gating::Start(gate::Gate& gate, const char* held) {
  while (held != nullptr && *held != '\0' && held_count_ < kMostHeld) {
    Held& one = held_[held_count_];
    one.device = ReadHex(held);
    if (*held++ != ':') break;
    one.inode = ReadHex(held);
    ++held_count_;
    if (*held++ != ',') break;
  }
  gate_.store(&gate, std::memory_order_release);
}

bool Gating::IsHeld(uint64_t device, uint64_t inode) const {
  for (int i = 0; i < held_count_; ++i) {
    if (held_[i].device == device && held_[i].inode == inode) return true;
  }
  return false;
}

bool Gating::Leads(int fd, bool closes) const {
  Seen seen;
  if (!LookAt(fd, &seen)) return false;  // the kernel says why
  const bool regular = S_ISREG(seen.mode);
  const bool in_volume =
      regular && !closes &&
      (library.files().IsMount(seen.device) || library.Found(fd).tracked() ||
       library.files().IsOfVolume(fd));
  const bool inside = !regular && gate_.load()->Inside(seen.device, seen.inode);
  const gate::Kind kind = gate::KindOf(seen.mode, seen.device_number, in_volume, inside);
  if (!closes) return kind != gate::Kind::kInside;
  return kind == gate::Kind::kStream && !IsHeld(seen.device, seen.inode);
}

bool Gating::Outside(int fd) const { return Leads(fd, false); }

void Gating::Settle() {
  gate::Gate& gate = *gate_.load(std::memory_order_relaxed);
  const uint64_t noticed = gate.Noticed();
  if (noticed == seen) return;
  seen = noticed;
  gate.Owe();
}

Gating::Verdict Gating::WaitNow() {
  Section section;
  // The wait may need a lock that this thread holds.
  if (!section.whole()) return Verdict::kLeave;
  const int error = gate_.load()->Await();
  if (error == ENOTCONN) return Verdict::kLeave;
  return error == 0 ? Verdict::kGo : Verdict::kFail;
}

Gating::Verdict Gating::Wait(int fd, bool closes) {
  Settle();
  if (!gate_.load(std::memory_order_relaxed)->Pending() || !Leads(fd, closes)) return Verdict::kGo;
  return WaitNow();
}

Gating::Verdict Gating::JudgeName(int directory, const char* path, int* folder_of_new) {
  Settle();
  if (!gate_.load(std::memory_order_relaxed)->Pending()) return Verdict::kGo;
  char parent[PATH_MAX];
  const size_t length = path == nullptr ? PATH_MAX : strnlen(path, PATH_MAX);
  if (length == 0 || length >= PATH_MAX) return Verdict::kGo;  // the kernel refuses it
  memcpy(parent, path, length + 1);
  const char* name = LastComponent(path);
  if (name == path) {
    strcpy(parent, ".");
  } else {
    parent[name - path == 1 ? 1 : name - path - 1] = '\0';
  }
  const long folder =
      Raw(SYS_openat, directory, parent, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOCTTY);
  if (folder < 0) return Verdict::kLeave;
  Seen parent_seen, seen;
  const bool ours = LookAt(static_cast<int>(folder), &parent_seen) &&
                    library.files().IsOfVolume(static_cast<int>(folder));
  if (ours && folder_of_new != nullptr && *name != '\0') {
    *folder_of_new = static_cast<int>(folder);
    return Verdict::kGo;
  }
  // The call may follow a link that leads outside. Another file may be mounted over the name.
  const bool there = *name == '\0' ? LookAt(directory, path, &seen)
                                    : LookAt(static_cast<int>(folder), name, &seen);
  const bool stays = !there || (!S_ISLNK(seen.mode) && seen.device == parent_seen.device);
  Raw(SYS_close, folder);
  return ours && stays ? Verdict::kGo : WaitNow();
}

void Gating::Made(const int* fds, int count) {
  if (!on()) return;
  for (int i = 0; i < count; ++i) {
    Seen made;
    if (LookAt(fds[i], &made)) gate_.load()->MakeInside(made.device, made.inode);
  }
}

void Gating::Passes(int fd) {
  if (on() && Outside(fd)) gate_.load()->Passed();
}

bool Gating::Lends(int fd) {
  return on() && Outside(fd) && !gate_.load()->EndEarly(gate::kLentPages);
}

}  // namespace salius::preload
