#include "client/session/record_stream.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace salius {

absl::Status NotApplied(const Record& record, const absl::Status& why) {
  const RecordHeader& header = record.header();
  return absl::Status(
      why.code(), absl::StrCat("seq ", header.seq, " (", std::string(OpName(header.op)),
                               ") could not be applied: ", why.message(),
                               ". The volume is read-only and keeps its log"));
}

}  // namespace salius
