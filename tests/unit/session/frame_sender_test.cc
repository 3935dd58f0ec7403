// Replicas of two versions: compact frames go to those that take them, and only at first.
#include "client/session/frame_sender.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "client/session/peer_paths.h"
#include "gtest/gtest.h"

namespace salius {
namespace {

// Keeps the type of each frame by the port that it is sent to.
class TypeChannel : public DatagramChannel {
 public:
  size_t Send(absl::Span<const OutDatagram> batch) override {
    for (const OutDatagram& datagram : batch) {
      std::string bytes;
      for (const iovec& part : datagram.parts) {
        bytes.append(static_cast<const char*>(part.iov_base), part.iov_len);
      }
      const absl::StatusOr<FrameHeader> frame =
          DecodeFrameHeader({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
      EXPECT_TRUE(frame.ok()) << frame.status();
      if (frame.ok()) types[datagram.to->length].push_back(frame->type);
    }
    return batch.size();
  }
  absl::StatusOr<size_t> Receive(InBatch&, bool) override { return 0; }
  absl::Status SetReceiveTimeout(int64_t) override { return absl::OkStatus(); }
  int fd() const override { return -1; }
  absl::StatusOr<SocketAddress> local() const override { return SocketAddress(); }
  uint64_t send_errors() const override { return 0; }

  std::map<size_t, std::vector<FrameType>> types;
};

class FrameSenderTest : public ::testing::Test {
 protected:
  FrameSenderTest() {
    for (size_t i = 0; i < 2; ++i) {
      SocketAddress address;
      address.length = static_cast<socklen_t>(i + 1);  // tells the two apart
      sender_.SetPeer(i, address);
      paths_[i].SetRoute(kDatagramPayloadDefault, /*group=*/false);
    }
  }

  // Sends `records` small records to both replicas. Returns the types of the frames to each.
  std::vector<std::vector<FrameType>> Send(int records, bool first_time) {
    SendJob job;
    job.targets = 3;
    job.first_time = first_time;
    job.header.epoch = 3;
    for (int i = 0; i < records; ++i) {
      RecordDraft draft;
      draft.body = "body";
      auto record = std::make_shared<Record>(std::move(draft));
      record->stamp().epoch = 3;
      record->stamp().seq = ++seq_;
      record->Encode();
      job.records.push_back(record);
    }
    paths_.Choose(job, 3);
    channel_.types.clear();
    sender_.Send(job);
    return {channel_.types[1], channel_.types[2]};
  }

  using Types = std::vector<std::vector<FrameType>>;
  TypeChannel channel_;
  PeerPaths paths_{2};
  FrameSender sender_{channel_, kDatagramPayloadDefault, std::nullopt};
  Seq seq_ = 0;
};

TEST_F(FrameSenderTest, CompactFramesGoToReplicasThatTakeThem) {
  paths_.SetCompact(1, true);
  EXPECT_EQ(Send(3, true), (Types{{FrameType::kRecords}, {FrameType::kCompact}}));
  paths_.SetCompact(0, true);
  EXPECT_EQ(Send(3, true), (Types{{FrameType::kCompact}, {FrameType::kCompact}}));
  paths_.SetCompact(1, false);
  EXPECT_EQ(Send(3, true), (Types{{FrameType::kCompact}, {FrameType::kRecords}}));
}

TEST_F(FrameSenderTest, ResendsAndSingleRecordsAreNotCompact) {
  paths_.SetCompact(0, true);
  paths_.SetCompact(1, true);
  EXPECT_EQ(Send(3, false), (Types{{FrameType::kRecords}, {FrameType::kRecords}}));
  EXPECT_EQ(Send(1, true), (Types{{FrameType::kRecords}, {FrameType::kRecords}}));
}

}  // namespace
}  // namespace salius
