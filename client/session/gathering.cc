#include "client/session/gathering.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace salius {
namespace {

// Half of what a primary may always have under way: the rest is not held up by what is kept back.
constexpr GatherBounds kUntilOutput{256u << 10, 5'000'000'000};
// The records kept back use up at most this part of the log, and of the time until a checkpoint: a
// full log opens only when records are durable.
constexpr int64_t kPart = 8;
// The in-flight peak is remembered for the next 64 to 128 records.
constexpr Seq kPeakRecords = 64;
constexpr Seq kMostAtOnce = 16;

}  // namespace

// On two CPUs five (docs/history/performance.md); replicas have one thread that receives, however
// many CPUs there are.
Seq FewRecords(int64_t cpus) {
  return cpus > 1 ? std::min<Seq>(2 * static_cast<Seq>(cpus) + 1, kMostAtOnce) : 0;
}

GatherBounds OutputTriggered(uint64_t log_max_bytes, int64_t tau_ns) {
  GatherBounds bounds = kUntilOutput;
  bounds.bytes = std::min<uint64_t>(bounds.bytes, log_max_bytes / kPart);
  bounds.ns = std::min(bounds.ns, tau_ns / kPart);
  return bounds;
}

void Gathering::Issued(int64_t now, Seq durable) {
  const Seq issued = window_.issued();
  peak_ = std::max(peak_, issued - durable);
  if (issued % kPeakRecords == 0) peak_before_ = std::exchange(peak_, 0);
  if (sendable_ + 1 == issued) since_ns_ = now;
}

bool Gathering::Release(int64_t now, SendWhen when, Seq durable) {
  const Seq issued = window_.issued();
  if (sendable_ == issued) return false;
  const bool full = window_.BytesUpTo(issued) - window_.BytesUpTo(sendable_) >= bounds_.bytes;
  bool release = when == SendWhen::kNow || full;
  if (when == SendWhen::kSoon) {
    soon_ = true;
    const bool few = std::max(peak_before_, peak_) <= few_;
    release = release || durable >= sendable_ || few;
  }
  if (release) ReleaseUpTo(now, window_.issued());
  return release;
}

void Gathering::ReleaseLate(int64_t now) {
  if (now >= late_ns()) ReleaseUpTo(now, window_.issued());
}

int64_t Gathering::late_ns() const {
  return sendable_ < window_.issued() ? since_ns_ + bounds_.ns : std::numeric_limits<int64_t>::max();
}

void Gathering::ReleaseUpTo(int64_t now, Seq upto) {
  for (Seq seq = std::max(sendable_, window_.checkpoint()) + 1; seq <= upto; ++seq) {
    window_.At(seq).sendable_ns = now;
  }
  sendable_ = upto;
  soon_ = false;
}

}  // namespace salius
