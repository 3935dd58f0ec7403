// Which records count as applied for a recovery in the same life (log/applied_mark.h).
//
// pure: no thread, lock, socket or clock. The caller serialises all calls.
#pragma once

#include <set>

#include "client/session/record_draft.h"
#include "common/ids.h"
#include "log/record_header.h"

namespace salius {

class AppliedOrder {
 public:
  // Notes that the volume applied this record, the next in the order of their seqs. Returns the last
  // record that the mark may name; 0: it must stay. A record that the file system refused counts
  // when its cancel is applied: until then a recovery may still decide for it (I2).
  Seq Applied(const Record& record) {
    const RecordHeader& header = record.header();
    const ApplyResult* const result = record.result();
    if (result != nullptr && !result->status.ok()) refused_.insert(header.seq);
    if (header.op == Op::kCancel) refused_.erase(header.arg0);
    return refused_.empty() ? header.seq : 0;
  }

 private:
  std::set<Seq> refused_;  // applied, and not cancelled yet
};

}  // namespace salius
