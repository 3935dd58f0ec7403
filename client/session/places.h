// Where the replicas are. They are known by names, and a name's address may change while a volume
// is mounted: a host that comes back, or is made anew, with another one. Addresses that the
// configuration spells out are names that never change.
//
// pure: no thread, lock, socket or clock; the pipeline asks the resolver (common/lookup.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/net.h"

namespace salius {

class Places {
 public:
  // `names`: of the replicas, as configured. `insecure`: they may be on other hosts.
  Places(std::vector<std::string> names, bool insecure)
      : names_(std::move(names)), insecure_(insecure), places_(names_.size()) {}

  // Their first addresses, of one family, none twice (ResolveReplicas); length 0 where there is
  // none yet. INVALID_ARGUMENT names one that is on another host although it may not.
  absl::Status Begin(const std::vector<SocketAddress>& addresses);

  struct Change {
    bool moved = false;  // it is at another address now
    int gave_up = -1;    // the replica that was there before, and is nowhere now
  };
  // The resolver's answer for replica `index`. It moves when its own address is not among them any
  // more and it does not answer there either (`connected`: bit i for replica i): to the first of
  // them that is neither another replica's nor on another host although it may not. An address is
  // the other's when its name led there when it was last asked for, or when it answers there and
  // its name does not lead elsewhere. When there is none problem() says so, and the address stays
  // what it was.
  Change OnAnswer(int index, const absl::StatusOr<std::vector<SocketAddress>>& answer,
                  uint8_t connected);

  // Names may have several addresses, and a replica may answer at some of them only. Those of
  // replica `index`, as of now; OnAnswer brings later ones.
  void Know(int index, std::vector<SocketAddress> addresses) {
    places_[index].all = std::move(addresses);
  }
  // They may be of any family, whatever the first were.
  void AllowBothFamilies() { family_ = 0; }
  // It does not answer where it is: moves it to its name's next address that is neither another
  // replica's nor on another host although it may not. Returns whether there is one.
  bool TryNext(int index);

  // Length 0: not known yet.
  const SocketAddress& at(int index) const { return places_[index].address; }
  bool known(int index) const { return at(index).length != 0; }
  // Which replica is at `address`, or -1.
  int Find(const SocketAddress& address) const;
  // Why the last answer was of no use, if it was not.
  const absl::Status& problem(int index) const { return places_[index].problem; }
  // AF_INET or AF_INET6: that of the first addresses; AF_UNSPEC for both.
  int family() const { return family_; }

 private:
  struct Place {
    SocketAddress address;
    std::vector<SocketAddress> all;  // of its name, when that was last asked for
    enum { kUnknown, kHere, kElsewhere } name = kUnknown;  // where the last answer led
    absl::Status problem;
  };
  absl::Status CheckHost(int index, const SocketAddress& address) const;
  absl::Status CheckFree(int index, const SocketAddress& address, uint8_t connected) const;

  std::vector<std::string> names_;
  bool insecure_;
  std::vector<Place> places_;
  int family_ = 0;
};

}  // namespace salius
