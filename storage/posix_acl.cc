#include "storage/posix_acl.h"

#include "common/bytes.h"
#include "common/strings.h"

namespace salius {

std::optional<mode_t> ModeOfAcl(std::string_view value) {
  ByteReader reader(AsBytes(value));
  if (reader.U32() != kAclVersion) return std::nullopt;
  std::optional<mode_t> user, group, mask, other;
  while (reader.ok() && reader.remaining() > 0) {
    const uint16_t tag = reader.U16();
    const mode_t bits = reader.U16() & 7;
    reader.U32();  // user or group id
    if (tag == kAclUserObj) user = bits;
    if (tag == kAclGroupObj) group = bits;
    if (tag == kAclMask) mask = bits;
    if (tag == kAclOther) other = bits;
  }
  if (!reader.ok() || !user || !group || !other) return std::nullopt;
  return *user << 6 | mask.value_or(*group) << 3 | *other;
}

}  // namespace salius
