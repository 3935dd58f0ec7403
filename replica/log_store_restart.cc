// A volume's log in a new process: the records of the segments to hold again (VolumeLog::Rebuild).

#include <algorithm>
#include <string>
#include <vector>

#include "common/bytes.h"
#include "common/check.h"
#include "replica/log_store.h"

namespace salius {

VolumeLog::RebuildReport VolumeLog::Rebuild(const ForEach& for_each) {
  SALIUS_CHECK(segments_.empty());
  const std::vector<uint32_t> indices = arena_.SegmentsOf(slot_);
  std::vector<Scan> scans(indices.size());
  for_each(indices.size(), [&](size_t i) { scans[i] = ScanSegment(indices[i]); });
  RebuildReport report;
  std::vector<Found> found;
  for (const Scan& scan : scans) {
    if (!scan.next.has_value()) continue;
    // It has the second part of a record that is held, so this segment is live as well.
    const auto at = std::lower_bound(indices.begin(), indices.end(), *scan.next);
    SALIUS_CHECK(at != indices.end() && *at == *scan.next);
    Scan& rest = scans[static_cast<size_t>(at - indices.begin())];
    rest.live = true;
    rest.segment.max_seq = std::max(rest.segment.max_seq, scan.next_seq);
  }
  for (const Scan& scan : scans) {
    report.damaged += scan.report.damaged;
    report.durable_mark = std::max(report.durable_mark, scan.report.durable_mark);
    report.checkpoint_mark = std::max(report.checkpoint_mark, scan.report.checkpoint_mark);
  }
  // G. Do it before anything damaged is freed: a process killed in between would leave no trace.
  if (report.damaged > 0) arena_.NewIncarnation();
  // Make a bad record an empty place, so that it counts once only.
  for (const Scan& scan : scans) {
    for (const auto& [place, bytes] : scan.bad) WriteEntry(place, {bytes, EntryIs::kReserved});
  }
  for (const Scan& scan : scans) {
    if (!scan.live) {
      arena_.FreeSegment(scan.segment.index);
      continue;
    }
    arena_.SetSegmentUsed(scan.segment.index, scan.segment.used);
    record_bytes_ += scan.segment.record_bytes;
    segments_.push_back(scan.segment);
    found.insert(found.end(), scan.found.begin(), scan.found.end());
  }
  AddFoundRecords(found, report);
  // The segment with most room is filled next.
  const auto roomiest =
      std::min_element(segments_.begin(), segments_.end(),
                       [](const Segment& a, const Segment& b) { return a.used < b.used; });
  if (roomiest != segments_.end()) std::iter_swap(roomiest, segments_.end() - 1);
  return report;
}

VolumeLog::Scan VolumeLog::ScanSegment(uint32_t index) const {
  Scan scan;
  RebuildReport& report = scan.report;
  const std::optional<uint32_t> published = arena_.segment_used(index);
  if (!published.has_value()) ++report.damaged;
  const uint32_t limit = published.value_or(static_cast<uint32_t>(arena_.geometry().segment_bytes));
  Segment& segment = scan.segment;
  segment.index = index;
  bool in_gap = !published.has_value();
  for (uint32_t at = 0; at + kLogEntryBytes <= limit;) {
    const Place place{index, at};
    const std::optional<Entry> entry = ReadEntry(place, limit);
    if (!entry.has_value()) {
      if (!in_gap) ++report.damaged;
      in_gap = true;
      at += 8;
      continue;
    }
    in_gap = !published.has_value();
    const uint32_t here = BytesHere(place, entry->bytes);
    at += EntrySpan(here);
    segment.used = at;
    segment.record_bytes += here;
    if (entry->is != EntryIs::kComplete) continue;
    const absl::StatusOr<RecordHeader> header = HeaderAt(place, entry->bytes);
    const bool right = header.ok() && header->total_bytes() == entry->bytes &&
                       header->volume == volume_ && header->epoch <= epoch_;
    if (right && header->epoch < epoch_) continue;  // dropped
    const bool trimmed = right && header->seq <= floor_;
    // A trimmed record may have lost its second part to another volume.
    if (!right || (!trimmed && !BodyIsIntact(place, *header))) {
      ++report.damaged;
      scan.bad.emplace_back(place, entry->bytes);
      continue;
    }
    report.durable_mark = std::max(report.durable_mark, header->durable_mark);
    report.checkpoint_mark = std::max(report.checkpoint_mark, header->checkpoint_mark);
    if (trimmed) continue;
    if (here < entry->bytes) {
      scan.next = arena_.segment_next(index);
      scan.next_seq = header->seq;
    }
    scan.live = true;
    segment.max_seq = std::max(segment.max_seq, header->seq);
    scan.found.push_back({header->seq, place});
  }
  return scan;
}

bool VolumeLog::BodyIsIntact(Place place, const RecordHeader& header) const {
  const uint32_t bytes = static_cast<uint32_t>(header.total_bytes());
  const uint32_t here = BytesHere(place, bytes);
  if (here < bytes) {
    const std::optional<uint32_t> next = arena_.segment_next(place.segment);
    if (!next.has_value()) return false;
    const std::optional<Entry> rest =
        ReadEntry({*next, 0}, static_cast<uint32_t>(arena_.geometry().segment_bytes));
    if (!rest.has_value() || rest->is != EntryIs::kRest || rest->bytes != bytes - here) {
      return false;
    }
  }
  return ExtendCrc(0, place, bytes, kRecordHeaderBytes) == header.body_crc;
}

void VolumeLog::AddFoundRecords(std::vector<Found>& found, RebuildReport& report) {
  // In seq order the ranges never outnumber the final ones, which were within their bound.
  std::stable_sort(found.begin(), found.end(),
                   [](const Found& a, const Found& b) { return a.seq < b.seq; });
  for (const Found& f : found) {
    const std::optional<Result> refusal = Refusal(f.seq);
    if (!refusal.has_value()) {
      AddToIndex(f.seq, f.place);
      ++report.records;
      continue;
    }
    std::string record;
    if (refusal == Result::kDuplicate) ReadRecord(f.place, &record);
    if (record.empty() || !Equals(PlaceOf(f.seq), AsBytes(record))) ++report.damaged;
  }
}

}  // namespace salius
