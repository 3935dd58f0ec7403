// Shared by the tests of the pipeline: a sink that notes its records, a pipeline on a volume of its
// own, and the outcomes of waits.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "client/gate/page.h"
#include "client/session/pipeline.h"
#include "common/check.h"
#include "common/file.h"
#include "log/stable_log.h"
#include "storage/backing.h"
#include "tests/unit/volume/scratch_fs.h"

namespace salius {

class FakeSink : public ApplySink {
 public:
  absl::StatusOr<size_t> Apply(absl::Span<const RecordRef> records) override {
    while (block_at == records[0]->seq()) {
      blocked = true;
      std::this_thread::yield();
    }
    std::lock_guard<std::mutex> lock(mu_);
    largest = std::max(largest.load(), records.size());
    size_t count = 0;
    for (; count < std::min<size_t>(records.size(), together); ++count) {
      if (fail_apply_at != 0 && records[count]->seq() == fail_apply_at) {
        if (count == 0) return ErrnoStatus(fail_apply_error, "disk");
        break;
      }
      seqs_.push_back(records[count]->seq());
    }
    return count;
  }
  absl::Status SyncApplied() override {
    ++syncs;
    if (in_sync) in_sync();
    return fail_sync ? ErrnoStatus(EIO, "disk") : absl::OkStatus();
  }
  // Returns a lock while which nothing is applied.
  std::unique_lock<std::mutex> Busy() { return std::unique_lock<std::mutex>(mu_); }
  std::vector<Seq> seqs() {
    std::lock_guard<std::mutex> lock(mu_);
    return seqs_;
  }
  std::atomic<Seq> fail_apply_at{0};
  std::atomic<int> fail_apply_error{EIO};
  std::atomic<Seq> block_at{0};  // this record is not applied while it is set
  std::atomic<bool> blocked{false};
  std::atomic<size_t> together{1};  // the most records that it takes at once
  std::atomic<size_t> largest{0};   // the most records that it got at once
  std::atomic<bool> fail_sync{false};
  std::function<void()> in_sync;  // set while nothing is synced
  std::atomic<int> syncs{0};

 private:
  std::mutex mu_;
  std::vector<Seq> seqs_;
};

class PipelineTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/pipeline_test.XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    path_ = name;
    config_ = DefaultVolumeConfig();
    config_.log_max_bytes = 8u << 20;
    config_.stable_log_bytes = 16u << 20;
    config_.ballast_bytes = 0;
    MakeVolume(path_);
  }
  void MakeVolume(const std::string& path) {
    const absl::Status made = CreateVolume(path, config_);
    ASSERT_TRUE(made.ok()) << made;
    auto dir = VolumeDir::Open(path, true);
    ASSERT_TRUE(dir.ok()) << dir.status();
    dir_ = *std::move(dir);
  }
  // Replaces the volume by another one, on an ext4 of its own.
  void MoveToExt4() {
    ext4_ = std::make_unique<ScratchFs>(64 << 20, "mkfs.ext4 -q");
    MakeVolume(ext4_->path());
  }
  void TearDown() override {
    pipeline_.reset();
    std::filesystem::remove_all(path_);
  }

  absl::Status Start() {
    SALIUS_ASSIGN_OR_RETURN(StateFile state,
                            StateFile::Open(LinuxBacking(), dir_.salius_fd, kStateFileName));
    SALIUS_ASSIGN_OR_RETURN(StableLog stable,
                            StableLog::Open(LinuxBacking(), dir_.salius_fd, kStableLogFileName,
                                            config_.volume, nullptr));
    StreamOptions options;
    options.insecure = insecure_;
    options.config = config_;
    options.session_name = "test";
    options.spin_ns = spin_ns_;
    options.channel_layer = channel_layer_;
    options.sealed = sealed_;
    options.key_rotation_ns = key_rotation_ns_;
    options.gate_page = &gate_page_;
    options.output_triggered = output_triggered_;
    SALIUS_ASSIGN_OR_RETURN(pipeline_, StartPipeline(dir_, std::move(state), std::move(stable),
                                                     sink_, std::move(options)));
    return absl::OkStatus();
  }
  absl::StatusOr<Seq> IssueOne(std::string body, std::shared_ptr<ApplyResult> result = nullptr) {
    RecordDraft draft;
    draft.file_id = 7;
    draft.body = std::move(body);
    draft.result = std::move(result);
    SALIUS_ASSIGN_OR_RETURN(RecordRef record, pipeline_->Issue(std::move(draft)));
    return record->seq();
  }
  VolumeState StateOnDisk() {
    auto state = StateFile::Open(LinuxBacking(), dir_.salius_fd, kStateFileName);
    SALIUS_CHECK_OK(state.status());
    return state->state();
  }

  std::string path_;
  std::unique_ptr<ScratchFs> ext4_;
  VolumeConfig config_;
  gate::Page gate_page_;
  bool output_triggered_ = false;
  int64_t spin_ns_ = 0;
  ChannelLayer channel_layer_;
  bool insecure_ = true;  // control calls to replicas on loopback go by TCP
  bool sealed_ = false;
  int64_t key_rotation_ns_ = 0;
  VolumeDir dir_;
  FakeSink sink_;
  std::unique_ptr<RecordStream> pipeline_;
};

// Outcomes of WhenDurable, and a wait for them.
class Outcomes {
 public:
  DurableCallback Next() {
    return [this](const absl::Status& status) {
      absl::MutexLock lock(&mu_);
      outcomes_.push_back(status);
    };
  }
  std::vector<absl::Status> WaitFor(size_t count) {
    absl::MutexLock lock(&mu_);
    const auto there = [&] { return outcomes_.size() >= count; };
    mu_.AwaitWithTimeout(absl::Condition(&there), absl::Seconds(20));
    return outcomes_;
  }

 private:
  absl::Mutex mu_;
  std::vector<absl::Status> outcomes_;
};

}  // namespace salius
