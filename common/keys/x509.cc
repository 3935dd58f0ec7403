#include "common/keys/x509.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <cctype>
#include <ctime>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/random.h"
#include "common/strings.h"

namespace salius::keys {
namespace {

// Frees an object of OpenSSL.
template <auto free>
struct Free {
  template <typename T>
  void operator()(T* object) const {
    free(object);
  }
};
void FreeStack(STACK_OF(X509) * stack) { sk_X509_pop_free(stack, X509_free); }

using BioPtr = std::unique_ptr<BIO, Free<BIO_free_all>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using KeyContextPtr = std::unique_ptr<EVP_PKEY_CTX, Free<EVP_PKEY_CTX_free>>;
using X509Ptr = std::unique_ptr<X509, Free<X509_free>>;
using StackPtr = std::unique_ptr<STACK_OF(X509), Free<FreeStack>>;
using StorePtr = std::unique_ptr<X509_STORE, Free<X509_STORE_free>>;
using StoreContextPtr = std::unique_ptr<X509_STORE_CTX, Free<X509_STORE_CTX_free>>;
using ExtensionPtr = std::unique_ptr<X509_EXTENSION, Free<X509_EXTENSION_free>>;
using NamesPtr = std::unique_ptr<GENERAL_NAMES, Free<GENERAL_NAMES_free>>;
using AddressPtr = std::unique_ptr<ASN1_OCTET_STRING, Free<ASN1_OCTET_STRING_free>>;

constexpr std::string_view kBegin = "-----BEGIN ";
constexpr std::string_view kCertificateLabel = "CERTIFICATE";
constexpr std::string_view kKeyLabel = "PRIVATE KEY";
// Version 3 is written as 2.
constexpr long kX509Version3 = 2;
constexpr size_t kSerialBytes = 16;
constexpr size_t kMaxHostName = 253;

// Returns an error of OpenSSL with its reason, and empties the thread's queue of errors.
absl::Status OpensslError(std::string_view what) {
  char reason[256] = "no reason given";
  if (const unsigned long code = ERR_get_error(); code != 0) {
    ERR_error_string_n(code, reason, sizeof(reason));
  }
  ERR_clear_error();
  return absl::InternalError(absl::StrFormat("OpenSSL cannot %s: %s", what, reason));
}

BioPtr ReadBio(std::string_view text) {
  BioPtr bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  SALIUS_CHECK(bio != nullptr, "no memory");
  return bio;
}

std::string TextOf(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return std::string(data, static_cast<size_t>(size));
}

std::string TextOf(const ASN1_STRING* text) {
  return std::string(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                     static_cast<size_t>(ASN1_STRING_length(text)));
}

// A block of PEM, with its "BEGIN" and "END" lines.
struct Block {
  std::string label, text;
};

// Returns the blocks of a text. DATA_LOSS when one has no end.
absl::StatusOr<std::vector<Block>> Blocks(std::string_view pem) {
  std::vector<Block> blocks;
  for (size_t at = pem.find(kBegin); at != pem.npos; at = pem.find(kBegin, at)) {
    const size_t label_at = at + kBegin.size();
    const size_t label_end = pem.find("-----", label_at);
    const std::string label(pem.substr(label_at, label_end - label_at));
    const std::string end = absl::StrCat("-----END ", label, "-----");
    const size_t end_at = label_end == pem.npos ? pem.npos : pem.find(end, label_end);
    if (end_at == pem.npos || pem.find(kBegin, label_at) < end_at) {
      return absl::DataLossError("a block of PEM has no end: the file is written in part");
    }
    const size_t next = end_at + end.size();
    blocks.push_back({label, absl::StrCat(Av(pem.substr(at, next - at)), "\n")});
    at = next;
  }
  return blocks;
}

absl::StatusOr<KeyPtr> ParseKey(std::string_view pem) {
  const BioPtr bio = ReadBio(pem);
  // Without a callback OpenSSL would ask the terminal for a pass phrase.
  const auto no_phrase = [](char*, int, int, void*) { return 0; };
  KeyPtr key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_phrase, nullptr));
  ERR_clear_error();
  if (key == nullptr)
    return absl::DataLossError("the private key is damaged, or has a pass phrase");
  return key;
}

absl::StatusOr<std::vector<X509Ptr>> ParseCertificates(std::string_view pem) {
  SALIUS_ASSIGN_OR_RETURN(const std::vector<Block> blocks, Blocks(pem));
  std::vector<X509Ptr> certificates;
  for (const Block& block : blocks) {
    if (block.label != kCertificateLabel) continue;
    const BioPtr bio = ReadBio(block.text);
    certificates.emplace_back(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
    ERR_clear_error();
    if (certificates.back() == nullptr) return absl::DataLossError("a certificate is damaged");
  }
  if (certificates.empty()) return absl::DataLossError("it has no certificate");
  return certificates;
}

std::string CommonName(const X509_NAME* name) {
  const int at = X509_NAME_get_index_by_NID(name, NID_commonName, -1);
  if (at < 0) return "";
  return Printable(TextOf(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, at))),
                   NewLines::kReplace);
}

absl::StatusOr<int64_t> UnixTime(const ASN1_TIME* time) {
  tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return absl::DataLossError("a certificate has no date");
  return static_cast<int64_t>(timegm(&parts));
}

bool IsHostName(const std::string& host) {
  const auto allowed = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '.';
  };
  return !host.empty() && host.size() <= kMaxHostName && host.front() != '-' &&
         host.front() != '.' && std::all_of(host.begin(), host.end(), allowed);
}

// Returns the bytes of a numeric address, or null.
AddressPtr AddressBytes(const std::string& host) {
  AddressPtr address(a2i_IPADDRESS(host.c_str()));
  ERR_clear_error();
  return address;
}

// Adds the name to `names`, which takes it.
void Append(GENERAL_NAMES& names, int type, ASN1_STRING* value) {
  GENERAL_NAME* const name = GENERAL_NAME_new();
  SALIUS_CHECK(name != nullptr && value != nullptr, "no memory");
  GENERAL_NAME_set0_value(name, type, value);
  SALIUS_CHECK(sk_GENERAL_NAME_push(&names, name) > 0, "no memory");
}

ASN1_STRING* Ia5(const std::string& text) {
  ASN1_STRING* const value = ASN1_IA5STRING_new();
  SALIUS_CHECK(
      value != nullptr && ASN1_STRING_set(value, text.data(), static_cast<int>(text.size())) == 1,
      "no memory");
  return value;
}

absl::Status AddAlternativeNames(const Content& content, X509& certificate) {
  const NamesPtr names(GENERAL_NAMES_new());
  SALIUS_CHECK(names != nullptr, "no memory");
  if (content.identity) Append(*names, GEN_URI, Ia5(content.identity->ToUri()));
  for (const std::string& host : content.hosts) {
    if (AddressPtr address = AddressBytes(host); address != nullptr) {
      Append(*names, GEN_IPADD, address.release());
    } else if (IsHostName(host)) {
      Append(*names, GEN_DNS, Ia5(absl::AsciiStrToLower(host)));
    } else {
      return absl::InvalidArgumentError(
          absl::StrFormat("\"%s\" is neither the name nor the numeric address of a host",
                          Printable(host, NewLines::kReplace)));
    }
  }
  if (sk_GENERAL_NAME_num(names.get()) == 0) return absl::OkStatus();
  if (X509_add1_ext_i2d(&certificate, NID_subject_alt_name, names.get(), 0, 0) != 1) {
    return OpensslError("add the names to a certificate");
  }
  return absl::OkStatus();
}

absl::Status AddExtension(int nid, const char* value, X509& certificate, X509& issuer) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, &issuer, &certificate, nullptr, nullptr, 0);
  const ExtensionPtr extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value));
  if (extension == nullptr || X509_add_ext(&certificate, extension.get(), -1) != 1) {
    return OpensslError("add an extension to a certificate");
  }
  return absl::OkStatus();
}

// A replica serves, the others call: the certificate of one is of no use to the other.
const char* UseOf(const Identity& identity) {
  return identity.kind == Kind::kReplica ? "serverAuth" : "clientAuth";
}

absl::Status AddExtensions(const Content& content, X509& certificate, X509& issuer) {
  const bool authority = content.authority;
  SALIUS_RETURN_IF_ERROR(AddExtension(NID_basic_constraints,
                                      authority ? "critical,CA:TRUE" : "critical,CA:FALSE",
                                      certificate, issuer));
  SALIUS_RETURN_IF_ERROR(AddExtension(
      NID_key_usage, authority ? "critical,keyCertSign,cRLSign" : "critical,digitalSignature",
      certificate, issuer));
  SALIUS_RETURN_IF_ERROR(AddExtension(NID_subject_key_identifier, "hash", certificate, issuer));
  SALIUS_RETURN_IF_ERROR(
      AddExtension(NID_authority_key_identifier, "keyid:always", certificate, issuer));
  if (content.identity) {
    SALIUS_RETURN_IF_ERROR(
        AddExtension(NID_ext_key_usage, UseOf(*content.identity), certificate, issuer));
  }
  return AddAlternativeNames(content, certificate);
}

// Sets all but the extensions, the issuer and the signature.
absl::Status SetFields(const Content& content, EVP_PKEY& key, X509& certificate) {
  uint8_t serial[kSerialBytes];
  SecureRandomBytes(serial, sizeof(serial));
  serial[0] = static_cast<uint8_t>((serial[0] & 0x7f) | 0x40);  // Positive, and never shorter.
  const std::unique_ptr<BIGNUM, Free<BN_free>> number(BN_bin2bn(serial, sizeof(serial), nullptr));
  X509_NAME* const subject = X509_get_subject_name(&certificate);
  const auto* const name = reinterpret_cast<const uint8_t*>(content.common_name.data());
  const bool set =
      number != nullptr && X509_set_version(&certificate, kX509Version3) == 1 &&
      BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(&certificate)) != nullptr &&
      X509_NAME_add_entry_by_NID(subject, NID_commonName, MBSTRING_UTF8, name,
                                 static_cast<int>(content.common_name.size()), -1, 0) == 1 &&
      ASN1_TIME_set(X509_getm_notBefore(&certificate), content.validity.from_s) != nullptr &&
      ASN1_TIME_set(X509_getm_notAfter(&certificate), content.validity.until_s) != nullptr &&
      X509_set_pubkey(&certificate, &key) == 1;
  return set ? absl::OkStatus() : OpensslError("fill in a certificate");
}

absl::StatusOr<std::string> ToPem(X509& certificate) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  if (bio == nullptr || PEM_write_bio_X509(bio.get(), &certificate) != 1) {
    return OpensslError("write a certificate");
  }
  return TextOf(bio.get());
}

bool SignedItself(X509& certificate) {
  return X509_NAME_cmp(X509_get_subject_name(&certificate), X509_get_issuer_name(&certificate)) ==
         0;
}

// Returns a numeric address as text, or "" for bytes that are none.
std::string FormatAddress(const std::string& bytes) {
  const bool v4 = bytes.size() == sizeof(in_addr);
  char text[INET6_ADDRSTRLEN] = "";
  if (v4 || bytes.size() == sizeof(in6_addr)) {
    inet_ntop(v4 ? AF_INET : AF_INET6, bytes.data(), text, sizeof(text));
  }
  return text;
}

// Reads the alternative names into `content`.
absl::Status ReadAlternativeNames(X509& certificate, Content& content) {
  const NamesPtr names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    int type = 0;
    const auto* const value = static_cast<const ASN1_STRING*>(
        GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(names.get(), i), &type));
    if (type == GEN_DNS) {
      content.hosts.push_back(Printable(TextOf(value), NewLines::kReplace));
    } else if (type == GEN_IPADD) {
      content.hosts.push_back(FormatAddress(TextOf(value)));
    } else if (type == GEN_URI && IsIdentityUri(TextOf(value))) {
      if (content.identity) return absl::DataLossError("a certificate has two identities");
      SALIUS_ASSIGN_OR_RETURN(content.identity, ParseIdentityUri(TextOf(value)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Certificate> Describe(X509& certificate) {
  Certificate described;
  Content& content = described.content;
  content.common_name = CommonName(X509_get_subject_name(&certificate));
  SALIUS_ASSIGN_OR_RETURN(content.validity.from_s, UnixTime(X509_get0_notBefore(&certificate)));
  SALIUS_ASSIGN_OR_RETURN(content.validity.until_s, UnixTime(X509_get0_notAfter(&certificate)));
  content.authority = X509_check_ca(&certificate) == 1;
  SALIUS_RETURN_IF_ERROR(ReadAlternativeNames(certificate, content));
  described.issuer = CommonName(X509_get_issuer_name(&certificate));
  for (const char c : TextOf(X509_get0_serialNumber(&certificate))) {
    absl::StrAppend(&described.serial, absl::Hex(static_cast<uint8_t>(c), absl::kZeroPad2));
  }
  return described;
}

// Returns an error for the certificate for which there is no issuer.
absl::Status NoIssuer(X509& certificate, const std::vector<X509Ptr>& roots) {
  const X509_NAME* const issuer = X509_get_issuer_name(&certificate);
  const std::string subject = CommonName(X509_get_subject_name(&certificate));
  for (const X509Ptr& root : roots) {
    if (X509_NAME_cmp(X509_get_subject_name(root.get()), issuer) == 0) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "the certificate of \"%s\" is from another authority, which has the same name, \"%s\", "
          "and another key: take the certificate and ca.pem from one `salius keys` directory",
          subject, CommonName(issuer)));
    }
  }
  return absl::FailedPreconditionError(
      absl::StrFormat("the authority \"%s\", which signed the certificate of \"%s\", is unknown: "
                      "either ca.pem is of "
                      "another authority, or the file lacks the certificate of an intermediate one",
                      CommonName(issuer), subject));
}

absl::Status VerifyError(X509_STORE_CTX& context, const std::vector<X509Ptr>& roots,
                         int64_t now_s) {
  const int error = X509_STORE_CTX_get_error(&context);
  X509* const at = X509_STORE_CTX_get_current_cert(&context);
  if (at == nullptr) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the certificate cannot be trusted: %s", X509_verify_cert_error_string(error)));
  }
  const std::string subject = CommonName(X509_get_subject_name(at));
  switch (error) {
    case X509_V_ERR_CERT_HAS_EXPIRED: {
      SALIUS_ASSIGN_OR_RETURN(const int64_t until_s, UnixTime(X509_get0_notAfter(at)));
      return absl::FailedPreconditionError(absl::StrFormat(
          "the certificate of \"%s\" expired on %s, and the clock says %s: renew it with `salius "
          "keys renew`, or correct the clock",
          subject, FormatTime(until_s), FormatTime(now_s)));
    }
    case X509_V_ERR_CERT_NOT_YET_VALID: {
      SALIUS_ASSIGN_OR_RETURN(const int64_t from_s, UnixTime(X509_get0_notBefore(at)));
      return absl::FailedPreconditionError(absl::StrFormat(
          "the certificate of \"%s\" is valid from %s on, and the clock says %s: correct the clock "
          "of this host, or of the host of the authority",
          subject, FormatTime(from_s), FormatTime(now_s)));
    }
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
      return NoIssuer(*at, roots);
    default:
      return absl::FailedPreconditionError(
          absl::StrFormat("the certificate of \"%s\" cannot be trusted: %s", subject,
                          X509_verify_cert_error_string(error)));
  }
}

}  // namespace

std::string FormatTime(int64_t unix_s) {
  const auto time = static_cast<time_t>(unix_s);
  tm parts{};
  char text[64] = "?";
  if (gmtime_r(&time, &parts) != nullptr) {
    std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &parts);
  }
  return text;
}

absl::StatusOr<std::string> MakePrivateKey() {
  const KeyPtr key(EVP_EC_gen("P-256"));
  const BioPtr bio(BIO_new(BIO_s_mem()));
  if (key == nullptr || bio == nullptr ||
      PEM_write_bio_PKCS8PrivateKey(bio.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) !=
          1) {
    return OpensslError("make a private key");
  }
  return TextOf(bio.get());
}

absl::StatusOr<KeyPair> Sign(const Content& content, const std::string& key_pem,
                             const KeyPair* issuer) {
  SALIUS_ASSIGN_OR_RETURN(const KeyPtr key, ParseKey(key_pem));
  const X509Ptr certificate(X509_new());
  if (certificate == nullptr) return OpensslError("make a certificate");
  SALIUS_RETURN_IF_ERROR(SetFields(content, *key, *certificate));
  std::vector<X509Ptr> chain;
  KeyPtr signing_key;
  if (issuer != nullptr) {
    SALIUS_RETURN_IF_ERROR(CheckPair(*issuer));
    SALIUS_ASSIGN_OR_RETURN(chain, ParseCertificates(issuer->chain_pem));
    SALIUS_ASSIGN_OR_RETURN(signing_key, ParseKey(issuer->key_pem));
  }
  X509& above = chain.empty() ? *certificate : *chain[0];
  if (X509_set_issuer_name(certificate.get(), X509_get_subject_name(&above)) != 1) {
    return OpensslError("name the issuer of a certificate");
  }
  SALIUS_RETURN_IF_ERROR(AddExtensions(content, *certificate, above));
  EVP_PKEY* const signer = signing_key == nullptr ? key.get() : signing_key.get();
  if (X509_sign(certificate.get(), signer, EVP_sha256()) == 0) {
    return OpensslError("sign a certificate");
  }
  KeyPair pair{key_pem, ""};
  SALIUS_ASSIGN_OR_RETURN(pair.chain_pem, ToPem(*certificate));
  for (const X509Ptr& next : chain) {
    if (SignedItself(*next)) continue;
    SALIUS_ASSIGN_OR_RETURN(const std::string pem, ToPem(*next));
    pair.chain_pem += pem;
  }
  return pair;
}

absl::StatusOr<std::vector<Certificate>> ReadCertificates(std::string_view pem) {
  SALIUS_ASSIGN_OR_RETURN(const std::vector<X509Ptr> parsed, ParseCertificates(pem));
  std::vector<Certificate> certificates;
  for (const X509Ptr& certificate : parsed) {
    SALIUS_ASSIGN_OR_RETURN(certificates.emplace_back(), Describe(*certificate));
  }
  return certificates;
}

absl::StatusOr<std::string> ReadPrivateKey(std::string_view pem) {
  SALIUS_ASSIGN_OR_RETURN(const std::vector<Block> blocks, Blocks(pem));
  std::string found;
  for (const Block& block : blocks) {
    // Also "EC PRIVATE KEY", which other programs write.
    if (block.label.find(kKeyLabel) == block.label.npos) continue;
    if (!found.empty()) return absl::DataLossError("it has two private keys");
    found = block.text;
  }
  if (found.empty()) return absl::DataLossError("it has no private key");
  SALIUS_RETURN_IF_ERROR(ParseKey(found).status());
  return found;
}

absl::StatusOr<std::vector<std::string>> SplitCertificates(std::string_view pem) {
  SALIUS_RETURN_IF_ERROR(ParseCertificates(pem).status());
  SALIUS_ASSIGN_OR_RETURN(const std::vector<Block> blocks, Blocks(pem));
  std::vector<std::string> certificates;
  for (const Block& block : blocks) {
    if (block.label == kCertificateLabel) certificates.push_back(block.text);
  }
  return certificates;
}

absl::Status CheckPair(const KeyPair& pair) {
  SALIUS_ASSIGN_OR_RETURN(const KeyPtr key, ParseKey(pair.key_pem));
  SALIUS_ASSIGN_OR_RETURN(const std::vector<X509Ptr> chain, ParseCertificates(pair.chain_pem));
  // The first compares only public keys, and a file has one beside the private key.
  const KeyContextPtr context(EVP_PKEY_CTX_new(key.get(), nullptr));
  const bool same = X509_check_private_key(chain[0].get(), key.get()) == 1 && context != nullptr &&
                    EVP_PKEY_pairwise_check(context.get()) == 1;
  if (same) return absl::OkStatus();
  ERR_clear_error();
  return absl::DataLossError(
      absl::StrFormat("the private key does not belong to the certificate of \"%s\"",
                      CommonName(X509_get_subject_name(chain[0].get()))));
}

absl::Status VerifyChain(std::string_view chain_pem, std::string_view roots_pem, int64_t now_s) {
  SALIUS_ASSIGN_OR_RETURN(std::vector<X509Ptr> chain, ParseCertificates(chain_pem));
  SALIUS_ASSIGN_OR_RETURN(const std::vector<X509Ptr> roots, ParseCertificates(roots_pem));
  const StorePtr store(X509_STORE_new());
  const StackPtr between(sk_X509_new_null());
  const StoreContextPtr context(X509_STORE_CTX_new());
  SALIUS_CHECK(store != nullptr && between != nullptr && context != nullptr, "no memory");
  for (const X509Ptr& root : roots) {
    SALIUS_CHECK(X509_STORE_add_cert(store.get(), root.get()) == 1, "no memory");
  }
  const X509Ptr own = std::move(chain[0]);
  for (size_t i = 1; i < chain.size(); ++i) {
    SALIUS_CHECK(sk_X509_push(between.get(), chain[i].get()) > 0, "no memory");
    chain[i].release();
  }
  SALIUS_CHECK(X509_STORE_CTX_init(context.get(), store.get(), own.get(), between.get()) == 1,
               "no memory");
  X509_STORE_CTX_set_time(context.get(), 0, static_cast<time_t>(now_s));
  const int verified = X509_verify_cert(context.get());
  ERR_clear_error();
  return verified == 1 ? absl::OkStatus() : VerifyError(*context, roots, now_s);
}

bool IsHost(const std::string& text) { return AddressBytes(text) != nullptr || IsHostName(text); }

absl::Status CheckHost(std::string_view chain_pem, const std::string& host) {
  SALIUS_ASSIGN_OR_RETURN(const std::vector<X509Ptr> chain, ParseCertificates(chain_pem));
  const bool numeric = AddressBytes(host) != nullptr;
  const int matches = numeric ? X509_check_ip_asc(chain[0].get(), host.c_str(), 0)
                              : X509_check_host(chain[0].get(), host.data(), host.size(),
                                                X509_CHECK_FLAG_NEVER_CHECK_SUBJECT, nullptr);
  ERR_clear_error();
  if (matches == 1) return absl::OkStatus();
  SALIUS_ASSIGN_OR_RETURN(const Certificate certificate, Describe(*chain[0]));
  return absl::FailedPreconditionError(absl::StrFormat(
      "the certificate of \"%s\" is for %s, not for \"%s\": issue one with --hosts %s",
      certificate.content.common_name,
      certificate.content.hosts.empty() ? "no host"
                                        : absl::StrJoin(certificate.content.hosts, ", "),
      Printable(host, NewLines::kReplace), ShellQuote(host)));
}

}  // namespace salius::keys
