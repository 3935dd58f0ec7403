// The data plane's one thread: receives batches of datagrams, hands their frames to the acceptor,
// and answers each (source, volume, session) of a batch with one acknowledgement.
//
// Sockets: one unicast socket on the listen address, and one for every multicast group that a
// session asked for. Acknowledgements always leave from the unicast socket to the datagram's
// source, and from the address that was asked: a primary knows this replica by that one alone. What
// came to a group is answered from the address that its source asked last. A group once joined is kept until its place is needed for another one and no session
// names it: sessions come again.
//
// Threads: the loop owns its buffers. Join() comes from gRPC threads; `mutex_` guards the list of
// sockets only and is never held together with the acceptor's lock or over a receive.
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
#include "transport/udp_socket.h"

namespace salius {

class ReceiveLoop {
 public:
  struct Options {
    SocketAddress listen;
    std::string multicast_interface;  // empty: that of the listen address, or the route's
  };
  // `socket` is bound to options.listen; nothing is received from it yet.
  static absl::StatusOr<std::unique_ptr<ReceiveLoop>> Create(UdpSocket socket,
                                                             const Options& options,
                                                             SharedAcceptor& acceptor,
                                                             ReplicaMetrics& metrics, Clock& clock);
  // An address that stands for all of the host's: a socket bound to it must be told which one was
  // asked (UdpSocket::Options::local_address).
  static bool IsAnyAddress(const SocketAddress& address);
  // Stops when it is running.
  ~ReceiveLoop();
  ReceiveLoop(const ReceiveLoop&) = delete;
  ReceiveLoop& operator=(const ReceiveLoop&) = delete;

  // Starts the thread.
  void Start();
  // Answers what has arrived, then ends the thread. The sockets stay bound.
  void Stop();

  // Receives from the group "address:port" too; OK when it does already. The interface: what
  // follows a "%" after the port, else Options::multicast_interface, else that of the listen
  // address, else the one towards `primary` ("address:port"), else the route's. Returns the group
  // with the interface that was chosen, to be given again after a restart. Whoever joins for a
  // session keeps other calls away until it is open: a group that no session names may be left for
  // another one. Errors: INVALID_ARGUMENT for what is not a multicast address with a port,
  // RESOURCE_EXHAUSTED when sessions name too many, the system's own.
  absl::StatusOr<std::string> Join(const std::string& group, const std::string& primary = "");

  uint16_t port() const { return port_; }

 private:
  struct Buffers;
  struct Source {
    std::string group;  // as Join returned it; empty: the unicast socket
    UdpSocket socket;
  };

  ReceiveLoop(UdpSocket socket, const Options& options, SharedAcceptor& acceptor,
              ReplicaMetrics& metrics, Clock& clock);
  // Where a group is joined that names no interface; empty: the route to the group decides.
  absl::StatusOr<std::string> Interface(const std::string& primary) const;
  void Run();
  std::vector<std::shared_ptr<Source>> Sources() const;
  void LeaveAllBut(const std::vector<std::string>& groups) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WaitReadable(const std::vector<std::shared_ptr<Source>>& sources);
  void Drain(UdpSocket& socket);
  // Receives, handles and answers one batch. Returns whether there may be more.
  bool ReceiveBatch(UdpSocket& socket, bool wait);
  void HandleBatch(size_t first, size_t last);  // of the batch's datagrams
  // The address from which `datagram` is answered; null: the socket's own.
  const SocketAddress* AnswersFrom(const InDatagram& datagram);
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
  SocketAddress self_;  // where Wake() sends to

  mutable absl::Mutex mutex_;
  std::vector<std::shared_ptr<Source>> sources_ ABSL_GUARDED_BY(mutex_);

  std::atomic<bool> stop_{false};
  std::atomic<bool> sources_changed_{false};
  std::thread thread_;
  // Only the loop's thread uses what follows.
  std::unique_ptr<Buffers> buffers_;
  RateLimiter unknown_answers_;
  // By source, when the socket has any address and groups were joined.
  std::map<std::string, SocketAddress, std::less<>> asked_at_;
  bool any_address_ = false;  // the unicast socket is bound to no address of its own
  bool grouped_ = false;      // groups are received from
  int64_t next_tick_ns_ = 0;
};

}  // namespace salius
