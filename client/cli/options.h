// The options of one subcommand: their names, their meanings and the variables that get their
// values. The help text comes from the table that is parsed, so the two cannot differ.
//
//   Options options("bench", "PATH", "Measures synchronous writes.");
//   options.Bytes("size", "N", &size, "bytes per write");
//   SALIUS_RETURN_IF_ERROR(options.Parse(words));
//   if (options.help_wanted()) ...
//
// "--name VALUE" and "--name=VALUE" are the same; "--" ends the options. The default of an option
// is the value that its variable holds at registration.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace salius::cli {

class Options {
 public:
  // `places` names the arguments without a dash in the usage line, "" for none.
  Options(std::string command, std::string places, std::string about);

  void Switch(std::string name, bool* value, std::string help);
  void Text(std::string name, std::string value_name, std::string* value, std::string help);
  // Registers a comma-separated list; an empty element is an error.
  void List(std::string name, std::string value_name, std::vector<std::string>* value,
            std::string help);
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

  // Sets the variables. INVALID_ARGUMENT names the mistake and points to --help. Unless help is
  // wanted, more than `max_places` or fewer than `min_places` arguments are an error too.
  absl::Status Parse(absl::Span<const std::string> words, size_t min_places, size_t max_places);

  bool help_wanted() const { return help_wanted_; }
  // Returns whether the option was given.
  bool Given(std::string_view name) const;
  const std::vector<std::string>& places() const { return places_; }
  std::string Help() const;

 private:
  struct Option {
    std::string name;
    std::string value_name;  // empty: a switch
    std::string help;
    std::function<absl::Status(const std::string&)> set;
    bool given = false;
  };
  void Add(std::string name, std::string value_name, std::string help,
           std::function<absl::Status(const std::string&)> set);
  Option* Find(std::string_view name);
  absl::Status Wrong(std::string_view message) const;

  std::string command_, place_names_, about_;
  std::vector<std::string> notes_;
  std::vector<Option> options_;
  std::vector<std::string> places_;
  bool help_wanted_ = false;
};

}  // namespace salius::cli
