#include "client/cli/options.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/check.h"
#include "common/config.h"
#include "common/strings.h"

namespace salius::cli {
namespace {

// Column at which the explanations begin in the help.
constexpr int kHelpColumn = 28;

absl::Status SetDuration(const std::string& text, uint64_t* value, uint64_t unit_us) {
  SALIUS_ASSIGN_OR_RETURN(const int64_t us, ParseDurationUs(text));
  if (us > 0 && static_cast<uint64_t>(us) < unit_us) {
    return absl::InvalidArgumentError("must be at least 1ms");
  }
  *value = static_cast<uint64_t>(us) / unit_us;
  return absl::OkStatus();
}

}  // namespace

Options::Options(std::string command, std::string places, std::string about)
    : command_(std::move(command)), place_names_(std::move(places)), about_(std::move(about)) {}

void Options::Add(std::string name, std::string value_name, std::string help,
                  std::function<absl::Status(const std::string&)> set) {
  options_.push_back({std::move(name), std::move(value_name), std::move(help), std::move(set)});
}

void Options::Switch(std::string name, bool* value, std::string help) {
  Add(std::move(name), "", std::move(help), [value](const std::string&) {
    *value = true;
    return absl::OkStatus();
  });
}

void Options::Text(std::string name, std::string value_name, std::string* value, std::string help) {
  Add(std::move(name), std::move(value_name), std::move(help), [value](const std::string& text) {
    *value = text;
    return absl::OkStatus();
  });
}

void Options::List(std::string name, std::string value_name, std::vector<std::string>* value,
                   std::string help) {
  Add(std::move(name), std::move(value_name), std::move(help), [value](const std::string& text) {
    value->clear();
    for (const absl::string_view part : absl::StrSplit(text, ',')) {
      if (part.empty()) return absl::InvalidArgumentError("has an empty element");
      value->emplace_back(part);
    }
    return absl::OkStatus();
  });
}

void Options::Number(std::string name, std::string value_name, uint64_t* value, uint64_t min,
                     uint64_t max, std::string help) {
  Add(std::move(name), std::move(value_name), std::move(help),
      [value, min, max](const std::string& text) -> absl::Status {
        uint64_t number = 0;
        if (!absl::SimpleAtoi(text, &number) || number < min || number > max) {
          return absl::InvalidArgumentError(
              absl::StrFormat("must be a whole number from %u to %u", min, max));
        }
        *value = number;
        return absl::OkStatus();
      });
}

void Options::Bytes(std::string name, std::string value_name, uint64_t* value, std::string help) {
  Add(std::move(name), std::move(value_name), std::move(help),
      [value](const std::string& text) -> absl::Status {
        SALIUS_ASSIGN_OR_RETURN(*value, ParseBytes(text));
        return absl::OkStatus();
      });
}

void Options::Micros(std::string name, std::string value_name, uint64_t* value, std::string help) {
  Add(std::move(name), std::move(value_name), std::move(help),
      [value](const std::string& text) { return SetDuration(text, value, 1); });
}

void Options::Millis(std::string name, std::string value_name, uint64_t* value, std::string help) {
  Add(std::move(name), std::move(value_name), std::move(help),
      [value](const std::string& text) { return SetDuration(text, value, 1000); });
}

void Options::Note(std::string text) { notes_.push_back(std::move(text)); }

Options::Option* Options::Find(std::string_view name) {
  const auto at = std::find_if(options_.begin(), options_.end(),
                               [name](const Option& option) { return option.name == name; });
  return at == options_.end() ? nullptr : &*at;
}

bool Options::Given(std::string_view name) const {
  return std::any_of(options_.begin(), options_.end(),
                     [name](const Option& option) { return option.name == name && option.given; });
}

absl::Status Options::Wrong(std::string_view message) const {
  return absl::InvalidArgumentError(
      absl::StrFormat("%s (see salius %s --help)", message, command_));
}

absl::Status Options::Parse(absl::Span<const std::string> words, size_t min_places,
                            size_t max_places) {
  bool options_ended = false;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (options_ended || word.size() < 2 || word[0] != '-') {
      places_.push_back(word);
      continue;
    }
    if (word == "--") {
      options_ended = true;
      continue;
    }
    if (word == "--help" || word == "-h") {
      help_wanted_ = true;
      return absl::OkStatus();
    }
    const size_t equals = word.find('=');
    const std::string dashed = word.substr(0, equals);
    Option* const option = dashed.starts_with("--") ? Find(dashed.substr(2)) : nullptr;
    if (option == nullptr) return Wrong(absl::StrCat("there is no option ", dashed));
    if (option->given) return Wrong(absl::StrCat(dashed, " is given twice"));
    option->given = true;
    std::string value;
    if (option->value_name.empty()) {
      if (equals != std::string::npos) return Wrong(absl::StrCat(dashed, " takes no value"));
    } else if (equals != std::string::npos) {
      value = word.substr(equals + 1);
    } else if (++i < words.size()) {
      value = words[i];
    } else {
      return Wrong(absl::StrCat(dashed, " needs a value: ", option->value_name));
    }
    if (const absl::Status set = option->set(value); !set.ok()) {
      return Wrong(absl::StrCat(dashed, " \"", value, "\": ", set.message()));
    }
  }
  if (places_.size() < min_places) return Wrong(absl::StrCat("missing argument: ", place_names_));
  if (places_.size() > max_places) {
    return Wrong(absl::StrCat("unexpected argument \"", places_[max_places], "\""));
  }
  return absl::OkStatus();
}

std::string Options::Help() const {
  std::string text =
      absl::StrFormat("usage: salius %s [OPTION]... %s\n\n%s\n\n", command_, place_names_, about_);
  const auto add = [&text](const std::string& left, const std::string& help) {
    absl::StrAppendFormat(&text, "  %-*s", kHelpColumn - 2, left);
    if (left.size() + 2 >= kHelpColumn) absl::StrAppendFormat(&text, "\n%*s", kHelpColumn, "");
    bool first = true;
    for (const absl::string_view line : absl::StrSplit(help, '\n')) {
      if (!first) absl::StrAppendFormat(&text, "%*s", kHelpColumn, "");
      absl::StrAppend(&text, line, "\n");
      first = false;
    }
  };
  for (const Option& option : options_) {
    const std::string value = option.value_name.empty() ? "" : absl::StrCat(" ", option.value_name);
    add(absl::StrCat("--", option.name, value), option.help);
  }
  add("--help", "this text");
  for (const std::string& note : notes_) absl::StrAppend(&text, "\n", note, "\n");
  return text;
}

}  // namespace salius::cli
