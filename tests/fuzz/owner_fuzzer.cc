// Decodes the file of owners. Any bytes are refused, or are exactly the encoding of the decoded
// book.
#include "replica/owner_book.h"

#include "common/check.h"
#include "tests/fuzz/fuzz_util.h"

namespace salius {
namespace {

void Try(const std::string& bytes) {
  OwnerBook book;
  const absl::Status decoded = book.Decode(AsBytes(bytes));
  if (!decoded.ok()) {
    SALIUS_CHECK(absl::IsDataLoss(decoded) || absl::IsFailedPrecondition(decoded));
    return;
  }
  SALIUS_CHECK(book.size() <= kMaxOwners);
  SALIUS_CHECK(book.Encode() == bytes);
}

}  // namespace
}  // namespace salius

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace salius;  // NOLINT: the function has to be outside
  std::string bytes(reinterpret_cast<const char*>(data), size);
  Try(bytes);
  // Chance never finds a checksum.
  if (size < kOwnerFileHeaderBytes) return 0;
  const uint32_t crc = Crc32cExtend(Crc32c(AsBytes(bytes).first(12)), AsBytes(bytes).subspan(16));
  StoreU32(MutableBytes(bytes) + 12, crc);
  Try(bytes);
  return 0;
}
