// The place of the promise file: a seam, so that the rules run over memory in tests.
//
// Threads: one call at a time.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file.h"

namespace salius {

class PromiseStore {
 public:
  virtual ~PromiseStore() = default;
  // Returns the content written last. NOT_FOUND when nothing was ever written, or it is gone.
  virtual absl::StatusOr<std::string> Read() = 0;
  // Replaces the content; it is on the disk when this returns. After an error it is the old content
  // or the new.
  virtual absl::Status Write(const std::string& bytes) = 0;
  // Puts the content that Read() returned aside, for an administrator to look at.
  virtual void SetAside() = 0;
  // Returns the store's name, for messages.
  virtual std::string name() const = 0;
};

// `<dir>/promises`, held by one process at a time.
class PromiseDir final : public PromiseStore {
 public:
  PromiseDir(const PromiseDir&) = delete;
  PromiseDir& operator=(const PromiseDir&) = delete;
  // Makes the directory when it is missing, so that it survives a power cut. UNAVAILABLE when
  // another process holds it, PERMISSION_DENIED when it is not this user's; each gives the remedy.
  static absl::StatusOr<std::unique_ptr<PromiseDir>> Open(const std::string& dir);

  absl::StatusOr<std::string> Read() override { return promises_.Read(); }
  absl::Status Write(const std::string& bytes) override { return promises_.Write(bytes); }
  void SetAside() override { promises_.SetAside(); }
  std::string name() const override { return promises_.name(); }
  // Returns the store of the file of owners, `<dir>/owners`. It must not outlive this one.
  PromiseStore& owners() { return owners_; }
  // Whether the directory is on tmpfs, so that a reboot removes it.
  bool on_tmpfs() const { return on_tmpfs_; }

 private:
  // A file of the directory.
  class File final : public PromiseStore {
   public:
    File(const PromiseDir& dir, std::string file) : dir_(dir), file_(std::move(file)) {}
    absl::StatusOr<std::string> Read() override;
    absl::Status Write(const std::string& bytes) override;
    void SetAside() override;
    std::string name() const override;

   private:
    const PromiseDir& dir_;
    const std::string file_;
  };
  explicit PromiseDir(std::string path) : path_(std::move(path)) {}

  const std::string path_;
  UniqueFd dir_, lock_;
  File promises_{*this, "promises"};
  File owners_{*this, "owners"};
  bool on_tmpfs_ = false;
};

}  // namespace salius
