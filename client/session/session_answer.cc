#include "client/session/session_answer.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/strings.h"
#include "common/version.h"

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
                                         const control::OpenSessionResponse& message, bool sealed) {
  if (message.incarnation() == 0 || message.udp_port() == 0 || message.udp_port() > 65535) {
    return absl::InternalError(
        absl::StrCat("replica ", replica, " gave an answer without incarnation or UDP port"));
  }
  OpenedSession opened{message.incarnation(), static_cast<uint16_t>(message.udp_port()),
                       message.free_bytes(),  Printable(message.host(), NewLines::kReplace),
                       message.store(),       std::nullopt,
                       message.compact_records()};
  if (!sealed && message.ack_key().empty()) return opened;
  SealKey key;
  if (message.ack_key().size() != key.size()) {
    return absl::UnimplementedError(absl::StrCat(
        "replica ", replica, " (version ", Printable(message.version(), NewLines::kReplace),
        ") does not seal datagrams, and this primary (version ", kSaliusVersion,
        ") does: upgrade it, and give both ends keys, or neither of them insecure"));
  }
  std::memcpy(key.data(), message.ack_key().data(), key.size());
  opened.ack_key = key;
  return opened;
}

}  // namespace salius
