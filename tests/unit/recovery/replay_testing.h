// Shared by the tests of replay: the tree that it works on.
#pragma once

#include <string>

#include "recovery/replay/replay.h"
#include "storage/apply.h"
#include "storage/fs_calls.h"
#include "tests/unit/recovery/test_util.h"

namespace salius::recovery {

// Returns the number in an environment variable, or `otherwise`.
inline uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* value = getenv(name);
  return value != nullptr ? strtoull(value, nullptr, 10) : otherwise;
}

// A volume's tree, without a state or a log, for replay.
class Tree {
 public:
  explicit Tree(const std::string& path) : path_(path) {
    for (const char* dir : {"/.salius", "/.salius/tmp", "/.salius/open"}) {
      SALIUS_CHECK(mkdir((path_ + dir).c_str(), 0700) == 0 || Exists(path_ + dir));
    }
    root_ = MustOpen(path_);
    salius_ = MustOpen(path_ + "/.salius");
  }
  const std::string& path() const { return path_; }
  std::string At(const std::string& name) const { return path_ + "/" + name; }

  // Gives the object an id, as a session does.
  void SetId(const std::string& name, FileId id) {
    const UniqueFd fd = MustOpen(At(name), O_PATH | O_NOFOLLOW);
    SALIUS_CHECK_OK(WriteFileId(fd.get(), id));
  }
  FileId IdOf(const std::string& name) const {
    const UniqueFd fd = MustOpen(At(name), O_PATH | O_NOFOLLOW);
    return *ReadFileId(fd.get());
  }
  FileHandle HandleAt(const std::string& name) const { return *HandleOf(AT_FDCWD, At(name), 0); }
  struct stat Stat(const std::string& name) const {
    struct stat st;
    SALIUS_CHECK(lstat(At(name).c_str(), &st) == 0) << name;
    return st;
  }

  absl::Status Run(const Stamper& stamper) {
    const RecordSet set = SetOf(stamper.all());
    const std::vector<const RecordView*> records = PointersTo(set);
    SALIUS_CHECK_OK(PlanReplay(records));
    report = RecoveryReport();
    return ReplayRecords(records, &report, [this](const ReplayPlan& plan) { return Attempt(plan); })
        .status();
  }
  absl::Status RunPlan(const ReplayPlan& plan) { return Attempt(plan).status(); }
  ReplayResult Attempt(const ReplayPlan& plan) {
    ReplayContext context;
    context.root_fd = root_.get();
    context.salius_fd = salius_.get();
    context.force = force;
    context.step = [this](RecoveryStep) -> absl::Status {
      ++steps_;
      if (steps_ == crash_at) return absl::AbortedError("crash");
      if (steps_ == full_at) return ErrnoStatus(ENOSPC, "step");
      return absl::OkStatus();
    };
    context.progress = [](const RecoveryProgress&) {};
    std::vector<std::string> refused = std::move(report.refused);
    report = RecoveryReport();
    report.refused = std::move(refused);
    context.report = &report;
    steps_ = 0;
    return Replay(context, plan);
  }
  int steps() const { return steps_; }
  absl::Status Clean() {
    ReplayContext context;
    context.salius_fd = salius_.get();
    context.report = &report;
    return CleanSaliusDir(context);
  }

  bool force = false;
  int crash_at = 0;
  int full_at = 0;  // the step at which the disk reports that it is full
  RecoveryReport report;

 private:
  std::string path_;
  UniqueFd root_, salius_;
  int steps_ = 0;
};

}  // namespace salius::recovery
