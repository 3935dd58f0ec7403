#include "transport/lossy_channel.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace salius {

LossyChannel::LossyChannel(std::unique_ptr<DatagramChannel> inner, const Faults& faults,
                           uint64_t seed, Clock& clock)
    : inner_(std::move(inner)), faults_(faults), clock_(clock), random_(seed) {}

size_t LossyChannel::Send(absl::Span<const OutDatagram> batch) {
  const int64_t now = clock_.MonotonicNanos();
  absl::MutexLock lock(&mutex_);
  for (const OutDatagram& datagram : batch) Take(datagram, now);
  Release(now);
  return batch.size();
}

void LossyChannel::Take(const OutDatagram& datagram, int64_t now) {
  ++counts_.sent;
  if (random_.Chance(faults_.drop)) {
    ++counts_.dropped;
    return;
  }
  Held held{now, *datagram.to, std::nullopt, ""};
  if (datagram.from != nullptr) held.from = *datagram.from;
  for (const iovec& part : datagram.parts) {
    held.bytes.append(static_cast<const char*>(part.iov_base), part.iov_len);
  }
  int copies = 1;
  if (random_.Chance(faults_.duplicate)) {
    ++counts_.duplicated;
    ++copies;
  }
  for (; copies > 0; --copies) {
    held.due_ns = now;
    if (faults_.max_delay_ns > 0 && random_.Chance(faults_.delay)) {
      ++counts_.delayed;
      held.due_ns += random_.Between(1, faults_.max_delay_ns);
    }
    held_.push_back(held);
  }
}

void LossyChannel::Release(int64_t now) {
  const auto first_due = std::stable_partition(held_.begin(), held_.end(),
                                               [now](const Held& h) { return h.due_ns > now; });
  std::vector<Held> due(std::make_move_iterator(first_due), std::make_move_iterator(held_.end()));
  held_.erase(first_due, held_.end());
  for (Held& one : due) {
    if (due.size() < 2 || !random_.Chance(faults_.reorder)) continue;
    ++counts_.reordered;
    std::swap(one, due[random_.Below(due.size())]);
  }
  std::vector<iovec> parts;
  parts.reserve(due.size());
  std::vector<OutDatagram> out;
  for (Held& one : due) {
    parts.push_back({one.bytes.data(), one.bytes.size()});
    out.push_back({&one.to, absl::MakeConstSpan(&parts.back(), 1),
                   one.from.has_value() ? &*one.from : nullptr});
  }
  if (!out.empty()) inner_->Send(out);
}

absl::StatusOr<size_t> LossyChannel::Receive(InBatch& batch, bool wait) {
  {
    absl::MutexLock lock(&mutex_);
    Release(clock_.MonotonicNanos());
  }
  return inner_->Receive(batch, wait);
}

absl::Status LossyChannel::SetReceiveTimeout(int64_t micros) {
  return inner_->SetReceiveTimeout(micros);
}

LossyChannel::Counts LossyChannel::counts() const {
  absl::MutexLock lock(&mutex_);
  return counts_;
}

}  // namespace salius
