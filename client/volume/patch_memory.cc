#include "client/volume/patch_memory.h"

#include <algorithm>

#include "common/check.h"

namespace salius {
namespace {

// After this time without room the caller helps: it waits for the oldest record itself.
constexpr int64_t kBriefNs = 20'000'000;

}  // namespace

PatchMemory::PatchMemory(uint64_t limit_bytes)
    : limit_(limit_bytes),
      waits_(GetCounter("salius_patch_memory_waits_total",
                        "Writes that waited because patch_memory was full")) {}

void PatchMemory::Changed(uint64_t before, uint64_t after) {
  if (before == after) return;
  used_.fetch_add(after - before);
  if (after > before || waiting_.load() == 0) return;
  absl::MutexLock lock(&mu_);
  room_.SignalAll();
}

absl::Status PatchMemory::AwaitRoomSlowly(RecordStream& stream) {
  waits_.Increment();
  waiting_.fetch_add(1);
  absl::Status status = stream.WaitDurable(stream.watermarks().issued);
  while (status.ok() && used() >= limit_) {
    stream.TryApply();
    {
      absl::MutexLock lock(&mu_);
      if (used() >= limit_) room_.WaitFor(&mu_, kBriefNs);
    }
    const Watermarks marks = stream.watermarks();
    if (used() < limit_) break;
    // Other records may make room long before the oldest one.
    status = stream.WaitAppliedFor(std::min(marks.applied + 1, marks.issued), kBriefNs);
    if (absl::IsDeadlineExceeded(status)) status = absl::OkStatus();
  }
  waiting_.fetch_sub(1);
  return status;
}

}  // namespace salius
