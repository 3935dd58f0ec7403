// Decodes a slot of the state file. An accepted slot encodes to the same bytes.
#include <algorithm>

#include "common/check.h"
#include "common/limits.h"
#include "log/state_file.h"
#include "tests/fuzz/fuzz_util.h"

namespace salius {
namespace {

void FuzzSlot(const std::string& bytes) {
  const auto slot = DecodeStateSlot(AsBytes(bytes));
  if (slot.ok()) SALIUS_CHECK(EncodeStateSlot(slot->state, slot->generation) == bytes);
}

}  // namespace
}  // namespace salius

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace salius;  // NOLINT: the function has to be outside
  std::string bytes(reinterpret_cast<const char*>(data), size);
  FuzzSlot(bytes);
  // A short input is the slot's beginning; the rest is zero.
  bytes.resize(kStateSlotBytes, '\0');
  SealCrc(bytes, kStateSlotBytes - 4);
  FuzzSlot(bytes);
  return 0;
}
