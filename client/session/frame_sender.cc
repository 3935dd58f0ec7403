#include "client/session/frame_sender.h"

#include <algorithm>
#include <array>

#include "common/check.h"
#include "common/limits.h"

namespace salius {
namespace {

// The most records in one datagram: it has a header and two parts for each record.
constexpr size_t kMaxRecordsTogether = (kMaxParts - 1) / 2;

// One datagram under construction: its header bytes and where its parts lie in `parts`.
struct Packed {
  std::array<uint8_t, kFrameHeaderBytes + kFragmentHeaderBytes> head;
  size_t head_bytes = 0;
  size_t first_part = 0;
  size_t part_count = 0;
};

struct Scratch {
  std::vector<Packed> packed;
  std::vector<iovec> parts;
  std::vector<OutDatagram> out;
};

Scratch& ThreadScratch() {
  thread_local Scratch scratch;
  return scratch;
}

iovec Part(const void* data, size_t bytes) {
  return iovec{const_cast<void*>(data), bytes};  // iovec is not const-correct; sendmmsg only reads
}

// Packs whole records from `index` on into one datagram; returns the index after the last one.
size_t PackWhole(const FrameSender::Job& job, size_t index, size_t room, Scratch& scratch) {
  Packed packed;
  packed.first_part = scratch.parts.size();
  scratch.parts.push_back({});  // the header; its address is set when all are packed
  size_t bytes = 0;
  uint16_t count = 0;
  for (; index < job.records.size() && count < kMaxRecordsTogether; ++index) {
    const Record& record = *job.records[index];
    const size_t size = record.header().total_bytes();
    if (count > 0 && bytes + size > room) break;
    scratch.parts.push_back(Part(record.encoded_header(), kRecordHeaderBytes));
    if (!record.body().empty()) {
      scratch.parts.push_back(Part(record.body().data(), record.body().size()));
    }
    bytes += size;
    ++count;
  }
  FrameHeader header = job.header;
  header.type = FrameType::kRecords;
  header.count = count;
  header.payload_bytes = static_cast<uint32_t>(bytes);
  EncodeFrameHeader(header, packed.head.data());
  packed.head_bytes = kFrameHeaderBytes;
  packed.part_count = scratch.parts.size() - packed.first_part;
  scratch.packed.push_back(packed);
  return index;
}

// Splits one record into fragments of equal length (the last may be shorter).
void PackFragments(const FrameSender::Job& job, const Record& record, size_t room,
                   Scratch& scratch) {
  const size_t total = record.header().total_bytes();
  const size_t piece_bytes = room - kFragmentHeaderBytes;
  for (size_t offset = 0; offset < total; offset += piece_bytes) {
    const size_t length = std::min(piece_bytes, total - offset);
    Packed packed;
    packed.first_part = scratch.parts.size();
    scratch.parts.push_back({});
    if (offset < kRecordHeaderBytes) {
      const size_t take = std::min(length, kRecordHeaderBytes - offset);
      scratch.parts.push_back(Part(record.encoded_header() + offset, take));
      if (length > take) scratch.parts.push_back(Part(record.body().data(), length - take));
    } else {
      scratch.parts.push_back(Part(record.body().data() + (offset - kRecordHeaderBytes), length));
    }
    FrameHeader header = job.header;
    header.type = FrameType::kFragment;
    header.payload_bytes = static_cast<uint32_t>(kFragmentHeaderBytes + length);
    EncodeFrameHeader(header, packed.head.data());
    FragmentHeader fragment;
    fragment.seq = record.seq();
    fragment.record_bytes = static_cast<uint32_t>(total);
    fragment.offset = static_cast<uint32_t>(offset);
    EncodeFragmentHeader(fragment, packed.head.data() + kFrameHeaderBytes);
    packed.head_bytes = kFrameHeaderBytes + kFragmentHeaderBytes;
    packed.part_count = scratch.parts.size() - packed.first_part;
    scratch.packed.push_back(packed);
  }
}

void AddRun(size_t first, size_t last, const SocketAddress& to, Scratch& scratch) {
  for (size_t i = first; i < last; ++i) {
    const Packed& packed = scratch.packed[i];
    scratch.out.push_back(
        {&to, absl::MakeConstSpan(scratch.parts).subspan(packed.first_part, packed.part_count)});
  }
}

}  // namespace

FrameSender::FrameSender(DatagramChannel& channel, uint32_t datagram_bytes,
                         std::optional<SocketAddress> group)
    : channel_(channel), most_(datagram_bytes), group_(group) {
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
  const uint8_t grouped = group_.has_value() ? job.grouped & job.targets : uint8_t{0};
  if (grouped != 0) SendTo(job, grouped, true);
  auto left = static_cast<uint8_t>(job.targets & ~grouped);
  while (left != 0) {
    // Targets whose datagrams may be equally large: the records are packed once for them.
    const size_t bytes = DatagramBytes(job, left & static_cast<uint8_t>(-left));
    uint8_t alike = 0;
    for (uint8_t rest = left; rest != 0; rest &= static_cast<uint8_t>(rest - 1)) {
      const auto bit = static_cast<uint8_t>(rest & -rest);
      if (DatagramBytes(job, bit) == bytes) alike |= bit;
    }
    SendTo(job, alike, false);
    left &= static_cast<uint8_t>(~alike);
  }
}

void FrameSender::SendTo(const Job& job, uint8_t targets, bool by_group) {
  Scratch& scratch = ThreadScratch();
  scratch.packed.clear();
  scratch.parts.clear();
  scratch.out.clear();
  const size_t datagram = DatagramBytes(job, targets);
  const size_t room = datagram - kFrameHeaderBytes;
  if (job.records.empty()) {
    Packed packed;
    scratch.parts.push_back({});
    FrameHeader header = job.header;
    header.type = FrameType::kProbe;
    EncodeFrameHeader(header, packed.head.data());
    packed.head_bytes = kFrameHeaderBytes;
    packed.part_count = 1;
    scratch.packed.push_back(packed);
  }
  for (size_t index = 0; index < job.records.size();) {
    if (job.records[index]->header().total_bytes() > room) {
      PackFragments(job, *job.records[index], room, scratch);
      ++index;
    } else {
      index = PackWhole(job, index, room, scratch);
    }
  }
  for (Packed& packed : scratch.packed) {
    scratch.parts[packed.first_part] = Part(packed.head.data(), packed.head_bytes);
  }
  // A run to each target has as many datagrams as the socket can pass on as one message.
  const size_t run = std::max<size_t>(1, std::min(kMaxSegments, kMaxSegmentedBytes / datagram));
  for (size_t first = 0; first < scratch.packed.size(); first += run) {
    const size_t last = std::min(first + run, scratch.packed.size());
    if (by_group) {
      AddRun(first, last, *group_, scratch);
      continue;
    }
    for (size_t peer = 0; peer < peers_.size(); ++peer) {
      if ((targets & (1u << peer)) == 0) continue;
      const SocketAddress* const to = peers_[peer].load(std::memory_order_acquire);
      if (to != nullptr) AddRun(first, last, *to, scratch);
    }
  }
  // A datagram that does not fit the socket's buffer is lost like any other; a re-send mends it.
  channel_.Send(scratch.out);
}

}  // namespace salius
