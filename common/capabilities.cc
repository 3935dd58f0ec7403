#include "common/capabilities.h"

#include <errno.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/file.h"

namespace salius {
namespace {

constexpr int kWordBits = 32;

uint64_t BitOf(int capability) { return uint64_t{1} << capability; }

}  // namespace

absl::StatusOr<std::vector<Capability>> KeepOnly(absl::Span<const Capability> keep) {
  uint64_t wanted = 0;
  for (const Capability& capability : keep) wanted |= BitOf(capability.number);
  // First the bounding set, which needs CAP_SETPCAP: a program that root starts gets all of it. It
  // ends at the last capability that the kernel knows. Where it cannot be reduced, as in a container
  // without CAP_SETPCAP, this process still gives up its own.
  for (int number = 0; ::prctl(PR_CAPBSET_READ, number, 0, 0, 0) >= 0; ++number) {
    if ((wanted & BitOf(number)) == 0) {
      static_cast<void>(::prctl(PR_CAPBSET_DROP, number, 0, 0, 0));
    }
  }
  static_cast<void>(::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0));
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {};
  if (::syscall(SYS_capget, &header, sets) != 0) return ErrnoStatus(errno, "capget");
  uint64_t left = 0;
  for (int word = 0; word < _LINUX_CAPABILITY_U32S_3; ++word) {
    const auto mask = static_cast<uint32_t>(wanted >> (word * kWordBits));
    sets[word].permitted &= mask;
    sets[word].effective &= mask;
    sets[word].inheritable &= mask;
    left |= uint64_t{sets[word].permitted} << (word * kWordBits);
  }
  if (::syscall(SYS_capset, &header, sets) != 0) return ErrnoStatus(errno, "capset");
  std::vector<Capability> kept;
  for (const Capability& capability : keep) {
    if ((left & BitOf(capability.number)) != 0) kept.push_back(capability);
  }
  return kept;
}

std::string CapabilitiesText(absl::Span<const Capability> kept) {
  if (kept.empty()) return "none";
  return absl::StrJoin(kept, ", ", [](std::string* out, const Capability& capability) {
    absl::StrAppendFormat(out, "%s (%s)", capability.name, capability.why);
  });
}

}  // namespace salius
