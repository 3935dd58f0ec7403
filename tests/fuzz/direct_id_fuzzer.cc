// Decodes the file id of a direct volume's file (the xattr user.salius.id). An accepted value
// encodes to the same bytes, and is refused after any bit is flipped.
#include "storage/direct_id.h"

#include <cstring>
#include <string>

#include "common/check.h"
#include "tests/fuzz/fuzz_util.h"

namespace salius {
namespace {

void FuzzValue(const std::string& value) {
  DirectId id;
  if (!DecodeDirectId(value.data(), value.size(), &id)) return;
  uint8_t encoded[kDirectIdBytes];
  EncodeDirectId(id, encoded);
  SALIUS_CHECK(value.size() == kDirectIdBytes);
  SALIUS_CHECK(std::memcmp(encoded, value.data(), kDirectIdBytes) == 0);
  SALIUS_CHECK(id.file_id != 0);
  for (size_t bit = 0; bit < value.size() * 8; ++bit) {
    std::string damaged = value;
    damaged[bit / 8] ^= static_cast<char>(1 << bit % 8);
    SALIUS_CHECK(!DecodeDirectId(damaged.data(), damaged.size(), &id)) << bit;
  }
}

}  // namespace
}  // namespace salius

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace salius;  // NOLINT: the function has to be outside
  std::string bytes(reinterpret_cast<const char*>(data), size);
  FuzzValue(bytes);
  bytes.resize(kDirectIdBytes, '\0');
  SealCrc(bytes, kDirectIdBytes - 4);
  FuzzValue(bytes);
  return 0;
}
