// A layer around a channel that loses, duplicates, reorders and delays the datagrams sent through
// it, by a seed. Received datagrams pass unchanged: wrap both ends to disturb both directions.
//
// A delayed datagram leaves with the first Send or Receive after its time, so the owner calls one
// of them from time to time. Datagrams that are still held at the end are lost.
//
// Threads: as DatagramChannel.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/random.h"
#include "transport/datagram_channel.h"

namespace salius {

class LossyChannel final : public DatagramChannel {
 public:
  // Probabilities for each datagram, from 0 to 1.
  struct Faults {
    double drop = 0;
    double duplicate = 0;  // it is sent twice
    double reorder = 0;    // it changes places with another one that leaves at the same time
    double delay = 0;
    int64_t max_delay_ns = 0;  // a delay is uniform in [1, max_delay_ns]
  };
  struct Counts {
    uint64_t sent = 0;  // by the owner
    uint64_t dropped = 0;
    uint64_t duplicated = 0;
    uint64_t reordered = 0;
    uint64_t delayed = 0;
  };

  LossyChannel(std::unique_ptr<DatagramChannel> inner, const Faults& faults, uint64_t seed,
               Clock& clock);

  // Takes every datagram: one that the channel inside has no room for is lost.
  size_t Send(absl::Span<const OutDatagram> batch) override;
  absl::StatusOr<size_t> Receive(InBatch& batch, bool wait) override;
  absl::Status SetReceiveTimeout(int64_t micros) override;
  int fd() const override { return inner_->fd(); }
  absl::StatusOr<SocketAddress> local() const override { return inner_->local(); }
  uint64_t send_errors() const override { return inner_->send_errors(); }
  size_t overhead() const override { return inner_->overhead(); }
  absl::Status SetFilter(absl::Span<const sock_filter> program) override {
    return inner_->SetFilter(program);
  }
  uint32_t dropped() const override { return inner_->dropped(); }

  Counts counts() const;

 private:
  struct Held {
    int64_t due_ns;
    SocketAddress to;
    std::optional<SocketAddress> from;
    std::string bytes;
  };
  void Take(const OutDatagram& datagram, int64_t now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Sends the datagrams whose time has come.
  void Release(int64_t now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::unique_ptr<DatagramChannel> inner_;
  const Faults faults_;
  Clock& clock_;
  mutable absl::Mutex mutex_;
  Random random_ ABSL_GUARDED_BY(mutex_);
  std::vector<Held> held_ ABSL_GUARDED_BY(mutex_);
  Counts counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace salius
