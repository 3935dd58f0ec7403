// The coordinator of a direct volume with replicas in this process, and a process that uses the
// shared window.
#include "client/direct/coordinator/coordinator.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/direct/process/attach.h"
#include "client/direct/process/process.h"
#include "client/direct/window/sealing.h"
#include "common/check.h"
#include "common/clock.h"
#include "replica/server.h"
#include "storage/backing.h"
#include "tests/unit/session/old_replica.h"
#include "transport/key_ring.h"

namespace salius::direct {
namespace {

class CoordinatorTest : public testing::Test {
 protected:
  void SetUp() override {
    // On a disk: tmpfs may refuse the files' ids.
    char name[] = "/var/tmp/coordinator_test.XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    path_ = name;
    config_ = DefaultVolumeConfig();
    config_.log_max_bytes = 8u << 20;
    config_.stable_log_bytes = 16u << 20;
    config_.ballast_bytes = 0;
    const absl::Status made = CreateVolume(path_, config_);
    ASSERT_TRUE(made.ok()) << made;
    auto dir = VolumeDir::Open(path_, true);
    ASSERT_TRUE(dir.ok()) << dir.status();
    dir_ = *std::move(dir);
  }
  void TearDown() override {
    coordinator_.reset();
    servers_.clear();
    std::filesystem::remove_all(path_);
  }
  void StartReplica(int index) {
    ReplicaOptions options;
    const auto place = static_cast<size_t>(index);
    const bool again = place < servers_.size();  // it is started again
    options.listen = HostPort{"127.0.0.1", again ? ports_[place] : uint16_t{0}};
    options.insecure = !local_;  // control calls come by TCP, or else by the unix socket
    options.sealed = sealed_;
    options.memory_bytes = 64 << 20;
    options.no_mlock = true;
    options.log_level = "off";
    options.shm_dir = absl::StrCat(path_, "/replica", index);
    options.state_dir = absl::StrCat(path_, "/state", index);
    ASSERT_TRUE(again || mkdir(options.shm_dir.c_str(), 0700) == 0);
    auto server = ReplicaServer::Start(options, SystemClock());
    ASSERT_TRUE(server.ok()) << server.status();
    if (again) {
      servers_[place] = *std::move(server);
      return;
    }
    ports_.push_back((*server)->port());
    config_.replicas.push_back(absl::StrCat("127.0.0.1:", (*server)->port()));
    servers_.push_back(*std::move(server));
  }
  void Start(int replicas, uint32_t acks) {
    for (int i = 0; i < replicas; ++i) ASSERT_NO_FATAL_FAILURE(StartReplica(i));
    config_.acks = acks;
    auto state = StateFile::Open(LinuxBacking(), dir_.salius_fd, kStateFileName);
    ASSERT_TRUE(state.ok()) << state.status();
    StreamOptions options;
    options.insecure = !local_;  // replicas on loopback, by TCP
    options.sealed = sealed_;
    options.key_rotation_ns = key_rotation_ns_;
    options.config = config_;
    options.session_name = "test";
    auto started = Coordinator::Start(dir_, *std::move(state), std::move(options));
    ASSERT_TRUE(started.ok()) << started.status();
    coordinator_ = *std::move(started);
    const Coordinator::Handles handles = coordinator_->handles();
    Attached attached;
    attached.window_bytes = handles.window_bytes;
    attached.descriptors[kWindowDescriptor] = dup(handles.window_fd);
    attached.descriptors[kSocketDescriptor] = dup(handles.socket_fd);
    attached.descriptors[kLockDescriptor] = dup(dir_.lock_fd);
    attached.descriptors[kRootDescriptor] = dup(dir_.root_fd);
    attached.connection = dup(dir_.root_fd);
    ASSERT_EQ(process_.Adopt(attached), 0);
  }
  void Await(Phase phase) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (coordinator_->window().phase().phase() != phase) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << coordinator_->status().mode_detail;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  void OpenFile() {
    fd_ = open(absl::StrCat(path_, "/f").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ASSERT_GE(fd_, 0);
    file_ = process_.Open(fd_, true);
    ASSERT_TRUE(file_.tracked());
  }
  void Write(std::string text, off_t at) {
    iovec part{text.data(), text.size()};
    process_.Lock(file_);
    ASSERT_EQ(pwritev(fd_, &part, 1, at), static_cast<ssize_t>(text.size()));
    process_.LogWrite(file_, static_cast<uint64_t>(at), &part, 1, text.size());
    process_.Unlock(file_);
  }
  VolumeState StateOnDisk() {
    auto state = StateFile::Open(LinuxBacking(), dir_.salius_fd, kStateFileName);
    SALIUS_CHECK_OK(state.status());
    return state->state();
  }
  double Metric(size_t replica, const std::string& name) const {
    const std::vector<prometheus::MetricFamily> families = servers_[replica]->metrics().Collect();
    for (const prometheus::MetricFamily& family : families) {
      if (family.name == name) return family.metric.at(0).gauge.value;
    }
    ADD_FAILURE() << "no " << name;
    return -1;
  }
  uint64_t real_syncs() const { return coordinator_->window().header().counters.real_syncs; }

  std::string path_;
  VolumeConfig config_;
  VolumeDir dir_;
  bool sealed_ = false;
  bool local_ = false;  // without keys and without --insecure at both ends
  int64_t key_rotation_ns_ = 0;
  std::vector<std::unique_ptr<ReplicaServer>> servers_;
  std::vector<uint16_t> ports_;
  std::unique_ptr<Coordinator> coordinator_;
  Process process_;
  int fd_ = -1;
  File file_;
};

TEST_F(CoordinatorTest, WithoutReplicasEverySyncIsReal) {
  ASSERT_NO_FATAL_FAILURE(Start(0, 1));
  EXPECT_EQ(coordinator_->window().phase().phase(), Phase::kLocal);
  ASSERT_NO_FATAL_FAILURE(OpenFile());
  Write("hello", 0);
  EXPECT_EQ(process_.Sync(file_, fd_, true), 0);
  EXPECT_EQ(coordinator_->status().mode, "local");
  EXPECT_EQ(coordinator_->window().window().issued(), 0u);
  ASSERT_TRUE(coordinator_->Stop().ok());
  EXPECT_FALSE(StateOnDisk().open);
}

TEST_F(CoordinatorTest, SyncOfACoveredFileWaitsForReplicasOnly) {
  ASSERT_NO_FATAL_FAILURE(Start(2, 2));
  ASSERT_NO_FATAL_FAILURE(Await(Phase::kReplicated));
  EXPECT_EQ(StateOnDisk().mode, Mode::kReplicated);
  EXPECT_EQ(StateOnDisk().members.size(), 2u);
  ASSERT_NO_FATAL_FAILURE(OpenFile());
  Write("hello", 0);
  ASSERT_EQ(process_.Sync(file_, fd_, true), 0);  // a new file: real
  const uint64_t real = real_syncs();
  for (int i = 0; i < 100; ++i) {
    Write(absl::StrCat("again ", i), 0);
    ASSERT_EQ(process_.Sync(file_, fd_, true), 0);
  }
  EXPECT_EQ(real_syncs(), real);
  EXPECT_GE(coordinator_->window().durable(), 100u);
  EXPECT_EQ(coordinator_->status().mode, "replicated");
  const absl::Status stopped = coordinator_->Stop();
  EXPECT_TRUE(stopped.ok()) << stopped;
  EXPECT_FALSE(StateOnDisk().open);
}

TEST_F(CoordinatorTest, UnsyncedRecordsAreSentByTheCoordinator) {
  ASSERT_NO_FATAL_FAILURE(Start(1, 1));
  ASSERT_NO_FATAL_FAILURE(Await(Phase::kReplicated));
  ASSERT_NO_FATAL_FAILURE(OpenFile());
  Write("hello", 0);
  ASSERT_EQ(process_.Sync(file_, fd_, true), 0);
  Write("again", 0);
  const Seq issued = coordinator_->window().window().issued();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (coordinator_->window().durable() < issued) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST_F(CoordinatorTest, SilentReplicasEndInModeLocalWithAllOnTheDisk) {
  ASSERT_NO_FATAL_FAILURE(Start(2, 1));
  ASSERT_NO_FATAL_FAILURE(Await(Phase::kReplicated));
  ASSERT_NO_FATAL_FAILURE(OpenFile());
  Write("hello", 0);
  ASSERT_EQ(process_.Sync(file_, fd_, true), 0);
  servers_.clear();
  Write("again", 0);
  ASSERT_EQ(process_.Sync(file_, fd_, true), 0);
  ASSERT_NO_FATAL_FAILURE(Await(Phase::kLocal));
  EXPECT_EQ(StateOnDisk().mode, Mode::kLocal);
  EXPECT_EQ(StateOnDisk().checkpoint, coordinator_->window().window().issued());
}

class SealedCoordinatorTest : public CoordinatorTest {
 protected:
  SealedCoordinatorTest() { sealed_ = true; }
  void SetUp() override {
    CoordinatorTest::SetUp();
    config_.delta_us = 10'000'000;  // a busy machine partitions nothing
  }
  uint64_t Refused(SealRefusal refusal) const {
    const SessionStatus status = coordinator_->status();
    for (const SealingUse::Refusal& one : status.sealing->refusals) {
      if (one.reason == SealRefusalName(refusal)) return one.datagrams;
    }
    ADD_FAILURE();
    return 0;
  }
  // Starts with a covered file.
  void StartCovered() {
    ASSERT_NO_FATAL_FAILURE(Start(2, 2));
    ASSERT_NO_FATAL_FAILURE(Await(Phase::kReplicated));
    ASSERT_NO_FATAL_FAILURE(OpenFile());
    Write("hello", 0);
    ASSERT_EQ(process_.Sync(file_, fd_, true), 0);
  }
  // Writes and syncs until `done`.
  template <typename Done>
  void WriteUntil(Done done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!done()) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << coordinator_->status().mode_detail;
      Write("again", 0);
      ASSERT_EQ(process_.Sync(file_, fd_, true), 0);
    }
  }
};

TEST_F(SealedCoordinatorTest, SyncWaitsForSealedAcknowledgementsOfAllReplicas) {
  ASSERT_NO_FATAL_FAILURE(StartCovered());
  for (int i = 0; i < 100; ++i) {
    Write(std::string(static_cast<size_t>(i) * 100 + 1, 'x'), 0);
    ASSERT_EQ(process_.Sync(file_, fd_, true), 0);
  }
  EXPECT_GE(coordinator_->window().durable(), 100u);
  for (size_t i = 1; i < kSealRefusals; ++i) EXPECT_EQ(Refused(static_cast<SealRefusal>(i)), 0u);
  EXPECT_TRUE(coordinator_->Stop().ok());
}

TEST_F(SealedCoordinatorTest, KeyChangesUnderLoadAndTheModeStays) {
  key_rotation_ns_ = 200'000'000;
  ASSERT_NO_FATAL_FAILURE(StartCovered());
  const uint64_t since = coordinator_->status().mode_since_unix_ms;
  ASSERT_NO_FATAL_FAILURE(
      WriteUntil([this] { return coordinator_->status().sealing->key_changes >= 10; }));
  EXPECT_EQ(coordinator_->status().mode_since_unix_ms, since);
  EXPECT_TRUE(coordinator_->Stop().ok());
}

TEST_F(SealedCoordinatorTest, RestartedReplicaGetsItsKeyAgain) {
  ASSERT_NO_FATAL_FAILURE(StartCovered());
  const SessionStatus before = coordinator_->status();
  servers_[1].reset();
  ASSERT_NO_FATAL_FAILURE(StartReplica(1));
  ASSERT_NO_FATAL_FAILURE(WriteUntil([this] {
    const SessionStatus status = coordinator_->status();
    return status.mode == "replicated" && status.replicas[1].connected &&
           status.replicas[1].contiguous == status.marks.issued;
  }));
  EXPECT_EQ(coordinator_->status().replicas[1].incarnation, before.replicas[1].incarnation);
  EXPECT_TRUE(coordinator_->Stop().ok());
}

// Replicas of this host without keys: the session's key goes to them by their unix sockets.
class LocalCoordinatorTest : public CoordinatorTest {
 protected:
  LocalCoordinatorTest() { local_ = true; }
};

TEST_F(LocalCoordinatorTest, ReplicasTakeSealedRecordsOnly) {
  ASSERT_NO_FATAL_FAILURE(Start(2, 2));
  ASSERT_NO_FATAL_FAILURE(Await(Phase::kReplicated));
  ASSERT_NO_FATAL_FAILURE(OpenFile());
  Write("hello", 0);
  ASSERT_EQ(process_.Sync(file_, fd_, true), 0);
  Write("again", 0);
  ASSERT_EQ(process_.Sync(file_, fd_, true), 0);
  EXPECT_TRUE(IsSealed(coordinator_->window()));
  for (size_t replica : {0, 1}) {
    EXPECT_EQ(Metric(replica, "salius_replica_plain_sessions"), 0) << replica;
  }
  EXPECT_TRUE(coordinator_->Stop().ok());
}

TEST_F(LocalCoordinatorTest, ReplicaThatTakesNoKeyIsNotServed) {
  ASSERT_NO_FATAL_FAILURE(StartReplica(0));
  local_ = false;
  ASSERT_NO_FATAL_FAILURE(StartReplica(1));
  const auto old = StartOldReplica(ports_[1]);
  ASSERT_TRUE(old.ok()) << old.status();
  local_ = true;
  ASSERT_NO_FATAL_FAILURE(Start(0, 2));
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (coordinator_->status().replicas[1].problem.empty()) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const SessionStatus status = coordinator_->status();
  EXPECT_NE(status.replicas[1].problem.find("does not seal datagrams"), std::string::npos)
      << status.replicas[1].problem;
  EXPECT_FALSE(status.replicas[1].connected);
  EXPECT_EQ(status.mode, "local");
}

}  // namespace
}  // namespace salius::direct
