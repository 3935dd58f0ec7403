#include "client/cli/findings.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/json.h"

namespace salius::cli {
namespace {

std::string_view LevelName(Level level) {
  switch (level) {
    case Level::kOk:
      return "OK";
    case Level::kWarn:
      return "WARN";
    case Level::kFail:
      return "FAIL";
  }
  return "?";
}

}  // namespace

void Findings::Ok(std::string name, std::string detail) {
  findings_.push_back({Level::kOk, std::move(name), std::move(detail), ""});
}

void Findings::Warn(std::string name, std::string detail, std::string advice) {
  findings_.push_back({Level::kWarn, std::move(name), std::move(detail), std::move(advice)});
}

void Findings::Fail(std::string name, std::string detail, std::string advice) {
  findings_.push_back({Level::kFail, std::move(name), std::move(detail), std::move(advice)});
}

bool Findings::AnyFail() const {
  return std::any_of(findings_.begin(), findings_.end(),
                     [](const Finding& finding) { return finding.level == Level::kFail; });
}

std::string Findings::ToText() const {
  std::string text;
  int counts[3] = {0, 0, 0};
  for (const Finding& finding : findings_) {
    ++counts[static_cast<int>(finding.level)];
    absl::StrAppendFormat(&text, "%-5s %s: %s\n", LevelName(finding.level), finding.name,
                          finding.detail);
    if (!finding.advice.empty()) absl::StrAppendFormat(&text, "      -> %s\n", finding.advice);
  }
  absl::StrAppendFormat(&text, "%d OK, %d WARN, %d FAIL\n", counts[0], counts[1], counts[2]);
  return text;
}

std::string Findings::ToJson() const {
  Json values = Json::array();
  for (const Finding& finding : findings_) {
    values.push_back(Json{{"level", LevelName(finding.level)},
                          {"name", finding.name},
                          {"detail", finding.detail},
                          {"advice", finding.advice}});
  }
  return JsonLine(values);
}

}  // namespace salius::cli
