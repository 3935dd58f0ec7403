// Puts the daemon into the background. The parent waits on a pipe until the daemon reports that it
// serves, or why it cannot, and only then returns to the shell. So `mount` and `systemctl start`
// succeed exactly when the mount answers.
//
// Threads: Start before any thread is made; the rest from the main thread.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "common/file.h"

namespace salius {

// Exit codes of mount(8).
inline constexpr int kExitOk = 0;
inline constexpr int kExitUsage = 1;     // wrong options or addresses
inline constexpr int kExitFailure = 32;  // anything else

// Returns the code for an error: kExitUsage for wrong input, kExitFailure for any other failure.
int ExitCodeOf(const absl::Status& status);

class Launcher {
 public:
  // Makes a launcher. Messages name `program`.
  Launcher(std::string program, bool foreground);

  // Forks, unless in the foreground. In the parent it waits, prints the daemon's message on stderr
  // and returns the exit code. In the daemon it returns nothing.
  std::optional<int> Start();

  // Makes stderr of a daemon in the background the file `given_log`, or, if that is empty and
  // stderr is not the journal, `default_log`. From then on messages for the user go through Ready
  // and Fail. A second call does nothing. Errors: the file cannot be opened.
  absl::Status TakeLog(const std::string& given_log, const std::string& default_log);

  // Reports to the parent that the daemon serves. `notice` (may be empty) is for the user. In the
  // background it leaves the terminal, and takes the log as TakeLog does. Errors: as there; then
  // the parent has not been notified.
  absl::Status Ready(const std::string& notice, const std::string& given_log,
                     const std::string& default_log);

  // Reports to the parent that the daemon cannot serve. Returns the exit code.
  int Fail(const absl::Status& status);
  // Returns whether Ready or Fail has been called.
  bool reported() const { return reported_; }

 private:
  void Send(char kind, const std::string& text);
  int AwaitDaemon(int pid, int read_fd);

  const std::string program_;
  const bool foreground_;
  bool reported_ = false;
  bool log_taken_ = false;
  UniqueFd to_parent_;
};

}  // namespace salius
