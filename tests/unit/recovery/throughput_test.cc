// A large log comes back fast and within bounded memory. By default a smoke-size run.
// SALIUS_RECOVERY_MIB=1024 is the size of the target (256 Ki records of 4 KiB, 200 MiB/s on 2
// cores).
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <utility>

#include "absl/base/config.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/crc32c.h"
#include "common/net.h"
#include "log/state_file.h"
#include "proto/control.grpc.pb.h"
#include "recovery/recovery.h"
#include "storage/apply.h"
#include "storage/backing.h"
#include "storage/volume_config.h"
#include "tests/unit/recovery/test_util.h"
#include "transport/grpc_factory.h"

namespace salius::recovery {
namespace {

constexpr size_t kRecordBytes = 4096;
constexpr size_t kEncodedBytes = kRecordHeaderBytes + kRecordBytes;
constexpr int kFiles = 8;
constexpr int kReplicas = 3;

// A sanitizer's own memory is not recovery's.
#if defined(ABSL_HAVE_ADDRESS_SANITIZER) || defined(ABSL_HAVE_THREAD_SANITIZER)
constexpr bool kBoundMemory = false;
#else
constexpr bool kBoundMemory = true;
#endif

constexpr Incarnation kFirstIncarnation = 77;

// The log that every replica holds.
struct Log {
  explicit Log(uint64_t records) : count(records) {
    Stamper stamper(7);
    std::string chunk;
    const std::string data(kRecordBytes, 'd');
    for (uint64_t i = 0; i < records; ++i) {
      chunk += stamper.Write(50 + i % kFiles, i / kFiles * kRecordBytes, data);
      if (chunk.size() >= (1 << 20) || i + 1 == records) {
        bytes += chunk.size();
        chunks.push_back({i + 1, Crc32c(AsBytes(chunk)), std::move(chunk)});
        chunk.clear();
      }
      const_cast<std::vector<std::string>&>(stamper.all()).clear();
    }
  }
  struct Chunk {
    Seq last;
    uint32_t crc;
    std::string records;
  };
  const uint64_t count;
  uint64_t bytes = 0;
  std::vector<Chunk> chunks;
};

class Service : public control::Replica::Service {
 public:
  Service(const Log& log, Incarnation incarnation) : log_(log), incarnation_(incarnation) {}

  grpc::Status Fence(grpc::ServerContext*, const control::FenceRequest* request,
                     control::FenceResponse* response) override {
    response->set_accepted(true);
    response->set_promised_epoch(request->epoch());
    response->set_incarnation(incarnation_);
    control::VolumeInventory& inventory = *response->mutable_inventory();
    inventory.set_known(true);
    inventory.set_epoch(7);
    inventory.set_base(1);
    inventory.set_contiguous(log_.count);
    inventory.set_highest(log_.count);
    inventory.set_records(log_.count);
    inventory.set_bytes(log_.bytes);
    return grpc::Status::OK;
  }
  grpc::Status Fetch(grpc::ServerContext*, const control::FetchRequest* request,
                     grpc::ServerWriter<control::FetchResponse>* writer) override {
    const Seq after = request->after();
    control::FetchResponse response;
    response.set_count(log_.count - std::min(after, log_.count));
    response.set_incarnation(incarnation_);
    writer->Write(response);
    for (const auto& [last, crc, chunk] : log_.chunks) {
      if (last <= after) continue;
      response.Clear();
      if (const Seq first = last - chunk.size() / kEncodedBytes + 1; first <= after) {
        response.set_records(chunk.substr((after - first + 1) * kEncodedBytes));
        response.set_crc32c(Crc32c(AsBytes(response.records())));
      } else {
        response.set_records(chunk);
        response.set_crc32c(crc);
      }
      if (!writer->Write(response)) return grpc::Status::CANCELLED;
    }
    return grpc::Status::OK;
  }
  grpc::Status DropVolume(grpc::ServerContext*, const control::DropVolumeRequest*,
                          control::DropVolumeResponse*) override {
    return grpc::Status::OK;
  }

 private:
  const Log& log_;
  const Incarnation incarnation_;
};

// Serves from a separate process, so that its memory is not counted; killed at the end.
class ServerProcess {
 public:
  explicit ServerProcess(uint64_t records) {
    int pipe_fds[2];
    SALIUS_CHECK(pipe(pipe_fds) == 0);
    pid_ = fork();
    if (pid_ == 0) Serve(records, pipe_fds[1]);
    close(pipe_fds[1]);
    SALIUS_CHECK(read(pipe_fds[0], ports, sizeof(ports)) == sizeof(ports));
    close(pipe_fds[0]);
  }
  ~ServerProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  int ports[kReplicas] = {};

 private:
  [[noreturn]] void Serve(uint64_t records, int out) {
    const Log log(records);
    std::vector<std::unique_ptr<Service>> services;
    std::vector<std::unique_ptr<TcpServer>> servers;
    for (int& port : ports) {
      services.push_back(std::make_unique<Service>(log, kFirstIncarnation + services.size()));
      servers.push_back(
          ServeTcp(Resolve(HostPort{"127.0.0.1", 0}).value(), *services.back()).value());
      port = servers.back()->port();
    }
    SALIUS_CHECK(write(out, ports, sizeof(ports)) == sizeof(ports));
    for (;;) pause();
  }
  pid_t pid_ = -1;
};

// Returns the largest resident size of this process so far, without file mappings: VmHWM does not
// count the page cache at all.
uint64_t PeakMemoryBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!absl::StartsWith(line, "VmHWM:")) continue;
    for (const std::string& word : std::vector<std::string>(absl::StrSplit(line, ' '))) {
      uint64_t kib = 0;
      if (absl::SimpleAtoi(word, &kib)) return kib << 10;
    }
  }
  return 0;
}

TEST(ThroughputTest, ALargeLogComesBackFastInBoundedMemory) {
  const char* wanted = getenv("SALIUS_RECOVERY_MIB");
  const uint64_t mib = wanted != nullptr ? strtoull(wanted, nullptr, 10) : 32;
  const uint64_t records = (mib << 20) / kRecordBytes;
  const ServerProcess servers(records);

  TempDir dir;
  VolumeConfig config = DefaultVolumeConfig();
  config.volume = TestVolume();
  config.log_max_bytes = mib << 20;
  config.stable_log_bytes = (mib << 20) / 4 * 5 + (8 << 20);
  config.ballast_bytes = 0;
  VolumeState state;
  state.volume = config.volume;
  state.open = true;
  state.epoch = 7;
  state.mode = Mode::kReplicated;
  state.boot_id = "elsewhere";
  state.acks = 2;
  for (const int port : servers.ports) {
    config.replicas.push_back("127.0.0.1:" + std::to_string(port));
    state.members.push_back({config.replicas.back(), kFirstIncarnation + state.members.size(), 1});
  }
  config.acks = 2;
  ASSERT_OK(CreateVolume(dir.path(), config));
  for (int i = 0; i < kFiles; ++i) {
    const std::string path = dir.path() + "/f" + std::to_string(i);
    WriteFile(path, "");
    const UniqueFd fd = MustOpen(path, O_PATH);
    ASSERT_OK(WriteFileId(fd.get(), 50 + static_cast<FileId>(i)));
  }
  auto volume = VolumeDir::Open(dir.path(), true);
  ASSERT_OK(volume.status());
  {
    auto file = StateFile::Open(LinuxBacking(), volume->salius_fd, kStateFileName);
    ASSERT_OK(file.status());
    ASSERT_OK(file->Write(state));
  }
  const uint64_t memory_before = PeakMemoryBytes();
  RecoveryOptions options;
  std::string phase;
  absl::Time phase_start = absl::Now();
  options.on_progress = [&](const RecoveryProgress& progress) {
    if (progress.phase == phase) return;
    printf("  %-8s %6.2f s\n", phase.c_str(), absl::ToDoubleSeconds(absl::Now() - phase_start));
    phase = std::string(progress.phase);
    phase_start = absl::Now();
  };
  const absl::Time start = absl::Now();
  const auto report = Recover(*volume, options);
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  ASSERT_OK(report.status());
  const uint64_t memory = PeakMemoryBytes() - memory_before;
  printf("%ld MiB in %.2f s: %.0f MiB/s, %.2f bytes of memory per byte of log\n",
         static_cast<long>(mib), seconds, static_cast<double>(mib) / seconds,
         static_cast<double>(memory) / static_cast<double>(mib << 20));
  EXPECT_EQ(report->decided, records);
  EXPECT_EQ(report->bytes_written, mib << 20);
  if (kBoundMemory) {
    EXPECT_LT(memory, 2 * (mib << 20) + (64 << 20));
  }
  struct stat st;
  ASSERT_EQ(stat((dir.path() + "/f0").c_str(), &st), 0);
  EXPECT_EQ(static_cast<uint64_t>(st.st_size), (mib << 20) / kFiles);
}

}  // namespace
}  // namespace salius::recovery
