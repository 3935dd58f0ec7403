// A layer around a channel that seals every datagram, and accepts only sealed ones: without it
// sealing costs nothing. Exceptions are OutDatagram::plain, and the plain frames that the key ring
// allows.
//
// - Datagrams of a batch with the same parts and key are sealed once: a frame for several replicas
//   has one sealed form.
// - A datagram that is refused is counted in the key ring, and not received.
// - A datagram without bytes passes in both directions: a receiver wakes itself with one.
//
// Threads: as DatagramChannel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "proto/sealed_frame.h"
#include "transport/datagram_channel.h"
#include "transport/flood_guard.h"
#include "transport/key_ring.h"

namespace salius {

class SealedChannel final : public DatagramChannel {
 public:
  struct Options {
    // Whether a datagram whose key is not known may be answered with a notice now; empty: never.
    // Called by Receive.
    std::function<bool(const SocketAddress& from)> may_notify;
    // Datagrams that name no key are sent as they are while the ring has no present key: answers to
    // plain frames that the ring allows.
    bool plain_without_key = false;
    // Called by Receive for each notice about a datagram that was sealed here; may be empty.
    std::function<void(const SocketAddress& from)> on_notice;
    // For a guard against floods (transport/flood_guard.h); null: none. It outlives the channel.
    Clock* clock = nullptr;
  };
  // `ring` outlives the channel.
  SealedChannel(std::unique_ptr<DatagramChannel> inner, KeyRing& ring, Options options);

  // Skips a datagram whose key is not there.
  size_t Send(absl::Span<const OutDatagram> batch) override;
  absl::StatusOr<size_t> Receive(InBatch& batch, bool wait) override;
  absl::Status SetReceiveTimeout(int64_t micros) override;
  int fd() const override { return inner_->fd(); }
  absl::StatusOr<SocketAddress> local() const override { return inner_->local(); }
  uint64_t send_errors() const override { return inner_->send_errors(); }
  size_t overhead() const override { return inner_->overhead() + kSealBytes; }
  // Whether the kernel drops datagrams of a flood now.
  bool filters() const { return guard_.has_value() && guard_->filters(); }

 private:
  // Opens a datagram. Returns whether it is received.
  bool Accept(InDatagram& datagram, absl::Span<uint8_t> bytes);
  void Notify(const SealPrefix& prefix, const InDatagram& datagram);

  const std::unique_ptr<DatagramChannel> inner_;
  KeyRing& ring_;
  const Options options_;
  std::optional<FloodGuard> guard_;
};

}  // namespace salius
