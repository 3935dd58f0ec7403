// Into the background: the parent waits on a pipe until the daemon says that it serves, or why it
// cannot, and only then returns to the shell. So `mount` and `systemctl start` succeed exactly when
// the mount answers.
//
// Threads: Start before any thread is made; the rest from the main thread.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "common/file.h"

namespace salius {

// Exit codes, as mount(8) has them.
inline constexpr int kExitOk = 0;
inline constexpr int kExitUsage = 1;     // wrong options or addresses
inline constexpr int kExitFailure = 32;  // anything else

// The code for an error: kExitUsage for what the caller wrote, kExitFailure for what happened.
int ExitCodeOf(const absl::Status& status);

class Launcher {
 public:
  // `program` is named in messages.
  Launcher(std::string program, bool foreground);

  // Forks, unless in the foreground. In the parent: waits and returns the exit code, with what the
  // daemon said on stderr. In the daemon: nothing.
  std::optional<int> Start();

  // In the daemon, in the background: stderr becomes the file `given_log`, or, if that is empty and
  // stderr is not the journal, `default_log`. What the person who mounts must know goes to Ready and
  // Fail from then on. A second call does nothing. Errors: the file cannot be opened.
  absl::Status TakeLog(const std::string& given_log, const std::string& default_log);

  // In the daemon: it serves. `notice` (may be empty) is for the person who mounts. In the
  // background it leaves the terminal, and takes the log as TakeLog does. Errors: as there; then the
  // parent has been told nothing.
  absl::Status Ready(const std::string& notice, const std::string& given_log,
                     const std::string& default_log);

  // In the daemon: it cannot serve. Returns the exit code.
  int Fail(const absl::Status& status);
  // Ready or Fail has been called.
  bool told() const { return told_; }

 private:
  void Tell(char kind, const std::string& text);
  int AwaitDaemon(int pid, int read_fd);

  const std::string program_;
  const bool foreground_;
  bool told_ = false;
  bool log_taken_ = false;
  UniqueFd to_parent_;
};

}  // namespace salius
