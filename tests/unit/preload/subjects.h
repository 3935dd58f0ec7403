// Runs programs under the preload library of the tests, by the real dynamic linker.
#pragma once

#include <string>
#include <vector>

namespace salius::preload {

// A fresh volume, and the record of what the library did for the programs that ran on it.
class SubjectRun {
 public:
  SubjectRun();
  ~SubjectRun();

  // An entry NAME=value for the program's environment, in the place of one with its name.
  void Set(std::string entry) { entries_.push_back(std::move(entry)); }
  // Runs `program` (of this package) with `arguments` in the volume, for at most a minute. Returns
  // its exit code; 128 and the signal's number when a signal ended it.
  int Run(const std::string& program, const std::vector<std::string>& arguments);

  const std::string& volume() const { return volume_; }
  // Returns the path of a file of this package.
  static std::string PathOf(const std::string& name);

  // Returns the lines of the record. The six letters of a temporary file's name are "*".
  std::vector<std::string> Record() const;
  // Returns what the programs wrote to standard error.
  std::string Messages() const;

 private:
  std::string folder_;
  std::string volume_;
  std::vector<std::string> entries_;
};

}  // namespace salius::preload
