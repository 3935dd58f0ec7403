#include "common/ids.h"

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "common/random.h"

namespace salius {
namespace {

constexpr size_t kTextSize = 36;

constexpr bool IsDashAt(size_t i) { return i == 8 || i == 13 || i == 18 || i == 23; }

// Returns the value of a hexadecimal digit, or -1.
int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

absl::StatusOr<VolumeId> ParseVolumeId(std::string_view text) {
  const auto invalid = [&] {
    return absl::InvalidArgumentError(absl::StrFormat(
        "\"%s\" is not a volume UUID (xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx)", text));
  };
  if (text.size() != kTextSize) return invalid();
  VolumeId id;
  size_t digits = 0;
  for (size_t i = 0; i < kTextSize; ++i) {
    if (IsDashAt(i)) {
      if (text[i] != '-') return invalid();
      continue;
    }
    const int value = HexValue(text[i]);
    if (value < 0) return invalid();
    uint8_t& byte = id.bytes[digits / 2];
    byte = static_cast<uint8_t>(byte << 4 | value);
    ++digits;
  }
  return id;
}

VolumeId VolumeId::Random() {
  VolumeId id;
  SecureRandomBytes(id.bytes.data(), id.bytes.size());
  id.bytes[6] = static_cast<uint8_t>((id.bytes[6] & 0x0f) | 0x40);  // Version 4: random.
  id.bytes[8] = static_cast<uint8_t>((id.bytes[8] & 0x3f) | 0x80);  // Variant of RFC 4122.
  return id;
}

std::string VolumeId::ToString() const {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(kTextSize);
  for (const uint8_t byte : bytes) {
    if (IsDashAt(text.size())) text.push_back('-');
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

}  // namespace salius
