// Decodes the note of a recovery run (.salius/recovery). An accepted note encodes to the same
// bytes, and is refused after any bit is flipped.
#include "common/check.h"
#include "recovery/run_file.h"
#include "tests/fuzz/fuzz_util.h"

namespace salius::recovery {
namespace {

void FuzzNote(const std::string& bytes) {
  const auto note = DecodeRunNote(AsBytes(bytes));
  if (!note.ok()) return;
  SALIUS_CHECK(EncodeRunNote(*note) == bytes);
  SALIUS_CHECK(note->token != 0 && note->fence_epoch > note->epoch);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] ^= static_cast<char>(1 << bit % 8);
    SALIUS_CHECK(!DecodeRunNote(AsBytes(damaged)).ok()) << bit;
  }
}

}  // namespace
}  // namespace salius::recovery

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace salius;  // NOLINT: the function has to be outside
  std::string bytes(reinterpret_cast<const char*>(data), size);
  recovery::FuzzNote(bytes);
  bytes.resize(recovery::kRunFileBytes, '\0');
  SealCrc(bytes, recovery::kRunFileBytes - 4);
  recovery::FuzzNote(bytes);
  return 0;
}
