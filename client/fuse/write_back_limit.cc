#include "client/fuse/write_back_limit.h"

#include <fcntl.h>

#include <string_view>

#include "common/check.h"
#include "common/file.h"

namespace salius {
namespace {

absl::Status WriteSetting(const std::string& path, std::string_view value) {
  SALIUS_ASSIGN_OR_RETURN(const UniqueFd fd, OpenAt(AT_FDCWD, path, O_WRONLY));
  return PwriteFull(
      fd.get(), {reinterpret_cast<const uint8_t*>(value.data()), value.size()}, /*offset=*/0);
}

}  // namespace

absl::Status LiftWriteBackLimit(const std::string& directory, const std::string& device) {
  const std::string settings = directory + "/" + device + "/";
  SALIUS_RETURN_IF_ERROR(WriteSetting(settings + "max_ratio", "100"));
  return WriteSetting(settings + "strict_limit", "0");
}

}  // namespace salius
