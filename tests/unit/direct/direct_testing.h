// A direct volume for tests: the shared window, a directory, replicas that speak UDP frames, and a
// coordinator that does the least: it fills holes, sends again, and checkpoints when asked.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "client/direct/coordinator/shared_keys.h"
#include "client/direct/process/process.h"
#include "client/direct/window/acks.h"
#include "client/direct/window/claim.h"
#include "client/direct/window/file_table.h"
#include "client/direct/window/layout.h"
#include "client/direct/window/robust_lock.h"
#include "client/direct/window/stamp.h"
#include "client/direct/window/stripes.h"
#include "client/direct/window/system.h"
#include "client/direct/window/waits.h"
#include "common/load_store.h"
#include "log/record.h"
#include "log/record_layout.h"
#include "proto/frame.h"
#include "transport/sealer.h"

namespace salius::direct {

// A window in anonymous or memfd memory.
class TestWindow {
 public:
  explicit TestWindow(WindowSpec spec) {
    bytes_ = SharedWindow::BytesFor(spec);
    memfd_ = memfd_create("window", MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(memfd_, static_cast<off_t>(bytes_)), 0);
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, memfd_, 0);
    EXPECT_NE(memory_, MAP_FAILED);
    window_ = SharedWindow::Format(memory_, spec);
  }
  ~TestWindow() {
    munmap(memory_, bytes_);
    close(memfd_);
  }
  TestWindow(const TestWindow&) = delete;
  TestWindow& operator=(const TestWindow&) = delete;

  const SharedWindow& window() const { return window_; }
  int memfd() const { return memfd_; }
  void* memory() const { return memory_; }
  uint64_t bytes() const { return bytes_; }

 private:
  uint64_t bytes_ = 0;
  int memfd_ = -1;
  void* memory_ = nullptr;
  SharedWindow window_;
};

inline WindowSpec SmallSpec() {
  WindowSpec spec;
  spec.slots = 1024;
  spec.stripes = 16;
  spec.files = 256;
  spec.ring_bytes = 1 << 20;
  spec.replicas = 2;
  spec.volume.bytes = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  spec.epoch = 7;
  spec.session = 77;
  spec.oldest_ns = int64_t{60} * 1'000'000'000;
  spec.next_file_id = 100;
  spec.file_id_limit = 100000;
  return spec;
}

// Publishes: phase replicated, acknowledgements of these replicas count.
inline void PublishReplicated(const SharedWindow& window, int acks = 1, ReplicaMask members = 3) {
  WindowLock lock(window);
  Header& header = window.header();
  header.rule = DurableRule{};
  header.rule.acks = acks;
  header.rule.awaits_note_of_loss = false;
  header.rule.noted.replicated = true;
  header.rule.noted.counted = members;
  header.rule.noted.checkpoint = window.window().checkpoint();
  header.counting = 1;
  for (uint32_t i = 0; i < header.replicas; ++i) {
    header.peers[i].incarnation = 0x1000 + i;
    header.peers[i].base = 1;
    header.peers[i].counts_from_ns = INT64_MIN;
  }
  SetPhase(window, Phase::kReplicated);
}

// The keys of a sealed TestVolume.
inline constexpr uint32_t kTestKeyId = 0x5EA1;
inline SealKey TestRecordKey() { return {1}; }
inline SealKey TestAckKey(uint32_t replica) { return {2, static_cast<uint8_t>(replica)}; }

// A replica in memory: a thread that takes records and acknowledges them.
class TestReplica {
 public:
  explicit TestReplica(Incarnation incarnation) : incarnation_(incarnation) {
    socket_ = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_in local{};
    local.sin_family = AF_INET;
    local.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&local), sizeof(local)), 0);
    socklen_t size = sizeof(local);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&local), &size), 0);
    address_ = local;
    const int bytes = 8 << 20;
    setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
    const timeval patience{0, 20000};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    thread_ = std::thread([this] { Run(); });
  }
  ~TestReplica() {
    stop_ = true;
    thread_.join();
    close(socket_);
  }
  TestReplica(const TestReplica&) = delete;
  TestReplica& operator=(const TestReplica&) = delete;

  const sockaddr_in& address() const { return address_; }
  void Mute(bool mute) { mute_ = mute; }
  // Takes and gives sealed datagrams only from now on, as replica `index`.
  void Seal(uint32_t index) {
    index_ = index;
    sealed_ = true;
  }
  // Returns how many datagrams it could not open, and how many had a nonce of another datagram.
  size_t unopened() const { return unopened_; }
  size_t nonces_again() const { return nonces_again_; }
  // Returns the record's bytes; empty if it has none.
  std::string Record(Seq seq) {
    std::lock_guard lock(mutex_);
    const auto it = records_.find(seq);
    return it == records_.end() ? std::string() : it->second;
  }
  Seq contiguous() {
    std::lock_guard lock(mutex_);
    return contiguous_;
  }

 private:
  void Run() {
    std::vector<uint8_t> bytes(70000);
    while (!stop_) {
      sockaddr_in from{};
      socklen_t size = sizeof(from);
      const ssize_t got = recvfrom(socket_, bytes.data(), bytes.size(), 0,
                                   reinterpret_cast<sockaddr*>(&from), &size);
      if (got <= 0 || mute_) continue;
      absl::Span<uint8_t> datagram(bytes.data(), static_cast<size_t>(got));
      const absl::Span<const uint8_t> frame = sealed_ ? Open(datagram) : datagram;
      FrameHeader header;
      if (DecodeFrameHeader(frame.data(), frame.size(), &header) != FrameFault::kNone) continue;
      Take(header, frame.data() + kFrameHeaderBytes);
      Answer(header, from);
    }
  }
  absl::Span<const uint8_t> Open(absl::Span<uint8_t> datagram) {
    SealPrefix prefix;
    const bool decoded =
        DecodeSealPrefix(datagram.data(), datagram.size(), &prefix) == SealFault::kNone;
    const std::string sealed(datagram.begin(), datagram.end());
    absl::Span<const uint8_t> frame;
    if (decoded) frame = Opener(TestRecordKey()).Open(prefix, datagram);
    if (frame.empty()) {
      ++unopened_;
    } else if (nonces_.try_emplace(prefix.counter, sealed).first->second != sealed) {
      ++nonces_again_;
    }
    return frame;
  }
  void Take(const FrameHeader& header, const uint8_t* payload) {
    namespace layout = record_layout;
    std::lock_guard lock(mutex_);
    if (header.type == FrameType::kRecords) {
      for (int i = 0; i < header.count; ++i) {
        const size_t size = kRecordHeaderBytes + LoadU32(payload + layout::kBodyBytesAt);
        const absl::Span<const uint8_t> record(payload, size);
        if (DecodeRecord(record).ok()) {
          Keep(LoadU64(payload + layout::kSeqAt), std::string(payload, payload + size));
        }
        payload += size;
      }
    } else if (header.type == FrameType::kFragment) {
      const auto fragment =
          DecodeFragmentHeader(absl::Span<const uint8_t>(payload, header.payload_bytes));
      if (!fragment.ok()) return;
      std::string& whole = fragments_[fragment->seq];
      whole.resize(fragment->record_bytes);
      const size_t piece = header.payload_bytes - kFragmentHeaderBytes;
      std::memcpy(whole.data() + fragment->offset, payload + kFragmentHeaderBytes, piece);
      const auto* begin = reinterpret_cast<const uint8_t*>(whole.data());
      if (DecodeRecord(absl::Span<const uint8_t>(begin, whole.size())).ok()) {
        Keep(fragment->seq, whole);
      }
    }
  }
  void Keep(Seq seq, std::string record) {
    records_[seq] = std::move(record);
    while (records_.contains(contiguous_ + 1)) ++contiguous_;
  }
  void Answer(const FrameHeader& frame, const sockaddr_in& to) {
    AckPayload ack;
    ack.incarnation = incarnation_;
    ack.base = 1;
    ack.contiguous = contiguous();
    uint8_t bytes[kFrameHeaderBytes + kMaxAckBytes];
    FrameHeader header = frame;
    header.type = FrameType::kAck;
    header.count = 0;
    header.payload_bytes = static_cast<uint32_t>(EncodeAckPayload(ack, bytes + kFrameHeaderBytes));
    EncodeFrameHeader(header, bytes);
    const iovec frame_part{bytes, kFrameHeaderBytes + header.payload_bytes};
    uint8_t sealed[sizeof(bytes) + kSealBytes];
    iovec out = frame_part;
    if (sealed_) {
      const SealPrefix prefix{SealKind::kSealed, kTestKeyId, index_ + 1, ++ack_counter_};
      out = {sealed, Sealer(TestAckKey(index_))
                         .Seal(prefix, absl::MakeConstSpan(&frame_part, 1), sealed)};
    }
    sendto(socket_, out.iov_base, out.iov_len, 0, reinterpret_cast<const sockaddr*>(&to),
           sizeof(to));
  }

  const Incarnation incarnation_;
  int socket_ = -1;
  sockaddr_in address_{};
  std::atomic<bool> stop_{false}, mute_{false}, sealed_{false};
  std::atomic<uint32_t> index_{0};
  std::atomic<size_t> unopened_{0}, nonces_again_{0};
  std::map<uint64_t, std::string> nonces_;  // the datagram of each counter
  uint64_t ack_counter_ = 0;
  std::mutex mutex_;
  std::map<Seq, std::string> records_, fragments_;
  Seq contiguous_ = 0;
  std::thread thread_;
};

// All of a direct volume.
class TestVolume {
 public:
  explicit TestVolume(WindowSpec spec = SmallSpec(), uint32_t datagram_bytes = 1472)
      : directory_(MakeDirectory()), shared_(Complete(spec)) {
    root_ = open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    socket_ = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_in local{};
    local.sin_family = AF_INET;
    local.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&local), sizeof(local)), 0);
    const timeval patience{0, 1000};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    WindowLock lock(window());
    for (uint32_t i = 0; i < window().header().replicas; ++i) {
      replicas_.push_back(std::make_unique<TestReplica>(0x1000 + i));
      Peer& peer = window().header().peers[i];
      std::memcpy(&peer.address, &replicas_[i]->address(), sizeof(sockaddr_in));
      peer.address_bytes = sizeof(sockaddr_in);
      peer.datagram_bytes = datagram_bytes;
    }
  }
  ~TestVolume() {
    StopCoordinator();
    close(root_);
    close(socket_);
    std::filesystem::remove_all(directory_);
  }
  TestVolume(const TestVolume&) = delete;
  TestVolume& operator=(const TestVolume&) = delete;

  const SharedWindow& window() const { return shared_.window(); }
  const std::string& directory() const { return directory_; }
  TestReplica& replica(size_t i) { return *replicas_[i]; }
  int socket() const { return socket_; }

  // Makes the session a sealed one. Before anything is sent.
  void Seal() {
    KeysInUse keys;
    keys.record_key_id = kTestKeyId;
    keys.record_key = TestRecordKey();
    for (uint32_t i = 0; i < replicas_.size(); ++i) {
      keys.ack_keys.push_back({static_cast<int>(i), kTestKeyId, TestAckKey(i)});
      replicas_[i]->Seal(i);
    }
    PublishKeys(window(), keys);
    window().header().seal.sealed = 1;
  }

  // Starts the coordinator: it holds the life lock, and works.
  void StartCoordinator() {
    stop_ = false;
    std::atomic<bool> holds{false};
    coordinator_ = std::thread([this, &holds] {
      EXPECT_NE(TryTakeLock(window().header().life), Taken::kNo);
      holds = true;
      while (!stop_) {
        SleepUntilKicked(window(), 2'000'000);
        Work();
      }
      GiveLock(window().header().life);
    });
    while (!holds) std::this_thread::yield();
  }
  void StopCoordinator() {
    stop_ = true;
    if (coordinator_.joinable()) coordinator_.join();
  }
  void AllowCheckpoints(bool allow) { checkpoints_ = allow; }
  void AllowHoles(bool allow) { fill_holes_ = allow; }

  // Does a checkpoint of all that was issued.
  void Checkpoint() {
    SyncStart start;
    {
      WindowLock lock(window());
      start = BeginSync(window());
    }
    syncfs(root_);
    {
      WindowLock lock(window());
      window().header().rule.noted.checkpoint = start.upto;
      PublishCheckpoint(window(), start.upto);
      EndSync(window(), start.epoch);
    }
    WakeAll(window());
  }

  // Returns descriptors for a process, which become that process's.
  Attached Descriptors() const {
    Attached attached;
    attached.connection = fcntl(socket_, F_DUPFD_CLOEXEC, 500);
    attached.descriptors[kWindowDescriptor] = fcntl(shared_.memfd(), F_DUPFD_CLOEXEC, 500);
    attached.descriptors[kSocketDescriptor] = fcntl(socket_, F_DUPFD_CLOEXEC, 500);
    attached.descriptors[kLockDescriptor] = fcntl(root_, F_DUPFD_CLOEXEC, 500);
    attached.descriptors[kRootDescriptor] = fcntl(root_, F_DUPFD_CLOEXEC, 500);
    attached.window_bytes = shared_.bytes();
    return attached;
  }
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }

 private:
  static std::string MakeDirectory() {
    // Not on tmpfs of old kernels: it has no user xattrs.
    const char* base = std::getenv("TEST_TMPDIR");
    std::string path = std::string(base != nullptr ? base : "/var/tmp") + "/directXXXXXX";
    EXPECT_NE(mkdtemp(path.data()), nullptr);
    return path;
  }
  WindowSpec Complete(WindowSpec spec) const {
    struct stat status {};
    EXPECT_EQ(stat(directory_.c_str(), &status), 0);
    spec.root_device = status.st_dev;
    spec.root_inode = status.st_ino;
    return spec;
  }
  void Work() {
    const uint32_t trouble = TakeTrouble(window());
    if (fill_holes_) FillHoles(window());
    Claimed claimed;
    const int64_t now = MonotonicNs();
    {
      WindowLock lock(window());
      claimed = Claim(window(), now);
      // Send again: records that a killed process claimed and did not send.
      if ((trouble & kTroubleWaiting) != 0) {
        claimed.first = window().durable() + 1;
        claimed.last = window().header().sent.load();
        claimed.replicas = window().header().replicas;
        std::memcpy(claimed.peers, window().header().peers, sizeof(claimed.peers));
        claimed.key = window().header().seal.record_key;
      }
    }
    SendClaimed(window(), socket_, claimed, now);
    const bool wanted = (trouble & (kTroubleRoom | kTroubleCheckpoint)) != 0;
    if (wanted && checkpoints_) Checkpoint();
  }

  std::string directory_;
  TestWindow shared_;
  int root_ = -1, socket_ = -1;
  std::vector<std::unique_ptr<TestReplica>> replicas_;
  std::atomic<bool> stop_{false}, checkpoints_{true}, fill_holes_{true};
  std::thread coordinator_;
};

// Runs `body` in a child. Returns its pid.
template <typename Body>
pid_t Fork(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  return child;
}

// Waits for the child's end. Returns its status; fails after a minute.
inline int Join(pid_t child) {
  int status = -1;
  for (int i = 0; i < 60000; ++i) {
    if (waitpid(child, &status, WNOHANG) == child) return status;
    usleep(1000);
  }
  ADD_FAILURE() << "process " << child << " hangs";
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  return status;
}

// Writes `text` at `offset` through the process's library. Returns the seq or 0.
inline uint64_t Write(Files& files, File file, int fd, uint64_t offset, const std::string& text) {
  files.Lock(file);
  const ssize_t done = pwrite(fd, text.data(), text.size(), static_cast<off_t>(offset));
  const iovec part{const_cast<char*>(text.data()), text.size()};
  const uint64_t seq =
      done > 0 ? files.LogWrite(file, offset, &part, 1, static_cast<size_t>(done)) : 0;
  files.Unlock(file);
  return seq;
}

}  // namespace salius::direct
