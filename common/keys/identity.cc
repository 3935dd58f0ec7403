#include "common/keys/identity.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/strings.h"

namespace salius::keys {
namespace {

constexpr std::string_view kScheme = "salius:";
// With its kind it is a common name, which has at most 64 characters.
constexpr size_t kMaxName = 55;

struct KindName {
  Kind kind;
  std::string_view name;
};
constexpr KindName kKinds[] = {
    {Kind::kReplica, "replica"}, {Kind::kClient, "client"}, {Kind::kOperator, "operator"}};

bool IsLetterOrDigit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

bool IsName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxName && IsLetterOrDigit(name[0]) &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return IsLetterOrDigit(c) || c == '.' || c == '_' || c == '-'; });
}

}  // namespace

std::string Identity::ToString() const {
  for (const KindName& known : kKinds) {
    if (known.kind == kind) return absl::StrCat(Av(known.name), "/", name);
  }
  return absl::StrCat("?/", name);
}

std::string Identity::ToUri() const { return absl::StrCat(Av(kScheme), ToString()); }

absl::StatusOr<Identity> ParseIdentity(std::string_view text) {
  for (const KindName& known : kKinds) {
    const size_t length = known.name.size();
    if (text.size() > length && text.substr(0, length) == known.name && text[length] == '/' &&
        IsName(text.substr(length + 1))) {
      return Identity{known.kind, std::string(text.substr(length + 1))};
    }
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "\"%s\" is no identity: it is replica/NAME, client/NAME or operator/NAME, with a NAME of at "
      "most %d lower-case letters, digits, dots, hyphens and underscores",
      Printable(std::string(text), NewLines::kReplace), kMaxName));
}

bool IsIdentityUri(std::string_view uri) { return uri.substr(0, kScheme.size()) == kScheme; }

absl::StatusOr<Identity> ParseIdentityUri(std::string_view uri) {
  return ParseIdentity(IsIdentityUri(uri) ? uri.substr(kScheme.size()) : uri.substr(0, 0));
}

}  // namespace salius::keys
