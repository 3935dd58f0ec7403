// Which records a change issues, in which order, and when its caller is answered.
#include <errno.h>
#include <fcntl.h>
#include <sys/xattr.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "common/limits.h"
#include "log/record.h"
#include "tests/unit/volume/fake_stream.h"
#include "tests/unit/volume/volume_fixture.h"

namespace salius {
namespace {

class RecordsTest : public VolumeFixture {
 protected:
  FakeStream& fake() { return FakeOf(volume->stream()); }
};

TEST_F(RecordsTest, AppendIsLoggedWithItsAbsoluteOffset) {
  Make();
  Handle* const file = Create("a");
  Write(file, 0, "12345");
  ASSERT_TRUE(volume->files().Write(*file, 999, "678", /*append=*/true, Contract::kPlain).ok());
  ASSERT_TRUE(volume->files().Write(*file, 0, "9", /*append=*/true, Contract::kPlain).ok());
  const auto writes = fake().Issued(Op::kWrite);
  ASSERT_EQ(writes.size(), 3u);
  EXPECT_EQ(writes[1]->header().arg0, 5u);
  EXPECT_EQ(writes[2]->header().arg0, 8u);
  EXPECT_EQ(fake().applied, fake().Issued(Op::kCreate)[0]->seq()) << "a patch was applied early";
  volume->open_files().Release(file);
}

TEST_F(RecordsTest, PlainWriteWaitsForNothingAndSynchronousOneForDurable) {
  Make();
  Handle* const file = Create("a");
  const Seq before = fake().durable;
  Write(file, 0, "plain");
  EXPECT_EQ(fake().durable, before);
  Write(file, 0, "sync", Contract::kDurable);
  EXPECT_EQ(fake().durable, fake().Issued().back()->seq());
  EXPECT_LT(fake().applied, fake().durable);
  Write(file, 0, "plain");
  ASSERT_TRUE(Fsync(file).ok());
  EXPECT_EQ(fake().durable, fake().Issued().back()->seq());
  volume->open_files().Release(file);
}

TEST_F(RecordsTest, LargeWriteIsSplitIntoRecordsInOrder) {
  Make();
  Handle* const file = Create("a");
  for (const size_t size :
       {size_t{300000}, size_t{512} << 10, (size_t{512} << 10) + 1, size_t{1} << 20}) {
    const size_t before = fake().Issued(Op::kWrite).size();
    std::string data(size, '\0');
    for (size_t i = 0; i < size; ++i) data[i] = static_cast<char>(i * 31 + i / 1000);
    Write(file, 7, data);
    const auto writes = fake().Issued(Op::kWrite);
    EXPECT_LE(writes.size() - before, size / kMaxRecordBody + 1);
    std::string written;
    for (size_t i = before; i < writes.size(); ++i) {
      EXPECT_EQ(writes[i]->header().arg0, 7 + written.size());
      EXPECT_LE(writes[i]->body().size(), kMaxRecordBody);
      written += writes[i]->body();
    }
    EXPECT_TRUE(written == data) << size;
  }
  volume->open_files().Release(file);
}

TEST_F(RecordsTest, ClosedFileHasNoDescriptorWhileItsWritesAreUnapplied) {
  Make();
  Handle* file = Create("a");
  Node& node = file->node;
  const auto has_descriptor = [&] {
    absl::MutexLock lock(&node.state);
    return node.seen_records().rw_fd != nullptr;
  };
  Write(file, 0, "one");
  EXPECT_TRUE(has_descriptor());
  volume->open_files().Release(file);
  EXPECT_FALSE(has_descriptor());
  struct stat want {};
  want.st_size = 2;
  ASSERT_TRUE(volume->attrs().SetAttr(node, kSetSize, want).ok());
  EXPECT_FALSE(has_descriptor());
  file = OpenFile(node, O_RDONLY);
  EXPECT_EQ(Read(file, 0, 10), "on");
  ASSERT_TRUE(volume->stream().Checkpoint().ok());
  EXPECT_FALSE(has_descriptor());
  EXPECT_EQ(Read(file, 0, 10), "on");
  volume->open_files().Release(file);
  EXPECT_EQ(BackingContent("a"), "on");
}

TEST_F(RecordsTest, NothingIsSetThatANewObjectHas) {
  Make();
  caller = Caller{.uid = 0, .gid = 0, .umask = 022};
  const uint64_t before = memory->calls(MemoryBacking::Call::kSetAttr);
  Handle* const file = Create("a");
  EXPECT_EQ(memory->calls(MemoryBacking::Call::kSetAttr), before);
  EXPECT_EQ(Stat(file->node).st_mode, S_IFREG | 0644u);
  volume->open_files().Release(file);
}

TEST_F(RecordsTest, WriteToANewFileThatIsClosedOpensItOnce) {
  Make();
  Handle* const file = Create("a");
  ASSERT_TRUE(volume->stream().WaitApplied(volume->stream().watermarks().issued).ok());
  Write(file, 0, "less than a page");
  volume->open_files().Release(file);
  const uint64_t before = memory->calls(MemoryBacking::Call::kOpen);
  ASSERT_TRUE(volume->stream().WaitApplied(volume->stream().watermarks().issued).ok());
  EXPECT_EQ(memory->calls(MemoryBacking::Call::kOpen), before + 1);
  EXPECT_EQ(BackingContent("a"), "less than a page");
}

TEST_F(RecordsTest, CreatingWithTruncateStampsNoTruncation) {
  Make();
  volume->open_files().Release(Create("a", O_RDWR | O_TRUNC));
  EXPECT_TRUE(fake().Issued(Op::kTruncate).empty());
  volume->open_files().Release(Create("a", O_RDWR | O_TRUNC));
  EXPECT_EQ(fake().Issued(Op::kTruncate).size(), 1u);
}

TEST_F(RecordsTest, NameOperationIsDurableAndAppliedBeforeItReturns) {
  Make();
  bool seen = true;
  fake().on_wait_durable = [&](Seq) { seen = IsThere("d"); };
  ASSERT_TRUE(volume->names().MakeDir(root(), "d", 0755, caller).ok());
  EXPECT_FALSE(seen) << "visible on the backing file system before it was durable";
  fake().on_wait_durable = nullptr;
  EXPECT_TRUE(IsThere("d"));
  EXPECT_EQ(fake().applied, fake().Issued().back()->seq());
}

TEST_F(RecordsTest, RenameNamesDirectoriesAndFilesById) {
  Make();
  Node& d = Dir(root(), "d");
  volume->open_files().Release(Create("a"));
  volume->open_files().Release(Create(d, "b"));
  ASSERT_TRUE(volume->names().Rename(root(), "a", d, "b", 0).ok());
  const auto creates = fake().Issued(Op::kCreate);
  ASSERT_EQ(creates.size(), 3u);
  const RecordRef record = fake().Issued(Op::kRename).at(0);
  auto body = RenameBody::Decode(record->body());
  ASSERT_TRUE(body.ok());
  EXPECT_EQ(record->header().file_id, creates[1]->header().file_id);
  EXPECT_EQ(body->from_dir, kRootFileId);
  EXPECT_EQ(body->to_dir, creates[0]->header().file_id);
  EXPECT_EQ(body->other, creates[2]->header().file_id);
  EXPECT_EQ(body->from_name, "a");
  EXPECT_EQ(body->to_name, "b");
}

TEST_F(RecordsTest, RecordThatRemovesTheLastNameIsMarked) {
  Make();
  for (const char* name : {"one", "two", "other"}) volume->open_files().Release(Create(name));
  ASSERT_TRUE(volume->names().Link(Find("two"), root(), "second").ok());
  for (const char* name : {"one", "two"})
    ASSERT_TRUE(volume->names().Unlink(root(), name).ok()) << name;
  const auto unlinks = fake().Issued(Op::kUnlink);
  ASSERT_EQ(unlinks.size(), 2u);
  EXPECT_EQ(unlinks[0]->header().arg1, 1u);
  EXPECT_EQ(unlinks[1]->header().arg1, 0u);
  ASSERT_TRUE(volume->names().Rename(root(), "other", root(), "second", 0).ok());
  ASSERT_TRUE(volume->names().Rename(root(), "second", root(), "third", 0).ok());
  const auto renames = fake().Issued(Op::kRename);
  ASSERT_EQ(renames.size(), 2u);
  EXPECT_EQ(renames[0]->header().arg0, 1u);
  EXPECT_EQ(renames[1]->header().arg0, 0u);
}

TEST_F(RecordsTest, NothingIsStampedForRefusedChanges) {
  Make();
  volume->open_files().Release(Create("f"));
  Node& dir = Dir(root(), "d");
  volume->open_files().Release(Create(dir, "inner"));
  const size_t before = fake().Issued().size();
  EXPECT_NE(Errno(volume->names().MakeDir(root(), "f", 0755, caller)), 0);
  EXPECT_NE(Errno(volume->names().RemoveDir(root(), "d")), 0);
  EXPECT_NE(Errno(volume->names().Unlink(root(), "none")), 0);
  EXPECT_NE(Errno(volume->names().Rename(root(), "f", root(), "d", 0)), 0);
  EXPECT_NE(Errno(volume->names().Rename(root(), "d", dir, "x", 0)), 0);
  EXPECT_NE(Errno(volume->names().Link(dir, root(), "x")), 0);
  EXPECT_NE(Errno(volume->attrs().SetXattr(dir, "user.a", "x", XATTR_REPLACE, false)), 0);
  EXPECT_EQ(fake().Issued().size(), before);
}

// Recovery would stop at such a record.
TEST_F(RecordsTest, NothingIsStampedForImmutableFiles) {
  Make();
  volume->open_files().Release(Create("f"));
  volume->open_files().Release(Create("g"));
  Node& dir = Dir(root(), "d");
  volume->open_files().Release(Create(dir, "inner"));
  ASSERT_TRUE(volume->stream().Checkpoint().ok());
  for (const char* const name : {"f", "d"}) SetMarks(name, {.immutable = true});
  Node& file = Find("f");
  const size_t before = fake().Issued().size();
  struct stat want {};
  want.st_mode = 0600;
  EXPECT_EQ(Errno(volume->attrs().SetAttr(file, kSetMode, want)), EPERM);
  EXPECT_EQ(Errno(volume->attrs().SetXattr(file, "user.a", "x", 0, false)), EPERM);
  EXPECT_EQ(Errno(volume->names().Unlink(root(), "f")), EPERM);
  EXPECT_EQ(Errno(volume->names().Link(file, root(), "h")), EPERM);
  EXPECT_EQ(Errno(volume->names().Rename(root(), "f", root(), "h", 0)), EPERM);
  EXPECT_EQ(Errno(volume->names().Rename(root(), "g", root(), "f", 0)), EPERM);
  EXPECT_EQ(Errno(volume->names().Rename(root(), "g", dir, "g", 0)), EPERM);
  EXPECT_EQ(Errno(volume->names().Unlink(dir, "inner")), EPERM);
  EXPECT_EQ(Errno(volume->names().MakeDir(dir, "x", 0755, caller)), EPERM);
  for (const char* const name : {"f", "d"}) SetMarks(name, {});
  EXPECT_EQ(fake().Issued().size(), before);
  EXPECT_EQ(Errno(volume->names().Rename(root(), "g", dir, "g", 0)), 0);
}

// A checkpoint could leave only a record that was stamped after the one that removes the last name.
// Then recovery would look for a file that is rightly gone.
TEST_F(RecordsTest, NothingIsStampedAfterTheLastNameIsRemoved) {
  Make();
  for (const bool by_rename : {false, true}) {
    Handle* const file = Create("a");
    std::thread writer;
    std::atomic<bool> written_between = false;
    fake().before_apply = [&](const RecordRef& record) {
      if (record->header().op != Op::kUnlink && record->header().op != Op::kRename) return;
      writer = std::thread([&] {
        Write(file, 0, "between");
        written_between = true;
      });
      // It has to wait until the name is gone; otherwise it would be done long before this ends.
      const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
      while (!written_between && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    };
    const size_t written = fake().Issued(Op::kWrite).size();
    if (by_rename) {
      volume->open_files().Release(Create("b"));
      ASSERT_TRUE(volume->names().Rename(root(), "b", root(), "a", 0).ok());
    } else {
      ASSERT_TRUE(volume->names().Unlink(root(), "a").ok());
    }
    fake().before_apply = nullptr;
    writer.join();
    EXPECT_EQ(Read(file, 0, 100), "between");
    Write(file, 7, "+direct");
    EXPECT_EQ(Read(file, 0, 100), "between+direct");
    EXPECT_EQ(fake().Issued(Op::kWrite).size(), written);
    volume->open_files().Release(file);
  }
}

}  // namespace
}  // namespace salius
