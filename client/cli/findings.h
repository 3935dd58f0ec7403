// The findings of `salius doctor`, one line each: OK, WARN (works, with a limitation) or FAIL (does
// not work). WARN and FAIL say what to do about it.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <string>
#include <vector>

namespace salius::cli {

enum class Level { kOk, kWarn, kFail };

struct Finding {
  Level level = Level::kOk;
  std::string name;    // the thing that was examined
  std::string detail;  // its state
  std::string advice;  // what to do; empty when OK
};

class Findings {
 public:
  void Ok(std::string name, std::string detail);
  void Warn(std::string name, std::string detail, std::string advice);
  void Fail(std::string name, std::string detail, std::string advice);

  const std::vector<Finding>& all() const { return findings_; }
  bool AnyFail() const;
  // Returns one line per finding, its advice below it, and a last line with the counts.
  std::string ToText() const;
  std::string ToJson() const;

 private:
  std::vector<Finding> findings_;
};

}  // namespace salius::cli
