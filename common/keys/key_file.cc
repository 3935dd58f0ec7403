#include "common/keys/key_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/file.h"
#include "common/strings.h"

namespace salius::keys {
namespace {

// A chain of ten certificates has some 10 KiB.
constexpr size_t kMaxFile = size_t{1} << 20;

absl::Status CheckRights(const struct stat& st, const std::string& path, Secrecy secrecy) {
  if (!S_ISREG(st.st_mode)) return absl::DataLossError(absl::StrCat(path, ": is not a file"));
  if (st.st_uid != 0 && st.st_uid != geteuid()) {
    return absl::PermissionDeniedError(
        absl::StrFormat("%s: belongs to user %d, not to this user (%d) or root: chown it", path,
                        st.st_uid, geteuid()));
  }
  const bool secret = secrecy == Secrecy::kSecret;
  const mode_t wrong = st.st_mode & (secret ? S_IRWXG | S_IRWXO : S_IWGRP | S_IWOTH);
  if (wrong == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrFormat("%s: %s (mode %04o): chmod %s %s", path,
                      secret ? "other users have rights on a private key"
                             : "other users may replace the authorities that are trusted",
                      st.st_mode & 07777, secret ? "600" : "go-w", ShellQuote(path)));
}

std::string Beside(const std::string& path) {
  return (std::filesystem::path(path).parent_path() / kAuthoritiesFile).string();
}

// Returns the certificates of a text, without anything else.
absl::StatusOr<std::string> OnlyCertificates(const std::string& text) {
  SALIUS_ASSIGN_OR_RETURN(const std::vector<std::string> certificates, SplitCertificates(text));
  return absl::StrJoin(certificates, "");
}

// Returns the status with the code it has; a wrong identity in a file means a damaged file.
absl::Status InFile(const absl::Status& status, const std::string& path) {
  if (absl::IsInvalidArgument(status)) {
    return absl::DataLossError(absl::StrCat(path, ": ", status.message()));
  }
  return AtPath(status, path);
}

}  // namespace

absl::StatusOr<std::string> ReadPemFile(const std::string& path, Secrecy secrecy) {
  // A pipe in place of the file must not hang.
  SALIUS_ASSIGN_OR_RETURN(const UniqueFd fd,
                          OpenAt(AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_NOCTTY));
  struct stat st;
  if (fstat(fd.get(), &st) != 0) return ErrnoStatus(errno, path);
  SALIUS_RETURN_IF_ERROR(CheckRights(st, path, secrecy));
  std::string text(kMaxFile + 1, '\0');
  SALIUS_ASSIGN_OR_RETURN(const size_t size, PreadFull(fd.get(), text.data(), text.size(), 0));
  if (size > kMaxFile) {
    return absl::DataLossError(absl::StrCat(path, ": is larger than a file of keys can be"));
  }
  text.resize(size);
  return text;
}

absl::StatusOr<Keys> LoadKeysUnverified(const std::string& path) {
  Keys keys;
  SALIUS_ASSIGN_OR_RETURN(const std::string text, ReadPemFile(path, Secrecy::kSecret));
  const auto read = [&]() -> absl::Status {
    SALIUS_ASSIGN_OR_RETURN(keys.pair.key_pem, ReadPrivateKey(text));
    SALIUS_ASSIGN_OR_RETURN(keys.pair.chain_pem, OnlyCertificates(text));
    SALIUS_ASSIGN_OR_RETURN(const std::vector<Certificate> chain,
                            ReadCertificates(keys.pair.chain_pem));
    SALIUS_RETURN_IF_ERROR(CheckPair(keys.pair));
    keys.certificate = chain[0];
    if (keys.certificate.content.identity) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrFormat("the certificate of \"%s\" has no identity: issue one with `salius keys "
                        "issue`, or with a URI such as salius:client/NAME",
                        keys.certificate.content.common_name));
  };
  SALIUS_RETURN_IF_ERROR(InFile(read(), path));
  const std::string roots_path = Beside(path);
  SALIUS_ASSIGN_OR_RETURN(const std::string roots, ReadPemFile(roots_path, Secrecy::kPublic));
  const absl::StatusOr<std::string> certificates = OnlyCertificates(roots);
  SALIUS_RETURN_IF_ERROR(InFile(certificates.status(), roots_path));
  keys.roots_pem = *certificates;
  return keys;
}

absl::StatusOr<Keys> LoadKeys(const std::string& path, int64_t now_s) {
  SALIUS_ASSIGN_OR_RETURN(Keys keys, LoadKeysUnverified(path));
  SALIUS_RETURN_IF_ERROR(AtPath(VerifyChain(keys.pair.chain_pem, keys.roots_pem, now_s), path));
  return keys;
}

}  // namespace salius::keys
