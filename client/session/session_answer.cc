#include "client/session/session_answer.h"

#include "absl/strings/str_cat.h"
#include "common/strings.h"

namespace salius {

absl::StatusOr<HeldSession> HeldFrom(const std::string& replica,
                                     const control::InventoryResponse& message) {
  if (message.incarnation() == 0) {
    return absl::InternalError(
        absl::StrCat("replica ", replica, " gave an answer without incarnation"));
  }
  HeldSession held;
  held.incarnation = message.incarnation();
  if (message.inventory().known()) {
    held.epoch = message.inventory().epoch();
    held.session = message.inventory().session();
  }
  return held;
}

absl::StatusOr<OpenedSession> OpenedFrom(const std::string& replica,
                                         const control::OpenSessionResponse& message) {
  if (message.incarnation() == 0 || message.udp_port() == 0 || message.udp_port() > 65535) {
    return absl::InternalError(
        absl::StrCat("replica ", replica, " gave an answer without incarnation or UDP port"));
  }
  return OpenedSession{message.incarnation(), static_cast<uint16_t>(message.udp_port()),
                       message.free_bytes(), Printable(message.host(), NewLines::kReplace),
                       message.store()};
}

}  // namespace salius
