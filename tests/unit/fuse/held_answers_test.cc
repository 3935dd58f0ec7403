// Tests for which record an answer of a mount with commit=external waits, and its content then. The
// requests are messages as the kernel sends them; a pipe stands for its device.
#include "client/fuse/held_answers.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/fuse/kernel_abi.h"
#include "client/fuse/raw_request.h"
#include "client/gate/insiders.h"
#include "client/gate/page.h"
#include "common/check.h"
#include "common/file.h"
#include "tests/unit/volume/fake_stream.h"

namespace salius {
namespace {

constexpr uint64_t kNode = 9;

class NoSink final : public ApplySink {
 public:
  absl::StatusOr<size_t> Apply(absl::Span<const RecordRef>) override { return size_t{1}; }
  absl::Status SyncApplied() override { return absl::OkStatus(); }
};

class HeldAnswersTest : public testing::Test {
 protected:
  void SetUp() override {
    SALIUS_CHECK(::pipe2(ends_, O_CLOEXEC | O_NONBLOCK) == 0);
    page_.Store(7, 3);
  }
  void TearDown() override {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }

  // Sends a request of `opcode` from thread `tid`, and answers it with "seen".
  void Ask(uint32_t opcode, uint32_t tid, std::string_view body = "") {
    fuse_in_header header{};
    header.len = static_cast<uint32_t>(sizeof(header) + body.size());
    header.opcode = opcode;
    header.unique = ++unique_;
    header.nodeid = kNode;
    header.pid = tid;
    std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
    bytes += body;
    const std::optional<RawRequest> request = RawRequest::Parse(
        ends_[1], {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, &held_);
    SALIUS_CHECK(request.has_value());
    held_.Begin(*request);
    EXPECT_EQ(request->Reply({reinterpret_cast<const uint8_t*>("seen"), 4}), 0);
  }
  // Returns what the kernel has got; "EIO" for that error; "" for nothing.
  std::string Sent() {
    char bytes[256];
    const ssize_t got = ::read(ends_[0], bytes, sizeof(bytes));
    if (got < 0) return "";
    fuse_out_header header;
    std::memcpy(&header, bytes, sizeof(header));
    EXPECT_EQ(header.len, static_cast<uint32_t>(got));
    EXPECT_EQ(header.unique, unique_);
    if (header.error != 0) return header.error == -EIO ? "EIO" : "another error";
    return std::string(bytes + sizeof(header), static_cast<size_t>(got) - sizeof(header));
  }
  // Returns for which record an answer waits; 0: none.
  Seq Awaited() {
    absl::MutexLock lock(&stream_.mu);
    return stream_.notified.empty() ? 0 : stream_.notified.front().first;
  }
  void Finish(const absl::Status& status) {
    DurableCallback done;
    {
      absl::MutexLock lock(&stream_.mu);
      done = std::move(stream_.notified.front().second);
      stream_.notified.erase(stream_.notified.begin());
    }
    std::move(done)(status);
  }
  // Registers this process.
  void GoInside() {
    SALIUS_CHECK(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair_) == 0);
    ASSERT_TRUE(insiders_.Add(pair_[0]).ok());
  }
  static uint32_t Tid() { return static_cast<uint32_t>(::syscall(SYS_gettid)); }
  static std::string ReadBody(uint32_t flags) {
    fuse_read_in in{};
    in.read_flags = flags;
    return std::string(reinterpret_cast<const char*>(&in), sizeof(in));
  }
  static std::string XattrBody(std::string_view name) {
    const fuse_getxattr_in in{};
    std::string body(reinterpret_cast<const char*>(&in), sizeof(in));
    body += name;
    body.push_back(0);
    return body;
  }

  int ends_[2] = {-1, -1};
  int pair_[2] = {-1, -1};
  uint64_t unique_ = 0;
  NoSink sink_;
  FakeStream stream_{sink_, 1};
  gate::Page page_;
  gate::Insiders insiders_;
  Seq last_change_ = 0;
  HeldAnswers held_{stream_, page_, insiders_, [this](uint64_t nodeid) {
                      EXPECT_EQ(nodeid, kNode);
                      return last_change_;
                    }};
};

TEST_F(HeldAnswersTest, EveryLookFromOutsideWaitsForAllThatWasIssued) {
  for (const uint32_t opcode :
       {uint32_t{FUSE_LOOKUP}, uint32_t{FUSE_GETATTR}, kFuseStatx, uint32_t{FUSE_READ},
        uint32_t{FUSE_READLINK}, uint32_t{FUSE_GETXATTR}, uint32_t{FUSE_LISTXATTR},
        uint32_t{FUSE_READDIR}, uint32_t{FUSE_READDIRPLUS}, uint32_t{FUSE_LSEEK}}) {
    Ask(opcode, Tid());
    EXPECT_EQ(Sent(), "") << opcode;
    EXPECT_EQ(Awaited(), 7u) << opcode;
    Finish(absl::OkStatus());
    EXPECT_EQ(Sent(), "seen") << opcode;
  }
}

TEST_F(HeldAnswersTest, ChangesAndCountsDoNotWait) {
  for (const uint32_t opcode : {FUSE_MKDIR, FUSE_WRITE, FUSE_SETATTR, FUSE_STATFS, FUSE_OPEN}) {
    Ask(opcode, Tid());
    EXPECT_EQ(Sent(), "seen") << opcode;
  }
  EXPECT_EQ(Awaited(), 0u);
}

TEST_F(HeldAnswersTest, NothingWaitsWhenAllIsDurable) {
  page_.Store(7, 7);
  Ask(FUSE_GETATTR, 0);
  EXPECT_EQ(Sent(), "seen");
}

TEST_F(HeldAnswersTest, InsiderDoesNotWait) {
  GoInside();
  Ask(FUSE_GETATTR, Tid());
  EXPECT_EQ(Sent(), "seen");
  Ask(FUSE_GETATTR, 0);  // a process that cannot be seen
  EXPECT_EQ(Sent(), "");
  Finish(absl::OkStatus());
  EXPECT_EQ(Sent(), "seen");
}

TEST_F(HeldAnswersTest, AnswerForSharedCacheWaitsInsideForItsOwnFile) {
  GoInside();
  for (const auto& [opcode, body] : std::vector<std::pair<uint32_t, std::string>>{
           {FUSE_READ, ReadBody(0)}, {FUSE_GETXATTR, XattrBody("system.posix_acl_access")}}) {
    last_change_ = 5;
    Ask(opcode, Tid(), body);
    EXPECT_EQ(Sent(), "");
    EXPECT_EQ(Awaited(), 5u);
    Finish(absl::OkStatus());
    EXPECT_EQ(Sent(), "seen");
    last_change_ = 3;  // durable
    Ask(opcode, Tid(), body);
    EXPECT_EQ(Sent(), "seen");
  }
  last_change_ = 5;
  Ask(FUSE_READ, Tid(), ReadBody(FUSE_READ_LOCKOWNER));
  EXPECT_EQ(Sent(), "seen");
  Ask(FUSE_GETXATTR, Tid(), XattrBody("user.a"));
  EXPECT_EQ(Sent(), "seen");
}

TEST_F(HeldAnswersTest, FailedVolumeAnswersEio) {
  Ask(FUSE_READ, 0);
  Finish(ErrnoStatus(EIO, "failed"));
  EXPECT_EQ(Sent(), "EIO");
  held_.AwaitAll();
}

}  // namespace
}  // namespace salius
