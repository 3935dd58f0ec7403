// The numbers that name things (docs/protocol.md), and their texts.
#ifndef SALIUS_COMMON_IDS_H_
#define SALIUS_COMMON_IDS_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "common/id_types.h"

namespace salius {

// Parses the 36 characters 8-4-4-4-12 in hexadecimal, either case. INVALID_ARGUMENT otherwise.
absl::StatusOr<VolumeId> ParseVolumeId(std::string_view text);

}  // namespace salius

#endif  // SALIUS_COMMON_IDS_H_
