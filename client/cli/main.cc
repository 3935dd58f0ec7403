// `salius`, the administrator's program: one subcommand per job, each with its own --help.
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "client/cli/acknowledge.h"
#include "client/cli/bench.h"
#include "client/cli/doctor.h"
#include "client/cli/exit_code.h"
#include "client/cli/forget.h"
#include "client/cli/init.h"
#include "client/cli/keys.h"
#include "client/cli/order.h"
#include "client/cli/status.h"
#include "common/daemon.h"
#include "common/version.h"

namespace {

struct Command {
  std::string_view name;
  int (*run)(absl::Span<const std::string> words);
  std::string_view about;
};

constexpr Command kCommands[] = {
    {"init", salius::cli::RunInit, "make a directory a volume"},
    {"status", salius::cli::RunStatus, "what a volume or a replica is doing"},
    {"acknowledge", salius::cli::RunAcknowledge, "note that you know what a recovery gave up"},
    {"doctor", salius::cli::RunDoctor, "check host, directory and replicas"},
    {"forget", salius::cli::RunForget, "have replicas forget a volume that is no longer used"},
    {"keys", salius::cli::RunKeys, "make, renew and check certificates and private keys"},
    {"osync", salius::cli::RunOsync, "order the changes of a volume, without waiting"},
    {"dsync", salius::cli::RunDsync, "wait until a file is durable, under any contract"},
    {"bench", salius::cli::RunBench, "measure synchronous writes beside their floors"},
};

void PrintUsage(std::FILE* out) {
  std::fprintf(out, "usage: salius COMMAND [OPTION]... [ARGUMENT]...\n\n");
  for (const Command& command : kCommands) {
    std::fprintf(out, "  %-12s %s\n", std::string(command.name).c_str(),
                 std::string(command.about).c_str());
  }
  std::fprintf(out, "\n`salius COMMAND --help` explains each, with its exit codes;\n"
               "`salius --version` prints the version.\n");
}

}  // namespace

int main(int argc, char** argv) {
  salius::UsePlainMutexes();
  salius::KeepMemoryPrivate();
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty()) {
    PrintUsage(stderr);
    return salius::cli::kExitUsage;
  }
  if (words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    PrintUsage(stdout);
    return salius::cli::kExitOk;
  }
  if (words[0] == "--version" || words[0] == "-V") {
    std::printf("salius %s\n", salius::kSaliusVersion);
    return salius::cli::kExitOk;
  }
  for (const Command& command : kCommands) {
    if (words[0] == command.name) return command.run(absl::MakeConstSpan(words).subspan(1));
  }
  std::fprintf(stderr, "salius: there is no command \"%s\"\n", words[0].c_str());
  PrintUsage(stderr);
  return salius::cli::kExitUsage;
}
