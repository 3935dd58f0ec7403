#include "common/keys/authority.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "common/check.h"
#include "common/keys/key_file.h"
#include "common/strings.h"

namespace salius::keys {
namespace {

constexpr mode_t kSecretMode = 0600;
constexpr std::string_view kSuffix = ".pem";

absl::Status WriteSecret(int directory, std::string_view name, const std::string& text) {
  return WriteFileAtomically(
      directory, name,
      absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(text.data()), text.size()), kSecretMode);
}

// Opens and locks the directory. Errors: those of Authority::Create.
absl::StatusOr<UniqueFd> OpenLocked(const std::string& path) {
  SALIUS_ASSIGN_OR_RETURN(UniqueFd fd, OpenAt(AT_FDCWD, path, O_RDONLY | O_DIRECTORY));
  struct stat st;
  if (fstat(fd.get(), &st) != 0) return ErrnoStatus(errno, path);
  if (st.st_uid != geteuid()) {
    return absl::PermissionDeniedError(
        absl::StrFormat("%s: belongs to user %d, and this user is %d", path, st.st_uid, geteuid()));
  }
  if ((st.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return absl::PermissionDeniedError(
        absl::StrFormat("%s: other users have rights on the directory (mode %04o): chmod 700 %s",
                        path, st.st_mode & 07777, ShellQuote(path)));
  }
  SALIUS_RETURN_IF_ERROR(LockExclusive(fd.get(), path));
  return fd;
}

Validity From(int64_t now_s, int64_t seconds) { return {now_s - kClockSlackS, now_s + seconds}; }

// Returns how long a certificate was to be valid when it was made.
int64_t LengthOf(const Validity& validity) {
  return std::max(validity.until_s - validity.from_s - kClockSlackS, kDayS);
}

Content OwnContent(const std::string& name, const Validity& validity) {
  return {
      .common_name = name, .identity = {}, .hosts = {}, .validity = validity, .authority = true};
}

}  // namespace

absl::Status CheckHosts(const Identity& identity, const std::vector<std::string>& hosts) {
  if (identity.kind == Kind::kReplica && hosts.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(identity.ToString(),
                     ": a replica needs the names and addresses by which volumes "
                     "reach it: --hosts HOST,..., or KIND/NAME=HOST,..."));
  }
  if (identity.kind != Kind::kReplica && !hosts.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        identity.ToString(), ": hosts are for replicas; no peer checks the host of a caller"));
  }
  for (const std::string& host : hosts) {
    if (IsHost(host)) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: \"%s\" is neither the name nor the numeric address of a host",
                        identity.ToString(), Printable(host, NewLines::kReplace)));
  }
  return absl::OkStatus();
}

int64_t DueAt(const Validity& validity) {
  return validity.from_s + (validity.until_s - validity.from_s) / 3 * 2;
}

std::string FileNameOf(const Identity& identity) {
  std::string name = identity.ToString();
  std::replace(name.begin(), name.end(), '/', '-');
  return absl::StrCat(name, Av(kSuffix));
}

Authority::Authority(std::string path, UniqueFd directory)
    : path_(std::move(path)), directory_(std::move(directory)) {}

std::string Authority::PathOf(std::string_view name) const {
  return (std::filesystem::path(path_) / name).string();
}

absl::StatusOr<Authority> Authority::Create(const std::string& directory, const std::string& name,
                                            int64_t days, int64_t now_s) {
  if (const absl::Status made = MkdirAt(AT_FDCWD, directory, 0700);
      !made.ok() && !absl::IsAlreadyExists(made)) {
    return made;
  }
  SALIUS_ASSIGN_OR_RETURN(UniqueFd fd, OpenLocked(directory));
  Authority authority(directory, std::move(fd));
  for (const std::string_view file : {kAuthorityKeyFile, kAuthoritiesFile}) {
    struct stat st;
    if (fstatat(authority.directory_.get(), std::string(file).c_str(), &st, AT_SYMLINK_NOFOLLOW) ==
        0) {
      return absl::AlreadyExistsError(absl::StrCat(
          authority.PathOf(file),
          ": there is an authority already; without both ca.key and ca.pem, `init` was "
          "interrupted or a file was lost: put it back, or take another directory"));
    }
  }
  SALIUS_ASSIGN_OR_RETURN(const std::string key, MakePrivateKey());
  SALIUS_ASSIGN_OR_RETURN(const KeyPair pair,
                          Sign(OwnContent(name, From(now_s, days * kDayS)), key, nullptr));
  SALIUS_RETURN_IF_ERROR(WriteSecret(authority.directory_.get(), kAuthorityKeyFile, pair.key_pem));
  SALIUS_RETURN_IF_ERROR(WriteSecret(authority.directory_.get(), kAuthoritiesFile, pair.chain_pem));
  SALIUS_RETURN_IF_ERROR(authority.Read());
  return authority;
}

absl::StatusOr<Authority> Authority::Open(const std::string& directory) {
  SALIUS_ASSIGN_OR_RETURN(UniqueFd fd, OpenLocked(directory));
  Authority authority(directory, std::move(fd));
  SALIUS_RETURN_IF_ERROR(authority.Read());
  return authority;
}

absl::Status Authority::Read() {
  const std::string key_path = PathOf(kAuthorityKeyFile);
  SALIUS_ASSIGN_OR_RETURN(const std::string key, ReadPemFile(key_path, Secrecy::kSecret));
  const absl::StatusOr<std::string> only_key = ReadPrivateKey(key);
  SALIUS_RETURN_IF_ERROR(AtPath(only_key.status(), key_path));
  const std::string roots_path = PathOf(kAuthoritiesFile);
  SALIUS_ASSIGN_OR_RETURN(const std::string roots, ReadPemFile(roots_path, Secrecy::kPublic));
  const absl::StatusOr<std::vector<std::string>> split = SplitCertificates(roots);
  SALIUS_RETURN_IF_ERROR(AtPath(split.status(), roots_path));
  pair_ = {};
  others_pem_.clear();
  for (const std::string& certificate : *split) {
    if (pair_.chain_pem.empty() && CheckPair({*only_key, certificate}).ok()) {
      pair_ = {*only_key, certificate};
      SALIUS_ASSIGN_OR_RETURN(const std::vector<Certificate> own, ReadCertificates(certificate));
      own_ = own[0];
    } else {
      others_pem_ += certificate;
    }
  }
  if (!pair_.chain_pem.empty()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(roots_path, ": has no certificate of the key in ", key_path));
}

absl::StatusOr<std::string> Authority::Write(const Identity& identity,
                                             const std::vector<std::string>& hosts, int64_t seconds,
                                             int64_t now_s) {
  SALIUS_RETURN_IF_ERROR(CheckHosts(identity, hosts));
  const Validity validity = From(now_s, seconds);
  const int64_t own_end_s = own_.content.validity.until_s;
  if (own_end_s > now_s && validity.until_s > own_end_s) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s: its certificate would be valid until %s, the authority's ends on %s: renew that first "
        "(salius keys renew %s ca), or give fewer --days",
        identity.ToString(), FormatTime(validity.until_s), FormatTime(own_end_s),
        ShellQuote(path_)));
  }
  const Content content{.common_name = identity.ToString(),
                        .identity = identity,
                        .hosts = hosts,
                        .validity = validity};
  SALIUS_ASSIGN_OR_RETURN(const std::string key, MakePrivateKey());
  SALIUS_ASSIGN_OR_RETURN(const KeyPair pair, Sign(content, key, &pair_));
  SALIUS_RETURN_IF_ERROR(VerifyChain(pair.chain_pem, pair_.chain_pem, now_s));
  const std::string name = FileNameOf(identity);
  SALIUS_RETURN_IF_ERROR(WriteSecret(directory_.get(), name, pair.chain_pem + pair.key_pem));
  return PathOf(name);
}

absl::StatusOr<std::string> Authority::Issue(const Identity& identity,
                                             const std::vector<std::string>& hosts, int64_t days,
                                             int64_t now_s) {
  const std::string name = FileNameOf(identity);
  struct stat st;
  if (fstatat(directory_.get(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0) {
    return absl::AlreadyExistsError(
        absl::StrFormat("%s: there is one already: salius keys renew %s %s", PathOf(name),
                        ShellQuote(path_), identity.ToString()));
  }
  return Write(identity, hosts, days * kDayS, now_s);
}

absl::StatusOr<Certificate> Authority::CertificateOf(const Identity& identity) const {
  const std::string path = PathOf(FileNameOf(identity));
  SALIUS_ASSIGN_OR_RETURN(const std::string text, ReadPemFile(path, Secrecy::kSecret));
  const absl::StatusOr<std::vector<Certificate>> chain = ReadCertificates(text);
  SALIUS_RETURN_IF_ERROR(AtPath(chain.status(), path));
  if (chain->front().content.identity == identity) return chain->front();
  return absl::DataLossError(
      absl::StrFormat("%s: is the certificate of \"%s\", not of %s: it was renamed or replaced",
                      path, chain->front().content.common_name, identity.ToString()));
}

absl::StatusOr<std::string> Authority::Renew(const Identity& identity, int64_t now_s) {
  SALIUS_ASSIGN_OR_RETURN(const Certificate old, CertificateOf(identity));
  return Write(identity, old.content.hosts, LengthOf(old.content.validity), now_s);
}

absl::StatusOr<std::string> Authority::RenewOwn(int64_t now_s) {
  const Content& old = own_.content;
  SALIUS_ASSIGN_OR_RETURN(const KeyPair pair,
                          Sign(OwnContent(old.common_name, From(now_s, LengthOf(old.validity))),
                               pair_.key_pem, nullptr));
  SALIUS_RETURN_IF_ERROR(
      WriteSecret(directory_.get(), kAuthoritiesFile, pair.chain_pem + others_pem_));
  SALIUS_RETURN_IF_ERROR(Read());
  return PathOf(kAuthoritiesFile);
}

absl::StatusOr<std::vector<Identity>> Authority::Issued() const {
  std::vector<Identity> found;
  std::error_code error;
  for (std::filesystem::directory_iterator at(path_, error), end; !error && at != end;
       at.increment(error)) {
    std::string name = at->path().filename().string();
    const size_t dash = name.find('-');
    if (dash == name.npos || !at->path().has_extension() || at->path().extension() != kSuffix) {
      continue;
    }
    name[dash] = '/';
    const absl::StatusOr<Identity> identity =
        ParseIdentity(std::string_view(name).substr(0, name.size() - kSuffix.size()));
    if (identity.ok()) found.push_back(*identity);
  }
  if (error) return ErrnoStatus(error.value(), path_);
  std::sort(found.begin(), found.end(),
            [](const Identity& a, const Identity& b) { return a.ToString() < b.ToString(); });
  return found;
}

}  // namespace salius::keys
