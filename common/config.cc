#include "common/config.h"

// Where assertions are on, the library aborts on some malformed text; without them it gives a parse
// error.
#define TOML_ASSERT(expr) static_assert(true)
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/check.h"
#include "common/file.h"
#include "common/strings.h"

namespace salius {
namespace {

struct Unit {
  std::string_view name;
  uint64_t bytes;
};

constexpr Unit kUnits[] = {
    {"", 1},
    {"B", 1},
    {"K", uint64_t{1} << 10},
    {"KiB", uint64_t{1} << 10},
    {"M", uint64_t{1} << 20},
    {"MiB", uint64_t{1} << 20},
    {"G", uint64_t{1} << 30},
    {"GiB", uint64_t{1} << 30},
    {"T", uint64_t{1} << 40},
    {"TiB", uint64_t{1} << 40},
    {"kB", 1'000},
    {"MB", 1'000'000},
    {"GB", 1'000'000'000},
    {"TB", 1'000'000'000'000},
};

// Returns the edit distance of two keys, for the suggestion beside an unknown one.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

// Joins a key to its prefix. A key whose parts would not survive in a dotted path is shown, and
// looked up, unchanged.
std::string Join(const std::string& prefix, std::string_view key) {
  return prefix.empty() ? std::string(key) : absl::StrFormat("%s.%s", prefix, key);
}

}  // namespace

absl::StatusOr<uint64_t> ParseBytes(std::string_view text) {
  const auto invalid = [&](const char* why) {
    return absl::InvalidArgumentError(absl::StrFormat("size \"%s\": %s", text, why));
  };
  uint64_t number = 0;
  size_t i = 0;
  for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
    if (__builtin_mul_overflow(number, uint64_t{10}, &number) ||
        __builtin_add_overflow(number, static_cast<uint64_t>(text[i] - '0'), &number)) {
      return invalid("too large");
    }
  }
  if (i == 0) return invalid("expected a number and a unit, as in \"64MiB\"");
  const std::string_view unit = text.substr(i);
  const auto* found = std::find_if(std::begin(kUnits), std::end(kUnits),
                                   [&](const Unit& u) { return u.name == unit; });
  if (found == std::end(kUnits)) {
    return invalid("unknown unit (B, KiB, MiB, GiB, TiB, kB, MB, GB, TB)");
  }
  if (__builtin_mul_overflow(number, found->bytes, &number)) return invalid("too large");
  return number;
}

absl::StatusOr<int64_t> ParseDurationUs(std::string_view text) {
  const auto invalid = [&](const char* why) {
    return absl::InvalidArgumentError(absl::StrFormat("duration \"%s\": %s", text, why));
  };
  absl::Duration duration;
  if (!absl::ParseDuration(Av(text), &duration)) {
    return invalid("expected a number and a unit, as in \"50ms\" (us, ms, s, m, h)");
  }
  if (duration < absl::ZeroDuration()) return invalid("negative");
  // Beyond this ToInt64Microseconds would saturate.
  if (duration > absl::Microseconds(INT64_MAX)) return invalid("too long");
  const int64_t us = absl::ToInt64Microseconds(duration);
  if (absl::Microseconds(us) != duration) return invalid("finer than a microsecond");
  return us;
}

std::string BytesText(uint64_t bytes) {
  for (const char* unit : {"", "KiB", "MiB", "GiB"}) {
    if (bytes == 0 || bytes % 1024 != 0) return absl::StrCat(bytes, unit);
    bytes /= 1024;
  }
  return absl::StrCat(bytes, "TiB");
}

std::string DurationText(int64_t us) {
  constexpr std::pair<const char*, int64_t> kSteps[] = {
      {"us", 1000}, {"ms", 1000}, {"s", 60}, {"m", 60}};
  if (us == 0) return "0s";
  for (const auto& [unit, step] : kSteps) {
    if (us % step != 0) return absl::StrCat(us, unit);
    us /= step;
  }
  return absl::StrCat(us, "h");
}

struct ConfigReader::Impl {
  toml::table root;
  std::string source;
  std::set<std::string, std::less<>> known;              // Every key asked for.
  std::vector<std::pair<uint32_t, std::string>> errors;  // Line (0: none) and text.

  const toml::node* Find(std::string_view key) const { return toml::at_path(root, key).node(); }

  // Returns the node of a key, which now counts as known, or null.
  const toml::node* Ask(std::string_view key) {
    known.emplace(key);
    return Find(key);
  }

  void Error(const toml::node* node, std::string text) {
    errors.emplace_back(node == nullptr ? 0 : node->source().begin.line, std::move(text));
  }

  // Returns the value of the key if it is there and of type T; another type is an error.
  template <typename T>
  std::optional<T> Get(std::string_view key, const char* expected) {
    const toml::node* node = Ask(key);
    if (node == nullptr) return std::nullopt;
    std::optional<T> value = node->value_exact<T>();
    if (!value) Error(node, absl::StrFormat("%s: expected %s", key, expected));
    return value;
  }

  template <typename T>
  T InRange(std::string_view key, T value, T default_value, T min, T max, const char* unit) {
    if (value >= min && value <= max) return value;
    Error(Find(key), absl::StrCat(Av(key), ": must be from ", min, " to ", max, unit));
    return default_value;
  }

  void FindUnknown(const toml::node& node, const std::string& path);
  void Unknown(const toml::node& node, const std::string& path);
  std::string Text(uint32_t line, std::string_view message) const;
};

void ConfigReader::Impl::FindUnknown(const toml::node& node, const std::string& path) {
  if (const toml::table* table = node.as_table(); table != nullptr) {
    for (const auto& [key, child] : *table) FindUnknown(child, Join(path, key.str()));
    return;
  }
  if (!known.contains(path)) Unknown(node, path);
}

void ConfigReader::Impl::Unknown(const toml::node& node, const std::string& path) {
  // Two edits are a slip of the fingers; a third makes another word.
  constexpr size_t kSlip = 2;
  std::string_view nearest;
  size_t best = kSlip + 1;
  for (const std::string& candidate : known) {
    const size_t distance = Distance(path, candidate);
    if (distance < best && distance < path.size()) {
      best = distance;
      nearest = candidate;
    }
  }
  Error(&node, nearest.empty()
                   ? absl::StrFormat("unknown key %s", path)
                   : absl::StrFormat("unknown key %s (did you mean %s?)", path, nearest));
}

std::string ConfigReader::Impl::Text(uint32_t line, std::string_view message) const {
  return line == 0 ? absl::StrFormat("%s: %s", source, message)
                   : absl::StrFormat("%s:%d: %s", source, line, message);
}

ConfigReader::ConfigReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ConfigReader::ConfigReader(ConfigReader&&) noexcept = default;
ConfigReader& ConfigReader::operator=(ConfigReader&&) noexcept = default;
ConfigReader::~ConfigReader() = default;

absl::StatusOr<ConfigReader> ConfigReader::Parse(std::string_view text, std::string_view source) {
  auto impl = std::make_unique<Impl>();
  impl->source = source;
  // Our configuration needs only ASCII, and the library reads past its tables on some other
  // letters.
  const auto odd = std::find_if(text.begin(), text.end(), [](char c) {
    return (c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f ||
           static_cast<unsigned char>(c) >= 0x80;
  });
  if (odd != text.end()) {
    const auto line = 1 + std::count(text.begin(), odd, '\n');
    return absl::InvalidArgumentError(
        impl->Text(static_cast<size_t>(line), "a byte that is not printable ASCII"));
  }
  toml::parse_result result = toml::parse(text, source);
  if (!result) {
    const toml::parse_error& error = result.error();
    return absl::InvalidArgumentError(impl->Text(error.source().begin.line, error.description()));
  }
  impl->root = std::move(result).table();
  return ConfigReader(std::move(impl));
}

absl::StatusOr<ConfigReader> ConfigReader::ParseFile(std::string_view path) {
  SALIUS_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path));
  return Parse(text, path);
}

bool ConfigReader::Has(std::string_view key) const { return impl_->Find(key) != nullptr; }

std::string ConfigReader::String(std::string_view key, std::string_view default_value) {
  return impl_->Get<std::string>(key, "a string").value_or(std::string(default_value));
}

bool ConfigReader::Bool(std::string_view key, bool default_value) {
  return impl_->Get<bool>(key, "true or false").value_or(default_value);
}

int64_t ConfigReader::Int(std::string_view key, int64_t default_value, int64_t min, int64_t max) {
  const std::optional<int64_t> value = impl_->Get<int64_t>(key, "an integer");
  if (!value) return default_value;
  return impl_->InRange(key, *value, default_value, min, max, "");
}

uint64_t ConfigReader::Bytes(std::string_view key, uint64_t default_value, uint64_t min,
                             uint64_t max) {
  const toml::node* node = impl_->Ask(key);
  if (node == nullptr) return default_value;
  uint64_t value;
  if (const auto number = node->value_exact<int64_t>(); number.has_value() && *number >= 0) {
    value = static_cast<uint64_t>(*number);
  } else {
    const auto text = node->value_exact<std::string>();
    const auto parsed = ParseBytes(text.value_or(""));
    if (!parsed.ok()) {
      impl_->Error(node, text ? absl::StrFormat("%s: %s", key, Sv(parsed.status().message()))
                              : absl::StrFormat("%s: expected a size, as in \"64MiB\"", key));
      return default_value;
    }
    value = *parsed;
  }
  return impl_->InRange(key, value, default_value, min, max, " bytes");
}

std::string ConfigReader::Scalar(std::string_view key) {
  const toml::node* node = impl_->Ask(key);
  if (node == nullptr) return "";
  if (const auto number = node->value_exact<int64_t>(); number.has_value()) {
    return absl::StrCat(*number);
  }
  return impl_->Get<std::string>(key, "a text or a whole number").value_or("");
}

int64_t ConfigReader::DurationUs(std::string_view key, int64_t default_value, int64_t min,
                                 int64_t max) {
  const auto text = impl_->Get<std::string>(key, "a duration with its unit, as in \"50ms\"");
  if (!text) return default_value;
  const auto parsed = ParseDurationUs(*text);
  if (!parsed.ok()) {
    AddError(key, Sv(parsed.status().message()));
    return default_value;
  }
  return impl_->InRange(key, *parsed, default_value, min, max, " us");
}

std::vector<std::string> ConfigReader::Strings(std::string_view key,
                                               std::vector<std::string> default_value) {
  const toml::node* node = impl_->Ask(key);
  if (node == nullptr) return default_value;
  const toml::array* array = node->as_array();
  if (array == nullptr || !(array->empty() || array->is_homogeneous<std::string>())) {
    AddError(key, "expected a list of strings");
    return default_value;
  }
  std::vector<std::string> values;
  for (const toml::node& element : *array) values.push_back(**element.as_string());
  return values;
}

std::string ConfigReader::RequiredString(std::string_view key) {
  if (!Has(key)) {
    impl_->known.emplace(key);
    AddError(key, "is required");
    return "";
  }
  const auto value = impl_->Get<std::string>(key, "a string");
  if (value && value->empty()) AddError(key, "must not be empty");
  return value.value_or("");
}

void ConfigReader::AddError(std::string_view key, std::string_view message) {
  impl_->Error(impl_->Find(key), absl::StrFormat("%s: %s", key, message));
}

absl::Status ConfigReader::Finish() {
  impl_->FindUnknown(impl_->root, "");
  std::stable_sort(impl_->errors.begin(), impl_->errors.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> lines;
  for (const auto& [line, message] : impl_->errors) lines.push_back(impl_->Text(line, message));
  impl_->errors.clear();
  if (lines.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(lines, "\n"));
}

}  // namespace salius
