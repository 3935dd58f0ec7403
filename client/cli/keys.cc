#include "client/cli/keys.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/cli/exit_code.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/json.h"
#include "common/keys/authority.h"
#include "common/keys/identity.h"
#include "common/keys/key_file.h"
#include "common/keys/x509.h"
#include "common/options.h"
#include "common/strings.h"

namespace salius::cli {
namespace {

using keys::Authority;
using keys::Identity;
using Words = absl::Span<const std::string>;

constexpr uint64_t kAuthorityDays = 3650;
constexpr uint64_t kDays = 365;
constexpr uint64_t kMaxDays = 36'500;
constexpr size_t kMaxCommonName = 64;
constexpr std::string_view kOwn = "ca";

struct Plan {
  std::string name = "Salius CA";
  uint64_t days = 0;
  std::vector<std::string> hosts;
  std::string for_host;
  bool due = false, json = false;
};

Options KeysOptions(Plan& plan) {
  Options options("salius keys", "init|issue|renew|show DIR [KIND/NAME[=HOST,...]]...",
                  "Makes and keeps a private certificate authority in a directory:\n"
                  "  init DIR [KIND/NAME...]...    makes the authority: DIR/ca.key, DIR/ca.pem; and\n"
                  "                                the keys that are named\n"
                  "  issue DIR KIND/NAME...        makes DIR/KIND-NAME.pem: key and certificate\n"
                  "  renew DIR KIND/NAME|ca...     replaces them, before they expire\n"
                  "  show DIR|FILE...              shows and checks them\n"
                  "KIND is replica, client (a host that uses volumes) or operator. A replica has the\n"
                  "names and numeric addresses by which volumes reach it: replica/r1=HOST,...");
  options.Text("name", "NAME", &plan.name, "init: name of the authority");
  options.Number("days", "N", &plan.days, 1, kMaxDays,
                 "init, issue: days that the certificate is valid (init 3650, issue 365)");
  options.List("hosts", "HOST,...", &plan.hosts,
               "issue: the hosts of the one replica that is named");
  options.Switch("due", &plan.due, "renew: all with less than a third of their time left");
  options.Text("for-host", "HOST", &plan.for_host, "show: check that they are for this host too");
  options.Switch("json", &plan.json, "show: as JSON");
  options.Note(
      "Copy ca.pem and the host's own file to each host, never ca.key.\n"
      "Exit codes: 0 done, or all is well, 2 usage, 3 no such file, 4 there is one already,\n"
      "5 expired, of another authority, or for another host, 8 a damaged file, 9 wrong rights.\n"
      "The first problem counts.");
  return options;
}

int64_t NowS() { return SystemClock().RealtimeNanos() / 1'000'000'000; }

int64_t DaysOr(const Plan& plan, uint64_t otherwise) {
  return static_cast<int64_t>(plan.days == 0 ? otherwise : plan.days);
}

absl::Status Usage(std::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat(Av(message), " (see salius keys --help)"));
}

void PrintWritten(const std::string& path, const keys::Validity& validity) {
  std::printf("wrote %s, valid until %s\n", Printable(path, NewLines::kReplace).c_str(),
              keys::FormatTime(validity.until_s).c_str());
}

// Identities to issue, with the hosts of each.
using Orders = std::vector<std::pair<Identity, std::vector<std::string>>>;

// Parses words KIND/NAME[=HOST,...]. A wrong one is found before anything is made.
absl::StatusOr<Orders> ParseOrders(const Plan& plan, Words words) {
  Orders orders;
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    SALIUS_ASSIGN_OR_RETURN(Identity identity,
                            keys::ParseIdentity(std::string_view(word).substr(0, equals)));
    std::vector<std::string> hosts = plan.hosts;
    if (equals != word.npos) {
      if (!hosts.empty()) return Usage("give --hosts or KIND/NAME=HOST,..., not both");
      hosts = absl::StrSplit(word.substr(equals + 1), ',');
    }
    SALIUS_RETURN_IF_ERROR(keys::CheckHosts(identity, hosts));
    for (const auto& [other, unused] : orders) {
      if (other == identity) return Usage(absl::StrCat(identity.ToString(), " is named twice"));
    }
    orders.emplace_back(std::move(identity), std::move(hosts));
  }
  return orders;
}

absl::Status IssueAll(Authority& authority, const Orders& orders, int64_t days, int64_t now_s) {
  for (const auto& [identity, hosts] : orders) {
    SALIUS_ASSIGN_OR_RETURN(const std::string path, authority.Issue(identity, hosts, days, now_s));
    SALIUS_ASSIGN_OR_RETURN(const keys::Certificate made, authority.CertificateOf(identity));
    PrintWritten(path, made.content.validity);
  }
  return absl::OkStatus();
}

absl::Status Init(const Plan& plan, Words places) {
  if (places.empty()) return Usage("init takes a directory");
  if (plan.name.empty() || plan.name.size() > kMaxCommonName ||
      Printable(plan.name, NewLines::kReplace) != plan.name) {
    return Usage("--name takes 1 to 64 characters");
  }
  SALIUS_ASSIGN_OR_RETURN(const Orders orders, ParseOrders(plan, places.subspan(1)));
  const int64_t days = DaysOr(plan, kAuthorityDays), now_s = NowS();
  SALIUS_ASSIGN_OR_RETURN(Authority authority,
                          Authority::Create(places[0], plan.name, days, now_s));
  PrintWritten((std::filesystem::path(places[0]) / keys::kAuthoritiesFile).string(),
               authority.own().content.validity);
  // A certificate may not end after its authority's.
  return IssueAll(authority, orders, std::min<int64_t>(kDays, days), now_s);
}

absl::Status Issue(const Plan& plan, Words places) {
  if (places.size() < 2) return Usage("issue takes a directory and KIND/NAME");
  if (places.size() > 2 && !plan.hosts.empty()) {
    return Usage("--hosts goes with one KIND/NAME; of several, each has its own: KIND/NAME=HOST,...");
  }
  SALIUS_ASSIGN_OR_RETURN(const Orders orders, ParseOrders(plan, places.subspan(1)));
  SALIUS_ASSIGN_OR_RETURN(Authority authority, Authority::Open(places[0]));
  return IssueAll(authority, orders, DaysOr(plan, kDays), NowS());
}

absl::Status RenewOwn(Authority& authority) {
  SALIUS_ASSIGN_OR_RETURN(const std::string path, authority.RenewOwn(NowS()));
  PrintWritten(path, authority.own().content.validity);
  return absl::OkStatus();
}

absl::Status RenewOne(Authority& authority, const Identity& identity) {
  SALIUS_ASSIGN_OR_RETURN(const std::string path, authority.Renew(identity, NowS()));
  SALIUS_ASSIGN_OR_RETURN(const keys::Certificate made, authority.CertificateOf(identity));
  PrintWritten(path, made.content.validity);
  return absl::OkStatus();
}

absl::Status RenewDue(Authority& authority) {
  const int64_t now_s = NowS();
  if (keys::DueAt(authority.own().content.validity) <= now_s) {
    SALIUS_RETURN_IF_ERROR(RenewOwn(authority));
  }
  SALIUS_ASSIGN_OR_RETURN(const std::vector<Identity> issued, authority.Issued());
  for (const Identity& identity : issued) {
    SALIUS_ASSIGN_OR_RETURN(const keys::Certificate old, authority.CertificateOf(identity));
    if (keys::DueAt(old.content.validity) > now_s) continue;
    SALIUS_RETURN_IF_ERROR(RenewOne(authority, identity));
  }
  return absl::OkStatus();
}

absl::Status Renew(const Plan& plan, Words places) {
  if (places.empty() || plan.due == (places.size() > 1)) {
    return Usage("renew takes a directory, and either --due, or KIND/NAME or ca");
  }
  // A wrong name is found before anything is replaced.
  std::vector<std::optional<Identity>> named;  // Without a value: the authority.
  for (const std::string& place : places.subspan(1)) {
    named.emplace_back();
    if (place == kOwn) continue;
    SALIUS_ASSIGN_OR_RETURN(named.back(), keys::ParseIdentity(place));
  }
  SALIUS_ASSIGN_OR_RETURN(Authority authority, Authority::Open(places[0]));
  if (plan.due) return RenewDue(authority);
  for (const std::optional<Identity>& one : named) {
    SALIUS_RETURN_IF_ERROR(one ? RenewOne(authority, *one) : RenewOwn(authority));
  }
  return absl::OkStatus();
}

// A file as `show` shows it.
struct Shown {
  std::string path;
  std::optional<keys::Certificate> certificate;
  absl::Status problem;
};

absl::Status CheckDates(const std::string& path, const std::string& pem) {
  SALIUS_ASSIGN_OR_RETURN(const std::vector<std::string> roots, keys::SplitCertificates(pem));
  for (const std::string& root : roots) {
    SALIUS_RETURN_IF_ERROR(AtPath(keys::VerifyChain(root, root, NowS()), path));
  }
  return absl::OkStatus();
}

// Reads and checks a file ca.pem.
Shown ShowAuthorities(const std::string& path) {
  Shown shown{path, std::nullopt, absl::OkStatus()};
  const absl::StatusOr<std::string> text = keys::ReadPemFile(path, keys::Secrecy::kPublic);
  if (!text.ok()) {
    shown.problem = text.status();
    return shown;
  }
  const absl::StatusOr<std::vector<keys::Certificate>> read = keys::ReadCertificates(*text);
  if (read.ok()) shown.certificate = read->front();
  shown.problem = read.ok() ? CheckDates(path, *text) : AtPath(read.status(), path);
  return shown;
}

Shown ShowFile(const Plan& plan, const std::string& path) {
  Shown shown{path, std::nullopt, absl::OkStatus()};
  const absl::StatusOr<keys::Keys> read = keys::LoadKeysUnverified(path);
  if (!read.ok()) {
    shown.problem = read.status();
    return shown;
  }
  shown.certificate = read->certificate;
  shown.problem = AtPath(keys::VerifyChain(read->pair.chain_pem, read->roots_pem, NowS()), path);
  if (shown.problem.ok() && !plan.for_host.empty()) {
    shown.problem = AtPath(keys::CheckHost(read->pair.chain_pem, plan.for_host), path);
  }
  return shown;
}

// Checks the rights of an authority's key, without showing it.
std::optional<Shown> ShowAuthorityKey(const std::string& path) {
  absl::Status problem = keys::ReadPemFile(path, keys::Secrecy::kSecret).status();
  if (problem.ok() || absl::IsNotFound(problem)) return std::nullopt;
  return Shown{path, std::nullopt, std::move(problem)};
}

// Returns the files of a directory, by name, or the file itself.
absl::StatusOr<std::vector<std::string>> FilesOf(const std::string& place) {
  std::error_code error;
  if (!std::filesystem::is_directory(place, error)) return std::vector<std::string>{place};
  std::vector<std::string> files;
  for (std::filesystem::directory_iterator at(place, error), end; !error && at != end;
       at.increment(error)) {
    const std::filesystem::path& path = at->path();
    if (path.extension() == ".pem" || path.filename() == keys::kAuthorityKeyFile) {
      files.push_back(path.string());
    }
  }
  if (error) return ErrnoStatus(error.value(), place);
  if (files.empty()) {
    return absl::NotFoundError(
        absl::StrCat(place, ": has no keys: salius keys init ", ShellQuote(place)));
  }
  std::sort(files.begin(), files.end());
  return files;
}

int64_t DaysLeft(const keys::Validity& validity) {
  return (validity.until_s - NowS()) / keys::kDayS;
}

std::string ToText(const Shown& shown) {
  std::string text = absl::StrCat(Printable(shown.path, NewLines::kReplace), "\n");
  if (shown.certificate) {
    const keys::Content& content = shown.certificate->content;
    const keys::Validity& validity = content.validity;
    absl::StrAppendFormat(&text, "  identity  %s\n",
                          content.identity ? content.identity->ToString() : content.common_name);
    if (!content.hosts.empty()) {
      absl::StrAppendFormat(&text, "  hosts     %s\n", absl::StrJoin(content.hosts, ", "));
    }
    absl::StrAppendFormat(&text, "  valid     %s to %s (%d days left)\n",
                          keys::FormatTime(validity.from_s), keys::FormatTime(validity.until_s),
                          DaysLeft(validity));
    absl::StrAppendFormat(&text, "  renew     from %s on\n",
                          keys::FormatTime(keys::DueAt(validity)));
    absl::StrAppendFormat(&text, "  issuer    %s\n", shown.certificate->issuer);
    absl::StrAppendFormat(&text, "  serial    %s\n", shown.certificate->serial);
  }
  absl::StrAppendFormat(&text, "  %s%s\n", shown.problem.ok() ? "all is well" : "PROBLEM   ",
                        Sv(shown.problem.message()));
  return text;
}

Json ToJson(const Shown& shown) {
  Json json = {{"file", shown.path}};
  if (shown.certificate) {
    const keys::Content& content = shown.certificate->content;
    json["identity"] = content.identity ? content.identity->ToString() : content.common_name;
    json["authority"] = content.authority;
    json["hosts"] = content.hosts;
    json["valid_from_s"] = content.validity.from_s;
    json["valid_until_s"] = content.validity.until_s;
    json["renew_from_s"] = keys::DueAt(content.validity);
    json["issuer"] = shown.certificate->issuer;
    json["serial"] = shown.certificate->serial;
  }
  json["problem"] = std::string(shown.problem.message());
  return json;
}

absl::Status Show(const Plan& plan, Words places) {
  if (places.empty()) return Usage("show takes a directory or files");
  std::vector<Shown> all;
  for (const std::string& place : places) {
    SALIUS_ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesOf(place));
    for (const std::string& file : files) {
      const std::filesystem::path name = std::filesystem::path(file).filename();
      if (name == keys::kAuthorityKeyFile) {
        if (std::optional<Shown> key = ShowAuthorityKey(file)) all.push_back(std::move(*key));
      } else {
        all.push_back(name == keys::kAuthoritiesFile ? ShowAuthorities(file)
                                                     : ShowFile(plan, file));
      }
    }
  }
  Json list = Json::array();
  absl::Status first;
  for (const Shown& shown : all) {
    if (plan.json) {
      list.push_back(ToJson(shown));
    } else {
      std::printf("%s", ToText(shown).c_str());
    }
    if (first.ok()) first = shown.problem;
  }
  if (plan.json) std::printf("%s\n", JsonLine(list).c_str());
  return first;
}

struct Action {
  std::string_view name;
  absl::Status (*run)(const Plan& plan, Words places);
  // The options that it takes.
  std::vector<std::string_view> options;
};

absl::Status Run(const Options& options, const Plan& plan) {
  const Action actions[] = {{"init", Init, {"name", "days"}},
                            {"issue", Issue, {"hosts", "days"}},
                            {"renew", Renew, {"due"}},
                            {"show", Show, {"for-host", "json"}}};
  for (const Action& action : actions) {
    if (options.places()[0] != action.name) continue;
    for (const std::string_view option : {"name", "days", "hosts", "due", "for-host", "json"}) {
      const bool taken =
          std::find(action.options.begin(), action.options.end(), option) != action.options.end();
      if (options.Given(option) && !taken) {
        return Usage(absl::StrFormat("%s takes no --%s", action.name, option));
      }
    }
    return action.run(plan, absl::MakeConstSpan(options.places()).subspan(1));
  }
  return Usage(absl::StrFormat("there is no action \"%s\": init, issue, renew or show",
                               Printable(options.places()[0], NewLines::kReplace)));
}

}  // namespace

int RunKeys(absl::Span<const std::string> words) {
  Plan plan;
  Options options = KeysOptions(plan);
  constexpr size_t kMaxPlaces = 1000;
  if (const absl::Status parsed = options.Parse(words, 1, kMaxPlaces); !parsed.ok()) {
    return Report("keys", parsed);
  }
  if (options.answer().has_value()) {
    std::printf("%s", options.answer()->c_str());
    return kExitOk;
  }
  return Report("keys", Run(options, plan));
}

}  // namespace salius::cli
