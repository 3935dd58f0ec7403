// The steps on the shared window, one at a time: layout, stamping, holes, claims, the file table,
// stripes and the leader.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <csignal>
#include <random>

#include "tests/unit/direct/direct_testing.h"

namespace salius::direct {
namespace {

class DirectWindowTest : public ::testing::Test {
 protected:
  void SetUp() override { PublishReplicated(window()); }
  const SharedWindow& window() const { return shared_.window(); }
  Header& header() const { return window().header(); }
  Reservation ReserveNow(uint32_t body_bytes, int64_t now = MonotonicNs(), uint32_t file = 3) {
    WindowLock lock(window());
    Draft draft;
    draft.file = file;
    draft.body_bytes = body_bytes;
    return Reserve(window(), draft, now, 5000);
  }
  // Stamps a record with a body of this byte.
  Seq StampNow(uint32_t body_bytes, char byte = 'x', uint32_t file = 3) {
    const std::string body(body_bytes, byte);
    const iovec part{const_cast<char*>(body.data()), body.size()};
    Draft draft;
    draft.file = file;
    draft.file_id = 9;
    draft.parts = &part;
    draft.count = 1;
    draft.body_bytes = body_bytes;
    const StripeLock stripe(window(), file);
    return Stamp(window(), draft).seq;
  }
  Claimed ClaimNow() {
    WindowLock lock(window());
    return Claim(window(), 1);
  }
  Seq ReadyNow() {
    WindowLock lock(window());
    return AdvanceReady(window());
  }
  absl::StatusOr<RecordHeader> Decoded(Seq seq) const {
    return DecodeRecord(
        absl::Span<const uint8_t>(window().record_bytes(seq), window().record(seq).bytes));
  }

  TestWindow shared_{SmallSpec()};
};

TEST_F(DirectWindowTest, AttachRefusesAnotherLayout) {
  EXPECT_TRUE(SharedWindow::Attach(shared_.memory(), shared_.bytes()).valid());
  EXPECT_FALSE(SharedWindow::Attach(shared_.memory(), shared_.bytes() - 4096).valid());
  EXPECT_FALSE(SharedWindow::Attach(shared_.memory(), 100).valid());
  for (uint64_t* const field : {&header().magic, &header().ring_at, &header().ring_bytes}) {
    const uint64_t good = std::exchange(*field, *field + 4096);
    EXPECT_FALSE(SharedWindow::Attach(shared_.memory(), shared_.bytes()).valid());
    *field = good;
  }
  header().version = kWindowVersion + 1;
  EXPECT_FALSE(SharedWindow::Attach(shared_.memory(), shared_.bytes()).valid());
}

TEST_F(DirectWindowTest, BodyOfSeveralPartsIsOneRecord) {
  const std::string a = "alpha", b = "", c = "gamma";
  const iovec parts[] = {{const_cast<char*>(a.data()), a.size()},
                         {const_cast<char*>(b.data()), b.size()},
                         {const_cast<char*>(c.data()), c.size()}};
  Draft draft;
  draft.file = 3;
  draft.parts = parts;
  draft.count = 3;
  draft.skip = 2;
  draft.body_bytes = 6;
  const StripeLock stripe(window(), 3);
  const Stamped stamped = Stamp(window(), draft);
  ASSERT_EQ(stamped.seq, 1u);
  ASSERT_TRUE(Decoded(1).ok());
  EXPECT_EQ(std::memcmp(window().record_bytes(1) + kRecordHeaderBytes, "phagam", 6), 0);
}

TEST_F(DirectWindowTest, RecordOfAChangingBufferIsWhole) {
  constexpr size_t kBytes = 40000;
  void* const body =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(body, MAP_FAILED);
  const iovec part{body, kBytes};
  const pid_t changer = fork();
  if (changer == 0) {
    for (int byte = 0;; ++byte) std::memset(body, byte, kBytes);
  }
  while (*static_cast<volatile char*>(body) == 0) sched_yield();
  for (int i = 0; i < 20; ++i) {
    Draft draft;
    draft.file = 3;
    draft.file_id = 9;
    draft.parts = &part;
    draft.count = 1;
    draft.body_bytes = kBytes;
    const StripeLock stripe(window(), 3);
    const Seq seq = Stamp(window(), draft).seq;
    EXPECT_TRUE(Decoded(seq).ok()) << Decoded(seq).status();
  }
  kill(changer, SIGKILL);
  waitpid(changer, nullptr, 0);
  munmap(body, kBytes);
}

TEST_F(DirectWindowTest, RecordsOfManyWritersAreGathered) {
  header().few = 1;
  StampNow(100);
  EXPECT_EQ(ClaimNow().last, 1u);
  StampNow(100);
  // Two are under way: the second waits for the first.
  EXPECT_FALSE(ClaimNow().any());
  StampNow(100);
  header().durable = 1;
  const Claimed both = ClaimNow();
  EXPECT_EQ(both.first, 2u);
  EXPECT_EQ(both.last, 3u);
  // The many writers are remembered.
  header().durable = 2;
  StampNow(100);
  EXPECT_FALSE(ClaimNow().any());
}

TEST_F(DirectWindowTest, GatheredRecordsAreSentWhenTheyAreManyOrOld) {
  header().few = 0;
  StampNow(100);
  EXPECT_EQ(ClaimNow().last, 1u);
  StampNow(100);
  EXPECT_FALSE(ClaimNow().any());
  window().window().At(2).issued_ns = 1 - 1'000'000;
  EXPECT_EQ(ClaimNow().last, 2u);
  StampNow(100);
  EXPECT_FALSE(ClaimNow().any());
  StampNow(56 << 10);
  EXPECT_EQ(ClaimNow().last, 4u);
}

TEST_F(DirectWindowTest, FewWritersSendAtOnce) {
  header().few = 5;
  for (Seq seq = 1; seq <= 5; ++seq) {
    StampNow(100);
    EXPECT_EQ(ClaimNow().last, seq);
  }
  StampNow(100);
  EXPECT_FALSE(ClaimNow().any());
}

TEST_F(DirectWindowTest, TimestampsGrowThoughTheClockIsSetBack) {
  ReserveNow(10);
  const uint64_t first = window().record(1).timestamp_ns;
  header().last_timestamp_ns = 1u << 30;
  ReserveNow(10);
  EXPECT_EQ(first, 5000u);
  EXPECT_EQ(window().record(2).timestamp_ns, (1u << 30) + 1);
}

TEST_F(DirectWindowTest, NoRoomBesideARecordThatIsTooOld) {
  header().oldest_ns = 100;
  EXPECT_EQ(ReserveNow(10, 1000).why, NoSeq::kNone);
  EXPECT_EQ(ReserveNow(10, 1100).why, NoSeq::kNone);
  EXPECT_EQ(ReserveNow(10, 1101).why, NoSeq::kNoRoom);
}

TEST_F(DirectWindowTest, SlotsRunOut) {
  int records = 0;
  while (ReserveNow(0).why == NoSeq::kNone) ++records;
  EXPECT_EQ(records, 1023);
}

TEST_F(DirectWindowTest, RoomOfAnIncompleteRecordIsNotReusedAfterACheckpoint) {
  const Reservation slow = ReserveNow(1000);
  while (StampNow(100'000) != 0) {
  }
  {
    WindowLock lock(window());
    PublishCheckpoint(window(), window().window().issued());
  }
  EXPECT_EQ(ReserveNow(100'000).why, NoSeq::kNoRoom);
  MarkReady(window(), slow.seq);
  EXPECT_EQ(ReserveNow(100'000).why, NoSeq::kNone);
}

TEST_F(DirectWindowTest, HoleIsFilledOnlyWhenItsStripeIsFree) {
  ASSERT_EQ(ReserveNow(500).seq, 1u);
  EXPECT_EQ(StampNow(20, 'y', 4), 2u);
  EXPECT_EQ(ReadyNow(), 0u);
  std::atomic<bool> taken{false}, give{false};
  std::thread owner([&] {
    StripeLock stripe(window(), 3);
    taken = true;
    while (!give) usleep(100);
  });
  while (!taken) usleep(100);
  EXPECT_EQ(FillHoles(window()), 0u);
  EXPECT_EQ(ReadyNow(), 0u);
  give = true;
  owner.join();
  EXPECT_EQ(FillHoles(window()), 1u);
  EXPECT_EQ(ReadyNow(), 2u);
  const auto hole = Decoded(1);
  ASSERT_TRUE(hole.ok()) << hole.status();
  EXPECT_EQ(hole->op, Op::kOnDisk);
  EXPECT_EQ(hole->file_id, kNoFileId);
  EXPECT_EQ(hole->arg0, 0u);
  EXPECT_EQ(hole->body_bytes, 0u);
  EXPECT_EQ(FillHoles(window()), 0u);
}

TEST_F(DirectWindowTest, ClaimStopsAtAnIncompleteRecord) {
  StampNow(10);
  StampNow(10);
  const Reservation open = ReserveNow(10);
  StampNow(10);
  Claimed claimed = ClaimNow();
  EXPECT_EQ(claimed.first, 1u);
  EXPECT_EQ(claimed.last, 2u);
  EXPECT_FALSE(ClaimNow().any());
  MarkReady(window(), open.seq);
  claimed = ClaimNow();
  EXPECT_EQ(claimed.first, 3u);
  EXPECT_EQ(claimed.last, 4u);
}

TEST_F(DirectWindowTest, ClaimKeepsToTheBytesInFlightButTakesOne) {
  header().in_flight_bytes = 1000;
  for (int i = 0; i < 5; ++i) StampNow(400);
  StampNow(100'000);
  EXPECT_EQ(ClaimNow().last, 1u);
  EXPECT_FALSE(ClaimNow().any());
  header().durable = 1;
  EXPECT_EQ(ClaimNow().last, 2u);
  header().durable = 2;
  EXPECT_EQ(ClaimNow().last, 3u);
  header().sent = header().durable = 5;
  EXPECT_EQ(ClaimNow().last, 6u);
}

TEST_F(DirectWindowTest, ClaimBeginsAboveTheCheckpoint) {
  for (int i = 0; i < 5; ++i) StampNow(10);
  {
    WindowLock lock(window());
    PublishCheckpoint(window(), 3);
  }
  EXPECT_EQ(ClaimNow().first, 4u);
}

RC_GTEST_FIXTURE_PROP(DirectWindowTest, RecordsKeepTheirBytesUntilTheyAreCut, ()) {
  PublishReplicated(window());
  std::map<Seq, std::pair<uint32_t, char>> model;
  const auto sizes = *rc::gen::container<std::vector<uint32_t>>(rc::gen::inRange(0u, 131073u));
  for (const uint32_t size : sizes) {
    const char byte = static_cast<char>('a' + size % 26);
    const Seq seq = StampNow(size, byte);
    if (seq == 0) {
      const Seq half = (window().window().checkpoint() + window().window().issued() + 1) / 2;
      WindowLock lock(window());
      PublishCheckpoint(window(), half);
      model.erase(model.begin(), model.upper_bound(half));
      continue;
    }
    model[seq] = {size, byte};
    for (const auto& [s, content] : model) {
      const auto header = Decoded(s);
      RC_ASSERT(header.ok());
      RC_ASSERT(header->seq == s);
      RC_ASSERT(header->body_bytes == content.first);
      const uint8_t* body = window().record_bytes(s) + kRecordHeaderBytes;
      RC_ASSERT((content.first == 0 ||
                 (body[0] == content.second && body[content.first - 1] == content.second)));
    }
  }
}

TEST_F(DirectWindowTest, FileTableFindsWhatWasAdded) {
  WindowLock lock(window());
  std::map<uint64_t, uint32_t> model;
  std::mt19937_64 random(5);
  uint32_t full = 0;
  for (int i = 0; i < 400; ++i) {
    const uint64_t inode = random() % 500 + 1;
    const uint32_t index = FindOrAddFile(window(), inode);
    if (index == kNoFile) {
      ++full;
      EXPECT_FALSE(model.contains(inode));
      continue;
    }
    const auto it = model.find(inode);
    EXPECT_TRUE(it == model.end() || it->second == index);
    model[inode] = index;
    EXPECT_EQ(FindFile(window(), inode), index);
  }
  EXPECT_EQ(model.size(), 256u - 32);
  EXPECT_GT(full, 0u);
  EXPECT_EQ(FindFile(window(), 10'000), kNoFile);
  std::set<uint32_t> indices;
  for (const auto& [inode, index] : model) indices.insert(index);
  EXPECT_EQ(indices.size(), model.size());
}

TEST_F(DirectWindowTest, NewFileIsUncovered) {
  WindowLock lock(window());
  const uint32_t file = FindOrAddFile(window(), 17);
  const FileEntry& entry = window().file(file);
  EXPECT_FALSE(IsCovered(window(), entry, entry.uncovered.load()));
  EXPECT_EQ(entry.reasons.load(), 1u << static_cast<int>(Reason::kNew));
}

TEST_F(DirectWindowTest, FileIdsEndAtTheLimit) {
  WindowLock lock(window());
  header().file_ids = {10, 14, 2};
  bool few = true;
  EXPECT_EQ(TakeFileId(window(), &few), 10u);
  EXPECT_FALSE(few);
  EXPECT_EQ(TakeFileId(window(), &few), 11u);
  EXPECT_EQ(TakeFileId(window(), &few), 12u);
  EXPECT_TRUE(few);
  EXPECT_EQ(TakeFileId(window(), &few), 13u);
  EXPECT_EQ(TakeFileId(window(), &few), kNoFileId);
}

TEST_F(DirectWindowTest, VisitSkipsAHeldStripe) {
  std::atomic<bool> taken{false}, give{false};
  std::thread owner([&] {
    StripeLock stripe(window(), 3);
    taken = true;
    while (!give) usleep(100);
  });
  while (!taken) usleep(100);
  EXPECT_EQ(VisitStripes(window()), 1u);
  give = true;
  owner.join();
  EXPECT_EQ(VisitStripes(window()), 0u);
}

TEST_F(DirectWindowTest, DeadOwnerIsNoticedOnceAndNamesItsFile) {
  Join(Fork([&] {
    TakeStripe(window(), 5);
    raise(SIGKILL);
  }));
  header().clean_epoch = header().sync_epoch.load();  // all is covered
  const uint32_t other = 5 + header().stripes;        // the same stripe
  TakeStripe(window(), other);
  GiveStripe(window(), other);
  const auto covered = [&](uint32_t file) {
    return IsCovered(window(), window().file(file), window().file(file).uncovered.load());
  };
  EXPECT_EQ(window().file(5).reasons.load(), 1u << static_cast<int>(Reason::kDeadOwner));
  EXPECT_EQ(window().file(other).reasons.load(), 0u);
  EXPECT_TRUE(covered(other));
  EXPECT_EQ(header().counters.dead_owners.load(), 1u);
  EXPECT_EQ(VisitStripes(window()), 0u);
  EXPECT_EQ(header().counters.dead_owners.load(), 1u);
}

TEST_F(DirectWindowTest, LifeLockTellsADeadHolder) {
  EXPECT_FALSE(HeldByTheLiving(header().life));
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = Fork([&] {
    TryTakeLock(header().life);
    (void)!write(ready[1], "x", 1);
    pause();
  });
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_TRUE(HeldByTheLiving(header().life));
  kill(child, SIGKILL);
  Join(child);
  EXPECT_FALSE(HeldByTheLiving(header().life));
}

TEST_F(DirectWindowTest, SilentLeaderIsReplaced) {
  Leadership first = Leadership::Try(window(), 1000);
  EXPECT_TRUE(first.leading());
  EXPECT_FALSE(Leadership::Try(window(), 1000 + Leadership::kTakeOverNs).leading());
  Leadership second = Leadership::Try(window(), 1001 + Leadership::kTakeOverNs);
  EXPECT_TRUE(second.leading());
  EXPECT_FALSE(first.Beat(window(), 2000));
  EXPECT_FALSE(first.leading());
  first.Stop(window());
  EXPECT_TRUE(second.Beat(window(), 3000));
  second.Stop(window());
  EXPECT_TRUE(Leadership::Try(window(), 0).leading());
}

TEST_F(DirectWindowTest, KickEndsTheCoordinatorsSleep) {
  std::thread kicks([&] {
    usleep(5000);
    Kick(window(), kTroubleRoom);
  });
  const int64_t begun = MonotonicNs();
  while ((TakeTrouble(window()) & kTroubleRoom) == 0) SleepUntilKicked(window(), 30'000'000'000);
  EXPECT_LT(MonotonicNs() - begun, 20'000'000'000);
  kicks.join();
}

}  // namespace
}  // namespace salius::direct
