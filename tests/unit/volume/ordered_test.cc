// Contracts other than commit=sync, dsync and osync. The stream makes a record durable only when a
// caller waits for it, so that a wait too few or too many is seen.
#include <errno.h>
#include <fcntl.h>

#include <optional>
#include <string>
#include <vector>

#include "log/record.h"
#include "tests/unit/volume/bulk_fixture.h"
#include "tests/unit/volume/fake_stream.h"

namespace salius {
namespace {

class OrderedTest : public BulkFixture {
 protected:
  OrderedTest() {
    early = true;
    contract = {.commit = Commit::kOrdered, .fsync_orders = true};
  }
  Seq Last() { return fake().Issued().back()->seq(); }
  void Release(Handle* handle) { volume->open_files().Release(handle); }
  // Returns what a call of dsync waits for.
  Seq DsyncOf(Handle* handle) {
    const absl::StatusOr<Ticket> ticket = volume->files().StartDsync(*handle);
    EXPECT_TRUE(ticket.ok()) << ticket.status();
    return ticket.ok() ? ticket->durable_first : 0;
  }
};

TEST_F(OrderedTest, SynchronousCallsWaitForNothing) {
  Make();
  Handle* const file = Create("a", O_RDWR | O_SYNC);
  Handle* const plain = Create("b");
  Handle* const dir = *volume->open_files().OpenDir(root(), 0);
  Write(file, 0, "synchronous");
  Write(plain, 0, "RWF_DSYNC", Contract::kDurable);
  for (Handle* const handle : {file, plain, dir}) {
    ASSERT_TRUE(Fsync(handle).ok());
    ASSERT_TRUE(volume->files().Osync().ok());
    Release(handle);
  }
  EXPECT_EQ(fake().durable, 0u);
  EXPECT_EQ(fake().Issued(Op::kWrite).size(), 2u);
}

TEST_F(OrderedTest, ExemptHandlesWait) {
  contract.exempts_o_sync = true;
  Make();
  Handle* const plain = Create("b");
  Write(plain, 0, "plain");
  ASSERT_TRUE(Fsync(plain).ok());
  EXPECT_EQ(fake().durable, 0u);
  Handle* const file = Create("a", O_RDWR | O_DSYNC);
  Write(file, 0, "synchronous");
  EXPECT_EQ(fake().durable, Last());
  Write(plain, 0, "RWF_DSYNC", Contract::kDurable);
  EXPECT_EQ(fake().durable, Last());
  Write(plain, 0, "plain");
  Release(plain);
  Handle* const again = OpenFile(Find("b"), O_RDONLY | O_SYNC);
  ASSERT_TRUE(Fsync(again).ok());
  EXPECT_EQ(fake().durable, Last()) << "fsync of a handle with O_SYNC";
  Release(again);
  Release(file);
}

TEST_F(OrderedTest, DsyncWaitsForDataAndNames) {
  Make();
  Handle* const file = Create("a");
  EXPECT_EQ(DsyncOf(file), Last()) << "its name";
  Write(file, 0, "data");
  EXPECT_EQ(DsyncOf(file), Last()) << "its data";
  ASSERT_TRUE(volume->names().Rename(root(), "a", root(), "b", 0, caller).ok());
  EXPECT_EQ(DsyncOf(file), Last()) << "its new name";
  EXPECT_EQ(fake().durable, 0u);
  ASSERT_TRUE(volume->files().Await(Ticket{0, DsyncOf(file)}).ok());
  EXPECT_EQ(fake().durable, Last());
  Release(file);
}

TEST_F(OrderedTest, NoFileGoesPastTheLog) {
  Make();
  const uint64_t entered = Transitions("bulk");
  Handle* const file = Create("a");
  MakeBulk(file);
  EXPECT_EQ(Transitions("bulk"), entered);
  EXPECT_EQ(fake().Issued(Op::kWrite).size(), 5u);
  Release(file);
}

TEST_F(OrderedTest, FsyncThatOnlyOrdersDoesTheSame) {
  contract = {.commit = Commit::kSync, .fsync_orders = true};
  Make();
  const uint64_t entered = Transitions("bulk");
  Handle* const file = Create("a", O_RDWR | O_SYNC);
  MakeBulk(file);
  ASSERT_TRUE(Fsync(file).ok());
  EXPECT_EQ(fake().durable, 0u);
  EXPECT_EQ(Transitions("bulk"), entered);
  Release(file);
}

TEST_F(OrderedTest, EarlyReturnIsPerHandleUnderExternal) {
  contract = {.commit = Commit::kExternal};
  Make();
  Handle* const gated = Create("a", O_RDWR | O_SYNC);
  Handle* const other = OpenFile(gated->node, O_RDWR | O_SYNC);
  gated->early = true;
  Write(gated, 0, "gated");
  ASSERT_TRUE(Fsync(gated).ok());
  EXPECT_EQ(fake().durable, 0u);
  ASSERT_TRUE(Fsync(other).ok());
  EXPECT_EQ(fake().durable, Last());
  Write(other, 0, "other");
  EXPECT_EQ(fake().durable, Last());
  gated->early = false;
  Write(gated, 0, "no longer gated");
  EXPECT_EQ(fake().durable, Last());
  Release(gated);
  Release(other);
}

TEST_F(OrderedTest, FailedVolumeFailsEveryCall) {
  Make();
  Handle* const file = Create("a");
  Write(file, 0, "data");
  fake().Fail(absl::InternalError("disk"));
  EXPECT_EQ(Errno(Fsync(file)), EIO);
  EXPECT_EQ(Errno(volume->files().Osync()), EIO);
  EXPECT_EQ(Errno(volume->files().StartDsync(*file)), EIO);
  Release(file);
}

// Under commit=sync files may be bulk.
class OsyncTest : public OrderedTest {
 protected:
  OsyncTest() {
    contract = {};
    early = false;
  }
};

TEST_F(OsyncTest, BulkDataIsOnTheDiskBeforeLaterRecords) {
  Make();
  Handle* const file = OldFile("a");
  Handle* const other = OldFile("b");
  MakeBulk(file);
  const uint64_t left = Transitions("logged");
  ASSERT_TRUE(volume->files().Osync().ok());
  EXPECT_EQ(Transitions("logged"), left + 1);
  Write(other, 0, "later");
  const Seq on_disk = fake().Issued(Op::kOnDisk).at(0)->seq();
  EXPECT_LT(on_disk, Last());
  EXPECT_LT(fake().durable, on_disk) << "osync does not wait for records";
  Release(file);
  Release(other);
}

TEST_F(OsyncTest, LaterBulkDataWaitForEarlierRecords) {
  Make();
  Handle* const file = OldFile("a");
  Handle* const other = OldFile("b");
  Write(file, 0, std::string(60 * 1024, 'a'));  // nearly bulk
  Write(other, 0, "before");
  const Seq before = Last();
  ASSERT_TRUE(volume->files().Osync().ok());
  EXPECT_LT(fake().durable, before);
  std::optional<std::string> on_disk;  // when the wait for `before` began
  fake().on_wait_durable = [&](Seq seq) {
    if (seq == before) on_disk = BackingContent("a");
  };
  Write(file, 60 * 1024, std::string(16 * 1024, 'n'));
  fake().on_wait_durable = nullptr;
  EXPECT_GE(fake().durable, before);
  ASSERT_TRUE(on_disk.has_value());
  EXPECT_EQ(on_disk->find('n'), std::string::npos) << "the bulk data was written first";
  EXPECT_NE(BackingContent("a").find('n'), std::string::npos);
  Release(file);
  Release(other);
}

TEST_F(OsyncTest, WithoutBulkFilesItDoesNothing) {
  Make();
  Handle* const file = Create("a");
  Write(file, 0, "data");
  const int syncs = fake().syncs;
  ASSERT_TRUE(volume->files().Osync().ok());
  EXPECT_LT(fake().durable, Last());
  EXPECT_EQ(fake().syncs, syncs);
  Release(file);
}

}  // namespace
}  // namespace salius
