// The options of a program or of one of its subcommands: their names, their meanings and the
// variables that get their values. The parser (CLI11), the keys of a configuration file and --help
// come from this one table.
//
//   Options options("salius bench", "PATH", "Measures synchronous writes.");
//   options.Bytes("size", "N", &size, "bytes per write");
//   SALIUS_RETURN_IF_ERROR(options.Parse(words, 1, 1));
//   if (options.answer().has_value()) ...
//
// "--name VALUE" and "--name=VALUE" are the same; "--" ends the options. The default of an option
// is the value that its variable holds at registration.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace salius {

class Options {
 public:
  using Setter = std::function<absl::Status(const std::string&)>;

  // `program` is what the user types: "salius bench". `places` names the arguments without a dash
  // in the usage line, "" for none.
  Options(std::string program, std::string places, std::string about);
  ~Options();
  Options(Options&&) noexcept;

  // Each registers an option. A name of two, "f,foreground", is -f and --foreground; a name alone,
  // "k", is --k; a letter and a comma, "f,", is -f alone. `help` is for --help.
  void Switch(std::string name, bool* value, std::string help);
  // `set` gets the text of the value, and returns INVALID_ARGUMENT with what is accepted.
  void Value(std::string name, std::string value_name, Setter set, std::string help);
  // The same for a size, which may be a number of bytes in a file.
  void Size(std::string name, std::string value_name, Setter set, std::string help);
  void Text(std::string name, std::string value_name, std::string* value, std::string help);
  // The same for a text that has no value unless it is given; "" is a value.
  void Text(std::string name, std::string value_name, std::optional<std::string>* value,
            std::string help);
  // Registers a comma-separated list; an empty element is an error.
  void List(std::string name, std::string value_name, std::vector<std::string>* value,
            std::string help);
  // Registers an option that may be given several times: `values` gets each value as it is.
  void Repeated(std::string name, std::string value_name, std::vector<std::string>* values,
                std::string help);
  // Registers a choice of texts: "auto|never" in the help, "auto, never" in an error.
  void Choice(std::string name, std::vector<std::string> choices, std::string* value,
              std::string help);
  // Registers --log-level, for InitLogging (common/log.h).
  void LogLevel(std::string* value);
  // Registers a whole number from `min` to `max`.
  void Number(std::string name, std::string value_name, uint64_t* value, uint64_t min, uint64_t max,
              std::string help);
  // Registers a size: "4096", "64KiB" (common/config.h, ParseBytes).
  void Bytes(std::string name, std::string value_name, uint64_t* value, std::string help);
  // Registers a duration: "50ms", "30s" (ParseDurationUs), in microseconds or, rounded down, in
  // milliseconds.
  void Micros(std::string name, std::string value_name, uint64_t* value, std::string help);
  void Millis(std::string name, std::string value_name, uint64_t* value, std::string help);

  // Adds a paragraph at the end of the help.
  void Note(std::string text);
  // Adds -V and --version.
  void Version(std::string version);
  // Adds --config FILE: a TOML file with the options' names as keys, "_" in place of "-". The
  // command line wins over the file.
  void Config(std::string help);

  // Sets the variables, unless answer() has a value. INVALID_ARGUMENT names the mistake and points
  // to --help: an unknown option, a wrong value, one given twice, more than `max_places` or fewer
  // than `min_places` arguments. An option spelled with underscores is refused with its name.
  absl::Status Parse(absl::Span<const std::string> words, size_t min_places, size_t max_places);

  // Returns what the user asked for in place of the program's work: the text of --help or
  // --version.
  const std::optional<std::string>& answer() const { return answer_; }
  // Returns whether the option was given on the command line.
  bool Given(std::string_view name) const;
  const std::vector<std::string>& places() const { return places_; }
  std::string Help() const;
  // Returns the line "usage: ..." without its end.
  std::string Usage() const;

 private:
  struct Option;
  struct Parser;

  Option& Add(std::string name, std::string value_name, std::string help, Setter set);
  absl::Status Wrong(std::string_view message) const;
  // Returns " (it is --log-max)" when a word is an option's name with underscores, else "".
  std::string Meant(absl::Span<const std::string> words) const;
  // Sets every option that the file has and the command line has not.
  absl::Status ReadConfig(const std::string& path);
  absl::Status SetGiven();

  std::string program_, place_names_, version_;
  std::vector<std::string> places_;
  std::unique_ptr<Parser> parser_;
  std::vector<Option> options_;
  std::optional<std::string> answer_;
};

}  // namespace salius
