// Decodes the notes of recoveries (.salius/recoveries). Accepted notes encode to the same text.
// They can be shown, acknowledged and extended.
#include "log/recovery_notes.h"

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/crc32c.h"
#include "tests/fuzz/fuzz_util.h"

namespace salius {
namespace {

void FuzzNotes(const std::string& text) {
  absl::StatusOr<RecoveryNotes> notes = RecoveryNotes::Decode(text);
  if (!notes.ok()) return;
  SALIUS_CHECK(notes->Encode() == text);
  for (const RecoveryNote& note : notes->all()) {
    for (const char c : GivenUpText(note)) SALIUS_CHECK(c >= 0x20 && c < 0x7f);
  }
  const size_t open = notes->Unacknowledged().size();
  SALIUS_CHECK(notes->AcknowledgeAll() == open && notes->Unacknowledged().empty());
  notes->Put(RecoveryNote());
  SALIUS_CHECK(notes->all().size() == 1);
  SALIUS_CHECK(RecoveryNotes::Decode(notes->Encode()).ok());
}

}  // namespace
}  // namespace salius

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace salius;  // NOLINT: the function has to be outside
  const std::string text(reinterpret_cast<const char*>(data), size);
  FuzzNotes(text);
  // The same text with a valid first line and checksum.
  const std::string body = "salius-recoveries 1\n" + text;
  FuzzNotes(body + absl::StrFormat("crc32c %08x\n", Crc32c(AsBytes(body))));
  return 0;
}
