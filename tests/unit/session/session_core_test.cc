// The session core and its small parts: stamps, file ids, notes, the filter of acknowledgements, and
// the work that inputs give.
#include "client/session/session_core.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/frame.h"

namespace salius {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr uint64_t kSession = 77;

TEST(FileIdBlocksTest, NoIdIsAtOrAboveTheNotedLimit) {
  FileIdBlocks ids(100, 4);
  std::vector<FileId> taken;
  while (const std::optional<FileId> id = ids.Take()) taken.push_back(*id);
  EXPECT_EQ(taken, (std::vector<FileId>{100, 101, 102, 103}));
  EXPECT_TRUE(ids.WantsNote());
  EXPECT_FALSE(ids.WantsNote());
  EXPECT_EQ(ids.StartNote(), 108u);
  EXPECT_FALSE(ids.Take().has_value());
  ids.OnNoteWritten();
  EXPECT_EQ(ids.Take(), 104u);
}

TEST(FileIdBlocksTest, NextBlockIsWantedWhenHalfOfOneIsUsed) {
  FileIdBlocks ids(0, 4);
  ids.Take();
  ids.Take();
  EXPECT_FALSE(ids.WantsNote());
  ids.Take();
  EXPECT_TRUE(ids.WantsNote());
}

TEST(StamperTest, TimestampsGrowWhenTheClockIsSetBack) {
  Stamper stamper(VolumeId(), 3, 1000);
  RecordHeader header;
  stamper.Stamp(header, 5000, 2, 1);
  EXPECT_EQ(header.timestamp_ns, 5000u);
  EXPECT_EQ(header.epoch, 3u);
  EXPECT_EQ(header.durable_mark, 2u);
  EXPECT_EQ(header.checkpoint_mark, 1u);
  stamper.Stamp(header, 10, 2, 1);
  EXPECT_EQ(header.timestamp_ns, 5001u);
  stamper.Stamp(header, -10, 2, 1);
  EXPECT_EQ(header.timestamp_ns, 5002u);
}

TEST(StateNotesTest, FirstNoteIsOpenLocalAndOfTheNextEpoch) {
  VolumeState before;
  before.epoch = 4;
  before.file_id_limit = 10;
  before.members.push_back({"a:1", 1, 1});
  before.checkpoint = 9;
  const VolumeState first = StateNotes::First(before, {"boot", 8}, 2, 100);
  EXPECT_TRUE(first.open);
  EXPECT_EQ(first.epoch, 5u);
  EXPECT_EQ(first.mode, Mode::kLocal);
  EXPECT_TRUE(first.members.empty());
  EXPECT_EQ(first.checkpoint, 0u);
  EXPECT_EQ(first.file_id_limit, 110u);
  EXPECT_EQ(first.acks, 2u);
  EXPECT_EQ(first.boot_id, "boot");
}

class SessionCoreTest : public testing::Test {
 protected:
  void SetUp() override {
    config_ = DefaultVolumeConfig();
    config_.replicas = {"a:1", "b:2"};
    config_.acks = 1;
    Begin();
  }
  void Begin(FileId block = 65536) {
    SessionTuning tuning;
    tuning.file_id_block = block;
    core_ = std::make_unique<SessionCore>(config_, tuning, now_);
    VolumeState before;
    before.volume = config_.volume;
    before.file_id_limit = 50;
    core_->Begin(StateNotes::First(before, {"boot", 0}, config_.acks, block), kSession);
  }
  Work Feed(const Input& input) {
    Work work;
    core_->Feed(now_, input, work);
    return work;
  }
  // Brings the session to mode replicated.
  void Heal() {
    const auto write_note = [this](Work work) {
      while (work.note) work = Feed(input::NoteWritten{});
    };
    const Work opens = Feed(input::TimePassed{});
    ASSERT_EQ(opens.opens.size(), 2u);
    for (const auto& open : opens.opens) {
      write_note(Feed(input::Opened{open.replica, Incarnation(10 + open.replica),
                                    StoreId(20 + open.replica), open.base, 64 << 20}));
    }
    const auto healed = [this] {
      return core_->policy().counting_acks() && core_->policy().noted().members == 3;
    };
    for (int i = 0; i < 1000 && !healed(); ++i) {
      now_ += kMs;
      write_note(Ack(0, 0));
      write_note(Ack(1, 0));
      write_note(Feed(input::TimePassed{}));
    }
    ASSERT_TRUE(healed());
  }
  std::string AckBytes(int replica, Seq contiguous, uint64_t session = kSession) const {
    AckPayload ack;
    ack.incarnation = Incarnation(10 + replica);
    ack.base = 1;
    ack.contiguous = contiguous;
    ack.free_bytes = 64 << 20;
    std::string payload(kMaxAckBytes, '\0');
    payload.resize(EncodeAckPayload(ack, reinterpret_cast<uint8_t*>(payload.data())));
    FrameHeader header;
    header.type = FrameType::kAck;
    header.volume = config_.volume;
    header.epoch = 1;
    header.session = session;
    header.send_time_ns = static_cast<uint64_t>(now_);
    header.payload_bytes = static_cast<uint32_t>(payload.size());
    std::string bytes(kFrameHeaderBytes, '\0');
    EncodeFrameHeader(header, reinterpret_cast<uint8_t*>(bytes.data()));
    return bytes + payload;
  }
  Work Receive(const std::string& bytes, int replica, bool truncated = false) {
    const AckDatagram datagram{
        {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, replica, truncated};
    return Feed(input::Received{absl::MakeConstSpan(&datagram, 1)});
  }
  Work Ack(int replica, Seq contiguous) { return Receive(AckBytes(replica, contiguous), replica); }
  Work Issue(SendWhen when = SendWhen::kNow) {
    RecordDraft draft;
    draft.body = "body";
    Work work;
    core_->Issue(now_, 5, std::make_shared<Record>(std::move(draft)), when, work);
    return work;
  }

  VolumeConfig config_;
  int64_t now_ = 1000 * kMs;
  std::unique_ptr<SessionCore> core_;
};

TEST_F(SessionCoreTest, IssueSendsOneJobToAllReplicas) {
  Heal();
  const Work work = Issue();
  ASSERT_EQ(work.jobs.size(), 1u);
  EXPECT_EQ(work.jobs[0].targets, 3);
  EXPECT_TRUE(work.jobs[0].first_time);
  ASSERT_EQ(work.jobs[0].records.size(), 1u);
  EXPECT_EQ(work.jobs[0].records[0]->seq(), 1u);
  EXPECT_EQ(work.jobs[0].header.session, kSession);
  EXPECT_EQ(work.jobs[0].header.issued_mark, 1u);
}

TEST_F(SessionCoreTest, GatheredRecordLeavesWhenItIsAwaited) {
  Heal();
  EXPECT_TRUE(Issue(SendWhen::kLater).jobs.empty());
  EXPECT_TRUE(Issue(SendWhen::kLater).jobs.empty());
  const Work work = Feed(input::Awaited{1, SendWhen::kNow});
  ASSERT_EQ(work.jobs.size(), 1u);
  EXPECT_EQ(work.jobs[0].records.size(), 2u);
  EXPECT_TRUE(Feed(input::Awaited{2, SendWhen::kNow}).jobs.empty());
}

TEST_F(SessionCoreTest, CallbackComesWithTheAckThatMakesItsRecordDurable) {
  Heal();
  Issue();
  Issue();
  core_->waiters().Add(2, [](const absl::Status&) {});
  EXPECT_TRUE(Ack(0, 1).done.empty());
  const Work work = Ack(1, 2);
  EXPECT_TRUE(work.durable_advanced);
  ASSERT_EQ(work.done.size(), 1u);
  EXPECT_EQ(work.done[0].seq, 2u);
}

TEST_F(SessionCoreTest, StoppingEndsWaitsWithAnError) {
  Heal();
  Issue();
  core_->waiters().Add(1, [](const absl::Status&) {});
  EXPECT_TRUE(core_->Waitable().ok());
  const Work work = Feed(input::Stopping{});
  EXPECT_EQ(work.failed.size(), 1u);
  EXPECT_TRUE(absl::IsUnavailable(work.why));
  EXPECT_FALSE(core_->Waitable().ok());
}

TEST_F(SessionCoreTest, FailureIsReportedOnce) {
  Issue();
  EXPECT_FALSE(Feed(input::ApplyFailed{absl::InternalError("EIO")}).failure.ok());
  EXPECT_TRUE(Feed(input::ApplyFailed{absl::InternalError("EIO")}).failure.ok());
  EXPECT_EQ(core_->mode(), "failed");
}

TEST_F(SessionCoreTest, OnlyAcksOfThisSessionFromAReplicaCount) {
  Heal();
  Issue();
  const std::string good = AckBytes(0, 1);
  const auto verdict = [&](const std::string& bytes, int replica, bool truncated = false) {
    const Work work = Receive(bytes, replica, truncated);
    for (size_t i = 0; i < kAckVerdicts; ++i) {
      if (work.datagrams[i] != 0) return static_cast<AckVerdict>(i);
    }
    return AckVerdict::kGood;
  };
  EXPECT_EQ(verdict(good, 0, /*truncated=*/true), AckVerdict::kTruncated);
  EXPECT_EQ(verdict(good.substr(1), 0), AckVerdict::kMalformed);
  EXPECT_EQ(verdict(AckBytes(0, 1, kSession + 1), 0), AckVerdict::kForeign);
  EXPECT_EQ(verdict(good, -1), AckVerdict::kUnknownSender);
  EXPECT_EQ(core_->policy().durable(), 0u);
  EXPECT_EQ(verdict(good, 0), AckVerdict::kGood);
  EXPECT_EQ(core_->policy().durable(), 1u);
}

TEST_F(SessionCoreTest, NoteNamesTheIdLimitBeforeItsIdsAreHandedOut) {
  Begin(/*block=*/4);
  Work work;
  for (FileId id = 50; id < 54; ++id) EXPECT_EQ(core_->NewFileId(now_, work), id);
  ASSERT_TRUE(work.note.has_value());
  EXPECT_EQ(work.note->file_id_limit, 58u);
  EXPECT_FALSE(core_->NewFileId(now_, work).has_value());
  EXPECT_TRUE(core_->needs_file_ids());
  Feed(input::NoteWritten{});
  EXPECT_EQ(core_->NewFileId(now_, work), 54u);
}

TEST_F(SessionCoreTest, RecordIsFreedWhenItIsAppliedAndCheckpointed) {
  Heal();
  Issue();
  Ack(0, 1);
  std::vector<RecordRef> batch;
  core_->NextToApply(core_->policy().applied(), &batch);
  ASSERT_EQ(batch.size(), 1u);
  Feed(input::Applied{1});
  ASSERT_TRUE(Feed(input::CheckpointWanted{}).start_sync);
  const Work note = Feed(input::Synced{1, absl::OkStatus()});
  ASSERT_TRUE(note.note.has_value());
  EXPECT_EQ(note.note->checkpoint, 1u);
  EXPECT_TRUE(note.dropped.empty());
  const Work noted = Feed(input::NoteWritten{});
  EXPECT_EQ(noted.cut, 1u);
  EXPECT_EQ(noted.dropped.size(), 1u);
  EXPECT_EQ(core_->ClosedNote().checkpoint, 1u);
  EXPECT_FALSE(core_->ClosedNote().open);
}

}  // namespace
}  // namespace salius
