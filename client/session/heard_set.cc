#include "client/session/heard_set.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace salius {
namespace {

// Merges ranges that overlap or touch, and keeps the lowest kMaxRanges.
void Normalize(std::vector<SeqRange>& ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const SeqRange& a, const SeqRange& b) { return a.first < b.first; });
  size_t kept = 0;
  for (const SeqRange& range : ranges) {
    if (kept > 0 && range.first <= ranges[kept - 1].last + 1) {
      ranges[kept - 1].last = std::max(ranges[kept - 1].last, range.last);
    } else {
      ranges[kept++] = range;
    }
  }
  ranges.resize(std::min(kept, HeardSet::kMaxRanges));
}

// Returns the last seq about which `ack` says something: a full acknowledgement leaves out seqs
// above its last range.
Seq KnownUpTo(const AckPayload& ack) {
  return ack.ranges.size() >= kMaxAckRanges ? ack.ranges.back().last
                                            : std::numeric_limits<Seq>::max();
}

// Returns the first seq of `ranges` that `ack` denies, or 0.
Seq FirstDenied(const std::vector<SeqRange>& ranges, const AckPayload& ack) {
  const Seq known = KnownUpTo(ack);
  auto holds = ack.ranges.begin();
  for (const SeqRange& range : ranges) {
    const Seq last = std::min(range.last, known);
    Seq seq = std::max(range.first, ack.contiguous + 1);
    while (seq <= last) {
      while (holds != ack.ranges.end() && holds->last < seq) ++holds;
      if (holds == ack.ranges.end() || holds->first > seq) return seq;
      seq = holds->last + 1;
    }
  }
  return 0;
}

std::string Denies(Seq seq) { return absl::StrCat("it held seq ", seq, " and now does not"); }

}  // namespace

std::string HeardSet::Take(int64_t now, int64_t sent_ns, const AckPayload& ack) {
  if (sent_ns > contiguous_ns_ && ack.contiguous < contiguous_) {
    return absl::StrCat("it held every record up to ", contiguous_, " and now holds them up to ",
                        ack.contiguous);
  }
  std::string lost = TakeMarks(now, sent_ns, ack);
  if (!lost.empty()) return lost;
  if (!ack.ranges.empty() || !listed_.empty() || !gathered_.empty()) {
    lost = TakeRanges(now, sent_ns, ack);
    if (!lost.empty()) return lost;
  }
  if (ack.contiguous > contiguous_ || contiguous_ns_ == kNever) {
    contiguous_ = ack.contiguous;
    contiguous_ns_ = now;
  }
  return "";
}

std::string HeardSet::TakeMarks(int64_t now, int64_t sent_ns, const AckPayload& ack) {
  if (ack.base == base_ && ack.trimmed == trimmed_ && ack.promise_epoch == promise_) return "";
  const bool first = marks_ns_ == kNever;
  if (!first && sent_ns > marks_ns_) {
    if (ack.base != base_) {
      return absl::StrCat("its session began with seq ", base_, " and now with ", ack.base);
    }
    if (ack.trimmed < trimmed_) {
      return absl::StrCat("it had dropped records up to ", trimmed_, " and now up to ",
                          ack.trimmed);
    }
    if (ack.promise_epoch < promise_) {
      return absl::StrCat("it had promised epoch ", promise_, " and now ", ack.promise_epoch);
    }
  }
  if (first) base_ = ack.base;
  if (first || ack.trimmed > trimmed_ || ack.promise_epoch > promise_) marks_ns_ = now;
  trimmed_ = std::max(trimmed_, ack.trimmed);
  promise_ = std::max(promise_, ack.promise_epoch);
  return "";
}

std::string HeardSet::TakeRanges(int64_t now, int64_t sent_ns, const AckPayload& ack) {
  if (sent_ns > gathered_ns_) {
    const Seq denied = FirstDenied(gathered_, ack);
    if (denied != 0) return Denies(denied);
  }
  gathered_.insert(gathered_.end(), ack.ranges.begin(), ack.ranges.end());
  if (sent_ns <= listed_ns_) {
    Normalize(gathered_);
    if (!ack.ranges.empty()) gathered_ns_ = now;
    return "";
  }
  const Seq denied = FirstDenied(listed_, ack);
  if (denied != 0) return Denies(denied);
  // `listed_` was compared. Ranges above this acknowledgement's last one stay, for a later one.
  listed_.insert(listed_.end(), gathered_.begin(), gathered_.end());
  Normalize(listed_);
  gathered_.clear();
  const Seq contiguous = std::max(contiguous_, ack.contiguous);
  std::erase_if(listed_, [&](const SeqRange& range) { return range.last <= contiguous; });
  listed_ns_ = now;
  gathered_ns_ = kNever;
  return "";
}

}  // namespace salius
