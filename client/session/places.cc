#include "client/session/places.h"

#include <sys/socket.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/runbook.h"
#include "common/strings.h"
#include "transport/without_keys.h"

namespace salius {

absl::Status Places::CheckHost(int index, const SocketAddress& address) const {
  if (AllowedWithoutKeys(address, insecure_)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "replica ", names_[index], " is at ", FormatSockaddr(address),
      ", another host, and records travel unencrypted; if the network is trusted, mount with the "
      "option \"insecure\"; ",
      SeeRunbook("name-leads-elsewhere")));
}

absl::Status Places::Begin(const std::vector<SocketAddress>& addresses) {
  for (size_t i = 0; i < addresses.size(); ++i) {
    Place& place = places_[i];
    if (addresses[i].length == 0) {
      place.problem =
          absl::UnavailableError(absl::StrCat("replica ", names_[i], " has no address yet"));
      continue;
    }
    const absl::Status allowed = CheckHost(static_cast<int>(i), addresses[i]);
    if (!allowed.ok()) return allowed;
    place.address = addresses[i];
    place.name = Place::kHere;
    family_ = addresses[i].storage.ss_family;
  }
  return absl::OkStatus();
}

int Places::Find(const SocketAddress& address) const {
  for (size_t i = 0; i < places_.size(); ++i) {
    if (places_[i].address == address) return static_cast<int>(i);
  }
  return -1;
}

absl::Status Places::CheckFree(int index, const SocketAddress& address, uint8_t connected) const {
  const int other = Find(address);
  if (other < 0) return absl::OkStatus();
  const bool answers = (connected & (1u << other)) != 0;
  const auto name = places_[other].name;
  if (name == Place::kElsewhere || (name == Place::kUnknown && !answers)) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("replica ", names_[index], " is at ",
                                             FormatSockaddr(address), ", as replica ",
                                             names_[other], " is"));
}

bool Places::TryNext(int index) {
  Place& place = places_[index];
  const auto now = std::find(place.all.begin(), place.all.end(), place.address);
  if (now == place.all.end()) return false;  // the name leads elsewhere: OnAnswer handles that
  const auto at = static_cast<size_t>(now - place.all.begin());
  for (size_t step = 1; step < place.all.size(); ++step) {
    const SocketAddress& next = place.all[(at + step) % place.all.size()];
    if (Find(next) >= 0 || !CheckHost(index, next).ok()) continue;
    place.address = next;
    return true;
  }
  return false;
}

Places::Change Places::OnAnswer(int index, const absl::StatusOr<std::vector<SocketAddress>>& answer,
                                uint8_t connected) {
  Place& place = places_[index];
  if (!answer.ok()) {
    // A resolver that fails says nothing about the replica's address.
    if (absl::IsNotFound(answer.status())) place.name = Place::kUnknown;
    if (!known(index)) {
      place.problem =
          absl::Status(answer.status().code(),
                       absl::StrCat("replica ", names_[index], ": ", answer.status().message()));
    }
    return {};
  }
  place.problem = absl::OkStatus();
  place.all = *answer;
  place.name = Place::kElsewhere;
  if (known(index) && std::find(answer->begin(), answer->end(), place.address) != answer->end()) {
    place.name = Place::kHere;
  }
  if (place.name == Place::kHere || (connected & (1u << index)) != 0) return {};
  for (const SocketAddress& to : *answer) {
    absl::Status allowed = CheckHost(index, to);
    if (allowed.ok()) allowed = CheckFree(index, to, connected);
    if (!allowed.ok()) {
      if (place.problem.ok()) place.problem = allowed;
      continue;
    }
    const int other = Find(to);
    if (other >= 0) {
      places_[other].address = SocketAddress();
      places_[other].problem = absl::UnavailableError(
          absl::StrCat("replica ", names_[other], " was at ", FormatSockaddr(to),
                       ", where replica ", names_[index], " is now"));
    }
    place.address = to;
    place.name = Place::kHere;
    place.problem = absl::OkStatus();
    return {.moved = true, .gave_up = other};
  }
  return {};
}

}  // namespace salius
