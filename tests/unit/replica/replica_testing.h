// Shared by the replica's tests: arenas in plain memory, records and frames.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/bytes.h"
#include "common/check.h"
#include "common/random.h"
#include "log/record.h"
#include "proto/frame.h"
#include "replica/arena.h"

namespace salius {

inline VolumeId TestVolume(uint8_t n = 1) {
  VolumeId id;
  id.bytes.fill(n);
  return id;
}

// Memory for an arena, zeroed and page-aligned, that outlives the Arena objects over it: destroying
// one and attaching again is a restart of the process.
class TestMemory {
 public:
  explicit TestMemory(uint64_t bytes = uint64_t{4} << 20, uint64_t seed = 1)
      : bytes_(bytes),
        memory_(static_cast<uint8_t*>(std::aligned_alloc(kArenaPageBytes, bytes)), &std::free),
        random_(std::make_shared<Random>(seed)) {
    std::memset(memory_.get(), 0, bytes);
  }

  absl::Span<uint8_t> span() { return absl::MakeSpan(memory_.get(), bytes_); }
  Arena::RandomSource random() {
    return [random = random_] { return random->Next(); };
  }
  Arena FormatAndAttach() {
    SALIUS_CHECK_OK(Arena::Format(span(), random()));
    return Attach();
  }
  Arena Attach() {
    absl::StatusOr<Arena> arena = Arena::Attach(span(), random());
    SALIUS_CHECK_OK(arena.status());
    return *std::move(arena);
  }

 private:
  uint64_t bytes_;
  std::unique_ptr<uint8_t, decltype(&std::free)> memory_;
  std::shared_ptr<Random> random_;
};

inline RecordHeader TestHeader(Seq seq, Epoch epoch = 1, const VolumeId& volume = TestVolume()) {
  RecordHeader header;
  header.op = Op::kWrite;
  header.volume = volume;
  header.epoch = epoch;
  header.seq = seq;
  header.timestamp_ns = 1000 + seq;
  header.file_id = 7;
  return header;
}

inline std::string TestRecord(Seq seq, size_t body_bytes = 100, Epoch epoch = 1,
                              const VolumeId& volume = TestVolume(), char fill = 'x') {
  return EncodeRecord(TestHeader(seq, epoch, volume), std::string(body_bytes, fill));
}

inline RecordHeader Decoded(const std::string& record) {
  absl::StatusOr<RecordHeader> header = DecodeRecord(AsBytes(record));
  SALIUS_CHECK_OK(header.status());
  return *header;
}

// Returns a frame of type kRecords (or kProbe when there are none) with consistent counts.
inline FrameHeader TestFrame(const std::vector<std::string>& records, Epoch epoch = 1,
                             uint64_t session = 77, const VolumeId& volume = TestVolume()) {
  FrameHeader header;
  header.type = records.empty() ? FrameType::kProbe : FrameType::kRecords;
  header.volume = volume;
  header.epoch = epoch;
  header.session = session;
  header.count = static_cast<uint16_t>(records.size());
  for (const std::string& record : records) {
    header.payload_bytes += static_cast<uint32_t>(record.size());
  }
  return header;
}

inline std::string Join(const std::vector<std::string>& records) {
  std::string all;
  for (const std::string& record : records) all += record;
  return all;
}

inline std::string Datagram(FrameHeader header, std::string_view payload) {
  header.payload_bytes = static_cast<uint32_t>(payload.size());
  std::string bytes(kFrameHeaderBytes, '\0');
  EncodeFrameHeader(header, reinterpret_cast<uint8_t*>(bytes.data()));
  bytes.append(payload);
  return bytes;
}

// Returns the payload of a kFragment frame: the piece [offset, offset + bytes) of `record`.
inline std::string Piece(const std::string& record, Seq seq, uint32_t offset, uint32_t bytes) {
  FragmentHeader fragment;
  fragment.seq = seq;
  fragment.record_bytes = static_cast<uint32_t>(record.size());
  fragment.offset = offset;
  std::string payload(kFragmentHeaderBytes, '\0');
  EncodeFragmentHeader(fragment, reinterpret_cast<uint8_t*>(payload.data()));
  payload += record.substr(offset, bytes);
  return payload;
}

}  // namespace salius
