// Sealed channels over loopback: good datagrams arrive, every other one is refused and counted.
#include "transport/sealed_channel.h"

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/bytes.h"
#include "common/net.h"
#include "gtest/gtest.h"
#include "proto/frame_format.h"
#include "transport/key_ring.h"
#include "transport/udp_socket.h"

namespace salius {
namespace {

constexpr uint32_t kKeyId = 0x77;
constexpr uint32_t kSender = 3;
constexpr SealKey kKey{1, 2, 3};
constexpr size_t kMessages = 64;

FrameSession Session() {
  FrameSession session;
  session.volume.bytes[0] = 7;
  session.epoch = 3;
  session.session = 5;
  return session;
}

// Returns a frame of `session` with `payload` bytes behind its header.
std::string Frame(size_t payload, uint64_t number = 1, const FrameSession& session = Session()) {
  FrameHeader header;
  header.volume = session.volume;
  header.epoch = session.epoch;
  header.session = session.session;
  header.issued_mark = number;
  header.payload_bytes = static_cast<uint32_t>(payload);
  std::string frame(kFrameHeaderBytes + payload, static_cast<char>(number));
  EncodeFrameHeader(header, reinterpret_cast<uint8_t*>(frame.data()));
  return frame;
}

std::unique_ptr<UdpSocket> Socket() {
  absl::StatusOr<SocketAddress> any = ResolveAddress({"127.0.0.1", 0});
  UdpSocket::Options options;
  options.coalesce = true;
  auto bound = UdpSocket::Bind(*any, options);
  EXPECT_TRUE(bound.ok()) << bound.status();
  EXPECT_TRUE(bound->SetReceiveTimeout(5'000'000).ok());
  return std::make_unique<UdpSocket>(*std::move(bound));
}

// A channel that keeps what is sent through it, and passes it on.
class Watched final : public DatagramChannel {
 public:
  explicit Watched(std::unique_ptr<DatagramChannel> inner) : inner_(std::move(inner)) {}
  size_t Send(absl::Span<const OutDatagram> batch) override {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const OutDatagram& datagram : batch) {
      std::string bytes;
      for (const iovec& part : datagram.parts) {
        bytes.append(static_cast<const char*>(part.iov_base), part.iov_len);
      }
      sent.push_back(bytes);
    }
    return inner_->Send(batch);
  }
  absl::StatusOr<size_t> Receive(InBatch& batch, bool wait) override {
    return inner_->Receive(batch, wait);
  }
  absl::Status SetReceiveTimeout(int64_t micros) override {
    return inner_->SetReceiveTimeout(micros);
  }
  int fd() const override { return inner_->fd(); }
  absl::StatusOr<SocketAddress> local() const override { return inner_->local(); }
  uint64_t send_errors() const override { return inner_->send_errors(); }

  std::vector<std::string> sent;  // read while no thread sends

 private:
  std::mutex mutex_;
  const std::unique_ptr<DatagramChannel> inner_;
};

// A sender and a receiver, each with its keys.
class SealedChannelTest : public testing::Test {
 protected:
  SealedChannelTest() {
    out_ring.AddSealing(kKeyId, kSender, kKey);
    out_ring.SealWith(kKeyId);
    EXPECT_TRUE(in_ring.AddOpening(kKeyId, KeyRing::kAnySender, kKey, Session()).ok());
    auto watched = std::make_unique<Watched>(Socket());
    wire = watched.get();
    SealedChannel::Options asks;
    asks.on_notice = [this](const SocketAddress& from) { notices.push_back(from); };
    out = std::make_unique<SealedChannel>(std::move(watched), out_ring, asks);
    SealedChannel::Options answers;
    answers.may_notify = [this](const SocketAddress&) { return may_notify; };
    in = std::make_unique<SealedChannel>(Socket(), in_ring, answers);
    to = *in->local();
  }

  // Sends frames to the receiver, in one batch.
  void Send(const std::vector<std::string>& frames, uint32_t key_id = 0) {
    std::vector<iovec> parts;
    std::vector<OutDatagram> batch;
    for (const std::string& frame : frames) {
      parts.push_back({const_cast<char*>(frame.data()), frame.size()});
    }
    for (const iovec& part : parts) {
      batch.push_back({&to, absl::MakeConstSpan(&part, 1), nullptr, key_id});
    }
    EXPECT_EQ(out->Send(batch), batch.size());
  }
  // Sends bytes to the receiver as they are.
  void SendRaw(const std::string& bytes) {
    const iovec part{const_cast<char*>(bytes.data()), bytes.size()};
    const OutDatagram datagram{&to, absl::MakeConstSpan(&part, 1)};
    EXPECT_EQ(wire->Send(absl::MakeConstSpan(&datagram, 1)), 1u);
  }
  // Receives until `count` frames are there.
  std::vector<std::string> Receive(size_t count) {
    std::vector<std::string> frames;
    InBatch batch(kMessages, 65536);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (frames.size() < count && std::chrono::steady_clock::now() < end) {
      if (!in->Receive(batch, true).ok()) break;
      for (size_t i = 0; i < batch.size(); ++i) {
        EXPECT_EQ(batch[i].key_id, kKeyId);
        EXPECT_EQ(batch[i].sender, kSender);
        frames.push_back(std::string(AsText(batch[i].bytes)));
      }
    }
    return frames;
  }
  // Sends the bytes, then a good frame, which alone must arrive.
  void ExpectRefused(const std::string& bytes, SealRefusal reason) {
    const uint64_t before = in_ring.refused(reason);
    SendRaw(bytes);
    Send({Frame(5, 99)});
    EXPECT_EQ(Receive(1), std::vector<std::string>{Frame(5, 99)});
    EXPECT_EQ(in_ring.refused(reason), before + 1) << SealRefusalName(reason);
  }
  // Returns the sealed bytes of a frame that never reached the receiver.
  std::string Sealed(const std::string& frame, uint32_t key_id = kKeyId, SealKey key = kKey,
                     uint32_t sender = 9) {
    SealingKey sealing(key_id, sender, key);
    SealingKey::Use use(sealing);
    const iovec part{const_cast<char*>(frame.data()), frame.size()};
    std::string sealed(frame.size() + kSealBytes, '\0');
    use.Seal(absl::MakeConstSpan(&part, 1), reinterpret_cast<uint8_t*>(sealed.data()));
    return sealed;
  }

  KeyRing out_ring, in_ring;
  std::vector<SocketAddress> notices;
  bool may_notify = true;
  Watched* wire = nullptr;
  std::unique_ptr<SealedChannel> out, in;
  SocketAddress to;
};

TEST_F(SealedChannelTest, FramesArriveAsTheyWereSent) {
  std::vector<std::string> frames;
  for (uint64_t i = 0; i < 100; ++i) frames.push_back(Frame(i * 13, i));
  Send(frames);
  EXPECT_EQ(Receive(frames.size()), frames);
}

TEST_F(SealedChannelTest, RunsOfEqualLengthArrive) {
  std::vector<std::string> frames;
  for (uint64_t i = 0; i < 60; ++i) frames.push_back(Frame(1000, i));
  frames.push_back(Frame(400, 60));
  Send(frames);
  EXPECT_EQ(Receive(frames.size()), frames);
}

TEST_F(SealedChannelTest, NothingOfAFrameIsOnTheWire) {
  Send({Frame(300, 'x')});
  ASSERT_EQ(wire->sent.size(), 1u);
  EXPECT_EQ(wire->sent[0].size(), Frame(300).size() + out->overhead());
  EXPECT_EQ(wire->sent[0].find(std::string(8, 'x')), std::string::npos);
}

TEST_F(SealedChannelTest, LargeBatchIsSentInSlices) {
  std::vector<std::string> frames;
  for (uint64_t i = 0; i < 40; ++i) frames.push_back(Frame(60000, i));
  std::vector<std::string> got;
  std::thread receiver([&] { got = Receive(frames.size()); });
  Send(frames);
  receiver.join();
  EXPECT_EQ(got, frames);
}

TEST_F(SealedChannelTest, FrameForSeveralDestinationsIsSealedOnce) {
  const std::vector<std::string> frames{Frame(700, 1), Frame(700, 2), Frame(30, 3)};
  std::vector<iovec> parts;
  for (const std::string& frame : frames) {
    parts.push_back({const_cast<char*>(frame.data()), frame.size()});
  }
  const std::unique_ptr<UdpSocket> others[] = {Socket(), Socket()};
  const SocketAddress third = *others[0]->local(), fourth = *others[1]->local();
  const SocketAddress* const destinations[] = {&to, &third, &fourth};
  std::vector<OutDatagram> batch;
  for (const SocketAddress* address : destinations) {
    for (const iovec& part : parts) batch.push_back({address, absl::MakeConstSpan(&part, 1)});
  }
  EXPECT_EQ(out->Send(batch), batch.size());
  const std::vector<std::string>& sent = wire->sent;
  ASSERT_EQ(sent.size(), 9u);
  for (size_t i = 3; i < 9; ++i) EXPECT_EQ(sent[i], sent[i % 3]);
  EXPECT_EQ(std::set<std::string>(sent.begin(), sent.end()).size(), 3u);
}

TEST_F(SealedChannelTest, PlainDatagramIsSentAsItIs) {
  const std::string frame = Frame(700);
  const iovec part{const_cast<char*>(frame.data()), frame.size()};
  const std::unique_ptr<UdpSocket> other = Socket();
  const SocketAddress second = *other->local();
  OutDatagram sealed{&to, absl::MakeConstSpan(&part, 1)};
  OutDatagram plain{&second, absl::MakeConstSpan(&part, 1)};
  plain.plain = true;
  const OutDatagram batch[] = {sealed, plain, sealed, plain};
  EXPECT_EQ(out->Send(batch), 4u);
  ASSERT_EQ(wire->sent.size(), 4u);
  for (const size_t i : {0, 2}) EXPECT_EQ(wire->sent[i].size(), frame.size() + out->overhead());
  for (const size_t i : {1, 3}) EXPECT_EQ(wire->sent[i], frame);
}

TEST_F(SealedChannelTest, PlainFramesAreAcceptedWhereAllAreAllowed) {
  in_ring.AllowAllPlain();
  SendRaw(Frame(10));
  InBatch batch(kMessages, 65536);
  const auto got = in->Receive(batch, true);
  ASSERT_TRUE(got.ok() && *got == 1);
  EXPECT_EQ(std::string(batch[0].bytes.begin(), batch[0].bytes.end()), Frame(10));
  EXPECT_EQ(batch[0].key_id, 0u) << "its receiver can tell";
  EXPECT_EQ(in_ring.refused(SealRefusal::kUnsealed), 0u);
  ExpectRefused(Sealed(Frame(10), kKeyId, SealKey{5}), SealRefusal::kWrongTag);
}

TEST_F(SealedChannelTest, ReplayedDatagramIsRefused) {
  Send({Frame(10)});
  EXPECT_EQ(Receive(1).size(), 1u);
  ExpectRefused(wire->sent[0], SealRefusal::kReplayed);
}

TEST_F(SealedChannelTest, ReorderedDatagramsAreAcceptedOnce) {
  std::vector<std::string> sealed;
  SealingKey key(kKeyId, kSender + 1, kKey);
  for (uint64_t i = 0; i < 3; ++i) {
    const std::string frame = Frame(10, i);
    const iovec part{const_cast<char*>(frame.data()), frame.size()};
    sealed.emplace_back(frame.size() + kSealBytes, '\0');
    SealingKey::Use(key).Seal(absl::MakeConstSpan(&part, 1),
                              reinterpret_cast<uint8_t*>(sealed.back().data()));
  }
  InBatch batch(kMessages, 65536);
  std::vector<uint64_t> numbers;
  for (const size_t i : {2, 0, 1, 0, 2, 1}) SendRaw(sealed[i]);
  Send({Frame(10, 99)});
  while (numbers.empty() || numbers.back() != 99) {
    const auto got = in->Receive(batch, true);
    ASSERT_TRUE(got.ok() && *got > 0);
    for (size_t i = 0; i < batch.size(); ++i) numbers.push_back(batch[i].bytes.back());
  }
  EXPECT_EQ(numbers, (std::vector<uint64_t>{2, 0, 1, 99}));
  EXPECT_EQ(in_ring.refused(SealRefusal::kReplayed), 3u);
}

TEST_F(SealedChannelTest, PlainFrameIsRefused) { ExpectRefused(Frame(10), SealRefusal::kUnsealed); }

TEST_F(SealedChannelTest, FlippedTruncatedAndForeignBytesAreRefused) {
  std::string flipped = Sealed(Frame(10));
  flipped[40] = static_cast<char>(flipped[40] ^ 1);
  ExpectRefused(flipped, SealRefusal::kWrongTag);
  ExpectRefused(Sealed(Frame(30)).substr(0, 140), SealRefusal::kWrongTag);
  ExpectRefused(Sealed(Frame(30)).substr(0, 100), SealRefusal::kMalformed);
  ExpectRefused("anything", SealRefusal::kMalformed);
  ExpectRefused(Sealed(Frame(10), kKeyId, SealKey{5}), SealRefusal::kWrongTag);
}

TEST_F(SealedChannelTest, FrameOfAnotherSessionThanTheKeysIsRefused) {
  FrameSession other = Session();
  other.volume.bytes[0] = 8;
  ExpectRefused(Sealed(Frame(10, 1, other)), SealRefusal::kForeignSession);
  other = Session();
  ++other.session;
  ExpectRefused(Sealed(Frame(10, 1, other), kKeyId, kKey, 10), SealRefusal::kForeignSession);
}

TEST_F(SealedChannelTest, ForgedCounterDoesNotMoveTheWindow) {
  Send({Frame(10)});
  EXPECT_EQ(Receive(1).size(), 1u);
  std::string forged = Sealed(Frame(10), kKeyId, SealKey{5}, kSender);
  StoreU64(forged.data() + 16, 1'000'000);
  ExpectRefused(forged, SealRefusal::kWrongTag);
}

TEST_F(SealedChannelTest, FloodOfGarbageHidesNoGoodFrame) {
  for (int i = 0; i < 500; ++i) SendRaw(std::string(200, 'g'));
  Send({Frame(10)});
  EXPECT_EQ(Receive(1), std::vector<std::string>{Frame(10)});
  EXPECT_EQ(in_ring.refused(SealRefusal::kMalformed), 500u);
}

TEST_F(SealedChannelTest, UnknownKeyIsAnsweredByANotice) {
  out_ring.AddSealing(0x88, kSender, SealKey{8});
  Send({Frame(10)}, 0x88);
  Send({Frame(10, 99)});
  EXPECT_EQ(Receive(1).size(), 1u);
  EXPECT_EQ(in_ring.refused(SealRefusal::kNoKey), 1u);
  InBatch batch(4, 1000);
  EXPECT_EQ(*out->Receive(batch, true), 0u);
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_EQ(notices[0], to);
}

TEST_F(SealedChannelTest, NoNoticeWithoutPermission) {
  may_notify = false;
  out_ring.AddSealing(0x88, kSender, SealKey{8});
  Send({Frame(10)}, 0x88);
  Send({Frame(10, 99)});
  EXPECT_EQ(Receive(1).size(), 1u);
  ASSERT_TRUE(out->SetReceiveTimeout(1000).ok());
  InBatch batch(4, 1000);
  EXPECT_EQ(*out->Receive(batch, true), 0u);
  EXPECT_TRUE(notices.empty());
}

TEST_F(SealedChannelTest, NoticeAboutADatagramNeverSentIsIgnored) {
  SealPrefix prefix{SealKind::kNoKey, kKeyId, kSender, 50};  // counter 50 was not used yet
  std::string notice(kSealPrefixBytes, '\0');
  EncodeSealPrefix(prefix, reinterpret_cast<uint8_t*>(notice.data()));
  const auto other = Socket();
  const SocketAddress sender = *out->local();
  const iovec part{notice.data(), notice.size()};
  const OutDatagram datagram{&sender, absl::MakeConstSpan(&part, 1)};
  ASSERT_EQ(other->Send(absl::MakeConstSpan(&datagram, 1)), 1u);
  InBatch batch(4, 1000);
  EXPECT_EQ(*out->Receive(batch, true), 0u);
  EXPECT_TRUE(notices.empty());
}

TEST_F(SealedChannelTest, DatagramWithoutKeyIsNotSent) {
  Send({Frame(10)}, 0x99);
  EXPECT_TRUE(wire->sent.empty());
}

TEST_F(SealedChannelTest, EmptyDatagramPassesUnsealed) {
  const OutDatagram nothing{&to, {}};
  EXPECT_EQ(out->Send(absl::MakeConstSpan(&nothing, 1)), 1u);
  InBatch batch(4, 1000);
  ASSERT_EQ(*in->Receive(batch, true), 1u);
  EXPECT_TRUE(batch[0].bytes.empty());
  EXPECT_EQ(batch[0].key_id, 0u);
}

TEST_F(SealedChannelTest, DatagramsOfManyThreadsAreAllNew) {
  constexpr size_t kThreads = 4, kEach = 200;
  std::vector<std::string> got;
  std::thread receiver([&] { got = Receive(kThreads * kEach); });
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, t] {
      for (size_t i = 0; i < kEach; ++i) Send({Frame(20, t * kEach + i)});
    });
  }
  for (std::thread& thread : threads) thread.join();
  receiver.join();
  EXPECT_EQ(got.size(), kThreads * kEach);
  EXPECT_EQ(in_ring.refused(SealRefusal::kReplayed), 0u);
}

TEST(KeyRingTest, IdOfAnotherKeyOrSessionIsRefused) {
  KeyRing ring;
  ASSERT_TRUE(ring.AddOpening(kKeyId, 0, kKey, Session()).ok());
  EXPECT_TRUE(ring.AddOpening(kKeyId, 0, kKey, Session()).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(ring.AddOpening(kKeyId, 0, SealKey{9}, Session())));
  FrameSession other = Session();
  other.epoch = 9;
  EXPECT_TRUE(absl::IsAlreadyExists(ring.AddOpening(kKeyId, 0, kKey, other)));
  ring.Remove(kKeyId);
  EXPECT_TRUE(ring.AddOpening(kKeyId, 0, SealKey{9}, Session()).ok());
}

TEST(KeyRingTest, SecondAddSealingKeepsTheCounters) {
  KeyRing ring;
  ring.AddSealing(kKeyId, kSender, kKey);
  const std::shared_ptr<SealingKey> before = ring.Sealing(kKeyId);
  ring.AddSealing(kKeyId, kSender, kKey);
  EXPECT_EQ(ring.Sealing(kKeyId), before);
}

TEST(KeyRingTest, RemovedKeyOpensNoMore) {
  KeyRing ring;
  ASSERT_TRUE(ring.AddOpening(kKeyId, 0, kKey, Session()).ok());
  ring.Remove(kKeyId);
  SealingKey sealing(kKeyId, kSender, kKey);
  std::string frame = Frame(3), sealed(frame.size() + kSealBytes, '\0');
  const iovec part{frame.data(), frame.size()};
  auto* const bytes = reinterpret_cast<uint8_t*>(sealed.data());
  SealingKey::Use(sealing).Seal(absl::MakeConstSpan(&part, 1), bytes);
  KeyRing::Opened opened;
  EXPECT_EQ(ring.Open({bytes, sealed.size()}, &opened), SealRefusal::kNoKey);
}

TEST(KeyRingTest, KeyOfOneSenderOpensNoOther) {
  // A replica that acknowledges for another has another sender id, or another key.
  KeyRing ring;
  ASSERT_TRUE(ring.AddOpening(kKeyId, 1, SealKey{1}, Session()).ok());
  ASSERT_TRUE(ring.AddOpening(kKeyId, 2, SealKey{2}, Session()).ok());
  std::string frame = Frame(3), sealed(frame.size() + kSealBytes, '\0');
  const iovec part{frame.data(), frame.size()};
  auto* const bytes = reinterpret_cast<uint8_t*>(sealed.data());
  SealingKey as_other(kKeyId, 2, SealKey{1});
  SealingKey::Use(as_other).Seal(absl::MakeConstSpan(&part, 1), bytes);
  KeyRing::Opened opened;
  EXPECT_EQ(ring.Open({bytes, sealed.size()}, &opened), SealRefusal::kWrongTag);
  SealingKey as_itself(kKeyId, 1, SealKey{1});
  SealingKey::Use(as_itself).Seal(absl::MakeConstSpan(&part, 1), bytes);
  EXPECT_EQ(ring.Open({bytes, sealed.size()}, &opened), SealRefusal::kNone);
  EXPECT_EQ(opened.prefix.sender, 1u);
}

TEST(KeyRingTest, SendersUnderOneKeyAreBounded) {
  KeyRing ring;
  ASSERT_TRUE(ring.AddOpening(kKeyId, 0, kKey, Session()).ok());
  std::string frame = Frame(0), sealed(frame.size() + kSealBytes, '\0');
  const iovec part{frame.data(), frame.size()};
  auto* const bytes = reinterpret_cast<uint8_t*>(sealed.data());
  Sealer sealer(kKey);
  KeyRing::Opened opened;
  for (uint32_t sender = 1; sender <= KeyRing::kMostSenders + 1; ++sender) {
    sealer.Seal({SealKind::kSealed, kKeyId, sender, 1}, absl::MakeConstSpan(&part, 1), bytes);
    EXPECT_EQ(ring.Open({bytes, sealed.size()}, &opened),
              sender <= KeyRing::kMostSenders ? SealRefusal::kNone : SealRefusal::kManySenders);
  }
}

}  // namespace
}  // namespace salius
