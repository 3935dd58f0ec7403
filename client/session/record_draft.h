// Records between the volume, which drafts them, and the record stream, which stamps them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "client/session/send_when.h"
#include "common/ids.h"
#include "log/record.h"

namespace salius {

// The result of applying a record whose issuer waits for it. ApplySink::Apply writes it; the issuer
// reads it after the record was applied.
struct ApplyResult {
  absl::Status status;
};

// A record to be stamped.
struct RecordDraft {
  Op op = Op::kWrite;
  FileId file_id = kNoFileId;
  uint64_t arg0 = 0, arg1 = 0, arg2 = 0;
  std::string body;  // moved, never copied; at most kMaxRecordBody bytes
  SendWhen when = SendWhen::kNow;
  std::shared_ptr<ApplyResult> result;  // null: the issuer does not wait for the result
};

// An issued record: header (encoded and decoded) and body, immutable once it is stamped. The
// extents of its file, the retransmit window and the applier share it. It is freed when it is
// checkpointed and applied.
class Record {
 public:
  // Takes the body and the result from `draft`. The stamp is still missing.
  explicit Record(RecordDraft draft)
      : body_(std::move(draft.body)), result_(std::move(draft.result)) {
    header_.op = draft.op;
    header_.body_bytes = static_cast<uint32_t>(body_.size());
    header_.file_id = draft.file_id;
    header_.arg0 = draft.arg0;
    header_.arg1 = draft.arg1;
    header_.arg2 = draft.arg2;
  }
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;

  const RecordHeader& header() const { return header_; }
  Seq seq() const { return header_.seq; }
  std::string_view body() const { return body_; }
  const uint8_t* encoded_header() const { return encoded_; }
  ApplyResult* result() const { return result_.get(); }

  // Returns the header for the stream that stamps it, until Encode().
  RecordHeader& stamp() { return header_; }
  // Encodes the header. Nothing changes afterwards.
  void Encode() { EncodeRecordHeader(header_, encoded_); }

 private:
  RecordHeader header_;
  uint8_t encoded_[kRecordHeaderBytes];
  std::string body_;
  std::shared_ptr<ApplyResult> result_;
};
using RecordRef = std::shared_ptr<const Record>;

}  // namespace salius
