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
  return salius::TryReplicaFile(data, size, salius::kPromiseFileHeaderBytes, salius::Try);
}
