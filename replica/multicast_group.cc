#include "replica/multicast_group.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "common/check.h"

namespace salius {

absl::StatusOr<MulticastGroup> ParseMulticastGroup(const std::string& text) {
  const absl::Status invalid = absl::InvalidArgumentError(
      absl::StrFormat("\"%s\" is not a multicast address with a port", absl::CHexEscape(text)));
  // A zero byte would end the text for the system, but not for us.
  if (!std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; })) {
    return invalid;
  }
  const size_t port_at = text.rfind(':');
  const size_t mark = port_at == std::string::npos ? port_at : text.find('%', port_at);
  MulticastGroup group;
  group.place = text.substr(0, mark);
  if (mark != std::string::npos) group.interface = text.substr(mark + 1);
  const absl::StatusOr<HostPort> host_port = ParseHostPort(group.place, 0);
  if (!host_port.ok() || host_port->port == 0 || !IsNumeric(host_port->host)) return invalid;
  SALIUS_ASSIGN_OR_RETURN(group.address, Resolve(*host_port));
  if (!IsMulticast(group.address)) return invalid;
  return group;
}

}  // namespace salius
