// Frames to records (docs/wire-format.md): the whole records of a frame, and which bytes of a
// fragmented record have arrived. The way there is transport/packer.h.
//
// The receiver owns the memory of a fragmented record (replica/log_store.h): a piece is copied once,
// to its final place.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "log/record.h"
#include "proto/frame.h"

namespace salius {

enum class Unpacked {
  kAll,
  kCorruptRecord,  // of the records after that one nothing is known
  kTrailingBytes,  // all records were good, and bytes follow them
};

// Decodes the records of a frame of type kRecords or kCompact, whose payload is `payload`, in their
// order. Calls `take` with the header of each good one and its bytes, which are valid until it
// returns. Volume and epoch
// are not compared with the frame's.
Unpacked UnpackRecords(
    const FrameHeader& frame, absl::Span<const uint8_t> payload,
    absl::FunctionRef<void(const RecordHeader& header, absl::Span<const uint8_t> bytes)> take);

// The bytes of one record that have arrived, as runs of bytes that do not touch.
class PieceRuns {
 public:
  // A record of 128 KiB in datagrams of 1472 bytes has 97 pieces.
  static constexpr size_t kMaxRuns = 256;

  // Adds [begin, end), which may overlap what is there. Returns false, and adds nothing, when that
  // would make more than kMaxRuns runs.
  bool Add(uint32_t begin, uint32_t end);
  // Returns the bytes in all runs, each counted once.
  uint32_t bytes() const { return bytes_; }

 private:
  uint32_t bytes_ = 0;
  absl::InlinedVector<std::pair<uint32_t, uint32_t>, 4> runs_;  // [begin, end), ascending
};

}  // namespace salius
