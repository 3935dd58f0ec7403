// The front by whole messages, as the kernel sends them, without a mount: numbers that the kernel
// does not have are refused, and lookups are counted.
#include "client/fuse/front.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "client/api/ioctl.h"
#include "client/fuse/raw_request.h"
#include "common/check.h"
#include "common/file.h"
#include "common/log.h"
#include "tests/unit/volume/fake_stream.h"
#include "tests/unit/volume/volume_fixture.h"

namespace salius {
namespace {

// Longer than the arguments of every operation; zeros are also empty names.
constexpr size_t kBodyBytes = 128;
constexpr int kNumbers = 20;  // unknown numbers for each operation

struct Answer {
  int error = 0;
  std::string payload;
  template <typename Out>
  Out As() const {
    Out out{};
    SALIUS_CHECK(payload.size() >= sizeof(out));
    std::memcpy(&out, payload.data(), sizeof(out));
    return out;
  }
};

class FrontTest : public VolumeFixture {
 protected:
  void SetUp() override {
    fake_stream = true;
    Make();
    if (IsSkipped()) return;
    SALIUS_CHECK_OK(InitLogging("front_test", "error"));
    SALIUS_CHECK(::pipe2(ends_, O_CLOEXEC | O_NONBLOCK) == 0);
    front_.emplace(*volume);
    char program[] = "front_test";
    char* argv[] = {program, nullptr};
    fuse_args args = FUSE_ARGS_INIT(1, argv);
    session_ = fuse_session_new(&args, &Front::Ops(), sizeof(fuse_lowlevel_ops), &*front_);
    fuse_opt_free_args(&args);
    SALIUS_CHECK(session_ != nullptr);
    const fuse_custom_io io{
        .writev = [](int fd, iovec* parts, int count, void*) { return ::writev(fd, parts, count); },
        .read = [](int fd, void* to, size_t size, void*) { return ::read(fd, to, size); },
        .splice_receive = nullptr,
        .splice_send = nullptr};
    SALIUS_CHECK(fuse_session_custom_io(session_, &io, ends_[1]) == 0);
    fuse_init_in init{};
    init.major = FUSE_KERNEL_VERSION;
    init.minor = FUSE_KERNEL_MINOR_VERSION;
    init.max_readahead = 1 << 17;
    init.flags = FUSE_HAS_IOCTL_DIR;
    ASSERT_EQ(Ask(FUSE_INIT, 0, BytesOf(init)).error, 0);
  }

  void TearDown() override {
    if (front_.has_value()) {
      front_->AwaitAnswers();
      front_->ReleaseAll();
      fuse_session_destroy(session_);  // closes ends_[1]
      ::close(ends_[0]);
      front_.reset();
    }
    VolumeFixture::TearDown();
  }

  template <typename In>
  static std::string BytesOf(const In& in, std::string_view names = "") {
    std::string bytes(reinterpret_cast<const char*>(&in), sizeof(in));
    return bytes.append(names);
  }
  // Returns arguments that begin with a file's number, and are 0 otherwise.
  static std::string FileBody(uint64_t fh) {
    std::string body(kBodyBytes, '\0');
    std::memcpy(body.data(), &fh, sizeof(fh));
    return body;
  }

  void Send(uint32_t opcode, uint64_t nodeid, const std::string& body, uint32_t pid = 0) {
    fuse_in_header header{};
    header.pid = pid;
    header.len = static_cast<uint32_t>(sizeof(header) + body.size());
    header.opcode = opcode;
    header.unique = 2;
    header.nodeid = nodeid;
    std::string bytes = BytesOf(header, body);
    const auto request =
        RawRequest::Parse(ends_[1], {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
    SALIUS_CHECK(request.has_value());
    if (front_->HandleRaw(*request)) return;
    fuse_buf message{};
    message.mem = bytes.data();
    message.size = bytes.size();
    fuse_session_process_buf(session_, &message);
  }

  // Returns the next answer; nothing when there is none.
  std::optional<Answer> Next() {
    fuse_out_header header;
    if (::read(ends_[0], &header, sizeof(header)) != sizeof(header)) return std::nullopt;
    std::string payload(header.len - sizeof(header), '\0');
    // An answer is written with one call.
    SALIUS_CHECK(payload.empty() || ::read(ends_[0], payload.data(), payload.size()) ==
                                        static_cast<ssize_t>(payload.size()));
    return Answer{-header.error, payload};
  }

  Answer Ask(uint32_t opcode, uint64_t nodeid, const std::string& body) {
    Send(opcode, nodeid, body);
    const std::optional<Answer> answer = Next();
    SALIUS_CHECK(answer.has_value()) << opcode;
    SALIUS_CHECK(!Next().has_value(), "one answer for each request");
    return *answer;
  }

  void MakeFile(const std::string& name) { volume->open_files().Release(Create(name)); }

  fuse_entry_out Lookup(const std::string& name) {
    const Answer answer = Ask(FUSE_LOOKUP, FUSE_ROOT_ID, name + '\0');
    SALIUS_CHECK(answer.error == 0) << answer.error;
    return answer.As<fuse_entry_out>();
  }
  int GetAttr(uint64_t nodeid) { return Ask(FUSE_GETATTR, nodeid, FileBody(0)).error; }
  void Forget(uint64_t nodeid, uint64_t lookups) {
    Send(FUSE_FORGET, nodeid, BytesOf(fuse_forget_in{lookups}));
    EXPECT_FALSE(Next().has_value());
  }
  uint64_t OpenFile(uint64_t nodeid) {
    const Answer answer = Ask(FUSE_OPEN, nodeid, BytesOf(fuse_open_in{.flags = O_RDWR}));
    SALIUS_CHECK(answer.error == 0) << answer.error;
    return answer.As<fuse_open_out>().fh;
  }

  // Makes an ioctl of client/api/ioctl.h.
  Answer Ioctl(uint64_t nodeid, uint64_t fh, unsigned long command, const std::string& args = "",
               bool directory = false, uint32_t pid = 0) {
    SendIoctl(nodeid, fh, command, args, directory, pid);
    const std::optional<Answer> answer = Next();
    SALIUS_CHECK(answer.has_value()) << command;
    return *answer;
  }
  void SendIoctl(uint64_t nodeid, uint64_t fh, unsigned long command, const std::string& args = "",
                 bool directory = false, uint32_t pid = 0) {
    fuse_ioctl_in in{};
    in.fh = fh;
    in.flags = directory ? FUSE_IOCTL_DIR : 0;
    in.cmd = static_cast<uint32_t>(command);
    in.in_size = static_cast<uint32_t>(args.size());
    in.out_size = _IOC_SIZE(command);
    Send(FUSE_IOCTL, nodeid, BytesOf(in, args), pid);
  }
  // Returns what an ioctl gives back.
  template <typename Out>
  static Out Given(const Answer& answer) {
    SALIUS_CHECK(answer.payload.size() == sizeof(fuse_ioctl_out) + sizeof(Out));
    Out out{};
    std::memcpy(&out, answer.payload.data() + sizeof(fuse_ioctl_out), sizeof(out));
    return out;
  }

  // Returns numbers that a kernel does not have: small, near to true ones, and any.
  std::vector<uint64_t> UnknownNumbers() {
    std::vector<uint64_t> numbers = {0, 999, UINT64_MAX, (uint64_t{1} << 32) + 1};
    while (numbers.size() < kNumbers) numbers.push_back((random_() >> (random_() % 48)) | 1000);
    return numbers;
  }

  std::mt19937_64 random_{3};
  int ends_[2] = {-1, -1};
  std::optional<Front> front_;
  fuse_session* session_ = nullptr;
};

TEST_F(FrontTest, UnknownNodeIsRefusedByEveryOperation) {
  const std::string zeros(kBodyBytes, '\0');
  for (const uint32_t opcode : {uint32_t{FUSE_LOOKUP},      uint32_t{FUSE_GETATTR},
                                uint32_t{FUSE_SETATTR},     uint32_t{FUSE_READLINK},
                                uint32_t{FUSE_SYMLINK},     uint32_t{FUSE_MKNOD},
                                uint32_t{FUSE_MKDIR},       uint32_t{FUSE_UNLINK},
                                uint32_t{FUSE_RMDIR},       uint32_t{FUSE_RENAME},
                                uint32_t{FUSE_RENAME2},     uint32_t{FUSE_LINK},
                                uint32_t{FUSE_OPEN},        uint32_t{FUSE_READ},
                                uint32_t{FUSE_WRITE},       uint32_t{FUSE_RELEASE},
                                uint32_t{FUSE_SETXATTR},    uint32_t{FUSE_GETXATTR},
                                uint32_t{FUSE_LISTXATTR},   uint32_t{FUSE_REMOVEXATTR},
                                uint32_t{FUSE_OPENDIR},     uint32_t{FUSE_READDIR},
                                uint32_t{FUSE_READDIRPLUS}, uint32_t{FUSE_CREATE},
                                uint32_t{FUSE_TMPFILE},     uint32_t{FUSE_FALLOCATE},
                                uint32_t{FUSE_LSEEK},       kFuseStatx}) {
    for (const uint64_t nodeid : UnknownNumbers()) {
      EXPECT_EQ(Ask(opcode, nodeid, zeros).error, ESTALE) << opcode << " " << nodeid;
    }
  }
}

TEST_F(FrontTest, UnknownSecondNodeIsRefused) {
  for (const uint64_t nodeid : UnknownNumbers()) {
    const std::string names("a\0b\0", 4);
    EXPECT_EQ(Ask(FUSE_RENAME, FUSE_ROOT_ID, BytesOf(fuse_rename_in{nodeid}, names)).error, ESTALE);
    EXPECT_EQ(Ask(FUSE_LINK, FUSE_ROOT_ID, BytesOf(fuse_link_in{nodeid}, names)).error, ESTALE);
  }
}

TEST_F(FrontTest, UnknownFileIsRefusedByEveryOperation) {
  MakeFile("f");
  const uint64_t file = Lookup("f").nodeid;
  for (const uint32_t opcode :
       {FUSE_READ, FUSE_WRITE, FUSE_RELEASE, FUSE_FSYNC, FUSE_FALLOCATE, FUSE_LSEEK}) {
    for (const uint64_t fh : UnknownNumbers()) {
      EXPECT_EQ(Ask(opcode, file, FileBody(fh)).error, EBADF) << opcode << " " << fh;
    }
  }
  for (const uint32_t opcode : {FUSE_READDIR, FUSE_READDIRPLUS, FUSE_FSYNCDIR, FUSE_RELEASEDIR}) {
    for (const uint64_t fh : UnknownNumbers()) {
      EXPECT_EQ(Ask(opcode, FUSE_ROOT_ID, FileBody(fh)).error, EBADF) << opcode << " " << fh;
    }
  }
}

TEST_F(FrontTest, CopyNeedsBothFilesAndTheNode) {
  MakeFile("f");
  const uint64_t file = Lookup("f").nodeid;
  const uint64_t fh = OpenFile(file);
  fuse_copy_file_range_in in{};
  in.fh_in = in.fh_out = fh;
  in.nodeid_out = file;
  EXPECT_EQ(Ask(FUSE_COPY_FILE_RANGE, file, BytesOf(in)).error, 0);
  in.fh_in = 999;
  EXPECT_EQ(Ask(FUSE_COPY_FILE_RANGE, file, BytesOf(in)).error, EBADF);
  in.fh_in = fh;
  in.fh_out = 999;
  EXPECT_EQ(Ask(FUSE_COPY_FILE_RANGE, file, BytesOf(in)).error, EBADF);
  in.fh_out = fh;
  in.nodeid_out = 999;
  EXPECT_EQ(Ask(FUSE_COPY_FILE_RANGE, file, BytesOf(in)).error, ESTALE);
}

TEST_F(FrontTest, ReleasedFileIsUnknown) {
  MakeFile("f");
  const uint64_t file = Lookup("f").nodeid;
  const uint64_t fh = OpenFile(file);
  fuse_release_in release{};
  release.fh = fh;
  release.flags = O_RDWR;
  EXPECT_EQ(Ask(FUSE_RELEASE, file, BytesOf(release)).error, 0);
  EXPECT_EQ(Ask(FUSE_RELEASE, file, BytesOf(release)).error, EBADF);
  EXPECT_EQ(Ask(FUSE_FSYNC, file, FileBody(fh)).error, EBADF);
  EXPECT_NE(OpenFile(file), fh);
}

TEST_F(FrontTest, FileIsNoOpenDirectory) {
  MakeFile("f");
  const uint64_t file = Lookup("f").nodeid;
  const uint64_t fh = OpenFile(file);
  EXPECT_EQ(Ask(FUSE_READDIR, file, FileBody(fh)).error, EBADF);
  const Answer opened = Ask(FUSE_OPENDIR, FUSE_ROOT_ID, BytesOf(fuse_open_in{}));
  ASSERT_EQ(opened.error, 0);
  EXPECT_EQ(Ask(FUSE_READDIR, FUSE_ROOT_ID, FileBody(opened.As<fuse_open_out>().fh)).error, 0);
}

TEST_F(FrontTest, NodeIsKnownUntilItsLastForget) {
  MakeFile("f");
  const fuse_entry_out first = Lookup("f");
  const fuse_entry_out again = Lookup("f");
  EXPECT_EQ(again.nodeid, first.nodeid);
  EXPECT_EQ(again.generation, first.generation);
  Forget(first.nodeid, 1);
  EXPECT_EQ(GetAttr(first.nodeid), 0);
  Forget(first.nodeid, 1);
  EXPECT_EQ(GetAttr(first.nodeid), ESTALE);
  EXPECT_NE(Lookup("f").nodeid, first.nodeid);
}

TEST_F(FrontTest, ForgetOfUnknownNodeOrTooManyLookupsIsHarmless) {
  MakeFile("f");
  const uint64_t nodeid = Lookup("f").nodeid;
  for (const uint64_t unknown : UnknownNumbers()) Forget(unknown, unknown);
  EXPECT_EQ(GetAttr(nodeid), 0);
  Forget(nodeid, UINT64_MAX);
  EXPECT_EQ(GetAttr(nodeid), ESTALE);
  EXPECT_EQ(GetAttr(Lookup("f").nodeid), 0);
  Forget(FUSE_ROOT_ID, 5);
  EXPECT_EQ(GetAttr(FUSE_ROOT_ID), 0);
}

TEST_F(FrontTest, BatchForgetTakesEachCount) {
  MakeFile("f");
  MakeFile("g");
  const uint64_t f = Lookup("f").nodeid;
  const uint64_t g = Lookup("g").nodeid;
  Lookup("g");
  const fuse_batch_forget_in count{.count = 3};
  const fuse_forget_one forgets[] = {{f, 1}, {999, 7}, {g, 1}};
  Send(FUSE_BATCH_FORGET, 0, BytesOf(count, BytesOf(forgets)));
  EXPECT_FALSE(Next().has_value());
  EXPECT_EQ(GetAttr(f), ESTALE);
  EXPECT_EQ(GetAttr(g), 0);
}

// Ioctls. The stream makes nothing durable before CallHeld.
class IoctlTest : public FrontTest {
 protected:
  void SetUp() override {
    FrontTest::SetUp();
    if (IsSkipped()) return;
    MakeFile("f");
    node_ = Lookup("f").nodeid;
    fh_ = OpenFile(node_);
    fake().hold_callbacks = true;
    WriteSome();
  }
  void TearDown() override {
    if (!IsSkipped()) fake().CallHeld();
    FrontTest::TearDown();
  }
  FakeStream& fake() { return FakeOf(volume->stream()); }
  void WriteSome() {
    fuse_write_in in{};
    in.fh = fh_;
    in.size = 4;
    ASSERT_EQ(Ask(FUSE_WRITE, node_, BytesOf(in, "data")).error, 0);
  }
  Answer Ask1(unsigned long command, const std::string& args = "", uint32_t pid = 0) {
    return Ioctl(node_, fh_, command, args, /*directory=*/false, pid);
  }
  Answer AskNotify(int eventfd, uint32_t pid, uint32_t flags = 0) {
    return Ask1(SALIUS_IOC_NOTIFY, BytesOf(salius_ioc_notify{eventfd, flags, 0}), pid);
  }
  Answer AskWait(uint64_t ticket, int64_t timeout_ns) {
    return Ask1(SALIUS_IOC_WAIT, BytesOf(salius_ioc_wait{ticket, timeout_ns}));
  }
  void SendWait(uint64_t ticket, int64_t timeout_ns) {
    SendIoctl(node_, fh_, SALIUS_IOC_WAIT, BytesOf(salius_ioc_wait{ticket, timeout_ns}));
  }
  // Returns an answer that another thread sends within ten seconds.
  Answer NextSoon() {
    pollfd ready{ends_[0], POLLIN, 0};
    SALIUS_CHECK(::poll(&ready, 1, 10'000) == 1, "no answer came");
    return *Next();
  }
  uint64_t Last() { return fake().Issued().back()->seq(); }

  const uint32_t self_ = static_cast<uint32_t>(::gettid());
  uint64_t node_ = 0, fh_ = 0;
};

// Returns the counter of an eventfd; 0: nothing was added.
uint64_t CounterOf(const UniqueFd& eventfd) {
  uint64_t count = 0;
  return ::read(eventfd.get(), &count, sizeof(count)) == sizeof(count) ? count : 0;
}

TEST_F(IoctlTest, OthersAreNotKnown) {
  EXPECT_EQ(Ask1(_IO('f', 1)).error, ENOTTY);
  EXPECT_EQ(Ask1(_IO('S', 8)).error, ENOTTY);
  EXPECT_EQ(Ioctl(node_, 999, SALIUS_IOC_DSYNC).error, EBADF);
  EXPECT_EQ(Ask1(SALIUS_IOC_NOTIFY, "short").error, EINVAL);
  EXPECT_EQ(Ask1(SALIUS_IOC_WAIT, "short").error, EINVAL);
  EXPECT_EQ(Ask1(SALIUS_IOC_EARLY, BytesOf(uint32_t{1})).error, EPERM);
  EXPECT_EQ(Ask1(SALIUS_IOC_GATE).error, ENOTSUP);
}

TEST_F(IoctlTest, MarksAreThoseOfTheStream) {
  const Answer answer = Ask1(SALIUS_IOC_WATERMARKS);
  ASSERT_EQ(answer.error, 0);
  const auto marks = Given<salius_watermarks>(answer);
  EXPECT_EQ(marks.issued, Last());
  EXPECT_EQ(marks.durable, fake().durable);
  EXPECT_LT(marks.durable, marks.issued);
}

TEST_F(IoctlTest, OsyncDoesNotWait) {
  EXPECT_EQ(Ask1(SALIUS_IOC_OSYNC).error, 0);
  EXPECT_LT(fake().durable, Last());
}

TEST_F(IoctlTest, DsyncIsAnsweredWhenDurable) {
  SendIoctl(node_, fh_, SALIUS_IOC_DSYNC);
  EXPECT_FALSE(Next().has_value());
  fake().CallHeld();
  EXPECT_EQ(Next()->error, 0);
  EXPECT_EQ(fake().durable, Last());
}

TEST_F(IoctlTest, DirectoriesTakeThem) {
  const Answer opened = Ask(FUSE_OPENDIR, FUSE_ROOT_ID, BytesOf(fuse_open_in{}));
  ASSERT_EQ(opened.error, 0);
  const uint64_t fh = opened.As<fuse_open_out>().fh;
  SendIoctl(FUSE_ROOT_ID, fh, SALIUS_IOC_DSYNC, "", /*directory=*/true);
  fake().CallHeld();
  EXPECT_EQ(Next()->error, 0);
  EXPECT_EQ(Ioctl(FUSE_ROOT_ID, 999, SALIUS_IOC_OSYNC, "", /*directory=*/true).error, EBADF);
}

TEST_F(IoctlTest, NotificationComesWhenDurableAndNotEarlier) {
  const UniqueFd event(::eventfd(0, EFD_NONBLOCK));
  const Answer answer = AskNotify(event.get(), self_);
  ASSERT_EQ(answer.error, 0);
  EXPECT_EQ(Given<salius_ioc_notify>(answer).ticket, Last());
  EXPECT_EQ(CounterOf(event), 0u);
  fake().CallHeld();
  EXPECT_EQ(CounterOf(event), 1u);
  EXPECT_EQ(fake().durable, Last());
}

TEST_F(IoctlTest, NotificationOfAFullCounterBlocksNoThread) {
  const UniqueFd event(::eventfd(0, EFD_NONBLOCK));
  const uint64_t full = UINT64_MAX - 1;
  ASSERT_EQ(::write(event.get(), &full, sizeof(full)), static_cast<ssize_t>(sizeof(full)));
  ASSERT_EQ(::fcntl(event.get(), F_SETFL, 0), 0);  // a write would block
  ASSERT_EQ(AskNotify(event.get(), self_).error, 0);
  fake().CallHeld();
  EXPECT_GE(CounterOf(event), full);
}

TEST_F(IoctlTest, NotificationNeedsAnEventfdOfAVisibleProcess) {
  const UniqueFd event(::eventfd(0, EFD_NONBLOCK));
  EXPECT_EQ(AskNotify(event.get(), 0).error, ENOTSUP);
  EXPECT_EQ(AskNotify(-1, self_).error, EBADF);
  EXPECT_EQ(AskNotify(1 << 20, self_).error, EBADF);
  EXPECT_EQ(AskNotify(ends_[0], self_).error, EINVAL);
  EXPECT_EQ(AskNotify(event.get(), self_, /*flags=*/1).error, EINVAL);
}

TEST_F(IoctlTest, WaitEndsWhenDurableOrAtItsTime) {
  EXPECT_EQ(AskWait(Last() + 1, -1).error, EINVAL);
  EXPECT_EQ(AskWait(0, -1).error, 0);
  EXPECT_EQ(AskWait(Last(), 0).error, ETIMEDOUT);
  for (int i = 0; i < 3; ++i) {
    SendWait(Last(), 1'000'000);
    EXPECT_EQ(NextSoon().error, ETIMEDOUT);
  }
  SendWait(Last(), INT64_MAX);
  SendWait(Last(), -1);
  EXPECT_FALSE(Next().has_value());
  fake().CallHeld();
  EXPECT_EQ(Next()->error, 0);
  EXPECT_EQ(Next()->error, 0);
  EXPECT_EQ(AskWait(Last(), 0).error, 0);
}

TEST_F(IoctlTest, FailedVolumeEndsWaitsAndNotifies) {
  const UniqueFd event(::eventfd(0, EFD_NONBLOCK));
  ASSERT_EQ(AskNotify(event.get(), self_).error, 0);
  SendIoctl(node_, fh_, SALIUS_IOC_DSYNC);
  SendWait(Last(), INT64_MAX);
  fake().Fail(absl::InternalError("planned by the test"));
  fake().CallHeld();
  EXPECT_EQ(Next()->error, EIO);
  EXPECT_EQ(Next()->error, EIO);
  EXPECT_EQ(CounterOf(event), 1u);
  EXPECT_EQ(AskWait(Last(), 0).error, EIO);
  EXPECT_EQ(Ask1(SALIUS_IOC_OSYNC).error, EIO);
  EXPECT_EQ(Ask1(SALIUS_IOC_DSYNC).error, EIO);
}

}  // namespace
}  // namespace salius
