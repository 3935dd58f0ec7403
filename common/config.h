// Configuration in TOML.
//
//   SALIUS_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::ParseFile(path));
//   options.listen = config.String("listen", "127.0.0.1:7400");
//   options.memory = config.Bytes("memory.limit", 1 << 30, 1 << 20, UINT64_MAX);
//   SALIUS_RETURN_IF_ERROR(config.Finish());
//
// Keys are dotted paths ("memory.limit"); the i-th table of an array of tables is "replica[i]". The
// getters never fail: an error is kept, the default is returned, and Finish() reports all errors.
#ifndef SALIUS_COMMON_CONFIG_H_
#define SALIUS_COMMON_CONFIG_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace salius {

// Parses "4096", "512B", "64KiB" (or "64K"), "96MiB", "2GiB", "1TiB". "10kB", "10MB", "10GB" and
// "10TB" are powers of ten. INVALID_ARGUMENT for anything else and for more than 64 bits can hold.
absl::StatusOr<uint64_t> ParseBytes(std::string_view text);

// Parses "500us", "50ms", "1.5s", "2m", "1h", "1m30s" into microseconds. A unit is required, except
// for "0". INVALID_ARGUMENT for anything else: negative, infinite, or not a whole number of
// microseconds.
absl::StatusOr<int64_t> ParseDurationUs(std::string_view text);

// Return the shortest text that ParseBytes or ParseDurationUs reads as this value: "64MiB", "1472";
// "50ms", "24h". `us` is at least 0.
std::string BytesText(uint64_t bytes);
std::string DurationText(int64_t us);

// Not thread-safe.
class ConfigReader {
 public:
  // Parses TOML. `source` names the text in messages. INVALID_ARGUMENT with source and line for bad
  // TOML.
  static absl::StatusOr<ConfigReader> Parse(std::string_view text, std::string_view source);
  static absl::StatusOr<ConfigReader> ParseFile(std::string_view path);

  ConfigReader(ConfigReader&&) noexcept;
  ConfigReader& operator=(ConfigReader&&) noexcept;
  ~ConfigReader();

  // Whether the key is there, of any type. Does not count as reading it.
  bool Has(std::string_view key) const;

  // Each returns the value of the key, or the default when it is missing. A value of another type
  // or out of its range (both ends allowed) is an error.
  std::string String(std::string_view key, std::string_view default_value);
  bool Bool(std::string_view key, bool default_value);
  int64_t Int(std::string_view key, int64_t default_value, int64_t min, int64_t max);
  // Reads a text for ParseBytes(), or an integer of bytes.
  uint64_t Bytes(std::string_view key, uint64_t default_value, uint64_t min, uint64_t max);
  // Reads a text or an integer, which is returned as text; "" when it is missing.
  std::string Scalar(std::string_view key);
  // Reads a text for ParseDurationUs(); in microseconds.
  int64_t DurationUs(std::string_view key, int64_t default_value, int64_t min, int64_t max);
  std::vector<std::string> Strings(std::string_view key, std::vector<std::string> default_value);

  // Reads a value that must be there and not be empty; otherwise it is an error.
  std::string RequiredString(std::string_view key);

  // Keeps an error found by the caller about the value of a key, with its line.
  void AddError(std::string_view key, std::string_view message);

  // Returns OK when every value was good and every key of the text has been asked for. Otherwise
  // INVALID_ARGUMENT with a line "source:line: ..." for each problem. An unknown key comes with the
  // nearest one that was asked for.
  absl::Status Finish();

 private:
  struct Impl;
  explicit ConfigReader(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace salius

#endif  // SALIUS_COMMON_CONFIG_H_
