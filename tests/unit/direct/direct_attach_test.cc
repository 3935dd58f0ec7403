// The handshake by which a process gets the shared memory: both ends over a real socket.
#include <sys/resource.h>
#include <sys/un.h>

#include "tests/unit/direct/direct_testing.h"

namespace salius::direct {
namespace {

class DirectAttachTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // Longer than the address of a socket.
    const std::string directory = volume_.Path(std::string(120, 'd'));
    ASSERT_EQ(mkdir(directory.c_str(), 0700), 0);
    path_ = directory + "/socket";
    listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un address;
    int opened = -1;
    ASSERT_EQ(SocketAddress(path_.c_str(), &address, &opened), 0);
    ASSERT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    close(opened);
    ASSERT_EQ(listen(listener_, 8), 0);
  }
  void TearDown() override {
    shutdown(listener_, SHUT_RDWR);  // in case no process came
    if (server_.joinable()) server_.join();
    if (connection_ >= 0) close(connection_);
    close(listener_);
  }
  // Answers one process: with the descriptors, or by `answer`.
  void Serve(std::function<void(int)> answer = nullptr) {
    server_ = std::thread([this, answer] {
      connection_ = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      read_ = ReadAttachRequest(connection_, &request_);
      if (answer) {
        answer(connection_);
        return;
      }
      const Attached handed = volume_.Descriptors();
      EXPECT_EQ(AcceptAttach(connection_, handed.window_bytes, handed.descriptors), 0);
      for (const int fd : handed.descriptors) close(fd);
      close(handed.connection);
    });
  }

  TestVolume volume_;
  std::string path_;
  int listener_ = -1, connection_ = -1, read_ = -1;
  AttachRequest request_;
  std::thread server_;
};

TEST_F(DirectAttachTest, ProcessGetsAllDescriptors) {
  Serve();
  Process process;
  char text[100];
  ASSERT_EQ(process.Attach(path_.c_str(), text, sizeof(text)), 0) << text;
  server_.join();
  EXPECT_EQ(read_, 0);
  EXPECT_EQ(request_.pid, getpid());
  EXPECT_TRUE(process.attached());
  EXPECT_EQ(process.window().header().session, 77u);
  int owned = 0;
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  for (int fd = 0; fd < static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 5000)); ++fd) {
    if (!process.Owns(fd)) continue;
    ++owned;
    EXPECT_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    EXPECT_GE(fd, static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 4096)) - 32);
  }
  EXPECT_EQ(owned, 5);
}

TEST_F(DirectAttachTest, ConnectionEndsWhenTheProcessAndItsChildrenHaveEnded) {
  Serve();
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  const pid_t child = Fork([&] {
    Process process;
    char text[100];
    if (process.Attach(path_.c_str(), text, sizeof(text)) != 0) _exit(1);
    if (fork() == 0) {
      process.AfterFork();
      char byte = 0;
      (void)!read(go[0], &byte, 1);
    }
  });
  EXPECT_EQ(Join(child), 0);
  server_.join();
  char byte = 0;
  EXPECT_EQ(recv(connection_, &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN) << "the grandchild lives";
  ASSERT_EQ(write(go[1], "x", 1), 1);
  EXPECT_EQ(recv(connection_, &byte, 1, 0), 0) << "end of file";
  close(go[0]);
  close(go[1]);
}

TEST_F(DirectAttachTest, RefusalGivesTheReason) {
  Serve([](int connection) { RefuseAttach(connection, EBUSY, "a mount has it"); });
  Process process;
  char text[100];
  EXPECT_EQ(process.Attach(path_.c_str(), text, sizeof(text)), EBUSY);
  EXPECT_STREQ(text, "a mount has it");
  EXPECT_FALSE(process.attached());
}

TEST_F(DirectAttachTest, AnswerOfAnotherVersionIsRefused) {
  Serve([](int connection) {
    AttachReply reply;
    reply.version = 9;
    send(connection, &reply, sizeof(reply), 0);
  });
  EXPECT_EQ(AttachTo(path_.c_str()).error, EPROTO);
}

TEST_F(DirectAttachTest, EndOfFileInsteadOfAnAnswerIsAnError) {
  Serve([](int connection) { shutdown(connection, SHUT_RDWR); });
  EXPECT_EQ(AttachTo(path_.c_str()).error, EPROTO);
}

TEST_F(DirectAttachTest, NoCoordinatorIsAnError) {
  EXPECT_EQ(AttachTo(volume_.Path("none").c_str()).error, ENOENT);
  EXPECT_EQ(AttachTo(std::string(200, 'x').c_str()).error, ENAMETOOLONG);
}

TEST_F(DirectAttachTest, RequestOfAnotherVersionIsRefused) {
  Serve([](int) {});
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address;
  int opened = -1;
  ASSERT_EQ(SocketAddress(path_.c_str(), &address, &opened), 0);
  ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  close(opened);
  AttachRequest request;
  request.window_version = kWindowVersion + 1;
  ASSERT_EQ(send(fd, &request, sizeof(request), 0), static_cast<ssize_t>(sizeof(request)));
  server_.join();
  EXPECT_EQ(read_, EPROTO);
  close(fd);
}

}  // namespace
}  // namespace salius::direct
