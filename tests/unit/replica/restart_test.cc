// The real program: killed, restarted, its memory kept or lost.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "common/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/replica/replica_client.h"

namespace salius {
namespace {

using ::testing::HasSubstr;

constexpr char kProgram[] = "replica/salius-replica";

// salius-replica as a child; its stderr is read until it serves or ends.
class Process {
 public:
  explicit Process(std::vector<std::string> arguments) {
    int pipe_fds[2];
    SALIUS_CHECK(pipe2(pipe_fds, O_CLOEXEC) == 0);
    stderr_ = UniqueFd(pipe_fds[0]);
    const UniqueFd write_end(pipe_fds[1]);
    arguments.insert(arguments.begin(), kProgram);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(write_end.get(), STDERR_FILENO);
      dup2(write_end.get(), STDOUT_FILENO);
      execv(kProgram, argv.data());
      _exit(127);
    }
  }
  ~Process() {
    if (pid_ > 0) Kill(SIGKILL);
  }

  // Returns true once it serves; false when it ended first. Its log is in text().
  bool WaitServing() {
    char buffer[4096];
    while (text_.find("port ") == std::string::npos ||
           text_.find("serves on") == std::string::npos) {
      const ssize_t n = read(stderr_.get(), buffer, sizeof(buffer));
      if (n <= 0) return false;
      text_.append(buffer, static_cast<size_t>(n));
    }
    const size_t at = text_.find("UDP port ") + 9;
    port_ = static_cast<uint16_t>(std::atoi(text_.c_str() + at));
    return true;
  }
  // Sends the signal (0: none) and returns the wait status, with the rest of its output read.
  int Kill(int signal) {
    if (signal != 0) kill(pid_, signal);
    char buffer[4096];
    for (ssize_t n; (n = read(stderr_.get(), buffer, sizeof(buffer))) > 0;) {
      text_.append(buffer, static_cast<size_t>(n));
    }
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return status;
  }
  uint16_t port() const { return port_; }
  const std::string& text() const { return text_; }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  UniqueFd stderr_;
  std::string text_;
  uint16_t port_ = 0;
};

class RestartTest : public ::testing::Test {
 protected:
  std::vector<std::string> Arguments() {
    return {"--listen", "127.0.0.1:0", "--memory", "16MiB", "--shm-dir", dir(), "--no-mlock",
            "--state-dir", state_.path(), "--insecure"};
  }
  void Start() {
    client_.reset();
    process_ = std::make_unique<Process>(Arguments());
    ASSERT_TRUE(process_->WaitServing()) << process_->text();
    client_ = std::make_unique<ReplicaClient>(process_->port());
  }
  std::string dir() const { return shm_.path() + "/replica"; }
  ShmDir state_;

  ShmDir shm_;
  std::unique_ptr<Process> process_;
  std::unique_ptr<ReplicaClient> client_;
};

TEST_F(RestartTest, KilledProcessComesBackWithTheSameBytesAndIncarnation) {
  Start();
  ASSERT_TRUE(client_->Open().ok());
  std::string all;
  for (Seq seq = 1; seq <= 50; ++seq) {
    const std::string record = TestRecord(seq, seq * 500);
    client_->SendRecords({record});
    ASSERT_TRUE(client_->Receive().has_value());
    all += record;
  }
  const auto before = client_->Inventory();
  process_->Kill(SIGKILL);
  Start();
  EXPECT_THAT(process_->text(), HasSubstr("attached"));
  const auto after = client_->Inventory();
  EXPECT_EQ(after.incarnation(), before.incarnation());
  EXPECT_EQ(after.inventory().SerializeAsString(), before.inventory().SerializeAsString());
  const auto fetched = client_->Fetch();
  EXPECT_EQ(fetched.count, 50u);
  EXPECT_EQ(fetched.records, all);
  // The session continues without a gap.
  client_->SendRecords({TestRecord(51)});
  const auto acked = client_->Receive();
  ASSERT_TRUE(acked.has_value());
  EXPECT_EQ(acked->ack.contiguous, 51u);
  EXPECT_EQ(acked->ack.incarnation, before.incarnation());
}

// It is killed while records pour in: every acknowledged one is there, byte for byte.
TEST_F(RestartTest, KilledInTheMiddleKeepsEverythingAcknowledged) {
  for (int round = 0; round < 5; ++round) {
    std::filesystem::remove_all(dir());
    Start();
    ASSERT_TRUE(client_->Open().ok());
    const auto record_of = [](Seq seq) { return TestRecord(seq, (seq * 131) % 3000); };
    Seq sent = 0, acked = 0;
    while (acked < 100 + static_cast<Seq>(round) * 37) {
      while (sent < acked + 20) {
        ++sent;
        client_->SendRecords({record_of(sent)});
      }
      const auto answer = client_->Receive();
      ASSERT_TRUE(answer.has_value());
      acked = std::max(acked, answer->ack.contiguous);
    }
    process_->Kill(SIGKILL);
    while (const auto answer = client_->Receive(0)) acked = std::max(acked, answer->ack.contiguous);
    Start();
    EXPECT_GE(client_->Inventory().inventory().contiguous(), acked);
    std::string expected;
    const uint64_t count = client_->Fetch().count;
    for (Seq seq = 1; seq <= count; ++seq) expected += record_of(seq);
    EXPECT_EQ(client_->Fetch().records, expected);
    process_->Kill(SIGKILL);
  }
}

TEST_F(RestartTest, LostMemoryIsAnotherIncarnationAndUnknown) {
  Start();
  ASSERT_TRUE(client_->Open().ok());
  client_->SendRecords({TestRecord(1)});
  ASSERT_TRUE(client_->Receive().has_value());
  const auto before = client_->Inventory();
  process_->Kill(SIGKILL);
  std::filesystem::remove_all(dir());
  Start();
  EXPECT_THAT(process_->text(), HasSubstr("new arena"));
  const auto after = client_->Inventory();
  EXPECT_NE(after.incarnation(), before.incarnation());
  EXPECT_FALSE(after.inventory().known());
  EXPECT_EQ(client_->Fetch().status.error_code(), grpc::StatusCode::NOT_FOUND);
  client_->SendRecords({TestRecord(2)});
  const auto acked = client_->Receive();
  ASSERT_TRUE(acked.has_value());
  EXPECT_EQ(acked->ack.flags, kAckUnknownSession);
  EXPECT_EQ(acked->ack.incarnation, after.incarnation());
}

TEST_F(RestartTest, DamagedRecordIsNotHeldAndTheIncarnationChanges) {
  Start();
  ASSERT_TRUE(client_->Open().ok());
  for (Seq seq = 1; seq <= 3; ++seq) client_->SendRecords({TestRecord(seq, 500)});
  ASSERT_EQ(client_->Probe()->ack.contiguous, 3u);
  const Incarnation before = client_->Inventory().incarnation();
  process_->Kill(SIGKILL);
  {
    std::fstream file(dir() + "/arena", std::ios::in | std::ios::out | std::ios::binary);
    const std::string memory((std::istreambuf_iterator<char>(file)), {});
    const size_t at = memory.find(TestRecord(2, 500));
    ASSERT_NE(at, std::string::npos);
    file.clear();
    file.seekp(static_cast<std::streamoff>(at + 300));
    file.put('!');
  }
  Start();
  EXPECT_THAT(process_->text(), HasSubstr("damaged"));
  EXPECT_NE(client_->Inventory().incarnation(), before);
  EXPECT_EQ(client_->Inventory().inventory().contiguous(), 1u);
  EXPECT_EQ(client_->Fetch().records, TestRecord(1, 500) + TestRecord(3, 500));
}

TEST_F(RestartTest, SigtermEndsItAndLeavesTheArena) {
  Start();
  ASSERT_TRUE(client_->Open().ok());
  client_->SendRecords({TestRecord(1)});
  ASSERT_TRUE(client_->Receive().has_value());
  const Incarnation before = client_->Inventory().incarnation();
  const int status = process_->Kill(SIGTERM);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  Start();
  EXPECT_EQ(client_->Inventory().incarnation(), before);
  EXPECT_EQ(client_->Fetch().records, TestRecord(1));
}

TEST_F(RestartTest, PortInUseIsExitCodeOneAndNamesThePort) {
  Start();
  auto arguments = Arguments();
  arguments[1] = "127.0.0.1:" + std::to_string(process_->port());
  arguments[5] = shm_.path() + "/other";
  Process second(arguments);
  EXPECT_FALSE(second.WaitServing());
  const int status = second.Kill(0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << status;
  EXPECT_THAT(second.text(), HasSubstr(std::to_string(process_->port())));
}

TEST_F(RestartTest, PublicAddressWithoutInsecureIsExitCodeTwoAndSaysWhy) {
  auto arguments = Arguments();
  arguments[1] = "0.0.0.0:0";
  arguments.pop_back();  // --insecure
  Process process(arguments);
  EXPECT_FALSE(process.WaitServing());
  const int status = process.Kill(0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 2) << status;
  EXPECT_THAT(process.text(), HasSubstr("no authentication is configured"));
}

TEST_F(RestartTest, WrongOptionIsExitCodeTwo) {
  Process process({"--memory", "none"});
  EXPECT_FALSE(process.WaitServing());
  const int status = process.Kill(0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 2) << status;
}

TEST_F(RestartTest, HelpAndVersionExitWithZero) {
  for (const char* const option : {"--help", "--version"}) {
    Process process({option});
    EXPECT_FALSE(process.WaitServing());
    EXPECT_EQ(process.Kill(0), 0);
    EXPECT_THAT(process.text(), HasSubstr("salius-replica"));
  }
}

}  // namespace
}  // namespace salius
