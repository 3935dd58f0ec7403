#include "common/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/check.h"
#include "common/config.h"
#include "common/strings.h"

namespace salius {
namespace {

// Column at which the explanations begin in the help.
constexpr size_t kHelpColumn = 28;

// The usage line names the arguments without a dash; they need no list.
class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(std::string usage) : usage_(std::move(usage)) {
    column_width(kHelpColumn);
  }
  std::string make_usage(const CLI::App*, std::string) const override {
    return absl::StrFormat("\n%s\n", usage_);
  }
  std::string make_positionals(const CLI::App*) const override { return ""; }

 private:
  const std::string usage_;
};

// Returns "f,foreground" as CLI11 writes it, "-f,--foreground". A name alone is a long one ("--k").
std::string Dashed(const std::string& names) {
  const size_t comma = names.find(',');
  if (comma == std::string::npos) return absl::StrCat("--", names);
  const std::string letter = absl::StrCat("-", names.substr(0, comma));
  const std::string name = names.substr(comma + 1);
  return name.empty() ? letter : absl::StrCat(letter, ",--", name);
}

absl::Status SetDuration(const std::string& text, uint64_t* value, uint64_t unit_us) {
  SALIUS_ASSIGN_OR_RETURN(const int64_t us, ParseDurationUs(text));
  if (us > 0 && static_cast<uint64_t>(us) < unit_us) {
    return absl::InvalidArgumentError("must be at least 1ms");
  }
  *value = static_cast<uint64_t>(us) / unit_us;
  return absl::OkStatus();
}

}  // namespace

struct Options::Option {
  std::string name;        // the long one, or the letter where that is all
  std::string dashed;      // as messages write it: "--name", "-n"
  std::string value_name;  // empty: a switch
  Setter set;
  bool whole_number = false;  // also an integer in a file
  CLI::Option* parsed = nullptr;
};

struct Options::Parser {
  CLI::App app;
  std::string config;  // here because its address is kept: the table may be moved
};

Options::Options(std::string program, std::string places, std::string about)
    : program_(std::move(program)),
      place_names_(std::move(places)),
      parser_(std::make_unique<Parser>()) {
  CLI::App& app = parser_->app;
  app.name(program_);
  app.description(std::move(about));
  app.formatter(std::make_shared<HelpFormatter>(Usage()));
  app.set_help_flag("-h,--help", "this text");
}

Options::~Options() = default;
Options::Options(Options&&) noexcept = default;

Options::Option& Options::Add(std::string name, std::string value_name, std::string help,
                              Setter set) {
  CLI::App& app = parser_->app;
  CLI::Option* const parsed =
      value_name.empty() ? app.add_flag(Dashed(name)) : app.add_option(Dashed(name));
  parsed->description(std::move(help));
  if (value_name.empty()) {
    parsed->disable_flag_override();
  } else {
    parsed->type_name(value_name);
  }
  const std::string dashed = parsed->get_name();
  options_.push_back({.name = dashed.substr(dashed.find_first_not_of('-')),
                      .dashed = dashed,
                      .value_name = std::move(value_name),
                      .set = std::move(set),
                      .parsed = parsed});
  return options_.back();
}

void Options::Switch(std::string name, bool* value, std::string help) {
  Add(std::move(name), "", std::move(help), [value](const std::string& text) {
    *value = text == "true";
    return absl::OkStatus();
  });
}

void Options::Value(std::string name, std::string value_name, Setter set, std::string help) {
  Add(std::move(name), std::move(value_name), std::move(help), std::move(set));
}

void Options::Size(std::string name, std::string value_name, Setter set, std::string help) {
  Add(std::move(name), std::move(value_name), std::move(help), std::move(set)).whole_number = true;
}

void Options::Text(std::string name, std::string value_name, std::string* value, std::string help) {
  Add(std::move(name), std::move(value_name), std::move(help), [value](const std::string& text) {
    *value = text;
    return absl::OkStatus();
  });
}

void Options::Text(std::string name, std::string value_name, std::optional<std::string>* value,
                   std::string help) {
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

void Options::Repeated(std::string name, std::string value_name, std::vector<std::string>* values,
                       std::string help) {
  Option& option = Add(std::move(name), std::move(value_name), std::move(help),
                       [values](const std::string& text) {
                         values->push_back(text);
                         return absl::OkStatus();
                       });
  option.parsed->type_size(1)->expected(1, CLI::detail::expected_max_vector_size);
  option.parsed->option_text(option.value_name);  // CLI11 would add " ..."
  option.parsed->allow_extra_args(false)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void Options::LogLevel(std::string* value) {
  const std::string help = absl::StrCat("least severe messages that are logged (", *value, ")");
  Choice("log-level", {"debug", "info", "warn", "error", "off"}, value, help);
}

void Options::Choice(std::string name, std::vector<std::string> choices, std::string* value,
                     std::string help) {
  std::string value_name = absl::StrJoin(choices, "|");
  Add(std::move(name), std::move(value_name), std::move(help),
      [value, choices = std::move(choices)](const std::string& text) -> absl::Status {
        if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
          return absl::InvalidArgumentError(
              absl::StrCat("allowed are ", absl::StrJoin(choices, ", ")));
        }
        *value = text;
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
      })
      .whole_number = true;
}

void Options::Bytes(std::string name, std::string value_name, uint64_t* value, std::string help) {
  Add(std::move(name), std::move(value_name), std::move(help),
      [value](const std::string& text) -> absl::Status {
        SALIUS_ASSIGN_OR_RETURN(*value, ParseBytes(text));
        return absl::OkStatus();
      })
      .whole_number = true;
}

void Options::Micros(std::string name, std::string value_name, uint64_t* value, std::string help) {
  Value(
      std::move(name), std::move(value_name),
      [value](const std::string& text) { return SetDuration(text, value, 1); }, std::move(help));
}

void Options::Millis(std::string name, std::string value_name, uint64_t* value, std::string help) {
  Value(
      std::move(name), std::move(value_name),
      [value](const std::string& text) { return SetDuration(text, value, 1000); }, std::move(help));
}

void Options::Note(std::string text) {
  const std::string before = parser_->app.get_footer();
  parser_->app.footer(before.empty() ? std::move(text) : absl::StrCat(before, "\n\n", text));
}

void Options::Version(std::string version) {
  version_ = std::move(version);
  parser_->app.set_version_flag("-V,--version", version_ + "\n", "print the version");
}

void Options::Config(std::string help) { Text("config", "FILE", &parser_->config, std::move(help)); }

bool Options::Given(std::string_view name) const {
  return std::any_of(options_.begin(), options_.end(), [name](const Option& option) {
    return option.name == name && option.parsed->count() > 0;
  });
}

absl::Status Options::Wrong(std::string_view message) const {
  return absl::InvalidArgumentError(absl::StrFormat("%s (see %s --help)", message, program_));
}

std::string Options::Meant(absl::Span<const std::string> words) const {
  for (const std::string& word : words) {
    const std::string given = word.substr(0, word.find('='));
    const std::string meant = absl::StrReplaceAll(given, {{"_", "-"}});
    for (const Option& option : options_) {
      if (given != meant && meant == option.dashed) return absl::StrFormat(" (it is %s)", meant);
    }
  }
  return "";
}

absl::Status Options::ReadConfig(const std::string& path) {
  SALIUS_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::ParseFile(path));
  for (const Option& option : options_) {
    if (option.name == "config") continue;
    const std::string key = absl::StrReplaceAll(option.name, {{"-", "_"}});
    const bool has = config.Has(key);
    std::string value;
    if (option.value_name.empty()) {
      value = config.Bool(key, false) ? "true" : "false";
    } else if (option.whole_number) {
      value = config.Scalar(key);
    } else {
      value = config.String(key, "");
    }
    if (!has || option.parsed->count() > 0) continue;
    if (const absl::Status set = option.set(value); !set.ok()) {
      config.AddError(key, Sv(set.message()));
    }
  }
  return config.Finish();
}

absl::Status Options::SetGiven() {
  for (const Option& option : options_) {
    for (const std::string& value : option.parsed->results()) {
      const absl::Status set = option.set(value);
      if (set.ok()) continue;
      return Wrong(absl::StrFormat("%s \"%s\": %s", option.dashed, value, Sv(set.message())));
    }
  }
  return absl::OkStatus();
}

absl::Status Options::Parse(absl::Span<const std::string> words, size_t min_places,
                            size_t max_places) {
  // CLI11 wants the last word first, and takes an empty value only as a word of its own.
  std::vector<std::string> reversed;
  bool options_ended = false;
  for (const std::string& word : words) {
    options_ended = options_ended || word == "--";
    const bool empty_value = !options_ended && word.starts_with("--") && word.ends_with('=');
    reversed.push_back(empty_value ? word.substr(0, word.size() - 1) : word);
    if (empty_value) reversed.emplace_back();
  }
  std::reverse(reversed.begin(), reversed.end());
  std::vector<CLI::Option*> places;
  for (size_t i = 0; i < max_places; ++i) {
    places.push_back(parser_->app.add_option(absl::StrCat("PLACE", i)));
  }
  try {
    parser_->app.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    answer_ = Help();
    return absl::OkStatus();
  } catch (const CLI::CallForVersion&) {
    answer_ = version_ + "\n";
    return absl::OkStatus();
  } catch (const CLI::ParseError& error) {
    return Wrong(absl::StrCat(error.what(), Meant(words)));
  }
  for (const CLI::Option* place : places) {
    if (place->count() > 0) places_.push_back(place->results()[0]);
  }
  if (places_.size() < min_places) return Wrong(absl::StrCat("missing argument: ", place_names_));
  SALIUS_RETURN_IF_ERROR(SetGiven());
  return parser_->config.empty() ? absl::OkStatus() : ReadConfig(parser_->config);
}

std::string Options::Help() const { return parser_->app.help(); }

std::string Options::Usage() const {
  return absl::StrCat("usage: ", program_, " [OPTION]...", place_names_.empty() ? "" : " ",
                      place_names_);
}

}  // namespace salius
