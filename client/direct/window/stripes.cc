#include "client/direct/window/stripes.h"

#include "client/direct/window/waits.h"

namespace salius::direct {
namespace {

// Takes note of the owner's death. The stripe is held by the caller now.
void Bury(const SharedWindow& window, Stripe& stripe) {
  const uint32_t file = stripe.file.load();
  if (file < window.header().files) UncoverFile(window, file, Reason::kDeadOwner);
  window.header().counters.dead_owners.fetch_add(1, std::memory_order_relaxed);
  Kick(window, kTroubleDeadOwner);
}

}  // namespace

void TakeStripe(const SharedWindow& window, uint32_t file) {
  Stripe& stripe = window.stripe(file);
  if (TakeLock(stripe.lock) == Taken::kFromTheDead) Bury(window, stripe);
  stripe.file.store(file);
}

bool TryTakeStripe(const SharedWindow& window, uint32_t file) {
  Stripe& stripe = window.stripe(file);
  const Taken taken = TryTakeLock(stripe.lock);
  if (taken == Taken::kNo) return false;
  if (taken == Taken::kFromTheDead) Bury(window, stripe);
  stripe.file.store(file);
  return true;
}

void GiveStripe(const SharedWindow& window, uint32_t file) {
  Stripe& stripe = window.stripe(file);
  stripe.file.store(kNoFile);
  GiveLock(stripe.lock);
}

uint32_t VisitStripes(const SharedWindow& window) {
  uint32_t held = 0;
  for (uint32_t i = 0; i < window.header().stripes; ++i) {
    if (!TryTakeStripe(window, i)) {
      ++held;
      continue;
    }
    GiveStripe(window, i);
  }
  return held;
}

}  // namespace salius::direct
