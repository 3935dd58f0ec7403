// Requests decoded here: nothing is read beyond the end of a message, and answers have the kernel's
// form.
#include "client/fuse/raw_request.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "client/fuse/connection.h"

namespace salius {
namespace {

std::vector<uint8_t> Message(uint32_t opcode, std::string_view body, uint32_t length = 0) {
  fuse_in_header header{};
  header.len = length != 0 ? length : static_cast<uint32_t>(sizeof(header) + body.size());
  header.opcode = opcode;
  header.unique = 77;
  std::vector<uint8_t> bytes(sizeof(header) + body.size());
  std::memcpy(bytes.data(), &header, sizeof(header));
  std::memcpy(bytes.data() + sizeof(header), body.data(), body.size());
  return bytes;
}

TEST(RawRequestTest, MessageShorterThanItsHeaderSaysIsNone) {
  EXPECT_FALSE(RawRequest::Parse(-1, {}).has_value());
  EXPECT_FALSE(RawRequest::Parse(-1, Message(FUSE_OPEN, "12345678", 400)).has_value());
  EXPECT_FALSE(RawRequest::Parse(-1, Message(FUSE_OPEN, "12345678", 12)).has_value());
}

TEST(RawRequestTest, ArgumentsAndNamesEndWhereTheMessageEnds) {
  const std::vector<uint8_t> bytes = Message(FUSE_OPEN, std::string_view("12345678name", 12));
  const std::optional<RawRequest> request = RawRequest::Parse(-1, bytes);
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(request->opcode(), uint32_t{FUSE_OPEN});
  EXPECT_NE(request->args<fuse_open_in>(), nullptr);
  EXPECT_EQ(request->args<fuse_write_in>(), nullptr);
  EXPECT_FALSE(request->name(8).has_value());  // no NUL before the end
  EXPECT_FALSE(request->name(500).has_value());
  EXPECT_EQ(request->rest(8).size(), 4u);
  EXPECT_TRUE(request->rest(12).empty());
}

TEST(RawRequestTest, NameStopsAtItsNul) {
  const std::vector<uint8_t> bytes = Message(FUSE_CREATE, std::string_view("name\0value", 10));
  EXPECT_EQ(RawRequest::Parse(-1, bytes)->name(0), "name");
}

class RawReplyTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(::pipe2(ends_, O_CLOEXEC), 0); }
  void TearDown() override {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  std::string Answer() {
    char buffer[256];
    const ssize_t n = ::read(ends_[0], buffer, sizeof(buffer));
    return std::string(buffer, static_cast<size_t>(n));
  }
  int ends_[2] = {-1, -1};
};

TEST_F(RawReplyTest, ErrorIsAHeaderWithANegativeErrno) {
  const std::vector<uint8_t> bytes = Message(FUSE_OPEN, "12345678");
  EXPECT_EQ(RawRequest::Parse(ends_[1], bytes)->ReplyError(ENOSPC), 0);
  const std::string answer = Answer();
  ASSERT_EQ(answer.size(), sizeof(fuse_out_header));
  fuse_out_header out;
  std::memcpy(&out, answer.data(), sizeof(out));
  EXPECT_EQ(out.error, -ENOSPC);
  EXPECT_EQ(out.unique, 77u);
  EXPECT_EQ(out.len, sizeof(out));
}

TEST_F(RawReplyTest, StructFollowsTheHeader) {
  const std::vector<uint8_t> bytes = Message(FUSE_WRITE, "");
  EXPECT_EQ(RawRequest::Parse(ends_[1], bytes)->ReplyStruct(fuse_write_out{.size = 5}), 0);
  EXPECT_EQ(Answer().size(), sizeof(fuse_out_header) + sizeof(fuse_write_out));
}

TEST_F(RawReplyTest, FailedWriteGivesItsErrno) {
  const std::vector<uint8_t> bytes = Message(FUSE_WRITE, "");
  EXPECT_EQ(RawRequest::Parse(-1, bytes)->ReplyError(0), EBADF);
}

TEST(WantedCapabilitiesTest, NoAsynchronousDirectIoAndNoWriteBackCache) {
  const uint32_t wanted = WantedCapabilities(~uint32_t{0}, /*external=*/false);
  EXPECT_EQ(wanted & FUSE_CAP_ASYNC_DIO, 0u);
  EXPECT_EQ(wanted & FUSE_CAP_WRITEBACK_CACHE, 0u);
  EXPECT_EQ(wanted & FUSE_CAP_ATOMIC_O_TRUNC, 0u);
  EXPECT_NE(wanted & FUSE_CAP_READDIRPLUS, 0u);
  EXPECT_EQ(wanted & FUSE_CAP_READDIRPLUS_AUTO, 0u);
  EXPECT_EQ(WantedCapabilities(0, false), 0u);
}

TEST(WantedCapabilitiesTest, ExternalMountHasLinksAndListingsAskedForEachTime) {
  const uint32_t wanted = WantedCapabilities(~uint32_t{0}, /*external=*/true);
  EXPECT_EQ(wanted & FUSE_CAP_CACHE_SYMLINKS, 0u);
  EXPECT_EQ(wanted & FUSE_CAP_READDIRPLUS, 0u);
  EXPECT_EQ(WantedCapabilities(~uint32_t{0}, false) & ~wanted,
            uint32_t{FUSE_CAP_CACHE_SYMLINKS | FUSE_CAP_READDIRPLUS});
}

TEST(ExtraInitFlagsTest, OnlyFlagsThatTheKernelOffersAreTaken) {
  const uint64_t all = kInitDirectIoAllowMmap | kInitNoExportSupport | kInitAllowIdmap | FUSE_HANDLE_KILLPRIV_V2 |
                       FUSE_SETXATTR_EXT;
  EXPECT_EQ(ExtraInitFlags(0), 0u);
  EXPECT_EQ(ExtraInitFlags(all), 0u);  // an old kernel has no second word of flags
  EXPECT_EQ(ExtraInitFlags(all | FUSE_INIT_EXT | FUSE_WRITEBACK_CACHE), all);
  EXPECT_EQ(ExtraInitFlags(FUSE_INIT_EXT | FUSE_SETXATTR_EXT), uint64_t{FUSE_SETXATTR_EXT});
}

TEST(ToFuseAttrTest, EveryFieldArrives) {
  struct stat st {};
  st.st_ino = 9;
  st.st_size = int64_t{5} << 32;
  st.st_blocks = 8;
  st.st_mode = S_IFREG | 0640;
  st.st_nlink = 2;
  st.st_uid = 3;
  st.st_gid = 4;
  st.st_rdev = 0x103;
  st.st_blksize = 4096;
  st.st_atim = {-5, 6};
  st.st_mtim = {7, 8};
  st.st_ctim = {9, 10};
  const fuse_attr attr = ToFuseAttr(st);
  EXPECT_EQ(attr.ino, 9u);
  EXPECT_EQ(attr.size, uint64_t{5} << 32);
  EXPECT_EQ(attr.blocks, 8u);
  EXPECT_EQ(attr.mode, uint32_t{S_IFREG | 0640});
  EXPECT_EQ(attr.nlink, 2u);
  EXPECT_EQ(attr.uid, 3u);
  EXPECT_EQ(attr.gid, 4u);
  EXPECT_EQ(attr.rdev, 0x103u);
  EXPECT_EQ(attr.blksize, 4096u);
  EXPECT_EQ(static_cast<int64_t>(attr.atime), -5);
  EXPECT_EQ(attr.atimensec, 6u);
  EXPECT_EQ(attr.mtime, 7u);
  EXPECT_EQ(attr.ctimensec, 10u);
}

}  // namespace
}  // namespace salius
