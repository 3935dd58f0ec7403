// Decodes the stable log's three formats, each alone: file header, entry header, decision. Accepted
// bytes encode to the same bytes. Also searches damaged bytes for an entry.
#include <algorithm>

#include "common/check.h"
#include "common/limits.h"
#include "log/stable_log_format.h"
#include "tests/fuzz/fuzz_util.h"

namespace salius::stable {
namespace {

void FuzzFileHeader(const std::string& slot) {
  const auto header = DecodeFileHeader(AsBytes(slot));
  if (!header.ok()) return;
  SALIUS_CHECK(EncodeFileHeader(*header) == slot);
  // The log continues with the next generation and a reach up to a lap further. Only a forged
  // header is at the very end of the numbers.
  if (header->generation == kMaxCount || header->reach > kMaxCount) return;
  FileHeader next = *header;
  ++next.generation;
  next.start = next.reach;
  next.reach += next.capacity;
  const auto again = DecodeFileHeader(AsBytes(EncodeFileHeader(next)));
  SALIUS_CHECK_OK(again);
  SALIUS_CHECK(*again == next);
}

void FuzzEntry(std::string_view bytes, uint64_t salt) {
  const auto header = DecodeEntryHeader(AsBytes(bytes), salt);
  if (!header.ok()) return;
  SALIUS_CHECK(header->total_bytes() >= kEntryHeaderBytes + header->payload_bytes);
  SALIUS_CHECK(header->total_bytes() % kEntryAlign == 0);
  std::string again(kEntryHeaderBytes, '\xff');
  EncodeEntryHeader(*header, salt, MutableBytes(again));
  SALIUS_CHECK(bytes.substr(0, kEntryHeaderBytes) == again);
  // Bytes that a user stored pass for an entry only if their checksum has this log's salt.
  SALIUS_CHECK(!DecodeEntryHeader(AsBytes(bytes), salt ^ 1).ok());
}

void FuzzDecision(const std::string& bytes) {
  const auto decision = DecodeDecision(AsBytes(bytes));
  if (decision.ok()) SALIUS_CHECK(EncodeDecision(*decision) == bytes);
}

// Checks that the search finds the same place as a scan of every place.
void FuzzSearch(std::string_view bytes) {
  std::string entry(kEntryHeaderBytes, '\0');
  EncodeEntryHeader({}, 0, MutableBytes(entry));
  const std::string_view magic = std::string_view(entry).substr(0, 4);
  for (size_t from = 0; from <= std::min<size_t>(bytes.size(), 64); from += kEntryAlign) {
    size_t expected = from;
    while (expected + 4 <= bytes.size() && bytes.substr(expected, 4) != magic) {
      expected += kEntryAlign;
    }
    const size_t found = FindEntryMagic(AsBytes(bytes), from);
    SALIUS_CHECK(expected + 4 <= bytes.size() ? found == expected : found >= bytes.size());
  }
}

}  // namespace
}  // namespace salius::stable

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace salius;          // NOLINT: the function has to be outside
  using namespace salius::stable;  // NOLINT
  constexpr uint64_t kSalt = 0x1234;
  const std::string raw(reinterpret_cast<const char*>(data), size);
  FuzzFileHeader(raw);
  FuzzEntry(raw, kSalt);
  FuzzDecision(raw);
  FuzzSearch(raw);

  // The same bytes with valid checksums; a short input is the header's beginning.
  std::string bytes = raw;
  bytes.resize(kHeaderSlotBytes, '\0');
  SealCrc(bytes, kHeaderSlotBytes - 4);
  FuzzFileHeader(bytes);
  bytes = raw.substr(0, kDecisionBytes);
  bytes.resize(kDecisionBytes, '\0');
  SealCrc(bytes, kDecisionBytes - 4);
  FuzzDecision(bytes);
  bytes = raw.substr(0, kEntryHeaderBytes);
  bytes.resize(kEntryHeaderBytes, '\0');
  uint8_t salt[8];
  StoreU64(salt, kSalt);
  StoreU32(MutableBytes(bytes) + kEntryHeaderBytes - 4,
           Crc32cExtend(Crc32c(salt), AsBytes(bytes).first(kEntryHeaderBytes - 4)));
  FuzzEntry(bytes, kSalt);
  return 0;
}
