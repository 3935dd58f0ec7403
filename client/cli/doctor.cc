#include "client/cli/doctor.h"

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/cli/doctor_preload.h"
#include "client/cli/exit_code.h"
#include "client/cli/status.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/options.h"
#include "transport/credentials.h"

namespace salius::cli {
namespace {

// Examines a program for salius-run.
absl::StatusOr<Findings> ExamineBinary(const std::string& path) {
  Findings findings;
  SALIUS_ASSIGN_OR_RETURN(const BinaryFacts facts, GatherBinaryFacts(path));
  JudgeBinary(facts, findings);
  return findings;
}

int64_t NowS() { return SystemClock().RealtimeNanos() / 1'000'000'000; }

// `given`: the option keys; without a value the volume's are used.
absl::StatusOr<Findings> Examine(const std::string& directory,
                                 const std::optional<std::string>& given) {
  Findings findings;
  HostFacts host = GatherHostFacts();
  if (directory.empty()) {
    JudgeHost(host, findings);
    JudgeKeys(GatherKeyFacts(given.value_or(""), NowS()), /*calls=*/false, NowS(), findings);
    return findings;
  }
  SALIUS_ASSIGN_OR_RETURN(const std::string backing, BackingDirectoryOf(directory));
  SALIUS_ASSIGN_OR_RETURN(const DirectoryFacts facts, GatherDirectoryFacts(backing));
  host.mounts = !IsDirect(facts);
  JudgeHost(host, findings);
  JudgeDirectory(facts, SystemClock().RealtimeNanos(), findings);
  if (!facts.volume || !facts.config_status.ok()) return findings;
  const KeyFacts own = GatherKeyFacts(given.value_or(facts.config.keys), NowS());
  JudgeKeys(own, /*calls=*/true, NowS(), findings);
  absl::StatusOr<std::shared_ptr<Credentials>> keys = nullptr;
  if (own.problem.ok()) keys = Credentials::Load(own.path);
  std::vector<ReplicaFacts> replicas;
  for (const std::string& address : facts.config.replicas) {
    replicas.push_back(GatherReplicaFacts(address, keys.value_or(nullptr), &facts.config.volume));
    if (!own.problem.ok()) {
      replicas.back().status =
          absl::FailedPreconditionError("not asked: this host's keys cannot be used");
      replicas.back().refused = true;
    }
    JudgeReplicaKeys(replicas.back(), own, NowS(), findings);
  }
  JudgeReplicas(facts.config, replicas, findings);
  JudgePlacement(facts.config, replicas, ThisHost(), findings);
  return findings;
}

}  // namespace

int RunDoctor(absl::Span<const std::string> words) {
  bool json = false;
  std::string binary;
  std::optional<std::string> keys;
  Options options(
      "salius doctor", "[DIR]",
      "Checks what a volume needs: of this host, and with DIR of the directory (a volume, or\n"
      "where one is to be made), of its state and of its replicas. Changes nothing.");
  options.Text("preload", "BINARY", &binary,
               "check the program BINARY instead: which of its calls\n"
               "`salius-run --direct` covers");
  options.Text("keys", "FILE", &keys,
               "ask the replicas with this host's key and certificate, of `salius keys`,\n"
               "in place of the volume's ('': none). Without DIR: check the file");
  options.Switch("json", &json, "print JSON");
  options.Note(
      "Exit codes: 0 nothing is FAIL, 1 something is FAIL, 2 usage, 3 no such directory,\n"
      "9 no permission to look at it.");
  if (const absl::Status parsed = options.Parse(words, 0, 1); !parsed.ok()) {
    return Report("doctor", parsed);
  }
  if (options.answer().has_value()) {
    std::printf("%s", options.answer()->c_str());
    return kExitOk;
  }
  if (!binary.empty() && !options.places().empty()) {
    return Report("doctor", absl::InvalidArgumentError("give DIR or --preload BINARY, not both"));
  }
  const absl::StatusOr<Findings> findings =
      !binary.empty() ? ExamineBinary(binary)
                      : Examine(options.places().empty() ? "" : options.places()[0], keys);
  if (!findings.ok()) return Report("doctor", findings.status());
  std::printf("%s", json ? (findings->ToJson() + "\n").c_str() : findings->ToText().c_str());
  return findings->AnyFail() ? kExitFailed : kExitOk;
}

}  // namespace salius::cli
