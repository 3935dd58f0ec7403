#include "client/direct/coordinator/shared_keys.h"

#include <algorithm>
#include <iterator>

#include "client/direct/window/robust_lock.h"
#include "common/check.h"

namespace salius::direct {
namespace {

bool Has(const KeysInUse& keys, size_t replica, uint32_t key_id) {
  return std::any_of(keys.ack_keys.begin(), keys.ack_keys.end(), [&](const auto& key) {
    return static_cast<size_t>(key.replica) == replica && key.key_id == key_id;
  });
}

}  // namespace

void PublishKeys(const SharedWindow& window, const KeysInUse& keys) {
  const WindowLock lock(window);
  SealState& seal = window.header().seal;
  seal.record_key = {keys.record_key_id, keys.record_key};
  for (size_t i = 0; i < kMaxReplicas; ++i) {
    for (AckKey& slot : seal.ack_keys[i]) {
      if (slot.id != 0 && !Has(keys, i, slot.id)) slot = {};
    }
  }
  for (const KeysInUse::AckKey& key : keys.ack_keys) {
    auto& slots = seal.ack_keys[static_cast<size_t>(key.replica)];
    const auto with = [&slots](uint32_t id) {
      return std::find_if(std::begin(slots), std::end(slots),
                          [id](const AckKey& slot) { return slot.id == id; });
    };
    auto slot = with(key.key_id);
    if (slot != std::end(slots) && slot->key == key.key) continue;
    // Another key of the same id: of a later process of the replica.
    if (slot == std::end(slots)) slot = with(0);
    SALIUS_CHECK(slot != std::end(slots));  // there are at most kAckKeys at a time
    *slot = {key.key_id, key.key, {}};
  }
}

}  // namespace salius::direct
