#include "replica/keys_only_service.h"

#include "absl/strings/str_cat.h"

namespace salius {

KeysOnlyService::KeysOnlyService(const std::string& version)
    : reason_(absl::StrCat(
          "this replica (version ", version,
          ") takes calls with keys only: upgrade this client to that version, and give it the option "
          "keys with a file of `salius keys issue DIR client/NAME`")) {}

}  // namespace salius
