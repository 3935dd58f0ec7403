#include "client/session/frame_sender.h"

#include <algorithm>
#include <string_view>

#include "common/check.h"
#include "common/limits.h"
#include "transport/packer.h"

namespace salius {
namespace {

struct Scratch {
  std::vector<RecordBytes> records;
  Packer packer;
  std::vector<OutDatagram> out;
};

Scratch& ThreadScratch() {
  thread_local Scratch scratch;
  return scratch;
}

RecordBytes BytesOf(const Record& record) {
  const std::string_view body = record.body();
  return {record.seq(),
          {record.encoded_header(), kRecordHeaderBytes},
          {reinterpret_cast<const uint8_t*>(body.data()), body.size()}};
}

void AddRun(size_t first, size_t last, const SocketAddress& to, bool plain, Scratch& scratch) {
  for (size_t i = first; i < last; ++i) {
    scratch.out.push_back({&to, scratch.packer[i]});
    scratch.out.back().plain = plain;
  }
}

}  // namespace

FrameSender::FrameSender(DatagramChannel& channel, uint32_t datagram_bytes,
                         std::optional<SocketAddress> group)
    : channel_(channel), overhead_(channel.overhead()), most_(datagram_bytes), group_(group) {
  SALIUS_CHECK(most_ >= kDatagramPayloadMin && most_ <= kDatagramPayloadLoopback);
}

void FrameSender::SetPeer(size_t index, const SocketAddress& address) {
  auto known = std::find(known_.begin(), known_.end(), address);
  if (known == known_.end()) known = known_.insert(known_.end(), address);
  peers_[index].store(&*known, std::memory_order_release);
}

void FrameSender::ClearPeer(size_t index) {
  peers_[index].store(nullptr, std::memory_order_release);
}

void FrameSender::SetPlain(size_t index, bool plain) {
  const auto bit = static_cast<uint8_t>(1u << index);
  if (plain) {
    plain_.fetch_or(bit, std::memory_order_relaxed);
  } else {
    plain_.fetch_and(static_cast<uint8_t>(~bit), std::memory_order_relaxed);
  }
}

size_t FrameSender::DatagramBytes(const Job& job, uint8_t targets) const {
  uint32_t least = most_;
  for (size_t peer = 0; peer < peers_.size(); ++peer) {
    if ((targets & (1u << peer)) != 0) least = std::min(least, job.datagram_bytes[peer]);
  }
  size_t bytes = std::max<size_t>(least, kDatagramPayloadMin);
  // Some link on the path may carry less than the first one, and no router may report it.
  if (!job.first_time && bytes != kDatagramPayloadLoopback) {
    bytes = std::min(bytes, size_t{kDatagramPayloadAnyPath});
  }
  return bytes;
}

void FrameSender::Send(const Job& job) {
  const uint8_t plain = plain_.load(std::memory_order_relaxed);
  const auto grouped =
      static_cast<uint8_t>(group_.has_value() ? job.grouped & job.targets & ~plain : 0);
  if (grouped != 0) SendTo(job, grouped, true);
  auto left = static_cast<uint8_t>(job.targets & ~grouped);
  while (left != 0) {
    // Targets that can get the same datagrams: the records are packed once for them.
    const auto lowest = static_cast<uint8_t>(left & -left);
    const size_t bytes = DatagramBytes(job, lowest);
    uint8_t alike = 0;
    for (uint8_t rest = left; rest != 0; rest &= static_cast<uint8_t>(rest - 1)) {
      const auto bit = static_cast<uint8_t>(rest & -rest);
      if (DatagramBytes(job, bit) == bytes && Compact(job, bit) == Compact(job, lowest)) {
        alike |= bit;
      }
    }
    SendTo(job, alike, false);
    left &= static_cast<uint8_t>(~alike);
  }
}

void FrameSender::SendTo(const Job& job, uint8_t targets, bool by_group) {
  Scratch& scratch = ThreadScratch();
  scratch.records.clear();
  scratch.out.clear();
  for (const RecordRef& record : job.records) scratch.records.push_back(BytesOf(*record));
  const size_t datagram = DatagramBytes(job, targets);
  const uint8_t plain = plain_.load(std::memory_order_relaxed);
  scratch.packer.Pack(job.header, scratch.records, datagram - overhead_,
                      Compact(job, targets) ? Packer::Coding::kCompact : Packer::Coding::kFull);
  // A run to each target has as many datagrams as the socket can pass on as one message.
  const size_t run = std::max<size_t>(1, std::min(kMaxSegments, kMaxSegmentedBytes / datagram));
  for (size_t first = 0; first < scratch.packer.size(); first += run) {
    const size_t last = std::min(first + run, scratch.packer.size());
    if (by_group) {
      AddRun(first, last, *group_, /*plain=*/false, scratch);
      continue;
    }
    for (size_t peer = 0; peer < peers_.size(); ++peer) {
      if ((targets & (1u << peer)) == 0) continue;
      const SocketAddress* const to = peers_[peer].load(std::memory_order_acquire);
      if (to != nullptr) AddRun(first, last, *to, (plain & (1u << peer)) != 0, scratch);
    }
  }
  // A datagram that does not fit the socket's buffer is lost like any other; a re-send mends it.
  channel_.Send(scratch.out);
}

}  // namespace salius
