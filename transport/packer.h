// Records to frames: several small records share a datagram, a large one is split into fragments
// (docs/wire-format.md). The way back is transport/unpacker.h.
//
// Packing copies no record bytes: the parts of a frame point into the records.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/ids.h"
#include "proto/frame.h"

namespace salius {

// The bytes of one encoded record, which may lie in two places.
struct RecordBytes {
  Seq seq = 0;
  absl::Span<const uint8_t> header;  // kRecordHeaderBytes
  absl::Span<const uint8_t> body;
  size_t size() const { return header.size() + body.size(); }
};

// The frames of the last Pack. They are valid until the next one, and while the records' bytes are.
class Packer {
 public:
  Packer() = default;
  Packer(const Packer&) = delete;
  Packer& operator=(const Packer&) = delete;

  // Packs `records` in their order into datagrams of at most `datagram_bytes`, which is at least
  // kDatagramPayloadMin - kSealBytes. Without records, makes one probe. `header` gives everything but type,
  // count and payload_bytes.
  // With kCompact, each record that fits a datagram is in the compact coding
  // (transport/compact_records.h), but not one whose header is damaged or of another volume or epoch.
  enum class Coding { kFull, kCompact };
  void Pack(const FrameHeader& header, absl::Span<const RecordBytes> records,
            size_t datagram_bytes, Coding coding = Coding::kFull);

  // Returns the number of datagrams.
  size_t size() const { return frames_.size(); }
  // Returns the parts of datagram `i`: its header, then pieces of records.
  absl::Span<const iovec> operator[](size_t i) const {
    return absl::MakeConstSpan(parts_).subspan(frames_[i].first_part, frames_[i].part_count);
  }

 private:
  struct Frame {
    std::array<uint8_t, kFrameHeaderBytes + kFragmentHeaderBytes> head;
    size_t head_bytes = 0;
    size_t first_part = 0;
    size_t part_count = 0;
  };
  void PackProbe(const FrameHeader& header);
  // Packs whole records from the first on into one datagram. Returns how many.
  size_t PackWhole(const FrameHeader& header, absl::Span<const RecordBytes> records, size_t room);
  // The same in the compact coding. The first record fits, and can be coded.
  size_t PackCompact(const FrameHeader& header, absl::Span<const RecordBytes> records, size_t room);
  // Splits one record into fragments of equal length (the last may be shorter).
  void PackFragments(const FrameHeader& header, const RecordBytes& record, size_t room);
  Frame& Begin();
  void End(Frame& frame);

  std::vector<Frame> frames_;
  std::vector<iovec> parts_;
  std::vector<uint8_t> compact_;  // headers in the compact coding; reserved for all records
};

}  // namespace salius
