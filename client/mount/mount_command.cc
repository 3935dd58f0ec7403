#include "client/mount/mount_command.h"

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/options.h"
#include "common/version.h"

namespace salius {
namespace {

constexpr char kPlaces[] = "BACKING MOUNTPOINT";
constexpr char kExitCodes[] =
    "Exit codes: 0 mounted, 1 wrong usage or options, 32 any other error.";

// Parses the words with a table that sets `command`, and then the lists of -o.
absl::Status Finish(const std::vector<std::string>& words, Options& table, MountCommand* command) {
  if (const absl::Status parsed = table.Parse(words, 2, 2); !parsed.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(parsed.message(), "\n", table.Usage()));
  }
  command->answer = table.answer();
  if (command->answer.has_value()) return absl::OkStatus();
  command->backing = table.places()[0];
  command->mountpoint = table.places()[1];
  SALIUS_ASSIGN_OR_RETURN(command->options, ParseMountOptions(command->option_lists));
  return absl::OkStatus();
}

void TakeOptionLists(Options& table, MountCommand& command) {
  table.Repeated("o,", "OPTION[,OPTION...]", &command.option_lists,
                 "options of the mount, see below; a later value wins");
}

}  // namespace

absl::StatusOr<MountCommand> ParseSaliusMount(const std::vector<std::string>& words) {
  MountCommand command;
  Options table("salius-mount", kPlaces,
                "Shows the volume in the directory BACKING at MOUNTPOINT.");
  table.Switch("f,foreground", &command.foreground, "do not go into the background");
  TakeOptionLists(table, command);
  table.Version(absl::StrCat("salius-mount ", kSaliusVersion));
  table.Note(MountOptionsHelp());
  table.Note(kExitCodes);
  SALIUS_RETURN_IF_ERROR(Finish(words, table, &command));
  return command;
}

absl::StatusOr<MountCommand> ParseMountHelper(const std::vector<std::string>& words) {
  MountCommand command;
  bool fake = false, ignored = false;
  std::string ignored_type;
  Options table("mount.salius", kPlaces, "Called by mount(8) for volumes of Salius.");
  TakeOptionLists(table, command);
  table.Switch("f,", &fake, "check the options and the paths, and mount nothing");
  table.Switch("v,", &command.verbose, "print the steps");
  table.Switch("n,", &ignored, "changes nothing: there is no mtab");
  // An option may carry the safety of data: an unknown one is never skipped.
  table.Switch("s,", &ignored, "changes nothing: an unknown option is still an error");
  table.Text("t,", "TYPE", &ignored_type, "ignored");
  table.Value(
      "N,", "NAMESPACE",
      [](const std::string&) {
        return absl::InvalidArgumentError(
            "another mount namespace is not supported; use nsenter(1)");
      },
      "refused: another mount namespace");
  table.Version(absl::StrCat("mount.salius ", kSaliusVersion));
  table.Note(MountOptionsHelp());
  table.Note(kExitCodes);
  SALIUS_RETURN_IF_ERROR(Finish(words, table, &command));
  if (fake) command.action = MountCommand::Action::kFake;
  return command;
}

}  // namespace salius
