// What `salius doctor` found, one line each: OK, WARN (works, but), or FAIL (does not work), the
// last two with what to do about it.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <string>
#include <vector>

namespace salius::cli {

enum class Level { kOk, kWarn, kFail };

struct Finding {
  Level level = Level::kOk;
  std::string name;    // what was looked at
  std::string detail;  // what it is
  std::string advice;  // what to do; empty when OK
};

class Findings {
 public:
  void Ok(std::string name, std::string detail);
  void Warn(std::string name, std::string detail, std::string advice);
  void Fail(std::string name, std::string detail, std::string advice);

  const std::vector<Finding>& all() const { return findings_; }
  bool AnyFail() const;
  // One line per finding, its advice below it, and a last line that counts.
  std::string ToText() const;
  std::string ToJson() const;

 private:
  std::vector<Finding> findings_;
};

}  // namespace salius::cli
