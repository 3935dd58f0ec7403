// Decodes the promise file. Any bytes are refused, or are exactly the encoding of the decoded file.
#include "replica/promise.h"

#include "common/check.h"
#include "tests/fuzz/fuzz_util.h"

namespace salius {
namespace {

void Try(const std::string& bytes) {
  const auto file = DecodePromiseFile(AsBytes(bytes));
  if (!file.ok()) {
    SALIUS_CHECK(absl::IsDataLoss(file.status()) || absl::IsFailedPrecondition(file.status()));
    return;
  }
  SALIUS_CHECK(file->store != 0 && file->promises.size() <= kMaxPromises);
  SALIUS_CHECK(EncodePromiseFile(*file) == bytes);
}

}  // namespace
}  // namespace salius

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace salius;  // NOLINT: the function has to be outside
  std::string bytes(reinterpret_cast<const char*>(data), size);
  Try(bytes);
  // Chance never finds a checksum.
  if (size < kPromiseFileHeaderBytes) return 0;
  const uint32_t crc = Crc32cExtend(Crc32c(AsBytes(bytes).first(12)), AsBytes(bytes).subspan(16));
  StoreU32(MutableBytes(bytes) + 12, crc);
  Try(bytes);
  return 0;
}
