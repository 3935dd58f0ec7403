// The records that recovery keeps: those of the volume's state at T.
#pragma once

#include <algorithm>
#include <vector>

#include "common/ids.h"
#include "recovery/agree/record_set.h"
#include "recovery/report.h"

namespace salius::recovery {

struct Decided {
  Seq last = 0;                            // T
  std::vector<const RecordView*> records;  // (checkpoint, T], ascending
};

// Writes T and the number and size of the records into the report.
inline void ReportDecided(const Decided& decided, RecoveryReport* report) {
  report->decided = decided.last;
  report->highest = std::max(report->highest, decided.last);
  report->records = decided.records.size();
  for (const RecordView* record : decided.records) {
    report->record_bytes += record->header.total_bytes();
  }
}

}  // namespace salius::recovery
