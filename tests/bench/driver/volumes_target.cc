#include "tests/bench/driver/volumes_target.h"

#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/daemon.h"
#include "common/file.h"
#include "log/stable_log.h"
#include "log/state_file.h"
#include "storage/backing.h"

namespace salius::bench {
namespace {

constexpr std::chrono::seconds kReadyWithin{120};
constexpr std::chrono::milliseconds kPoll{20};

}  // namespace

absl::StatusOr<std::unique_ptr<VolumesTarget>> VolumesTarget::Make(Plan plan) {
  SALIUS_RETURN_IF_ERROR(RaiseFdLimit().status());
  std::unique_ptr<VolumesTarget> target(new VolumesTarget(std::move(plan)));
  for (size_t i = 0; i < target->writers(); ++i) {
    Volume& volume = *target->volumes_.emplace_back(std::make_unique<Volume>());
    SALIUS_RETURN_IF_ERROR(target->Start(absl::StrCat(target->plan_.directory, "/", i), volume));
  }
  const auto give_up = std::chrono::steady_clock::now() + kReadyWithin;
  for (size_t i = 0; i < target->writers(); ++i) {
    while (!target->Prepare(i).ok()) {
      if (std::chrono::steady_clock::now() > give_up) {
        return absl::DeadlineExceededError(std::string(target->Prepare(i).message()));
      }
      std::this_thread::sleep_for(kPoll);
    }
  }
  return target;
}

VolumesTarget::~VolumesTarget() {
  std::vector<std::thread> threads;  // each waits for its own volume
  for (auto& volume : volumes_) {
    volume->sink.end.Notify();
    threads.emplace_back([&volume] { volume->stream.reset(); });
  }
  for (std::thread& thread : threads) thread.join();
}

absl::Status VolumesTarget::Start(const std::string& path, Volume& volume) const {
  VolumeConfig config = DefaultVolumeConfig();
  config.replicas = {plan_.replica};
  config.acks = 1;
  config.log_max_bytes = plan_.log_max;
  config.stable_log_bytes = plan_.log_max / 4 * 5 + (2 << 20);
  config.tau_ms = 600'000;
  config.ballast_bytes = 0;
  // Hundreds of writers share a few CPUs here: a late answer is no partition.
  config.delta_us = 10'000'000;
  if (::mkdir(path.c_str(), 0700) != 0) return ErrnoStatus(errno, "mkdir " + path);
  SALIUS_RETURN_IF_ERROR(CreateVolume(path, config));
  SALIUS_ASSIGN_OR_RETURN(volume.dir, VolumeDir::Open(path, true));
  SALIUS_ASSIGN_OR_RETURN(StateFile state,
                          StateFile::Open(LinuxBacking(), volume.dir.salius_fd, kStateFileName));
  SALIUS_ASSIGN_OR_RETURN(StableLog stable,
                          StableLog::Open(LinuxBacking(), volume.dir.salius_fd, kStableLogFileName,
                                          config.volume, nullptr));
  volume.sink.keep = plan_.keep;
  StreamOptions options;
  options.config = config;
  options.session_name = path;
  options.insecure = true;
  SALIUS_ASSIGN_OR_RETURN(
      volume.stream, StartPipeline(volume.dir, std::move(state), std::move(stable), volume.sink,
                                       std::move(options)));
  return absl::OkStatus();
}

absl::Status VolumesTarget::Prepare(size_t writer) {
  const SessionStatus status = volumes_[writer]->stream->status();
  if (status.mode == "replicated") return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("volume ", writer, " is in mode ", status.mode,
                                                    ": ", status.mode_detail, status.failure));
}

absl::Status VolumesTarget::Operate(size_t writer) {
  RecordStream& stream = *volumes_[writer]->stream;
  RecordDraft draft;
  draft.file_id = 100;
  draft.body = std::string(plan_.size, 'x');
  SALIUS_ASSIGN_OR_RETURN(const RecordRef record, stream.Issue(std::move(draft)));
  return stream.WaitDurable(record->seq());
}

}  // namespace salius::bench
