#include "client/session/waiters.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace salius {

void Waiters::Add(Seq seq, DurableCallback done) {
  callbacks_.push_back({seq, std::move(done)});
  std::push_heap(callbacks_.begin(), callbacks_.end(), Later);
}

void Waiters::TakeFirst(std::vector<Callback>& to) {
  std::pop_heap(callbacks_.begin(), callbacks_.end(), Later);
  to.push_back(std::move(callbacks_.back()));
  callbacks_.pop_back();
}

void Waiters::TakeUpTo(Seq durable, std::vector<Callback>& to) {
  while (!callbacks_.empty() && callbacks_.front().seq <= durable) TakeFirst(to);
}

void Waiters::TakeAll(std::vector<Callback>& to) {
  while (!callbacks_.empty()) TakeFirst(to);
}

bool Waiters::TryLead(bool acks_count) {
  const auto waiting = static_cast<int64_t>(callbacks_.size()) + followers_;
  waiting_64ths_ += (waiting * 64 - waiting_64ths_) / 8;
  if (leader_ || !acks_count) return false;
  leader_ = leader_seen_ = true;
  return true;
}

Waiters::Successor Waiters::StopLeading() {
  SALIUS_CHECK(leader_);
  leader_ = false;
  if (followers_ > 0) return Successor::kFollower;
  return callbacks_.empty() ? Successor::kNone : Successor::kIoThread;
}

Waiters::Successor Waiters::StopFollowing(bool leaves) {
  SALIUS_CHECK(followers_ > 0);
  --followers_;
  const bool alone = !leader_ && followers_ == 0 && !callbacks_.empty();
  return leaves && alone ? Successor::kIoThread : Successor::kNone;
}

bool Waiters::TakeLeaderSeen() { return std::exchange(leader_seen_, leader_) || leader_; }

}  // namespace salius
