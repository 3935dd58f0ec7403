#include "client/session/promises.h"

#include <algorithm>
#include <optional>

namespace salius {

bool Promises::Opened(int64_t now, int index, StoreId store) {
  Replica& replica = replicas_[index];
  // It was opened before in this session, so its memory of the session is gone. With another store
  // its promises are gone too.
  const std::optional<Configuration>& pending = configurations_.pending();
  const bool counted_before = configurations_.replicated().has_value() ||
                              (pending.has_value() && pending->mode == Mode::kReplicated);
  const bool forgot = replica.opened && (store == 0 || store != replica.store) && counted_before &&
                      !IsOfMember(store);
  if (forgot) {
    replica.forgot_ns = now;
    in_doubt_ |= ReplicaBit(index);
  }
  // Another store is another replica under this name: its predecessor's answers do not count.
  if (replica.store != store) replica.asked_ns = -1;
  replica.store = store;
  replica.opened = true;
  return forgot;
}

void Promises::Answered(int replica, int64_t sent_ns) {
  int64_t& asked_ns = replicas_[replica].asked_ns;
  asked_ns = std::max(asked_ns, sent_ns);
}

bool Promises::IsOfMember(StoreId store) const {
  const auto names = [store](const std::optional<Configuration>& config) {
    return config.has_value() && store != 0 &&
           std::find(config->store.begin(), config->store.end(), store) != config->store.end();
  };
  return names(configurations_.replicated()) || names(configurations_.pending());
}

bool Promises::Witnessed(const Configuration& config, int64_t since) const {
  int witnesses = 0;
  for (int i = 0; i < static_cast<int>(kMaxReplicas); ++i) {
    if ((config.members & ReplicaBit(i)) == 0 || config.store[i] == 0) continue;
    const auto answered = [&](const Replica& replica) {
      return replica.store == config.store[i] && replica.asked_ns >= since;
    };
    witnesses += std::any_of(replicas_.begin(), replicas_.end(), answered) ? 1 : 0;
  }
  return acks_ <= witnesses;
}

// If a replica forgot a fence, the fence had its quorum, |members| - f + 1, before that; then one
// of any f members would have answered "fenced".
ReplicaMask Promises::EndDoubts() {
  const std::optional<Configuration>& replicated = configurations_.replicated();
  const std::optional<Configuration>& pending = configurations_.pending();
  ReplicaMask ended = 0;
  for (int i = 0; in_doubt_ >> i != 0; ++i) {
    Replica& replica = replicas_[i];
    if ((in_doubt_ & ReplicaBit(i)) == 0) continue;
    // A recovery may have found the note that is being written.
    if (replicated.has_value() && !Witnessed(*replicated, replica.forgot_ns)) continue;
    if (pending.has_value() && pending->mode == Mode::kReplicated &&
        !Witnessed(*pending, replica.forgot_ns)) {
      continue;
    }
    ended |= ReplicaBit(i);
    replica.forgot_ns = -1;
  }
  in_doubt_ &= static_cast<ReplicaMask>(~ended);
  return ended;
}

}  // namespace salius
