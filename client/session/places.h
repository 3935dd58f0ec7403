// The address book: the name and the present address of each replica. A name's address may change
// while a volume is mounted: a host may come back, or be replaced, with another one. A numeric
// address in the configuration is a name that never changes.
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
  // Makes a book without addresses. `names`: of the replicas, as configured. `insecure`: they may
  // be on other hosts.
  Places(std::vector<std::string> names, bool insecure)
      : names_(std::move(names)), insecure_(insecure), places_(names_.size()) {}

  // Takes the replicas' first addresses, of one family, none twice (ResolveReplicas); length 0
  // where there is none yet. INVALID_ARGUMENT names a replica that is on another host although it
  // may not.
  absl::Status Begin(const std::vector<SocketAddress>& addresses);

  struct Change {
    bool moved = false;  // the replica has another address now
    int gave_up = -1;    // the replica that had this address before, and has none now
  };
  // Takes the resolver's answer for replica `index`. The replica moves when its present address is
  // not in the answer and it does not answer there either (`connected`: bit i for replica i). It
  // moves to the first address of the answer that is free and is not on another host although it
  // may not be. An address is not free when either holds for another replica:
  //
  // - its name led there when that was last asked for
  // - it answers there, and its name does not lead elsewhere
  //
  // When no address is free, problem() says so and the address stays.
  Change OnAnswer(int index, const absl::StatusOr<std::vector<SocketAddress>>& answer,
                  uint8_t connected);

  // Sets all present addresses of the name of replica `index`; OnAnswer brings later ones. A
  // replica may answer at some of them only.
  void Know(int index, std::vector<SocketAddress> addresses) {
    places_[index].all = std::move(addresses);
  }
  // Allows addresses of any family, whatever the first ones were.
  void AllowBothFamilies() { family_ = 0; }
  // Moves a replica that does not answer to its name's next address that is free and is not on
  // another host although it may not be. Returns whether there is one.
  bool TryNext(int index);

  // Returns the present address; length 0: not known yet.
  const SocketAddress& at(int index) const { return places_[index].address; }
  bool known(int index) const { return at(index).length != 0; }
  // Returns the replica at `address`, or -1.
  int Find(const SocketAddress& address) const;
  // Returns why the last answer was of no use; OK if it was.
  const absl::Status& problem(int index) const { return places_[index].problem; }
  // Returns AF_INET or AF_INET6, the family of the first addresses; AF_UNSPEC for both.
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
