// The records that recovery has in hand: views into buffers (a chunk of a replica's stream, a
// record of the stable log). Buffers are taken over whole, never copied. Memory is that of the log
// itself plus one view per record.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/bytes.h"
#include "common/ids.h"
#include "log/record.h"

namespace salius::recovery {

// One record: its decoded header and its encoded bytes, which the RecordSet it came from owns.
struct RecordView {
  RecordHeader header;
  const char* bytes = nullptr;  // kRecordHeaderBytes + header.body_bytes of them

  std::string_view body() const { return {bytes + kRecordHeaderBytes, header.body_bytes}; }
  std::string_view encoded() const { return {bytes, header.total_bytes()}; }
  Seq seq() const { return header.seq; }
};

// Move-only owner of buffers and the views into them, in the order they were added.
class RecordSet {
 public:
  RecordSet() = default;
  RecordSet(RecordSet&&) noexcept = default;
  RecordSet& operator=(RecordSet&&) noexcept = default;

  // Takes `buffer`, whole records back to back, and verifies each. On an error nothing was added.
  // Errors: DATA_LOSS (checksums), OUT_OF_RANGE (cut off), INVALID_ARGUMENT (malformed).
  absl::Status Add(std::string buffer);

  // Takes over all of `other`.
  void Append(RecordSet other);

  absl::Span<const RecordView> views() const { return views_; }
  bool empty() const { return views_.empty(); }
  uint64_t bytes() const { return bytes_; }

 private:
  // A record is longer than any string that keeps its bytes inside itself, so a moved buffer's
  // bytes stay where they are.
  std::vector<std::string> buffers_;
  std::vector<RecordView> views_;
  uint64_t bytes_ = 0;
};

// Returns Decision::digest: the CRC32C over the header checksum and the body checksum of each of
// `records`, in the order given. (Not over the headers themselves: a CRC over bytes that end with
// their own CRC is the same for all bytes.)
uint32_t DigestOf(absl::Span<const RecordView* const> records);

}  // namespace salius::recovery
