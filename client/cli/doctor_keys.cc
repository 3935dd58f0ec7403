#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/doctor.h"
#include "common/keys/authority.h"
#include "common/keys/key_file.h"
#include "common/keys/x509.h"
#include "common/net.h"
#include "common/runbook.h"
#include "common/strings.h"

namespace salius::cli {
namespace {

using keys::Certificate;

// Clocks that differ by more are not kept by NTP. Certificates are valid from an hour before they
// are made.
constexpr int64_t kMaxClockDifferenceMs = 60'000;

std::string NameOf(const Certificate& certificate) {
  const keys::Content& content = certificate.content;
  return content.identity ? content.identity->ToString() : content.common_name;
}

// Returns "client/web1, valid until 2027-11-28 10:00:00Z (364 days left)".
std::string Describe(const Certificate& certificate, int64_t now_s) {
  const keys::Content& content = certificate.content;
  return absl::StrFormat(
      "%s%s, valid until %s (%d days left)", NameOf(certificate),
      content.hosts.empty() ? "" : absl::StrCat(" for ", absl::StrJoin(content.hosts, ", ")),
      keys::FormatTime(content.validity.until_s), (content.validity.until_s - now_s) / keys::kDayS);
}

// Returns what to do about a file that cannot be used.
std::string AdviceOn(const absl::Status& problem) {
  const std::string runbook = SeeRunbook("keys-refused");
  if (absl::IsNotFound(problem)) {
    return absl::StrCat("copy this host's file and ca.pem from the authority's directory; ", runbook);
  }
  if (absl::IsPermissionDenied(problem)) {
    return absl::StrCat("as it says; if other users could read the key, renew it; ", runbook);
  }
  if (absl::IsDataLoss(problem)) {
    return absl::StrCat("copy it again from the authority's directory; ", runbook);
  }
  return absl::StrCat("renew it (salius keys renew) and copy it here, or correct the clock; ", runbook);
}

void JudgeDue(const std::string& name, const Certificate& certificate, const std::string& renew,
              int64_t now_s, Findings& findings) {
  const std::string detail = Describe(certificate, now_s);
  if (keys::DueAt(certificate.content.validity) > now_s) {
    findings.Ok(name, detail);
    return;
  }
  findings.Warn(name, detail,
                absl::StrFormat("less than a third of its time is left: salius keys renew DIR %s, "
                                "and copy the file to its hosts",
                                renew));
}

void JudgeClock(const std::string& name, int64_t ahead_ms, Findings& findings) {
  const double seconds = std::abs(static_cast<double>(ahead_ms)) / 1000;
  if (std::abs(ahead_ms) <= kMaxClockDifferenceMs) {
    findings.Ok(name, absl::StrFormat("%.1f s from this host's", seconds));
    return;
  }
  findings.Warn(name,
                absl::StrFormat("%.0f s %s this host's", seconds, ahead_ms > 0 ? "ahead of" : "behind"),
                "set both clocks (NTP): by a wrong clock a valid certificate has expired, or is "
                "not valid yet");
}

void JudgeOwner(const std::string& name, const control::ReplicaStatusResponse& status,
                const Certificate& own, Findings& findings) {
  using Status = control::ReplicaStatusResponse;
  const bool is_operator = own.content.identity->kind == keys::Kind::kOperator;
  switch (status.asked_owner()) {
    case Status::OWNER_CALLER:
      findings.Ok(name, absl::StrCat("the volume belongs to ", NameOf(own)));
      break;
    case Status::OWNER_NONE:
      findings.Ok(name, "none yet: the client that opens the volume first");
      break;
    case Status::OWNER_OTHER:
      if (is_operator) {
        findings.Ok(name, "the volume belongs to another identity, and an operator may use it");
      } else {
        findings.Fail(name, absl::StrCat("the volume belongs to another identity than ", NameOf(own)),
                      absl::StrCat("use the keys of the client that opened it first, or have an "
                                   "operator `salius forget` it there after a clean unmount; ",
                                   SeeRunbook("keys-refused")));
      }
      break;
    default:  // An earlier version does not say.
      break;
  }
}

}  // namespace

KeyFacts GatherKeyFacts(const std::string& path, int64_t now_s) {
  KeyFacts facts;
  facts.path = path;
  if (path.empty()) return facts;
  const absl::StatusOr<keys::Keys> read = keys::LoadKeys(path, now_s);
  facts.problem = read.status();
  if (!read.ok()) return facts;
  facts.certificate = read->certificate;
  const absl::StatusOr<std::vector<Certificate>> roots = keys::ReadCertificates(read->roots_pem);
  if (roots.ok()) facts.authorities = *roots;
  return facts;
}

void JudgeKeys(const KeyFacts& facts, bool calls, int64_t now_s, Findings& findings) {
  if (facts.path.empty()) return;
  const std::string name = "keys";
  if (!facts.problem.ok()) {
    findings.Fail(name, std::string(facts.problem.message()), AdviceOn(facts.problem));
    return;
  }
  const std::string identity = NameOf(*facts.certificate);
  if (calls && facts.certificate->content.identity->kind == keys::Kind::kReplica) {
    findings.Fail(name, absl::StrFormat("%s: is of %s, which may not call", facts.path, identity),
                  "give this host's own file, of `salius keys issue DIR client/NAME`");
    return;
  }
  JudgeDue(name, *facts.certificate, identity, now_s, findings);
  for (const Certificate& authority : facts.authorities) {
    JudgeDue("authority", authority, "ca", now_s, findings);
  }
}

void JudgeReplicaKeys(const ReplicaFacts& replica, const KeyFacts& own, int64_t now_s,
                      Findings& findings) {
  if (!own.certificate.has_value() || !replica.status.ok()) return;
  const std::string name = absl::StrCat("replica ", replica.address);
  if (replica.certificate.has_value()) {
    JudgeDue(absl::StrCat(name, " keys"), *replica.certificate, NameOf(*replica.certificate), now_s,
             findings);
  }
  if (replica.clock_ahead_ms.has_value()) {
    JudgeClock(absl::StrCat(name, " clock"), *replica.clock_ahead_ms, findings);
  }
  JudgeOwner(absl::StrCat(name, " owner"), *replica.status, *own.certificate, findings);
}

}  // namespace salius::cli
