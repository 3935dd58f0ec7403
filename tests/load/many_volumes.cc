// Many volumes on one replica: starts one session each, with the engine that the mount uses, and
// writes at full speed, one durable record after the other per volume.
//
//   many_volumes --dir DIR --replica HOST:PORT --volumes N --seconds S
//
// Makes the volumes in DIR. Prints "ready" when all of them are in mode replicated, then writes for
// S seconds, then prints one JSON object: records (per volume), modes (per volume, at the end),
// errors.
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/engine/pipeline.h"
#include "common/check.h"
#include "common/daemon.h"
#include "common/log.h"
#include "log/stable_log.h"
#include "log/state_file.h"
#include "log/volume_config.h"

namespace salius {
namespace {

constexpr size_t kBodyBytes = 4096;
constexpr std::chrono::seconds kReadyWithin{120};

// Records go nowhere: the replica is what is loaded here.
class NullSink : public ApplySink {
 public:
  absl::Status Apply(const RecordRef&) override { return absl::OkStatus(); }
  absl::Status SyncApplied() override { return absl::OkStatus(); }
};

struct Volume {
  VolumeDir dir;
  NullSink sink;
  std::unique_ptr<Pipeline> pipeline;
  std::atomic<uint64_t> records{0};
  std::string error;
  std::thread writer;
};

absl::Status Start(const std::string& path, const std::string& replica, Volume* volume) {
  VolumeConfig config = DefaultVolumeConfig();
  config.replicas = {replica};
  config.acks = 1;
  config.log_max_bytes = 1 << 20;
  config.stable_log_bytes = 3 << 20;
  config.ballast_bytes = 0;
  config.delta_us =
      1'000'000;  // hundreds of writers share two CPUs here: a late answer is no partition
  SALIUS_CHECK(::mkdir(path.c_str(), 0700) == 0);
  absl::Status created = CreateVolume(path, config);
  if (!created.ok()) return created;
  absl::StatusOr<VolumeDir> dir = VolumeDir::Open(path, true);
  if (!dir.ok()) return dir.status();
  volume->dir = *std::move(dir);
  absl::StatusOr<StateFile> state = StateFile::Open(volume->dir.salius_fd, kStateFileName);
  if (!state.ok()) return state.status();
  absl::StatusOr<StableLog> stable =
      StableLog::Open(volume->dir.salius_fd, kStableLogFileName, config.volume, nullptr);
  if (!stable.ok()) return stable.status();
  PipelineOptions options;
  options.config = config;
  options.session_name = path;
  absl::StatusOr<std::unique_ptr<Pipeline>> pipeline = Pipeline::Start(
      volume->dir, *std::move(state), *std::move(stable), volume->sink, std::move(options));
  if (!pipeline.ok()) return pipeline.status();
  volume->pipeline = *std::move(pipeline);
  return absl::OkStatus();
}

absl::Status WriteOne(Pipeline& pipeline) {
  absl::StatusOr<Ticket> ticket = pipeline.Admit(1, kBodyBytes);
  if (!ticket.ok()) return ticket.status();
  RecordDraft draft;
  draft.file_id = 100;
  draft.body = std::string(kBodyBytes, 'x');
  absl::StatusOr<RecordRef> record = pipeline.Issue(*ticket, std::move(draft));
  if (!record.ok()) return record.status();
  return pipeline.WaitDurable((*record)->seq());
}

int Main(int argc, char** argv) {
  std::string dir, replica;
  int count = 0, seconds = 0;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view word = argv[i];
    if (word == "--dir") dir = argv[i + 1];
    if (word == "--replica") replica = argv[i + 1];
    if (word == "--volumes") count = std::atoi(argv[i + 1]);
    if (word == "--seconds") seconds = std::atoi(argv[i + 1]);
  }
  if (dir.empty() || replica.empty() || count <= 0 || seconds <= 0) {
    std::fprintf(stderr,
                 "usage: many_volumes --dir DIR --replica HOST:PORT --volumes N --seconds S\n");
    return 2;
  }
  if (const auto limit = RaiseFdLimit(); !limit.ok()) {
    std::fprintf(stderr, "%s\n", limit.status().ToString().c_str());
  }
  std::vector<std::unique_ptr<Volume>> volumes;
  for (int i = 0; i < count; ++i) {
    volumes.push_back(std::make_unique<Volume>());
    const absl::Status status = Start(absl::StrCat(dir, "/", i), replica, volumes.back().get());
    if (!status.ok()) {
      std::fprintf(stderr, "volume %d: %s\n", i, status.ToString().c_str());
      return 1;
    }
  }
  const auto give_up = std::chrono::steady_clock::now() + kReadyWithin;
  for (const auto& volume : volumes) {
    while (volume->pipeline->status().mode != "replicated") {
      if (std::chrono::steady_clock::now() > give_up) {
        std::fprintf(stderr, "not replicated: %s\n",
                     volume->pipeline->status().mode_detail.c_str());
        return 1;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  std::printf("ready\n");
  std::fflush(stdout);
  std::atomic<bool> stop{false};
  for (const auto& volume : volumes) {
    volume->writer = std::thread([&stop, v = volume.get()] {
      while (!stop.load(std::memory_order_relaxed)) {
        const absl::Status status = WriteOne(*v->pipeline);
        if (!status.ok()) {
          v->error = status.ToString();
          return;
        }
        v->records.fetch_add(1, std::memory_order_relaxed);
      }
    });
  }
  std::this_thread::sleep_for(std::chrono::seconds(seconds));
  stop.store(true);
  std::vector<std::string> records, modes, errors;
  for (const auto& volume : volumes) {
    volume->writer.join();
    records.push_back(absl::StrCat(volume->records.load()));
    modes.push_back(absl::StrCat("\"", volume->pipeline->status().mode, "\""));
    if (!volume->error.empty()) errors.push_back(absl::StrCat("\"", volume->error, "\""));
  }
  std::printf("{\"records\": [%s], \"modes\": [%s], \"errors\": [%s]}\n",
              absl::StrJoin(records, ", ").c_str(), absl::StrJoin(modes, ", ").c_str(),
              absl::StrJoin(errors, ", ").c_str());
  std::fflush(stdout);
  std::_Exit(0);  // the volumes are thrown away
}

}  // namespace
}  // namespace salius

int main(int argc, char** argv) {
  salius::UsePlainMutexes();
  return salius::Main(argc, argv);
}
