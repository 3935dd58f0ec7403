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
  return salius::TryReplicaFile(data, size, salius::kOwnerFileHeaderBytes, salius::Try);
}
