// Decodes requests of the kernel (client/fuse/raw_request.h) and reads nothing beyond the message.
#include <cstring>
#include <memory>

#include "client/fuse/raw_request.h"
#include "common/check.h"

namespace salius {
namespace {

template <typename Args>
void CheckArgs(const RawRequest& request, absl::Span<const uint8_t> body) {
  const Args* const args = request.args<Args>();
  SALIUS_CHECK((args != nullptr) == (body.size() >= sizeof(Args)));
  if (args != nullptr) SALIUS_CHECK(std::memcmp(args, body.data(), sizeof(Args)) == 0);
  const auto name = request.name(sizeof(Args));
  if (!name.has_value()) return;
  SALIUS_CHECK(name->find('\0') == std::string_view::npos);
  SALIUS_CHECK(sizeof(Args) + name->size() < body.size());
  SALIUS_CHECK(std::memcmp(name->data(), body.data() + sizeof(Args), name->size() + 1) == 0);
}

}  // namespace
}  // namespace salius

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace salius;  // NOLINT: the function has to be outside
  // A copy of exactly this size, aligned like the session's buffers, so that a read past the end
  // is detected.
  const std::unique_ptr<uint8_t[]> copy(new uint8_t[size]);
  std::memcpy(copy.get(), data, size);
  for (const bool whole : {false, true}) {
    if (whole && size >= sizeof(fuse_in_header)) {
      const auto length = static_cast<uint32_t>(size);
      std::memcpy(copy.get(), &length, sizeof(length));
    }
    const auto request = RawRequest::Parse(-1, absl::MakeConstSpan(copy.get(), size));
    if (!request.has_value()) continue;
    SALIUS_CHECK(request->header().len <= size);
    const absl::Span<const uint8_t> body = request->rest(0);
    SALIUS_CHECK(body.size() == request->header().len - sizeof(fuse_in_header));
    CheckArgs<fuse_open_in>(*request, body);
    CheckArgs<fuse_create_in>(*request, body);
    CheckArgs<fuse_write_in>(*request, body);
    CheckArgs<fuse_setattr_in>(*request, body);
    CheckArgs<fuse_setxattr_in>(*request, body);
    CheckArgs<fuse_init_in>(*request, body);
  }
  return 0;
}
