// Records that wait for a page (LaneSink): on a MemoryBacking whose pages a test takes out of memory,
// and with workers that work when the test says so.
#include "client/volume/lane_sink.h"

#include <errno.h>
#include <fcntl.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/volume/prediction.h"
#include "client/volume/predictions.h"
#include "common/metrics.h"
#include "common/random.h"
#include "tests/unit/volume/fake_stream.h"
#include "tests/unit/volume/queue_workers.h"
#include "tests/unit/volume/volume_fixture.h"

namespace salius {
namespace {

constexpr uint64_t kPage = Lanes::kPageBytes;

class LaneSinkTest : public VolumeFixture {
 protected:
  void MakeWith(FetchMode mode) {
    fetch = mode;
    workers = &queue_;
    Make();
    fake().do_work = [this] { return queue_.Do(); };
  }
  FakeStream& fake() { return FakeOf(volume->stream()); }
  // Makes a file of some pages that are not in memory.
  Handle* ColdFile(const std::string& name, size_t pages = 4) {
    Handle* const file = Create(name);
    Write(file, 0, std::string(pages * kPage, 'o'));
    SALIUS_CHECK_OK(volume->stream().Checkpoint());
    Cool(name);
    return file;
  }
  void Cool(const std::string& name) { memory->DropPages(OpenBacking(name).get()); }
  std::string Old(size_t bytes) { return std::string(bytes, 'o'); }
  // Waits for nothing.
  std::string OnDisk(const std::string& name) { return BackingContent(name); }
  void TearDown() override {
    VolumeFixture::TearDown();
    EXPECT_EQ(queue_.waiting(), 0u);
  }
  void GiveAll() { fake().Give(SIZE_MAX); }
  // Fills the lanes until a writer must fetch its page, and empties them.
  void FallBehind(FetchMode mode) {
    config.tau_ms = 4;  // no record may become older than 6 ms in a lane
    MakeWith(mode);
    Handle* const file = ColdFile("f", 6);
    const uint64_t reads = memory->calls(MemoryBacking::Call::kRead);
    for (uint64_t page = 0; page < 2; ++page) {
      Write(file, page * kPage + 10, "waits");
      GiveAll();
    }
    // A task of a length that is not known yet counts as 2 ms.
    Write(file, 2 * kPage + 10, "waits");
    EXPECT_EQ(memory->calls(MemoryBacking::Call::kRead), reads);
    {
      absl::MutexLock lock(&fake().mu);
      fake().oldest_ns = 2'500'000;
    }
    Write(file, 3 * kPage + 10, "fetches");
    EXPECT_EQ(memory->calls(MemoryBacking::Call::kRead), reads + 1);
    Write(file, 3 * kPage + 20, "in memory");
    Write(file, 4 * kPage, std::string(kPage, 'w'));
    EXPECT_EQ(memory->calls(MemoryBacking::Call::kRead), reads + 1);
    SALIUS_CHECK_OK(volume->stream().Checkpoint());
    Cool("f");
    const uint64_t later = memory->calls(MemoryBacking::Call::kRead);
    Write(file, 5 * kPage + 10, "waits");
    EXPECT_EQ(memory->calls(MemoryBacking::Call::kRead), later);
    SALIUS_CHECK_OK(volume->stream().Checkpoint());
    EXPECT_EQ(OnDisk("f").substr(3 * kPage + 8, 21), "oofetchesoooin memory");
    volume->open_files().Release(file);
  }

  QueueWorkers queue_;
};

TEST_F(LaneSinkTest, MissingPageHoldsUpNoOtherFileAndNoOtherPage) {
  MakeWith(FetchMode::kAsyncBg);
  Handle* const cold = ColdFile("cold");
  Handle* const warm = Create("warm");
  Write(warm, 0, "before");
  SALIUS_CHECK_OK(volume->stream().Checkpoint());
  const Seq applied = fake().watermarks().applied;
  Write(cold, 100, "COLD");
  Write(warm, 0, "WARM");
  Write(cold, 2 * kPage, std::string(kPage, 'w'));
  GiveAll();
  EXPECT_EQ(queue_.waiting(), 1u);
  EXPECT_EQ(OnDisk("warm"), "WARMre");
  EXPECT_EQ(fake().watermarks().applied, applied);  // the prefix
  const std::string whole = Old(100) + "COLD" + Old(2 * kPage - 104) + std::string(kPage, 'w') +
                            Old(kPage);
  EXPECT_EQ(Read(cold, 0, 4 * kPage), whole);
  EXPECT_TRUE(queue_.Do());
  GiveAll();
  EXPECT_EQ(fake().watermarks().applied, fake().watermarks().issued);
  EXPECT_EQ(OnDisk("cold"), whole);
  volume->open_files().Release(cold);
  volume->open_files().Release(warm);
}

TEST_F(LaneSinkTest, WritesOfOnePageKeepTheirOrder) {
  MakeWith(FetchMode::kAsyncBg);
  Handle* const file = ColdFile("f");
  Write(file, 10, "first");
  GiveAll();                       // it has begun
  Write(file, 12, "SECOND");       // waits for it
  Write(file, kPage - 2, "THIRD"); // and this one for both: it has the first page, too
  GiveAll();
  EXPECT_EQ(queue_.waiting(), 1u);
  EXPECT_TRUE(queue_.Do());
  EXPECT_EQ(queue_.waiting(), 1u);
  EXPECT_TRUE(queue_.Do());
  EXPECT_EQ(queue_.waiting(), 0u);
  GiveAll();
  EXPECT_EQ(OnDisk("f").substr(0, 20), "oooooooooofiSECONDoo");
  EXPECT_EQ(OnDisk("f").substr(kPage - 3, 6), "oTHIRD");
  EXPECT_EQ(fake().watermarks().applied, fake().watermarks().issued);
  volume->open_files().Release(file);
}

TEST_F(LaneSinkTest, WarmWriteThatOverlapsAColdOneWaitsForIt) {
  MakeWith(FetchMode::kAsyncBg);
  Handle* const file = ColdFile("f");
  Write(file, 10, "cold");
  GiveAll();
  Write(file, 0, std::string(kPage, 'W'));  // no page is missing for this one
  GiveAll();
  while (queue_.Do()) {
  }
  GiveAll();
  EXPECT_EQ(OnDisk("f"), std::string(kPage, 'W') + Old(3 * kPage));
  volume->open_files().Release(file);
}

TEST_F(LaneSinkTest, WholePagesOfASequenceWaitForNoPageAtItsEnds) {
  MakeWith(FetchMode::kAsyncBg);
  Handle* const file = ColdFile("f", 8);
  const uint64_t reads = memory->calls(MemoryBacking::Call::kRead);
  const std::string half(kPage / 2, 'n');
  for (uint64_t at = kPage / 2; at < 6 * kPage; at += kPage / 2) Write(file, at, half);
  Write(file, 6 * kPage, half);
  GiveAll();
  EXPECT_EQ(queue_.waiting(), 2u);  // the first page and the last one
  EXPECT_EQ(memory->calls(MemoryBacking::Call::kRead), reads);
  EXPECT_EQ(OnDisk("f"), Old(kPage) + std::string(5 * kPage, 'n') + Old(2 * kPage));
  Cool("f");
  const uint64_t looked = memory->calls(MemoryBacking::Call::kRead);
  while (queue_.Do()) {
  }
  EXPECT_EQ(memory->calls(MemoryBacking::Call::kRead), looked + 2);
  GiveAll();
  EXPECT_EQ(fake().watermarks().applied, fake().watermarks().issued);
  EXPECT_EQ(OnDisk("f"), Old(kPage / 2) + std::string(6 * kPage, 'n') + Old(kPage + kPage / 2));
  volume->open_files().Release(file);
}

TEST_F(LaneSinkTest, SequenceOverAPageInALaneStaysWhole) {
  MakeWith(FetchMode::kLazy);
  Handle* const file = ColdFile("f", 8);
  Write(file, 2 * kPage + 10, "put off");
  GiveAll();
  const uint64_t reads = memory->calls(MemoryBacking::Call::kRead);
  const std::string half(kPage / 2, 'n');
  for (uint64_t at = kPage; at < 6 * kPage; at += kPage / 2) Write(file, at, half);
  GiveAll();
  while (queue_.Do()) {
  }
  GiveAll();
  EXPECT_EQ(fake().watermarks().applied, fake().watermarks().issued);
  EXPECT_EQ(memory->calls(MemoryBacking::Call::kRead), reads);
  EXPECT_EQ(volume->lanes().figures().elided_pages, 1u);
  EXPECT_EQ(OnDisk("f"), Old(kPage) + std::string(5 * kPage, 'n') + Old(2 * kPage));
  volume->open_files().Release(file);
}

TEST_F(LaneSinkTest, AttributeWaitsForTheLanesOfItsFileAlone) {
  early = true;
  MakeWith(FetchMode::kAsyncBg);
  Handle* const cold = ColdFile("cold");
  Handle* const other = Create("other");
  SALIUS_CHECK_OK(volume->stream().Checkpoint());
  struct stat want {};
  want.st_mode = 0600;
  Write(cold, 10, "x");
  SALIUS_CHECK_OK(volume->attrs().SetAttr(cold->node, kSetMode, want));
  Write(cold, 20, "y");
  SALIUS_CHECK_OK(volume->attrs().SetAttr(other->node, kSetMode, want));
  GiveAll();
  const auto mode = [&](const char* name) {
    return memory->StatAt(backing_root(), name)->st_mode & 07777;
  };
  EXPECT_EQ(mode("other"), 0600u);
  EXPECT_NE(mode("cold"), 0600u);
  EXPECT_EQ(Stat(cold->node).st_mode & 07777, 0600u);
  EXPECT_EQ(queue_.waiting(), 1u);
  EXPECT_TRUE(queue_.Do());
  EXPECT_NE(mode("cold"), 0600u);
  EXPECT_EQ(queue_.waiting(), 1u);
  EXPECT_TRUE(queue_.Do());
  EXPECT_EQ(mode("cold"), 0600u);
  SALIUS_CHECK_OK(volume->stream().Checkpoint());
  EXPECT_EQ(OnDisk("cold").substr(8, 14), "ooxoooooooooyo");
  volume->open_files().Release(cold);
  volume->open_files().Release(other);
}

TEST_F(LaneSinkTest, TimesAreThoseOfTheLastWriteAlsoIfAnEarlierOneWaitsInALane) {
  early = true;
  MakeWith(FetchMode::kAsyncBg);
  for (const bool attribute : {false, true}) {
    SCOPED_TRACE(attribute);
    const std::string name = attribute ? "g" : "f";
    Handle* const file = ColdFile(name);
    Write(file, 10, "x");
    Write(file, kPage, std::string(kPage, 'w'));
    GiveAll();
    EXPECT_EQ(queue_.waiting(), 1u);  // the first
    const timespec last = RecordTime(fake().Issued().back()->header().timestamp_ns);
    if (attribute) {
      SALIUS_CHECK_OK(volume->attrs().SetXattr(file->node, "user.a", "value", 0, false));
    }
    const auto same = [](const timespec& a, const timespec& b) {
      return !IsBefore(a, b) && !IsBefore(b, a);
    };
    const struct stat pending = Stat(file->node);
    EXPECT_TRUE(same(pending.st_mtim, last));
    EXPECT_FALSE(IsBefore(pending.st_ctim, last));
    while (queue_.Do()) {
    }
    GiveAll();
    while (queue_.Do()) {
    }
    SALIUS_CHECK_OK(volume->stream().Checkpoint());
    EXPECT_TRUE(same(memory->StatAt(backing_root(), name)->st_mtim, last));
    const struct stat after = Stat(file->node);
    EXPECT_TRUE(same(after.st_mtim, last));
    EXPECT_TRUE(same(after.st_ctim, pending.st_ctim));
    volume->open_files().Release(file);
  }
}

TEST_F(LaneSinkTest, NamesKeepTheirOrderBehindALane) {
  early = true;
  MakeWith(FetchMode::kAsyncBg);
  Handle* const cold = ColdFile("cold");
  SALIUS_CHECK_OK(volume->stream().Checkpoint());
  Write(cold, 10, "x");
  SALIUS_CHECK_OK(volume->names().Rename(root(), "cold", root(), "moved", 0));
  Handle* const again = Create("cold");
  GiveAll();
  EXPECT_EQ(queue_.waiting(), 1u);  // neither name has begun
  while (queue_.Do()) {
  }
  GiveAll();
  EXPECT_EQ(fake().watermarks().applied, fake().watermarks().issued);
  EXPECT_EQ(OnDisk("cold"), "");
  EXPECT_EQ(OnDisk("moved").substr(9, 3), "oxo");
  volume->open_files().Release(cold);
  volume->open_files().Release(again);
}

TEST_F(LaneSinkTest, FailedFetchFailsTheNextSyncAndKeepsTheData) {
  MakeWith(FetchMode::kAsyncBg);
  Handle* const file = ColdFile("f");
  Handle* const other = ColdFile("other");
  Write(file, 10, "kept");
  Write(file, 12, "KEPT");
  Write(other, 10, "also");
  GiveAll();
  memory->FailNth(MemoryBacking::Call::kRead, 1, EIO);
  EXPECT_TRUE(queue_.Do());
  EXPECT_EQ(Errno(Fsync(file)), EIO);
  EXPECT_EQ(Errno(volume->files().Write(*file, 0, "no", false, Contract::kPlain)), EIO);
  EXPECT_FALSE(volume->health().ok());
  while (queue_.Do()) {
  }
  EXPECT_EQ(Read(file, 8, 10), "ookeKEPToo");
  EXPECT_LT(fake().watermarks().applied, fake().watermarks().issued);
  volume->open_files().Release(file);
  volume->open_files().Release(other);
}

TEST_F(LaneSinkTest, TruncationElidesTheWritesBehindItsEnd) {
  MakeWith(FetchMode::kLazy);
  Handle* const file = ColdFile("f");
  Write(file, 10, "stays");
  Write(file, kPage, "E");  // in the page of the new end, before it
  Write(file, 2 * kPage + 10, "goes");
  Write(file, 3 * kPage + 10, "goes");
  GiveAll();
  EXPECT_EQ(queue_.waiting(), 0u);  // put off
  Handle* const again = OpenFile(file->node);
  SALIUS_CHECK_OK(volume->files().Truncate(file->node, kPage + 1));
  SALIUS_CHECK_OK(volume->files().Truncate(file->node, 3 * kPage));
  EXPECT_EQ(Read(file, 2 * kPage + 8, 8), std::string(8, '\0'));
  const uint64_t reads = memory->calls(MemoryBacking::Call::kRead);
  SALIUS_CHECK_OK(volume->stream().Checkpoint());
  EXPECT_EQ(memory->calls(MemoryBacking::Call::kRead) - reads, 2u);  // of the first two pages
  EXPECT_EQ(volume->lanes().figures().elided_pages, 2u);
  const std::string left = Old(10) + "stays" + Old(kPage - 15) + "E";
  EXPECT_EQ(OnDisk("f"), left + std::string(3 * kPage - left.size(), '\0'));
  EXPECT_EQ(Read(file, 0, 3 * kPage), OnDisk("f"));
  volume->open_files().Release(again);
  volume->open_files().Release(file);
}

TEST_F(LaneSinkTest, WriteThatWaitsForOneThatIsPutOffIsElidedWithIt) {
  early = true;
  MakeWith(FetchMode::kLazy);
  for (const std::string name : {"truncated", "removed"}) {
    SCOPED_TRACE(name);
    Handle* const file = ColdFile(name);
    Write(file, kPage + 10, "put off");
    Write(file, 2 * kPage, std::string(kPage / 2, 'a'));
    GiveAll();
    EXPECT_EQ(queue_.waiting(), 0u);
    Write(file, 2 * kPage + kPage / 2, std::string(kPage / 2, 'b'));  // the page is whole now
    GiveAll();
    EXPECT_EQ(queue_.waiting(), 1u);
    Write(file, kPage, std::string(2 * kPage, 'n'));  // waits for both, and is not put off
    GiveAll();
    EXPECT_EQ(queue_.waiting(), 2u);
    EXPECT_TRUE(queue_.Do());  // the second page
    volume->open_files().Release(file);
    if (name == "removed") {
      SALIUS_CHECK_OK(volume->names().Unlink(root(), name));
    } else {
      SALIUS_CHECK_OK(volume->files().Truncate(Find(name), kPage));
    }
    GiveAll();
    EXPECT_EQ(queue_.waiting(), 1u);  // the first page; then the truncation or removal
    while (queue_.Do()) {
    }
    GiveAll();
    EXPECT_EQ(fake().watermarks().applied, fake().watermarks().issued);
    EXPECT_EQ(volume->patch_memory().used(), 0u);
    EXPECT_EQ(IsThere(name) ? OnDisk(name) : "", name == "removed" ? "" : Old(kPage));
    SALIUS_CHECK_OK(volume->stream().Checkpoint());
  }
}

// The truncation runs before its issuer has entered it: only the seq of what is being applied tells
// the reader that the extents under it have gone.
TEST_F(LaneSinkTest, ReaderBesideATruncationNeverSeesTheBytesUnderAWriteThatItElides) {
  MakeWith(FetchMode::kLazy);
  Handle* const file = ColdFile("f");
  Write(file, 2 * kPage + 10, "acknowledged", Contract::kDurable);
  GiveAll();
  EXPECT_EQ(queue_.waiting(), 0u);
  {
    absl::MutexLock lock(&fake().mu);
    fake().apply_at_once = true;
  }
  file->node.content.ReaderLock();  // the truncation waits for it
  std::thread truncating([&] {
    EXPECT_EQ(Errno(volume->files().Truncate(file->node, 0)), 0);
  });
  const auto await = [](const std::function<bool()>& condition) {
    const absl::Time end = absl::Now() + absl::Seconds(60);
    while (!condition() && absl::Now() < end) absl::SleepFor(absl::Milliseconds(1));
    EXPECT_TRUE(condition());
  };
  await([&] { return volume->patch_memory().used() == 0; });
  const uint64_t reads = memory->calls(MemoryBacking::Call::kRead);
  std::string seen;
  std::thread reading([&] { seen = Read(file, 2 * kPage + 10, 12); });
  await([&] { return memory->calls(MemoryBacking::Call::kRead) > reads; });
  file->node.content.ReaderUnlock();
  reading.join();
  truncating.join();
  EXPECT_TRUE(seen.empty() || seen == "acknowledged") << seen;
  EXPECT_EQ(Read(file, 0, 4 * kPage), "");
  volume->open_files().Release(file);
}

// The kernel takes the size, and puts the next append there.
TEST_F(LaneSinkTest, SizeIsNotOlderThanAWriteThatIsAppliedDuringTheCall) {
  MakeWith(FetchMode::kAsyncBg);
  for (const bool by_name : {false, true}) {
    SCOPED_TRACE(by_name);
    const std::string name = by_name ? "f" : "g";
    Handle* const file = ColdFile(name, 1);
    Write(file, kPage, "appended", Contract::kDurable);
    {
      absl::MutexLock lock(&fake().mu);
      fake().disk_hangs = true;  // a stat does not wait
    }
    bool given = false;
    memory->OnEachStat([&] {
      if (!std::exchange(given, true)) GiveAll();
    });
    bool provisional = false;
    const auto st = by_name ? volume->attrs().GetAttrAt(file->node, root(), name,
                                                        /*may_wait=*/false, &provisional)
                            : volume->attrs().GetAttr(file->node, &provisional);
    memory->OnEachStat(nullptr);
    ASSERT_TRUE(st.ok()) << st.status();
    EXPECT_TRUE(given);
    EXPECT_EQ(st->st_size, static_cast<off_t>(kPage + 8));
    {
      absl::MutexLock lock(&fake().mu);
      fake().disk_hangs = false;
    }
    volume->open_files().Release(file);
  }
}

// A caller may wait for records that the sink does not have yet.
TEST_F(LaneSinkTest, HurryHoldsForRecordsThatComeLater) {
  MakeWith(FetchMode::kLazy);
  Handle* const file = ColdFile("f");
  Write(file, 10, "x");
  volume->lanes().Hurry(fake().watermarks().issued);
  GiveAll();
  EXPECT_EQ(queue_.waiting(), 1u);
  while (queue_.Do()) {
  }
  GiveAll();
  EXPECT_EQ(OnDisk("f").substr(9, 3), "oxo");
  volume->open_files().Release(file);
}

// A recovery in the same life of the host replays all records that are not in the applied prefix. It
// would write these over what went past the log.
TEST_F(LaneSinkTest, FileIsBulkWhenItsRecordsAreInTheAppliedPrefix) {
  config.bulk_limit_bytes = 64 * 1024;
  MakeWith(FetchMode::kAsyncBg);
  Handle* const cold = ColdFile("cold");
  Handle* const bulk = Create("bulk");
  SALIUS_CHECK_OK(volume->stream().Checkpoint());
  const std::string part(16 * 1024, 'b');
  Write(cold, 10, "x");
  for (uint64_t at = 0; at < 64 * 1024; at += part.size()) Write(bulk, at, part);
  GiveAll();
  EXPECT_EQ(queue_.waiting(), 1u);
  EXPECT_LT(fake().watermarks().applied, fake().Issued(Op::kWrite).back()->seq());
  Write(bulk, 64 * 1024, part);  // past the log
  const auto last = [&](Op op) { return fake().Issued(op).back()->seq(); };
  EXPECT_EQ(OnDisk("bulk"), std::string(80 * 1024, 'b'));
  EXPECT_GE(fake().watermarks().applied, last(Op::kWrite));
  // The same for a truncation of the file that is bulk.
  Write(cold, kPage + 10, "y");
  GiveAll();
  EXPECT_EQ(queue_.waiting(), 1u);
  SALIUS_CHECK_OK(volume->files().Truncate(bulk->node, 10));
  GiveAll();
  EXPECT_LT(fake().watermarks().applied, last(Op::kTruncate));
  Write(bulk, 10, part);
  EXPECT_EQ(OnDisk("bulk"), std::string(10, 'b') + part);
  EXPECT_GE(fake().watermarks().applied, last(Op::kTruncate));
  volume->open_files().Release(cold);
  volume->open_files().Release(bulk);
}

// Otherwise the oldest record would become too old, and no record of the volume could be issued.
TEST_F(LaneSinkTest, WriterFetchesItsPageWhileTheLanesNeedTheDiskForLong) {
  FallBehind(FetchMode::kAsyncBg);
}

TEST_F(LaneSinkTest, WriterFetchesItsPageWhileTooMuchIsPutOff) { FallBehind(FetchMode::kLazy); }

TEST_F(LaneSinkTest, PagesOfAnUnlinkedFileAreNotFetched) {
  early = true;
  MakeWith(FetchMode::kLazy);
  for (const bool renamed_over : {false, true}) {
    SCOPED_TRACE(renamed_over);
    const std::string name = renamed_over ? "f" : "g";
    const uint64_t elided = volume->lanes().figures().elided_pages;
    Handle* const file = ColdFile(name);
    Handle* const other = Create(name + ".new");
    Write(file, 10, "gone");
    Write(file, 2 * kPage + 10, "gone");
    volume->open_files().Release(file);
    volume->open_files().Release(other);
    GiveAll();
    const auto found = volume->names().Lookup(root(), name);
    SALIUS_CHECK_OK(found);
    const uint64_t reads = memory->calls(MemoryBacking::Call::kRead);
    if (renamed_over) {
      SALIUS_CHECK_OK(volume->names().Rename(root(), name + ".new", root(), name, 0));
    } else {
      SALIUS_CHECK_OK(volume->names().Unlink(root(), name));
    }
    GiveAll();
    EXPECT_EQ(volume->lanes().figures().elided_pages, elided + 2);
    EXPECT_LT(fake().watermarks().applied, fake().watermarks().issued);
    // The kernel may still know the file, but nothing may read it.
    EXPECT_EQ(Errno(volume->open_files().Open(*found->node, O_RDONLY)), ESTALE);
    EXPECT_TRUE(queue_.Do());  // the removal
    GiveAll();
    EXPECT_EQ(fake().watermarks().applied, fake().watermarks().issued);
    EXPECT_EQ(memory->calls(MemoryBacking::Call::kRead), reads);
    EXPECT_EQ(volume->patch_memory().used(), 0u);
    EXPECT_EQ(memory->StatAt(backing_root(), name).ok(), renamed_over);
    volume->names().Forget(*found->node, 1);
    SALIUS_CHECK_OK(volume->stream().Checkpoint());
  }
}

TEST_F(LaneSinkTest, UnlinkedFileThatIsOpenKeepsItsData) {
  early = true;
  MakeWith(FetchMode::kLazy);
  Handle* const file = ColdFile("f");
  Write(file, 10, "kept");
  GiveAll();
  SALIUS_CHECK_OK(volume->names().Unlink(root(), "f"));
  GiveAll();
  while (queue_.Do()) {
  }
  GiveAll();
  EXPECT_EQ(fake().watermarks().applied, fake().watermarks().issued);
  EXPECT_EQ(Read(file, 8, 8), "ookeptoo");
  EXPECT_EQ(volume->lanes().figures().elided_pages, 0u);
  volume->open_files().Release(file);
}

TEST_F(LaneSinkTest, FileWithAnotherNameKeepsItsData) {
  early = true;
  MakeWith(FetchMode::kLazy);
  Handle* const file = ColdFile("f");
  SALIUS_CHECK_OK(volume->names().Link(file->node, root(), "g"));
  SALIUS_CHECK_OK(volume->stream().Checkpoint());
  Cool("f");
  Write(file, 10, "kept");
  volume->open_files().Release(file);
  GiveAll();
  SALIUS_CHECK_OK(volume->names().Unlink(root(), "f"));
  SALIUS_CHECK_OK(volume->stream().Checkpoint());
  EXPECT_EQ(OnDisk("g").substr(8, 8), "ookeptoo");
  EXPECT_EQ(volume->lanes().figures().elided_pages, 0u);
}

TEST_F(LaneSinkTest, LazyFetchIsElidedWhenThePageIsFilled) {
  MakeWith(FetchMode::kLazy);
  Handle* const file = ColdFile("f");
  const uint64_t reads = memory->calls(MemoryBacking::Call::kRead);
  Write(file, kPage, std::string(kPage / 2, 'a'));
  GiveAll();
  EXPECT_EQ(volume->lanes().figures().put_off_bytes, kPage / 2);
  EXPECT_EQ(queue_.waiting(), 0u);
  Write(file, kPage + kPage / 2, std::string(kPage / 2, 'b'));
  GiveAll();
  EXPECT_TRUE(queue_.Do());
  EXPECT_EQ(memory->calls(MemoryBacking::Call::kRead), reads);
  EXPECT_EQ(volume->lanes().figures().elided_pages, 1u);
  EXPECT_EQ(volume->lanes().figures().put_off_bytes, 0u);
  EXPECT_EQ(OnDisk("f"), Old(kPage) + std::string(kPage / 2, 'a') + std::string(kPage / 2, 'b') +
                             Old(2 * kPage));
  volume->open_files().Release(file);
}

TEST_F(LaneSinkTest, LazyFetchBeginsAtAReadACheckpointAndTheLimit) {
  patch_memory = 64;  // half of it may be put off
  MakeWith(FetchMode::kLazy);
  Handle* const file = ColdFile("f");
  Write(file, 10, "read");
  GiveAll();
  EXPECT_EQ(queue_.waiting(), 0u);
  EXPECT_EQ(Read(file, 10, 4), "read");  // from the extents: nothing is fetched
  EXPECT_EQ(queue_.waiting(), 0u);
  EXPECT_EQ(Read(file, 8, 8), "ooreadoo");
  EXPECT_TRUE(queue_.Do());
  Write(file, kPage + 10, "checkpoint");
  GiveAll();
  EXPECT_EQ(queue_.waiting(), 0u);
  SALIUS_CHECK_OK(volume->stream().Checkpoint());
  EXPECT_EQ(OnDisk("f").substr(kPage + 10, 10), "checkpoint");
  Cool("f");  // the look at it brought it into memory
  Write(file, 2 * kPage + 10, std::string(20, 'l'));
  GiveAll();
  EXPECT_EQ(queue_.waiting(), 0u);
  Write(file, 3 * kPage + 10, std::string(20, 'm'));
  GiveAll();
  EXPECT_TRUE(queue_.Do());  // the older one
  EXPECT_EQ(OnDisk("f").substr(2 * kPage + 10, 20), std::string(20, 'l'));
  EXPECT_EQ(OnDisk("f").substr(3 * kPage + 10, 20), Old(20));
  SALIUS_CHECK_OK(volume->stream().Checkpoint());
  volume->open_files().Release(file);
}

TEST_F(LaneSinkTest, WriterWaitsWhilePatchMemoryIsFull) {
  patch_memory = 100;
  MakeWith(FetchMode::kAsyncBg);
  Handle* const file = ColdFile("f");
  Write(file, 10, std::string(100, 'a'));
  EXPECT_EQ(volume->patch_memory().used(), 100u);
  const Counter& waits = GetCounter("salius_patch_memory_waits_total", "");
  const double waits_before = waits.Value();
  const Seq before = fake().watermarks().issued;
  Write(file, kPage + 10, std::string(50, 'b'));  // applies the one before
  EXPECT_GE(fake().watermarks().applied, before);
  EXPECT_EQ(waits.Value(), waits_before + 1);
  EXPECT_EQ(volume->patch_memory().used(), 50u);
  Write(file, kPage + 20, std::string(20, 'c'));  // the same bytes
  EXPECT_EQ(volume->patch_memory().used(), 50u);
  SALIUS_CHECK_OK(volume->stream().Checkpoint());
  EXPECT_EQ(volume->patch_memory().used(), 0u);
  volume->open_files().Release(file);
}

TEST_F(LaneSinkTest, NothingIsPutOffWhileAWriterWaitsForRoom) {
  patch_memory = 100;
  MakeWith(FetchMode::kLazy);
  Handle* const file = ColdFile("f");
  for (uint64_t page = 0; page < 3; ++page) Write(file, page * kPage + 10, std::string(40, 'a'));
  size_t begun = 0;
  fake().on_wait_durable = [&](Seq) {
    GiveAll();
    begun = std::max(begun, queue_.waiting());
  };
  Write(file, 3 * kPage + 10, "waits");
  fake().on_wait_durable = nullptr;
  EXPECT_EQ(begun, 3u);
  GiveAll();
  EXPECT_EQ(volume->lanes().figures().put_off_bytes, 5u);  // it waits no more
  SALIUS_CHECK_OK(volume->stream().Checkpoint());
  volume->open_files().Release(file);
}

TEST_F(LaneSinkTest, BlockingWriterFetchesThePageItself) {
  MakeWith(FetchMode::kBlocking);
  Handle* const file = ColdFile("f");
  uint64_t reads = memory->calls(MemoryBacking::Call::kRead);
  Write(file, 10, "x");
  EXPECT_EQ(memory->calls(MemoryBacking::Call::kRead), reads + 1);
  GiveAll();
  EXPECT_EQ(queue_.waiting(), 0u);
  reads = memory->calls(MemoryBacking::Call::kRead);
  Write(file, kPage, std::string(kPage, 'y'));  // whole pages
  Write(file, 12, "z");                         // in memory
  Write(file, 4 * kPage, "end");                // behind the end
  EXPECT_EQ(memory->calls(MemoryBacking::Call::kRead), reads);
  Cool("f");
  memory->FailNth(MemoryBacking::Call::kRead, 1, EIO);
  EXPECT_EQ(Errno(volume->files().Write(*file, 10, "no", false, Contract::kPlain)), EIO);
  EXPECT_TRUE(volume->health().ok());  // as a page fault of the writer's
  volume->open_files().Release(file);
}

TEST_F(LaneSinkTest, ForegroundWriterBeginsTheFetchAndDoesNotWait) {
  MakeWith(FetchMode::kAsyncFg);
  Handle* const file = ColdFile("f");
  const uint64_t reads = memory->calls(MemoryBacking::Call::kRead);
  Write(file, 10, "x");
  EXPECT_TRUE(memory->ArePagesCached(OpenBacking("f").get(), 0, kPage));
  EXPECT_EQ(memory->calls(MemoryBacking::Call::kRead), reads);
  GiveAll();
  EXPECT_EQ(OnDisk("f").substr(10, 1), "x");
  volume->open_files().Release(file);
}

// A model of a file: its content after a sequence of operations.
struct Shadow {
  std::string content;

  void Write(uint64_t at, const std::string& data) {
    if (content.size() < at + data.size()) content.resize(at + data.size());
    content.replace(at, data.size(), data);
  }
  std::string Read(uint64_t at, size_t size) const {
    return at >= content.size() ? "" : content.substr(at, size);
  }
};

TEST_F(LaneSinkTest, RandomOperationsReadLikePlainFilesInEveryPolicy) {
  constexpr FetchMode kModes[] = {FetchMode::kBlocking, FetchMode::kAsyncFg, FetchMode::kAsyncBg,
                                  FetchMode::kLazy};
  patch_memory = 60'000;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    QueueWorkers queue;
    fetch = kModes[seed % 4];
    workers = &queue;
    Make();
    fake().do_work = [&] { return queue.Do(random.Below(std::max<size_t>(queue.waiting(), 1))); };
    constexpr size_t kFiles = 3;
    Shadow shadows[kFiles];
    Handle* files[kFiles];
    for (size_t i = 0; i < kFiles; ++i) files[i] = Create("f" + std::to_string(i));
    for (int step = 0; step < 400; ++step) {
      const size_t which = random.Below(kFiles);
      Handle* const file = files[which];
      Shadow& shadow = shadows[which];
      const uint64_t at = random.Below(9 * kPage);
      switch (random.Below(16)) {
        case 0:
          SALIUS_CHECK_OK(volume->files().Truncate(file->node, at));
          shadow.content.resize(at);
          break;
        case 1: {
          const uint64_t length = 1 + random.Below(2 * kPage);
          SALIUS_CHECK_OK(volume->files().Fallocate(
              *file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, length));
          for (uint64_t i = at; i < std::min<uint64_t>(at + length, shadow.content.size()); ++i) {
            shadow.content[i] = 0;
          }
          break;
        }
        case 2:
          Cool("f" + std::to_string(which));
          break;
        case 3:
        case 4:
        case 5:
          fake().Give(random.Below(8));
          break;
        case 6:
        case 7:
          queue.Do(random.Below(std::max<size_t>(queue.waiting(), 1)));
          break;
        case 8: {
          struct stat want {};
          want.st_mode = static_cast<mode_t>(0600 + random.Below(0100));
          SALIUS_CHECK_OK(volume->attrs().SetAttr(file->node, kSetMode, want));
          EXPECT_EQ(Stat(file->node).st_mode & 07777, want.st_mode);
          break;
        }
        case 9: {
          const size_t from = random.Below(kFiles);
          if (from == which) break;
          const auto copied =
              volume->files().CopyFileRange(*files[from], at, *file, at, 1 + random.Below(kPage));
          SALIUS_CHECK_OK(copied);
          if (*copied > 0) shadow.Write(at, shadows[from].Read(at, *copied));
          break;
        }
        default: {
          const uint64_t length = random.Chance(0.2) ? kPage : 1 + random.Below(3000);
          const uint64_t begin = length == kPage ? at / kPage * kPage : at;
          const std::string data(length, static_cast<char>('a' + step % 26));
          Write(file, begin, data, random.Chance(0.1) ? Contract::kDurable : Contract::kPlain);
          shadow.Write(begin, data);
          break;
        }
      }
      const uint64_t from = random.Below(10 * kPage);
      const size_t size = random.Below(9000);
      ASSERT_EQ(Read(file, from, size), shadow.Read(from, size)) << "step " << step;
    }
    SALIUS_CHECK_OK(volume->stream().Checkpoint());
    EXPECT_EQ(volume->patch_memory().used(), 0u);
    for (size_t i = 0; i < kFiles; ++i) {
      EXPECT_EQ(BackingContent("f" + std::to_string(i)), shadows[i].content);
      volume->open_files().Release(files[i]);
    }
    VolumeFixture::TearDown();
  }
}

}  // namespace
}  // namespace salius
