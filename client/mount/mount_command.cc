#include "client/mount/mount_command.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/strings.h"

namespace salius {
namespace {

absl::Status Usage(std::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat(Av(problem), "\n", MountUsage()));
}

// Walks over the words; a short option may carry its value or have it in the next word.
class Words {
 public:
  explicit Words(const std::vector<std::string>& words) : words_(words) {}

  bool AtEnd() const { return next_ == words_.size(); }
  const std::string& Next() { return words_[next_++]; }

  // Returns the value of an option whose letters were `word`.
  absl::StatusOr<std::string> ValueOf(const std::string& word) {
    if (word.size() > 2) return word.substr(2);
    if (AtEnd()) return Usage(absl::StrCat("option ", word, " needs a value").c_str());
    return Next();
  }

 private:
  const std::vector<std::string>& words_;
  size_t next_ = 0;
};

absl::Status Finish(const std::vector<std::string>& places, const std::vector<std::string>& lists,
                    MountCommand* command) {
  if (command->action == MountCommand::Action::kHelp ||
      command->action == MountCommand::Action::kVersion) {
    return absl::OkStatus();
  }
  if (places.size() != 2) return Usage("give a backing directory and a mount point");
  command->backing = places[0];
  command->mountpoint = places[1];
  SALIUS_ASSIGN_OR_RETURN(command->options, ParseMountOptions(lists));
  command->option_lists = lists;
  return absl::OkStatus();
}

// Takes -s, -f, -n, -v in any combination.
absl::Status SetHelperFlags(const std::string& word, MountCommand* command) {
  for (const char letter : word.substr(1)) {
    switch (letter) {
      case 's':  // sloppy: an unknown option is still an error, because data may depend on it
      case 'n':  // no mtab: there is none
        break;
      case 'v':
        command->verbose = true;
        break;
      case 'f':
        command->action = MountCommand::Action::kFake;
        break;
      default:
        return Usage(absl::StrCat("unknown flag -", std::string(1, letter)).c_str());
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<MountCommand> ParseSaliusMount(const std::vector<std::string>& arguments) {
  MountCommand command;
  std::vector<std::string> places, lists;
  Words words(arguments);
  bool only_places = false;
  while (!words.AtEnd()) {
    const std::string& word = words.Next();
    if (only_places || !absl::StartsWith(word, "-") || word == "-") {
      places.push_back(word);
    } else if (word == "--") {
      only_places = true;
    } else if (word == "-f" || word == "--foreground") {
      command.foreground = true;
    } else if (word == "-h" || word == "--help") {
      command.action = MountCommand::Action::kHelp;
    } else if (word == "-V" || word == "--version") {
      command.action = MountCommand::Action::kVersion;
    } else if (absl::StartsWith(word, "-o")) {
      SALIUS_ASSIGN_OR_RETURN(lists.emplace_back(), words.ValueOf(word));
    } else {
      return Usage(absl::StrCat("unknown flag ", word).c_str());
    }
  }
  SALIUS_RETURN_IF_ERROR(Finish(places, lists, &command));
  return command;
}

absl::StatusOr<MountCommand> ParseMountHelper(const std::vector<std::string>& arguments) {
  MountCommand command;
  std::vector<std::string> places, lists;
  Words words(arguments);
  while (!words.AtEnd()) {
    const std::string& word = words.Next();
    if (!absl::StartsWith(word, "-")) {
      places.push_back(word);
    } else if (word == "-V" || word == "--version") {
      command.action = MountCommand::Action::kVersion;
    } else if (absl::StartsWith(word, "-o")) {
      SALIUS_ASSIGN_OR_RETURN(lists.emplace_back(), words.ValueOf(word));
    } else if (absl::StartsWith(word, "-t")) {
      SALIUS_RETURN_IF_ERROR(words.ValueOf(word).status());
    } else if (absl::StartsWith(word, "-N")) {
      return Usage("another mount namespace (-N) is not supported; use nsenter(1)");
    } else {
      SALIUS_RETURN_IF_ERROR(SetHelperFlags(word, &command));
    }
  }
  SALIUS_RETURN_IF_ERROR(Finish(places, lists, &command));
  return command;
}

std::string MountUsage() {
  return "usage: salius-mount [-f] [-o OPTION[,OPTION...]]... BACKING MOUNTPOINT\n"
         "  -f, --foreground  do not go into the background\n"
         "  -o OPTIONS        see salius-mount(8)\n"
         "  -h, --help        this text\n"
         "  -V, --version     the version";
}

}  // namespace salius
