#include "client/session/peer_path.h"

#include <algorithm>
#include <utility>

#include "common/limits.h"

namespace salius {

void PeerPath::SetRoute(uint32_t datagram_bytes, bool group) {
  *this = PeerPath();
  group_ = group;
  sizes_.front() = datagram_bytes;
  if (datagram_bytes == kDatagramPayloadLoopback) return;  // this host's own: nothing is narrower
  for (const size_t size : {kDatagramPayloadDefault, kDatagramPayloadAnyPath}) {
    if (size < sizes_.back()) sizes_.push_back(static_cast<uint32_t>(size));
  }
}

uint32_t PeerPath::Send(int64_t now, Seq first, Seq last, uint64_t bytes, bool by_group) {
  if (!group_ && sizes_.size() == 1) return datagram_bytes();
  Sent sent{.first = first, .last = last, .ns = now, .group = by_group};
  auto level = static_cast<size_t>(size_.level);
  if (by_group && group_way_.given_up) {
    sent.tries_group = group_way_.trial_under_way = true;
  } else if (TrialDue(size_, now) && bytes > sizes_[level]) {
    sent.tries_size = size_.trial_under_way = true;
    --level;
  }
  if (level + 1 < sizes_.size() && bytes > sizes_[level + 1]) sent.level = static_cast<int>(level);
  if (!sent.group && sent.level < 0) return sizes_[level];  // nothing can be learnt from it
  Remember(now, sent);
  return sizes_[level];
}

void PeerPath::NoticeSent(int64_t ns, Seq first, Seq last, uint64_t bytes,
                          uint32_t datagram_bytes) {
  const auto size = std::find(sizes_.begin(), sizes_.end(), datagram_bytes);
  // Nothing can be learnt of the smallest size, nor from less than the next one.
  if (size == sizes_.end() || size + 1 == sizes_.end() || bytes <= *(size + 1)) return;
  Sent sent{.first = first, .last = last, .ns = ns};
  sent.level = static_cast<int>(size - sizes_.begin());
  if (sent.level < size_.level && !size_.trial_under_way) {
    sent.tries_size = size_.trial_under_way = true;
  }
  Remember(ns, sent);
}

void PeerPath::Remember(int64_t now, const Sent& sent) {
  if (count_ == kSends) {
    const Sent& lost = sends_[oldest_];
    if (lost.tries_group) EndTrial(now, group_way_, false);
    if (lost.tries_size) EndTrial(now, size_, false);
    oldest_ = (oldest_ + 1) % kSends;
    --count_;
  }
  sends_[(oldest_ + count_++) % kSends] = sent;
}

void PeerPath::Resent(int64_t now, Seq first, Seq last) {
  for (size_t i = 0; i < count_; ++i) {
    Sent& sent = sends_[(oldest_ + i) % kSends];
    if (sent.first > last) return;
    // Several holes of one transmission are filled at once.
    if (sent.last < first) continue;
    const bool at_once = std::exchange(sent.resent_ns, now) == now;
    // After its first record was sent again, the others follow.
    const bool continues = sent.resent > 0 && first > sent.resent_upto;
    if (!at_once && !continues) ++sent.resent;
    sent.resent_upto = last;
  }
}

bool PeerPath::Acked(int64_t now, Seq contiguous) {
  while (count_ > 0 && sends_[oldest_].last <= contiguous) {
    const Sent sent = sends_[oldest_];
    oldest_ = (oldest_ + 1) % kSends;
    --count_;
    Judge(now, sent);
  }
  return std::exchange(learnt_, false);
}

void PeerPath::Judge(int64_t now, const Sent& sent) {
  if (sent.tries_group) return EndTrial(now, group_way_, sent.resent == 0);
  if (sent.tries_size) return EndTrial(now, size_, sent.resent == 0);
  const bool of_group = sent.group && !group_way_.given_up;
  const bool of_size = sent.level == size_.level;
  if (sent.resent == 0) {
    if (of_group) Succeed(group_way_);
    if (of_size) Succeed(size_);
    return;
  }
  if (sent.resent > 1) return;
  if (of_group) Fail(now, sent, group_way_);
  if (of_size) Fail(now, sent, size_);
  if (of_group && group_way_.failures >= kFailures && !group_way_.proven) {
    GiveUp(now, group_way_);
    size_.failures = 0;  // a size that failed by the group may get through by unicast
  } else if (of_size && size_.failures >= kFailures) {
    ++size_.level;
    GiveUp(now, size_);
  } else if (of_group && group_way_.failures >= kFailures) {
    GiveUp(now, group_way_);
  }
}

void PeerPath::Succeed(Tried& tried) {
  tried.failures = 0;
  tried.proven = true;
}

void PeerPath::Fail(int64_t now, const Sent& sent, Tried& tried) {
  if (sent.ns < tried.failed_ns) return;  // the same outage
  ++tried.failures;
  tried.failed_ns = now;
}

void PeerPath::GiveUp(int64_t now, Tried& tried) {
  learnt_ = true;
  tried.given_up = true;
  tried.failures = 0;
  tried.trial_after_ns = kFirstTrialNs;
  tried.trial_at_ns = now + kFirstTrialNs;
  tried.trial_under_way = false;
}

void PeerPath::EndTrial(int64_t now, Tried& tried, bool success) {
  tried.trial_under_way = false;
  if (success) {
    learnt_ = true;
    tried.failures = 0;
    tried.proven = true;
    if (tried.level > 0) --tried.level;
    tried.given_up = tried.level > 0;
    if (tried.given_up) GiveUp(now, tried);  // the next larger one, after a minute
    return;
  }
  tried.trial_after_ns = std::min(2 * tried.trial_after_ns, kLongestTrialNs);
  tried.trial_at_ns = now + tried.trial_after_ns;
}

}  // namespace salius
