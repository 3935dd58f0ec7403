// Gives processes of a direct volume's command what they need to take part
// (client/direct/process/attach.h), and knows when the last of them has ended.
//
// Only processes of the same user, and root's, are let in, and only from the PID namespace of this
// process: the kernel knows the owner of a robust lock by its thread id in its own namespace. When a
// waiter is killed whose id is that of the living owner in another namespace, the kernel marks that
// owner as dead.
//
// Threads: one of its own. Every method may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/file.h"

namespace salius::direct {

class AttachServer {
 public:
  // Listens at `path`, a socket of mode 0600; replaces one that a dead process left: the caller
  // holds the volume's lock. `descriptors`: as AttachReply's, kAttachDescriptors of them; they
  // outlive it.
  static absl::StatusOr<std::unique_ptr<AttachServer>> Start(const std::string& path,
                                                             uint64_t window_bytes,
                                                             const int* descriptors);
  // Stops listening, removes the socket and closes the connections.
  ~AttachServer();
  AttachServer(const AttachServer&) = delete;
  AttachServer& operator=(const AttachServer&) = delete;

  // Lets the session end with its last process. Until then processes may come and go.
  void Release();
  // Returns when Release was called and every process that attached has ended. From then on no
  // process is let in: a later one finds no socket. The last connection stays open until the
  // destructor, so that its process, which waits for the end of the drain, reads end of file then.
  void AwaitLast();
  // Returns the number of connections now.
  size_t connections() const;

 private:
  AttachServer(std::string path, UniqueFd listener, UniqueFd wake, uint64_t window_bytes,
               const int* descriptors);
  void Loop();
  void Accept();
  // Makes the loop look at held_ and stopping_.
  void Wake();
  // Notes the end of the session if it has come. Returns whether the loop ends.
  bool Ends() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string path_;
  UniqueFd listener_;
  const UniqueFd wake_;  // an eventfd
  const uint64_t window_bytes_;
  const int* const descriptors_;
  mutable absl::Mutex mu_;
  std::vector<UniqueFd> connections_ ABSL_GUARDED_BY(mu_);
  bool held_ ABSL_GUARDED_BY(mu_) = true;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  UniqueFd last_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace salius::direct
