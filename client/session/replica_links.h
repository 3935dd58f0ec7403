// The links to the replicas: their addresses, the socket that sends to them, and the sessions with
// them.
//
// Threads: Refresh and the methods that it calls run on the io thread, SessionLoop on one thread
// per replica.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "client/session/control_check.h"
#include "client/session/frame_sender.h"
#include "client/session/offered_keys.h"
#include "client/session/places.h"
#include "client/session/session_client.h"
#include "client/session/session_status.h"
#include "client/session/shared_core.h"
#include "common/lookup.h"
#include "common/net.h"
#include "transport/datagram_channel.h"
#include "transport/key_ring.h"
#include "transport/udp_socket.h"

namespace salius {

class ReplicaLinks {
 public:
  static constexpr int64_t kOpenDeadlineMs = 2000;

  explicit ReplicaLinks(SharedCore& shared)
      : shared_(shared),
        config_(shared.options.config),
        places_(config_.replicas, shared.options.insecure || must_seal()) {}

  // Has `share` called with the keys of a sealed session after each change of them, under the core's
  // lock: for processes that seal and open beside this one. Before Begin.
  void ShareKeys(std::function<void(const KeysInUse&)> share) { share_keys_ = std::move(share); }
  // Makes the channel and the sender, and resolves the replicas' names. Without replicas there are
  // none.
  absl::Status Begin();
  size_t size() const { return peers_.size(); }
  // Returns the channel of this session's datagrams; null: there are no replicas.
  DatagramChannel* channel() const { return channel_.get(); }
  // Returns the same without the layer that seals: for an owner that opens datagrams itself.
  DatagramChannel* wire() const { return wire_; }
  // Returns the replica that sent `datagram`, or -1: by its address, and in a sealed session by its
  // key, too. The caller holds the core's lock.
  int SenderOf(const InDatagram& datagram) const {
    shared_.mu.AssertReaderHeld();
    const int replica = Find(*datagram.from);
    if (replica < 0 || !sealed()) return replica;
    const bool plain = (keys_.plain() & ReplicaBit(replica)) != 0;
    return datagram.sender == (plain ? 0 : OfferedKeys::AckSender(replica)) ? replica : -1;
  }
  // Whether the datagrams are sealed: to all replicas, or on this host to those that take a key.
  // There control calls go by the replica's unix socket, which is as good as keys.
  bool sealed() const {
    return !shared_.options.plain && (must_seal() || !shared_.options.insecure);
  }
  bool must_seal() const {
    const StreamOptions& options = shared_.options;
    return !options.plain && (options.sealed || options.keys != nullptr);
  }
  // Returns the use of the keys; nothing when the datagrams to some replica are plain. The caller
  // holds the core's lock.
  std::optional<SealingUse> Sealing() const;
  // Return whether this channel sealed a datagram with this prefix, and whether the key is one with
  // which the session's datagrams were sealed lately.
  bool Sealed(const SealPrefix& prefix) const { return ring_.Sealed(prefix); }
  bool SealsWith(uint32_t key_id) const { return ring_.Sealing(key_id) != nullptr; }
  // Takes notice that replica `index` has no keys.
  void NoKey(int index) ABSL_LOCKS_EXCLUDED(shared_.mu);
  // Returns the state of each replica, for status. The caller holds the core's lock.
  std::vector<ReplicaReport> Reports(int64_t now) const;

  // Opens sessions at replica `index`, and asks its control port when that is wanted.
  void SessionLoop(int index) ABSL_LOCKS_EXCLUDED(shared_.mu);
  // Ends the calls of SessionLoop.
  void StopOpening();
  // Asks the replicas to drop the log of this session, which ended cleanly; waits for their
  // answers.
  void DropLogs();

  // Does what is due: ends overdue calls, asks the resolver, tries next addresses, has control
  // ports asked.
  void Refresh() ABSL_LOCKS_EXCLUDED(shared_.mu);

 private:
  struct Peer {
    std::string address;  // as configured
    HostPort host;        // the same
    std::unique_ptr<SessionClient> control;
    // Guarded by the core's lock: whether the control port answers, and whether it is to be asked;
    // the boot id of its host, as it says; empty: not known.
    ControlCheck control_check;
    bool check_wanted = false;
    // Also guarded by it: whether the replica is to be given a key, when it was given one last, and
    // when that was tried last.
    bool key_wanted = false;
    int64_t key_given_ns = 0, key_tried_ns = 0;
    std::string host_id;
    // The io thread alone uses these: since when it has a session and does not answer; the look-up
    // under way, when the last one began and when the next may begin, and when a problem with its
    // answer may be logged again.
    int64_t silent_since_ns = -1;
    std::shared_ptr<Lookup> lookup;
    int64_t looked_up_ns = 0, look_up_at_ns = 0, log_at_ns = 0;
  };

  // Returns a bound socket that sends to all of `addresses`: of both families if both occur.
  absl::StatusOr<UdpSocket> BindSocket(std::vector<std::vector<SocketAddress>>& addresses);
  // Returns the largest payload of a datagram to `address`, as far as the kernel knows.
  uint32_t DatagramBytesTo(const SocketAddress& address) const;
  // Makes the sender and the control client use the present address of replica `index`.
  void Settle(int index) ABSL_LOCKS_EXCLUDED(shared_.mu, settle_mu_);
  // Moves replica `index`, which does not answer, to its name's next address, if there is one.
  void TryNextAddress(int index) ABSL_LOCKS_EXCLUDED(shared_.mu, settle_mu_);
  void TakeAnswer(int index, const Lookup::Answer& answer) ABSL_LOCKS_EXCLUDED(shared_.mu);
  // Asks the resolver for replicas' addresses where that is due, and takes its answers.
  void RefreshAddresses() ABSL_LOCKS_EXCLUDED(shared_.mu);
  // Tries the next address of each replica that has a session and is silent.
  void TryNextAddresses() ABSL_LOCKS_EXCLUDED(shared_.mu);
  // Has the control port of each answering replica asked when that is due.
  void AskControlPorts() ABSL_LOCKS_EXCLUDED(shared_.mu);
  // Asks replica `index` over a new connection what it holds.
  void CheckControl(int index) ABSL_LOCKS_EXCLUDED(shared_.mu);
  void OpenSession(int index, Seq base, const absl::Status& place) ABSL_LOCKS_EXCLUDED(shared_.mu);
  int Find(const SocketAddress& address) const {
    shared_.mu.AssertReaderHeld();
    return places_.Find(both_families_ ? UnmapFromIpv6(address) : address);
  }

  // replica_keys.cc: the keys of a sealed session.
  // Returns the key with which a session is opened at replica `index`.
  KeyOffer KeyForOpening(int index) ABSL_LOCKS_EXCLUDED(shared_.mu);
  // Gives replica `index`, whose session is open, the key that it lacks.
  void GiveKey(int index) ABSL_LOCKS_EXCLUDED(shared_.mu);
  // Takes the answer of a replica to a key.
  void TookKey(int index, const KeyOffer& offer, const SealKey& ack_key, int64_t now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(shared_.mu);
  // Takes the answer of a replica that opened a session and takes no keys: an older version.
  void TookNoKey(int index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(shared_.mu);
  // Takes notice that the replica at `from` has no keys.
  void OnNoKey(const SocketAddress& from) ABSL_LOCKS_EXCLUDED(shared_.mu);
  // Tells the owner the keys in use.
  void PublishKeys() ABSL_EXCLUSIVE_LOCKS_REQUIRED(shared_.mu);
  // Changes the key when that is due, and has replicas given the keys that they lack.
  void RefreshKeys() ABSL_LOCKS_EXCLUDED(shared_.mu);

  SharedCore& shared_;
  const VolumeConfig& config_;
  std::vector<Peer> peers_;
  KeyRing ring_;  // of channel_, when it is sealed
  OfferedKeys keys_ ABSL_GUARDED_BY(shared_.mu){ring_};
  std::function<void(const KeysInUse&)> share_keys_;
  std::unique_ptr<DatagramChannel> channel_;
  DatagramChannel* wire_ = nullptr;  // channel_, or the channel in it
  std::optional<FrameSender> sender_;
  bool both_families_ = false;   // of the socket; constant after Begin
  uint32_t most_datagram_ = 0;   // to any replica
  std::string group_interface_;  // by which multicast leaves; empty: the default route, or no group
  absl::Mutex settle_mu_ ABSL_ACQUIRED_BEFORE(shared_.mu);  // one address change at a time
  Places places_ ABSL_GUARDED_BY(shared_.mu);
};

}  // namespace salius
