// The policy on the shared window: what it notices of other processes, and what it publishes.
#include "client/direct/coordinator/shared_records.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "client/direct/coordinator/stripe_pass.h"
#include "client/direct/coordinator/window_memory.h"
#include "client/direct/window/acks.h"
#include "client/direct/window/claim.h"
#include "client/direct/window/stamp.h"
#include "client/session/session_core.h"
#include "common/check.h"
#include "proto/frame.h"

namespace salius::direct {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr uint64_t kSession = 77;
constexpr FileId kBlock = 64;

class SharedRecordsTest : public testing::Test {
 protected:
  void SetUp() override {
    config_.replicas = {"a:1", "b:2"};
    config_.acks = 1;
    config_.delta_us = 50'000;
    config_.tau_ms = 1000;
    config_.log_max_bytes = 8 << 20;
    WindowSpec spec;
    spec.slots = 1024;
    spec.stripes = 16;
    spec.files = 64;
    spec.ring_bytes = 1 << 20;
    spec.replicas = 2;
    spec.epoch = 1;
    spec.session = kSession;
    spec.oldest_ns = 1900 * kMs;
    spec.next_file_id = 50;
    spec.file_id_limit = 50 + kBlock;
    absl::StatusOr<WindowMemory> memory = WindowMemory::Make(spec);
    ASSERT_TRUE(memory.ok()) << memory.status();
    memory_.emplace(*std::move(memory));
    records_ = std::make_unique<SharedRecords>(window());
    SocketAddress address;
    address.storage.ss_family = AF_INET;
    address.length = sizeof(sockaddr_in);
    for (int i = 0; i < 2; ++i) {
      address.set_port(static_cast<uint16_t>(7400 + i));
      records_->SetAddress(i, &address);
    }
    SessionTuning tuning;
    tuning.file_id_block = kBlock;
    tuning.foreign = records_.get();
    core_ = std::make_unique<SessionCore>(config_, tuning, now_);
    VolumeState before;
    before.file_id_limit = 50;
    core_->Begin(StateNotes::First(before, {"boot", 0}, config_.acks, kBlock), kSession);
    for (int i = 0; i < 2; ++i) core_->paths()[i].SetRoute(1400, false);
  }
  const SharedWindow& window() const { return memory_->window(); }
  Header& header() const { return window().header(); }
  Phase phase() const { return window().phase().phase(); }
  Work Feed(const Input& input) {
    Work work;
    core_->Feed(now_, input, work);
    return work;
  }
  Work Tick(int64_t ms) {
    now_ += ms * kMs;
    return Feed(input::TimePassed{});
  }
  void OpenAll() {
    for (const Replicator::OpenRequest& open : Tick(1).opens) {
      Feed(input::Opened{open.replica, 100u + open.replica, 7000u + open.replica, open.base,
                         64u << 20});
    }
  }
  // Gives the policy an acknowledgement from a mailbox.
  Work Mail(int replica, Seq contiguous) {
    AckPayload ack;
    ack.incarnation = 100u + replica;
    ack.base = 1;
    ack.contiguous = contiguous;
    ack.free_bytes = 64 << 20;
    std::vector<uint8_t> bytes(kFrameHeaderBytes + kMaxAckBytes);
    FrameHeader frame;
    frame.type = FrameType::kAck;
    frame.epoch = 1;
    frame.session = kSession;
    frame.send_time_ns = static_cast<uint64_t>(now_ - kMs / 10);
    frame.payload_bytes =
        static_cast<uint32_t>(EncodeAckPayload(ack, bytes.data() + kFrameHeaderBytes));
    EncodeFrameHeader(frame, bytes.data());
    bytes.resize(kFrameHeaderBytes + frame.payload_bytes);
    const AckDatagram datagram{bytes, replica, false};
    return Feed(input::Received{absl::MakeConstSpan(&datagram, 1)});
  }
  // A process counts an acknowledgement itself.
  void Count(uint32_t replica, Seq contiguous) {
    AckBytes ack{};
    ack.incarnation = 100 + replica;
    ack.base = 1;
    ack.contiguous = contiguous;
    const WindowLock lock(window());
    TakeAck(window(), replica, now_ - kMs / 10, ack, now_);
    AdvanceDurable(window());
  }
  Seq StampOne(uint32_t bytes = 5) {
    Draft draft;
    draft.file = 1;
    draft.file_id = 50;
    std::string body = "hello";
    body.resize(bytes, '.');
    const iovec part{body.data(), body.size()};
    draft.parts = &part;
    draft.count = 1;
    draft.body_bytes = bytes;
    Reservation reserved;
    {
      const WindowLock lock(window());
      reserved = Reserve(window(), draft, now_, now_);
    }
    if (reserved.why != NoSeq::kNone) return 0;
    Fill(window(), draft, reserved);
    MarkReady(window(), reserved.seq);
    return reserved.seq;
  }
  Work EndSync() { return Feed(input::Synced{window().window().issued(), absl::OkStatus()}); }
  void Heal() {
    OpenAll();
    Mail(0, 0);
    Mail(1, 0);
    ASSERT_EQ(phase(), Phase::kLocal);
    ASSERT_TRUE(EndSync().pass_stripes);
    ASSERT_EQ(phase(), Phase::kStamping);
    ASSERT_TRUE(Feed(input::StripesPassed{}).start_sync);
    ASSERT_TRUE(EndSync().note.has_value());
    ASSERT_EQ(phase(), Phase::kStamping);
    ASSERT_EQ(header().counting, 0u);
    Feed(input::NoteWritten{});
    ASSERT_EQ(phase(), Phase::kReplicated);
    ASSERT_EQ(header().counting, 1u);
  }

  int64_t now_ = 1'000'000'000;
  VolumeConfig config_;
  std::optional<WindowMemory> memory_;
  std::unique_ptr<SharedRecords> records_;
  std::unique_ptr<SessionCore> core_;
};

TEST_F(SharedRecordsTest, MemoryCannotBeCut) { EXPECT_NE(ftruncate(memory_->fd(), 4096), 0); }

TEST_F(SharedRecordsTest, NothingBehindTheRingIsReadForADamagedSlot) {
  Heal();
  const Seq seq = StampOne();
  ASSERT_NE(seq, 0u);
  EXPECT_EQ(records_->At(seq)->header().file_id, 50u);
  const uint32_t bytes = window().record(seq).bytes;
  // With whole turns of the ring more the record still begins at its header.
  for (const uint32_t turns : {1u, 64u, 4000u}) {
    window().record(seq).bytes = bytes + turns * (1u << 20);
    EXPECT_EQ(records_->At(seq)->header().file_id, 0u) << turns;
  }
  window().record(seq).bytes = 1;
  EXPECT_EQ(records_->At(seq)->header().file_id, 0u);
}

TEST_F(SharedRecordsTest, NothingIsStampedInModeLocal) { EXPECT_EQ(StampOne(), 0u); }

TEST_F(SharedRecordsTest, ProcessesCountByThePublishedRule) {
  ASSERT_NO_FATAL_FAILURE(Heal());
  ASSERT_EQ(StampOne(), 1u);
  Count(1, 1);
  EXPECT_EQ(window().durable(), 1u);
  Tick(1);
  EXPECT_EQ(core_->policy().durable(), 1u);
  EXPECT_EQ(core_->policy().applied(), 1u);
}

TEST_F(SharedRecordsTest, StampedWhileHealingCountsWhenTheNoteReturned) {
  OpenAll();
  Mail(0, 0);
  Mail(1, 0);
  EndSync();
  ASSERT_EQ(StampOne(), 1u);
  Feed(input::StripesPassed{});
  ASSERT_EQ(StampOne(), 2u);
  const Work work = Feed(input::Synced{1, absl::OkStatus()});
  ASSERT_TRUE(work.note.has_value());
  Count(0, 2);
  EXPECT_EQ(window().durable(), 0u);
  Feed(input::NoteWritten{});
  EXPECT_EQ(window().durable(), 2u);
}

TEST_F(SharedRecordsTest, GoingLocalStopsStampingAndCounting) {
  ASSERT_NO_FATAL_FAILURE(Heal());
  ASSERT_EQ(StampOne(), 1u);
  {
    const WindowLock lock(window());
    ASSERT_TRUE(Claim(window(), now_).any());
  }
  for (int i = 0; i < 40 && phase() == Phase::kReplicated; ++i) Tick(10);
  ASSERT_EQ(phase(), Phase::kGoingLocal);
  EXPECT_EQ(StampOne(), 0u);
  Count(0, 1);
  EXPECT_EQ(window().durable(), 0u);
  const Work work = EndSync();
  ASSERT_TRUE(work.note.has_value());
  EXPECT_EQ(work.note->mode, Mode::kLocal);
  EXPECT_EQ(work.note->checkpoint, 1u);
  Feed(input::NoteWritten{});
  EXPECT_EQ(phase(), Phase::kLocal);
  EXPECT_EQ(window().durable(), 1u);
}

TEST_F(SharedRecordsTest, ClaimedRecordIsSentAgainFromTheRing) {
  ASSERT_NO_FATAL_FAILURE(Heal());
  ASSERT_EQ(StampOne(), 1u);
  {
    const WindowLock lock(window());
    ASSERT_TRUE(Claim(window(), now_).any());
  }
  for (int i = 0; i < 20; ++i) {
    const Work work = Tick(2);
    for (const SendJob& job : work.jobs) {
      if (job.records.empty()) continue;
      ASSERT_EQ(job.records.front()->seq(), 1u);
      EXPECT_EQ(job.records.front()->body(), "hello");
      EXPECT_EQ(job.records.front()->header().file_id, 50u);
      return;
    }
  }
  FAIL() << "it was not sent again";
}

TEST_F(SharedRecordsTest, SizeThatNeverArrivesIsGivenUpForTheClaimsOfProcesses) {
  ASSERT_NO_FATAL_FAILURE(Heal());
  for (int i = 0; i < 2; ++i) core_->paths()[i].SetRoute(8972, false);
  Tick(1);
  Seq seq = 0;
  for (int i = 0; i < PeerPath::kFailures; ++i) {
    ASSERT_EQ(header().peers[0].datagram_bytes, 8972u) << i;
    // Together they are too large for the next size.
    ASSERT_EQ(StampOne(1000), ++seq);
    ASSERT_EQ(StampOne(1000), ++seq);
    {
      const WindowLock lock(window());
      ASSERT_EQ(Claim(window(), now_).last, seq);
    }
    Count(1, seq);
    Mail(1, seq);
    // Replica 0 has them when they are sent again.
    bool again = false;
    for (int ms = 0; ms < 40 && !again; ms += 2) {
      for (const SendJob& job : Tick(2).jobs) again |= !job.records.empty();
    }
    ASSERT_TRUE(again) << i;
    now_ += kMs / 2;
    Mail(0, seq);
  }
  EXPECT_EQ(header().peers[0].datagram_bytes, 1472u);
  EXPECT_EQ(header().peers[1].datagram_bytes, 8972u);
}

TEST_F(SharedRecordsTest, SyncIsCleanWithTheNoteOfItsCheckpoint) {
  ASSERT_NO_FATAL_FAILURE(Heal());
  ASSERT_EQ(StampOne(), 1u);
  const uint64_t epoch = header().sync_epoch;
  ASSERT_TRUE(Feed(input::SyncWanted{}).start_sync);
  EXPECT_EQ(header().sync_epoch, epoch + 1);
  const Work work = EndSync();
  ASSERT_TRUE(work.note.has_value());
  EXPECT_LT(header().clean_epoch, epoch);
  Feed(input::NoteWritten{});
  EXPECT_EQ(header().clean_epoch, epoch);
  EXPECT_EQ(window().window().checkpoint(), 1u);
}

TEST_F(SharedRecordsTest, FileIdsAreNotedBeforeProcessesTakeThem) {
  ASSERT_EQ(header().file_ids.limit, 50 + kBlock);
  header().file_ids.next = 50 + kBlock / 2 + 1;
  const Work work = Tick(1);
  ASSERT_TRUE(work.note.has_value());
  EXPECT_EQ(work.note->file_id_limit, 50 + 2 * kBlock);
  EXPECT_EQ(header().file_ids.limit, 50 + kBlock);
  Feed(input::NoteWritten{});
  EXPECT_EQ(header().file_ids.limit, 50 + 2 * kBlock);
}

TEST_F(SharedRecordsTest, MemoryThatWentBackIsNoTargetUntilItIsOpenedAgain) {
  ASSERT_NO_FATAL_FAILURE(Heal());
  ASSERT_NE(header().peers[0].incarnation, 0u);
  Feed(input::WentBack{0});
  EXPECT_EQ(header().peers[0].incarnation, 0u);
  EXPECT_EQ(header().peers[0].address_bytes, 0u);
  EXPECT_NE(header().peers[1].incarnation, 0u);
  EXPECT_EQ(phase(), Phase::kReplicated);
}

TEST_F(SharedRecordsTest, StripePassWaitsForAKeptLock) {
  StripePass pass(window());
  pass.Begin();
  TakeStripe(window(), 3);
  EXPECT_FALSE(pass.Go());
  GiveStripe(window(), 3);
  TakeStripe(window(), 4);
  EXPECT_TRUE(pass.Go()) << "stripe 4 was free before";
  GiveStripe(window(), 4);
}

}  // namespace
}  // namespace salius::direct
