// The attach server: which processes get the descriptors, and when the last of them has ended.
#include "client/direct/coordinator/attach_server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/direct/process/attach.h"

namespace salius::direct {
namespace {

class AttachServerTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/attach_server_test.XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    dir_ = name;
    path_ = absl::StrCat(dir_, "/s");
    for (int& fd : descriptors_) fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    Start();
  }
  void TearDown() override {
    server_.reset();
    for (const int fd : descriptors_) close(fd);
    std::filesystem::remove_all(dir_);
  }
  void Start() {
    auto started = AttachServer::Start(path_, 4096, descriptors_);
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
  }
  static void Close(const Attached& attached) {
    for (const int fd : attached.descriptors) close(fd);
    close(attached.connection);
  }

  std::string dir_, path_;
  int descriptors_[kAttachDescriptors] = {};
  std::unique_ptr<AttachServer> server_;
};

TEST_F(AttachServerTest, SocketIsClosedToOthers) {
  struct stat st {};
  ASSERT_EQ(stat(path_.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0600u);
}

TEST_F(AttachServerTest, ProcessGetsTheDescriptors) {
  const Attached attached = AttachTo(path_.c_str());
  ASSERT_EQ(attached.error, 0) << attached.text;
  EXPECT_EQ(attached.window_bytes, 4096u);
  for (const int fd : attached.descriptors) EXPECT_GE(fd, 0);
  Close(attached);
}

TEST_F(AttachServerTest, EndsWithTheLastProcessOnly) {
  const Attached first = AttachTo(path_.c_str());
  const Attached second = AttachTo(path_.c_str());
  ASSERT_EQ(first.error, 0) << first.text;
  ASSERT_EQ(second.error, 0) << second.text;
  Close(first);
  const Attached third = AttachTo(path_.c_str());
  ASSERT_EQ(third.error, 0) << "a process is still attached";
  Close(third);
  server_->Release();
  Close(second);
  server_->AwaitLast();
  EXPECT_NE(AttachTo(path_.c_str()).error, 0);
}

TEST_F(AttachServerTest, ProcessesMayComeAndGoBeforeTheRelease) {
  const Attached first = AttachTo(path_.c_str());
  ASSERT_EQ(first.error, 0) << first.text;
  ASSERT_EQ(shutdown(first.connection, SHUT_WR), 0);
  char byte = 0;
  EXPECT_EQ(recv(first.connection, &byte, 1, 0), 0) << "it need not wait for a drain";
  Close(first);
  const Attached second = AttachTo(path_.c_str());
  EXPECT_EQ(second.error, 0) << second.text;
  Close(second);
  server_->Release();
  server_->AwaitLast();
  EXPECT_NE(AttachTo(path_.c_str()).error, 0);
}

TEST_F(AttachServerTest, LastProcessCanAwaitTheEndOfTheDrain) {
  const Attached attached = AttachTo(path_.c_str());
  ASSERT_EQ(attached.error, 0) << attached.text;
  server_->Release();
  ASSERT_EQ(shutdown(attached.connection, SHUT_WR), 0);
  server_->AwaitLast();
  char byte = 0;
  EXPECT_EQ(recv(attached.connection, &byte, 1, MSG_DONTWAIT), -1) << "the drain has not ended";
  server_.reset();
  EXPECT_EQ(recv(attached.connection, &byte, 1, 0), 0);
  Close(attached);
}

// Robust locks do not work across PID namespaces: attach_server.h.
TEST_F(AttachServerTest, ProcessOfAnotherPidNamespaceIsRefused) {
  const pid_t outer = fork();
  if (outer == 0) {
    if (unshare(CLONE_NEWPID) != 0) _exit(2);
    const pid_t inner = fork();
    if (inner == 0) {
      const Attached attached = AttachTo(path_.c_str());
      _exit(attached.error == EPERM && strcmp(attached.text, kOtherNamespace) == 0 ? 0 : 3);
    }
    int status = -1;
    waitpid(inner, &status, 0);
    // This process itself is where it was.
    const Attached own = AttachTo(path_.c_str());
    _exit(own.error != 0 ? 4 : WEXITSTATUS(status));
  }
  int status = -1;
  ASSERT_EQ(waitpid(outer, &status, 0), outer);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(AttachServerTest, SocketOfADeadCoordinatorIsReplaced) {
  server_.reset();
  const int stale = open(path_.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  ASSERT_GE(stale, 0);
  close(stale);
  ASSERT_NO_FATAL_FAILURE(Start());
  const Attached attached = AttachTo(path_.c_str());
  EXPECT_EQ(attached.error, 0) << attached.text;
  Close(attached);
}

TEST_F(AttachServerTest, PathThatIsTooLongIsRefused) {
  const std::string path = absl::StrCat(dir_, "/", std::string(200, 'x'));
  EXPECT_FALSE(AttachServer::Start(path, 4096, descriptors_).ok());
}

}  // namespace
}  // namespace salius::direct
