#include "recovery/agree/pin.h"

#include <vector>

#include "absl/strings/str_format.h"
#include "common/bytes.h"
#include "common/check.h"

namespace salius::recovery {
namespace {

// Size of a batch: large enough that the disk's sync is paid rarely, small enough for a progress
// bar.
constexpr uint64_t kBatchBytes = uint64_t{64} << 20;

}  // namespace

absl::Status Pin(const PinRequest& request, StableLog& stable,
                 const std::function<absl::Status(uint64_t, uint64_t)>& on_batch) {
  SALIUS_RETURN_IF_ERROR(stable.Cut(request.epoch, request.checkpoint));
  std::vector<StableLog::Item> items;
  uint64_t entry_bytes = 0;
  uint64_t total = 0;
  for (const RecordView* record : request.records) {
    if (request.in_stable(record->seq())) continue;
    const auto bytes = AsBytes(record->encoded());
    items.push_back({bytes.first(kRecordHeaderBytes), bytes.subspan(kRecordHeaderBytes)});
    entry_bytes += StableLog::EntryBytes(bytes.size());
    total += bytes.size();
  }
  // R53. The bound is conservative, so near the limit the append itself decides.
  if (entry_bytes > stable.capacity() - stable.used_bytes()) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "the decided records need %d bytes of the stable log, which has %d of %d free", entry_bytes,
        stable.capacity() - stable.used_bytes(), stable.capacity()));
  }
  uint64_t done = 0;
  size_t at = 0;
  while (at < items.size()) {
    size_t end = at;
    uint64_t batch = 0;
    while (end < items.size() && batch < kBatchBytes) {
      batch += items[end].head.size() + items[end].body.size();
      ++end;
    }
    // R51
    SALIUS_RETURN_IF_ERROR(stable.Append(absl::MakeConstSpan(items).subspan(at, end - at)));
    at = end;
    done += batch;
    SALIUS_RETURN_IF_ERROR(on_batch(done, total));
  }
  Decision decision;  // R52
  decision.epoch = request.epoch;
  decision.last = request.last;
  decision.checkpoint = request.checkpoint;
  decision.count = request.records.size();
  decision.digest = DigestOf(request.records);
  return stable.AppendDecision(decision);
}

}  // namespace salius::recovery
