#include "client/session/ack_filter.h"

#include <array>
#include <utility>

#include "absl/status/statusor.h"

namespace salius {

std::string_view AckVerdictName(AckVerdict verdict) {
  static constexpr std::array<std::string_view, kAckVerdicts> kNames = {
      "good", "truncated", "malformed", "foreign", "unknown_sender"};
  return kNames[static_cast<size_t>(verdict)];
}

AckVerdict FilterAck(const SessionKey& key, const AckDatagram& datagram, ReceivedAck* ack) {
  if (datagram.truncated) return AckVerdict::kTruncated;
  const absl::StatusOr<FrameHeader> header = DecodeFrameHeader(datagram.bytes);
  if (!header.ok() || header->type != FrameType::kAck) return AckVerdict::kMalformed;
  if (header->volume != key.volume || header->epoch != key.epoch ||
      header->session != key.session) {
    return AckVerdict::kForeign;
  }
  absl::StatusOr<AckPayload> payload = DecodeAckPayload(datagram.bytes.subspan(kFrameHeaderBytes));
  if (!payload.ok()) return AckVerdict::kMalformed;
  if (datagram.replica < 0) return AckVerdict::kUnknownSender;
  ack->sent_ns = static_cast<int64_t>(header->send_time_ns);
  ack->payload = *std::move(payload);
  return AckVerdict::kGood;
}

}  // namespace salius
