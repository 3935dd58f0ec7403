#include "transport/compact_records.h"

#include <limits>

#include "common/load_store.h"

namespace salius {
namespace {

// Bits of the first two bytes. A field whose bit is set is not in the header. kTimeNear only says
// how long the timestamp is. All other bits are reserved.
enum Flags : uint16_t {
  kSameOp = 1u << 0,
  kSameSize = 1u << 1,
  kSameFile = 1u << 2,
  kFollows = 1u << 3,  // arg0 is where the body before ends
  kNoArgs = 1u << 4,   // arg1 and arg2 are 0
  kSameDurable = 1u << 5,
  kSameCheckpoint = 1u << 6,
  kNextSeq = 1u << 7,
  kTimeNear = 1u << 8,  // less than 2^32 ns after the one before
};
constexpr uint16_t kAllFlags = (1u << 9) - 1;
// A varint has 7 bits in a byte.
constexpr size_t kMostVarint = 10;

// Small differences of either sign become small numbers. Differences are modulo 2^64.
uint64_t Zigzag(uint64_t difference) {
  return difference << 1 ^ (difference >> 63 != 0 ? ~uint64_t{0} : 0);
}
uint64_t Unzigzag(uint64_t coded) { return coded >> 1 ^ ((coded & 1) != 0 ? ~uint64_t{0} : 0); }

class Writer {
 public:
  explicit Writer(uint8_t* out) : begin_(out), at_(out + sizeof(uint16_t)) {}
  // Notes the flag, or writes the number.
  void Number(bool omitted, Flags flag, uint64_t number) {
    if (omitted) {
      flags_ |= flag;
      return;
    }
    for (; number >= 0x80; number >>= 7) *at_++ = static_cast<uint8_t>(number | 0x80);
    *at_++ = static_cast<uint8_t>(number);
  }
  void Difference(bool omitted, Flags flag, uint64_t from, uint64_t to) {
    Number(omitted, flag, Zigzag(to - from));
  }
  void Time(uint64_t from, uint64_t to) {
    if (to - from <= std::numeric_limits<uint32_t>::max()) {
      flags_ |= kTimeNear;
      Fixed32(static_cast<uint32_t>(to - from));
    } else {
      StoreU64(at_, to);
      at_ += sizeof(uint64_t);
    }
  }
  void Fixed32(uint32_t number) {
    StoreU32(at_, number);
    at_ += sizeof(number);
  }
  size_t End() {
    StoreU16(begin_, flags_);
    return static_cast<size_t>(at_ - begin_);
  }

 private:
  uint8_t* const begin_;
  uint8_t* at_;
  uint16_t flags_ = 0;
};

// After a number that is cut off or too large `ok()` is false, and all numbers are 0.
class Reader {
 public:
  explicit Reader(absl::Span<const uint8_t> bytes) : left_(bytes), size_(bytes.size()) {
    flags_ = static_cast<uint16_t>(Fixed(sizeof(uint16_t)));
    ok_ = ok_ && (flags_ & ~kAllFlags) == 0;
  }
  bool Has(Flags flag) const { return (flags_ & flag) != 0; }
  uint64_t Number(uint64_t most = std::numeric_limits<uint64_t>::max()) {
    uint64_t number = 0;
    for (size_t i = 0; ok_ && i < kMostVarint; ++i) {
      const uint64_t byte = Fixed(1);
      const unsigned shift = static_cast<unsigned>(7 * i);
      const uint64_t bits = byte & 0x7f;
      if ((bits << shift) >> shift != bits) break;
      number |= bits << shift;
      if ((byte & 0x80) == 0 && ok_ && number <= most) return number;
    }
    ok_ = false;
    return 0;
  }
  uint64_t Difference(Flags same, uint64_t from) {
    return Has(same) ? from : from + Unzigzag(Number());
  }
  uint64_t Time(uint64_t from) {
    return Has(kTimeNear) ? from + Fixed(sizeof(uint32_t)) : Fixed(sizeof(uint64_t));
  }
  // Returns a number of `bytes` bytes, at most 8.
  uint64_t Fixed(size_t bytes) {
    ok_ = ok_ && left_.size() >= bytes;
    if (!ok_) return 0;
    uint64_t number = 0;
    for (size_t i = 0; i < bytes; ++i) number |= uint64_t{left_[i]} << (8 * i);
    left_.remove_prefix(bytes);
    return number;
  }
  bool ok() const { return ok_; }
  size_t used() const { return size_ - left_.size(); }

 private:
  absl::Span<const uint8_t> left_;
  const size_t size_;
  uint16_t flags_ = 0;
  bool ok_ = true;
};

}  // namespace

RecordHeader BeforeFirst(const FrameHeader& frame) {
  RecordHeader before;
  before.volume = frame.volume;
  before.epoch = frame.epoch;
  before.seq = frame.durable_mark;
  before.durable_mark = frame.durable_mark;
  before.checkpoint_mark = frame.trim_mark;
  return before;
}

size_t EncodeCompactHeader(const RecordHeader& before, const RecordHeader& header,
                           uint32_t header_crc, uint8_t* out) {
  Writer writer(out);
  const uint64_t follows = before.arg0 + before.body_bytes;
  writer.Number(header.op == before.op, kSameOp, static_cast<uint16_t>(header.op));
  writer.Number(header.body_bytes == before.body_bytes, kSameSize, header.body_bytes);
  writer.Difference(header.file_id == before.file_id, kSameFile, before.file_id, header.file_id);
  writer.Difference(header.arg0 == follows, kFollows, follows, header.arg0);
  const bool no_args = header.arg1 == 0 && header.arg2 == 0;
  writer.Number(no_args, kNoArgs, header.arg1);
  writer.Number(no_args, kNoArgs, header.arg2);
  writer.Difference(header.durable_mark == before.durable_mark, kSameDurable, before.durable_mark,
                    header.durable_mark);
  writer.Difference(header.checkpoint_mark == before.checkpoint_mark, kSameCheckpoint,
                    before.checkpoint_mark, header.checkpoint_mark);
  writer.Difference(header.seq == before.seq + 1, kNextSeq, before.seq, header.seq);
  writer.Time(before.timestamp_ns, header.timestamp_ns);
  writer.Fixed32(header.body_crc);
  writer.Fixed32(header_crc);
  return writer.End();
}

std::optional<size_t> DecodeCompactHeader(const RecordHeader& before,
                                          absl::Span<const uint8_t> bytes, RecordHeader* header,
                                          uint8_t* full) {
  Reader reader(bytes);
  const uint64_t follows = before.arg0 + before.body_bytes;
  RecordHeader found = before;
  if (!reader.Has(kSameOp)) {
    found.op = static_cast<Op>(reader.Number(std::numeric_limits<uint16_t>::max()));
  }
  if (!reader.Has(kSameSize)) {
    found.body_bytes =
        static_cast<uint32_t>(reader.Number(std::numeric_limits<uint32_t>::max()));
  }
  found.file_id = reader.Difference(kSameFile, before.file_id);
  found.arg0 = reader.Difference(kFollows, follows);
  found.arg1 = reader.Has(kNoArgs) ? 0 : reader.Number();
  found.arg2 = reader.Has(kNoArgs) ? 0 : reader.Number();
  found.durable_mark = reader.Difference(kSameDurable, before.durable_mark);
  found.checkpoint_mark = reader.Difference(kSameCheckpoint, before.checkpoint_mark);
  found.seq = reader.Has(kNextSeq) ? before.seq + 1 : before.seq + Unzigzag(reader.Number());
  found.timestamp_ns = reader.Time(before.timestamp_ns);
  found.body_crc = static_cast<uint32_t>(reader.Fixed(sizeof(uint32_t)));
  const auto header_crc = static_cast<uint32_t>(reader.Fixed(sizeof(uint32_t)));
  if (!reader.ok()) return std::nullopt;
  EncodeRecordHeader(found, full);
  if (LoadU32(full + kRecordHeaderBytes - sizeof(uint32_t)) != header_crc) return std::nullopt;
  *header = found;
  return reader.used();
}

}  // namespace salius
