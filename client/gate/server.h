// The gate socket of a mount: hands out the gate page, registers the processes that take it, and
// has records sent when an output waits (messages.h).
//
// Threads: one of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "client/gate/insiders.h"
#include "client/gate/memory.h"
#include "client/session/record_stream.h"
#include "common/file.h"
#include "common/ids.h"

namespace salius::gate {

class Server {
 public:
  // Has the session send `seq`, and calls `done` when it is durable (RecordStream::NotifyDurable).
  // It must not wait.
  using Notify = std::function<void(Seq seq, DurableCallback done)>;

  // Listens at `path`, to which every user may connect; replaces a socket that a dead daemon left.
  // `memory` and `insiders` outlive the server and every `done`. A path of more than 107 bytes is
  // refused.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const std::string& path, Memory& memory,
                                                       Insiders& insiders, Notify notify);
  // Stops listening, removes the socket and ends every registration.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  const std::string& path() const { return path_; }

 private:
  struct Connection {
    UniqueFd fd;
    bool registered = false;
  };

  Server(std::string path, UniqueFd listener, UniqueFd wake, Memory& memory, Insiders& insiders,
         Notify notify);
  void Loop();
  void Accept();
  // Takes what came on the connection. Returns false when it has ended, or is to be ended.
  bool Take(Connection& connection);
  bool Register(Connection& connection);
  void AwaitFor(Seq seq);

  const std::string path_;
  const UniqueFd listener_;
  const UniqueFd wake_;  // an eventfd: the server stops
  Memory& memory_;
  Insiders& insiders_;
  const Notify notify_;
  std::vector<Connection> connections_;  // of the thread
  std::thread thread_;
};

}  // namespace salius::gate
