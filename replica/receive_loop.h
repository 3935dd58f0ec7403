// The data plane's one thread: receives batches of datagrams, hands their frames to the acceptor,
// and answers each (source, volume, session, key) of a batch with one acknowledgement.
//
// Channels: one unicast channel on the listen address, and one for every multicast group that a
// session asked for. Acknowledgements always leave by the unicast channel to the datagram's
// source. They leave from the address that the datagram was sent to: a primary knows this replica
// only by that one. A datagram that came to a group is answered from the address that its source
// used last.
//
// A joined group is kept until its place is needed for another one and no session names it: a
// primary may open its session again.
//
// Threads: the loop owns its buffers. Join() comes from gRPC threads; `mutex_` guards the list of
// channels only and is never held together with the acceptor's lock or over a receive.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "replica/rate_limiter.h"
#include "replica/replica_metrics.h"
#include "replica/shared_acceptor.h"
#include "transport/datagram_channel.h"

namespace salius {

class ReceiveLoop {
 public:
  struct Options {
    SocketAddress listen;
    std::string multicast_interface;  // empty: that of the listen address, or the route's
    ChannelLayer channel_layer;       // goes around the channel of each group; empty: none
  };
  // Makes a loop. `channel` is bound to options.listen; nothing is received from it yet.
  static absl::StatusOr<std::unique_ptr<ReceiveLoop>> Create(
      std::unique_ptr<DatagramChannel> channel, const Options& options, SharedAcceptor& acceptor,
      ReplicaMetrics& metrics, Clock& clock);
  // Whether the address means all of the host's. A socket bound to it must report the address
  // that each datagram was sent to (UdpSocket::Options::local_address).
  static bool IsAnyAddress(const SocketAddress& address);
  // Stops the thread when it is running.
  ~ReceiveLoop();
  ReceiveLoop(const ReceiveLoop&) = delete;
  ReceiveLoop& operator=(const ReceiveLoop&) = delete;

  // Starts the thread.
  void Start();
  // Answers the datagrams that have arrived, then ends the thread. The channels stay open.
  void Stop();

  // Receives from the group "address:port" too; OK when it does already. Returns the group with the
  // interface that was chosen, to be passed again after a restart. The interface is the first of:
  //
  //   1. the text after a "%" behind the port
  //   2. Options::multicast_interface
  //   3. that of the listen address
  //   4. the one towards `primary` ("address:port")
  //   5. the route's
  //
  // A caller that joins for a session keeps other calls away until the session is open: a group
  // that no session names may be left for another one. Errors: INVALID_ARGUMENT for text other than
  // a multicast address with a port, RESOURCE_EXHAUSTED when sessions name too many, the system's
  // own.
  absl::StatusOr<std::string> Join(const std::string& group, const std::string& primary = "");

  uint16_t port() const { return port_; }

 private:
  struct Buffers;
  struct Source {
    std::string group;  // as Join returned it; empty: the unicast channel
    const std::unique_ptr<DatagramChannel> channel;
  };

  ReceiveLoop(std::unique_ptr<DatagramChannel> channel, const Options& options,
              SharedAcceptor& acceptor, ReplicaMetrics& metrics, Clock& clock);
  // Returns the interface for a group that names none; empty: the route to the group decides.
  absl::StatusOr<std::string> Interface(const std::string& primary) const;
  void Run();
  std::vector<std::shared_ptr<Source>> Sources() const;
  void LeaveOtherGroups(const std::vector<std::string>& groups)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WaitReadable(const std::vector<std::shared_ptr<Source>>& sources);
  void Drain(DatagramChannel& channel);
  // Receives, processes and answers one batch. Returns whether there may be more.
  bool ReceiveBatch(DatagramChannel& channel, bool wait);
  void HandleBatch(size_t first, size_t last);  // of the batch's datagrams
  // Returns the address from which `datagram` is answered; null: the socket's own.
  const SocketAddress* SourceAddressFor(const InDatagram& datagram);
  bool MayAnswer(int64_t now_ns, Acceptor::Standing standing, const SocketAddress& to);
  void SendAcks();
  void Tick();
  void Wake();

  const Options options_;
  SharedAcceptor& acceptor_;
  ReplicaMetrics& metrics_;
  Clock& clock_;
  uint16_t port_ = 0;
  const std::shared_ptr<Source> unicast_;
  SocketAddress self_;  // destination of Wake()

  mutable absl::Mutex mutex_;
  std::vector<std::shared_ptr<Source>> sources_ ABSL_GUARDED_BY(mutex_);

  std::atomic<bool> stop_{false};
  std::atomic<bool> sources_changed_{false};
  std::thread thread_;
  // Only the loop's thread uses the members below.
  std::unique_ptr<Buffers> buffers_;
  RateLimiter unknown_answers_;
  // The address that each source used, when the channel has any address and groups were joined.
  std::map<std::string, SocketAddress, std::less<>> asked_at_;
  bool any_address_ = false;  // the unicast channel is bound to all addresses of the host
  bool grouped_ = false;      // the loop receives from groups
  int64_t next_tick_ns_ = 0;
};

}  // namespace salius
