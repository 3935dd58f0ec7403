#include "client/engine/session_answer.h"

#include "absl/strings/str_cat.h"

namespace salius {

absl::StatusOr<OpenedSession> OpenedFrom(const std::string& replica,
                                         const control::OpenSessionResponse& message) {
  if (message.incarnation() == 0 || message.udp_port() == 0 || message.udp_port() > 65535) {
    return absl::InternalError(
        absl::StrCat("replica ", replica, " gave an answer without incarnation or UDP port"));
  }
  return OpenedSession{message.incarnation(), static_cast<uint16_t>(message.udp_port()),
                       message.free_bytes()};
}

}  // namespace salius
