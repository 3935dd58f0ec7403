// Reads certificates, private keys and identities from a text of PEM. A text that is accepted is
// the same when it is read again, and no text that is shown has control characters.
#include <cstdint>
#include <string>
#include <string_view>

#include "common/check.h"
#include "common/keys/identity.h"
#include "common/keys/x509.h"
#include "common/strings.h"

namespace salius::keys {
namespace {

constexpr int64_t kNowS = 1'795'846'000;

void CheckShown(const std::string& text) {
  SALIUS_CHECK(Printable(text, NewLines::kReplace) == text) << text;
}

void FuzzCertificates(std::string_view text) {
  const auto certificates = ReadCertificates(text);
  const auto split = SplitCertificates(text);
  if (!certificates.ok()) return;
  SALIUS_CHECK_OK(split);
  SALIUS_CHECK(split->size() == certificates->size());
  for (size_t i = 0; i < split->size(); ++i) {
    const auto again = ReadCertificates((*split)[i]);
    SALIUS_CHECK_OK(again);
    SALIUS_CHECK(again->size() == 1);
    const Content& content = (*certificates)[i].content;
    SALIUS_CHECK(again->front().serial == (*certificates)[i].serial);
    SALIUS_CHECK(again->front().content.identity == content.identity);
    CheckShown(content.common_name);
    CheckShown((*certificates)[i].issuer);
    for (const std::string& host : content.hosts) CheckShown(host);
  }
  // Any status is right.
  static_cast<void>(VerifyChain(text, split->back(), kNowS));
  static_cast<void>(CheckHost(text, "r1.example"));
}

void FuzzKey(const std::string& text) {
  const auto key = ReadPrivateKey(text);
  if (!key.ok()) return;
  const auto again = ReadPrivateKey(*key);
  SALIUS_CHECK_OK(again);
  SALIUS_CHECK(*again == *key);
  static_cast<void>(CheckPair({*key, text}));
}

void FuzzIdentity(std::string_view text) {
  const auto identity = ParseIdentity(text);
  if (!identity.ok()) return;
  SALIUS_CHECK(identity->ToString() == text);
  SALIUS_CHECK(ParseIdentityUri(identity->ToUri()).value() == *identity);
}

}  // namespace
}  // namespace salius::keys

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace salius::keys;  // NOLINT: the function has to be outside
  const std::string text(reinterpret_cast<const char*>(data), size);
  FuzzCertificates(text);
  FuzzKey(text);
  FuzzIdentity(text);
  return 0;
}
