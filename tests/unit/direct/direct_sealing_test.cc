// Sealed datagrams in the processes of a direct volume: against OpenSSL's sealing of the daemons in
// both directions, each kind of refusal, and counters that are never used twice.
#include "client/direct/window/sealing.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <utility>

#include "client/direct/coordinator/shared_keys.h"
#include "tests/unit/direct/direct_testing.h"
#include "transport/sealer.h"

namespace salius::direct {
namespace {

constexpr uint32_t kKeyId = 0x0A0B0C0D;
constexpr size_t kMostRooms = 64;

SealKey KeyOf(uint8_t first) {
  SealKey key;
  std::iota(key.begin(), key.end(), first);
  return key;
}

// The keys of a session with two replicas.
KeysInUse Keys(uint32_t id = kKeyId, uint8_t record_key = 1) {
  KeysInUse keys;
  keys.record_key_id = id;
  keys.record_key = KeyOf(record_key);
  keys.ack_keys = {{0, id, KeyOf(100)}, {1, id, KeyOf(101)}};
  return keys;
}

class DirectSealingTest : public ::testing::Test {
 protected:
  DirectSealingTest() : DirectSealingTest(SmallSpec()) {}
  explicit DirectSealingTest(const WindowSpec& spec) : shared_(spec) {
    header().seal.sealed = 1;
    PublishKeys(window(), Keys());
  }
  const SharedWindow& window() const { return shared_.window(); }
  Header& header() const { return window().header(); }
  uint64_t refused(SealRefusal refusal) const {
    return header().seal.refused[static_cast<size_t>(refusal)].load();
  }
  std::string SealedHere(const std::string& frame) const {
    FrameSealer sealer(window(), header().seal.record_key);
    EXPECT_TRUE(sealer.valid());
    std::memcpy(sealer.bytes() + kSealPrefixBytes, frame.data(), frame.size());
    const size_t size = sealer.Seal(sealer.bytes(), frame.size());
    return std::string(reinterpret_cast<const char*>(sealer.bytes()), size);
  }
  // Seals as replica `replica` does.
  static std::string SealedThere(uint32_t replica, uint64_t counter, std::string frame,
                                 const SealKey& key) {
    Sealer sealer(key);
    std::string out(frame.size() + kSealBytes, '\0');
    const iovec part{frame.data(), frame.size()};
    sealer.Seal({SealKind::kSealed, kKeyId, replica + 1, counter}, absl::MakeConstSpan(&part, 1),
                reinterpret_cast<uint8_t*>(out.data()));
    return out;
  }
  static std::string SealedThere(uint32_t replica, uint64_t counter, const std::string& frame) {
    return SealedThere(replica, counter, frame, KeyOf(static_cast<uint8_t>(100 + replica)));
  }
  // Opens in place.
  Opened Open(std::string& datagram, uint32_t replica = 0) const {
    WindowLock lock(window());
    return OpenDatagram(window(), replica, reinterpret_cast<uint8_t*>(datagram.data()),
                        datagram.size());
  }
  std::string OpenText(std::string datagram, uint32_t replica = 0) const {
    const Opened opened = Open(datagram, replica);
    return std::string(reinterpret_cast<const char*>(opened.frame), opened.bytes);
  }
  SealRefusal Refusal(std::string datagram, uint32_t replica = 0) const {
    return Open(datagram, replica).refusal;
  }

  TestWindow shared_;
};

TEST_F(DirectSealingTest, SealedDatagramHasTheBytesOfTheDaemonsSealing) {
  for (const size_t bytes : {88, 89, 103, 104, 105, 1344, 4184, 65467}) {
    std::string frame(bytes, '\0');
    std::iota(frame.begin(), frame.end(), static_cast<char>(bytes));
    const uint64_t counter = header().seal.next_counter.load();
    std::string expected(bytes + kSealBytes, '\0');
    const iovec part{frame.data(), frame.size()};
    Sealer(KeyOf(1)).Seal({SealKind::kSealed, kKeyId, kProcessSender, counter},
                          absl::MakeConstSpan(&part, 1),
                          reinterpret_cast<uint8_t*>(expected.data()));
    EXPECT_TRUE(SealedHere(frame) == expected) << bytes;
  }
}

TEST_F(DirectSealingTest, AcknowledgementOfADaemonIsOpened) {
  uint64_t counter = 0;
  for (const size_t bytes : {88, 144, 145, 656}) {
    const std::string frame(bytes, 'a');
    EXPECT_EQ(OpenText(SealedThere(1, ++counter, frame), 1), frame);
  }
}

TEST_F(DirectSealingTest, EveryFlippedBitIsRefusedAndLeavesNoText) {
  const std::string frame(100, 'a');
  const std::string good = SealedThere(0, 1, frame);
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    const Opened opened = Open(bad);
    EXPECT_TRUE(opened.refusal != SealRefusal::kNone || opened.notice) << bit;
    EXPECT_EQ(opened.frame, nullptr) << bit;
    EXPECT_EQ(bad.find("aaaaaaaa"), std::string::npos) << bit;
  }
  // None of them moved the replay window.
  EXPECT_EQ(OpenText(good), frame);
}

TEST_F(DirectSealingTest, ReplayedAcknowledgementIsRefused) {
  const std::string frame(100, 'a');
  EXPECT_EQ(Refusal(SealedThere(0, 7, frame)), SealRefusal::kNone);
  EXPECT_EQ(Refusal(SealedThere(0, 7, frame)), SealRefusal::kReplayed);
  EXPECT_EQ(Refusal(SealedThere(0, 6, frame)), SealRefusal::kNone);
  EXPECT_EQ(Refusal(SealedThere(0, 10000, frame)), SealRefusal::kNone);
  EXPECT_EQ(Refusal(SealedThere(0, 8, frame)), SealRefusal::kTooOld);
  EXPECT_EQ(refused(SealRefusal::kReplayed), 1u);
  EXPECT_EQ(refused(SealRefusal::kTooOld), 1u);
}

TEST_F(DirectSealingTest, KeyOfAnotherReplicaIsRefused) {
  const std::string frame(100, 'a');
  EXPECT_EQ(Refusal(SealedThere(0, 1, frame, KeyOf(101))), SealRefusal::kWrongTag);
  // With its own sender id, from another's address.
  EXPECT_EQ(Refusal(SealedThere(1, 1, frame), 0), SealRefusal::kNoKey);
  // The record key, which all replicas have.
  EXPECT_EQ(Refusal(SealedThere(0, 1, frame, KeyOf(1))), SealRefusal::kWrongTag);
}

TEST_F(DirectSealingTest, ForgedCounterDoesNotMoveTheWindow) {
  const std::string frame(100, 'a');
  EXPECT_EQ(Refusal(SealedThere(0, 1'000'000, frame, KeyOf(9))), SealRefusal::kWrongTag);
  EXPECT_EQ(OpenText(SealedThere(0, 1, frame)), frame);
}

TEST_F(DirectSealingTest, PlainAndMalformedDatagramsAreRefused) {
  std::string plain(kFrameHeaderBytes, '\0');
  FrameHeader frame;
  frame.type = FrameType::kAck;
  EncodeFrameHeader(frame, reinterpret_cast<uint8_t*>(plain.data()));
  EXPECT_EQ(Refusal(plain), SealRefusal::kUnsealed);
  EXPECT_EQ(Refusal("noise"), SealRefusal::kMalformed);
  EXPECT_EQ(Refusal(""), SealRefusal::kMalformed);
  EXPECT_EQ(Refusal(SealedThere(0, 1, std::string(100, 'a')).substr(0, 60)),
            SealRefusal::kMalformed);
}

TEST_F(DirectSealingTest, PublishedKeysKeepTheirReplayWindows) {
  const std::string frame(100, 'a');
  EXPECT_EQ(Refusal(SealedThere(0, 5, frame)), SealRefusal::kNone);
  KeysInUse keys = Keys(0x11, 2);
  keys.ack_keys.push_back({0, kKeyId, KeyOf(100)});
  PublishKeys(window(), keys);
  EXPECT_EQ(Refusal(SealedThere(0, 5, frame)), SealRefusal::kReplayed);
  EXPECT_EQ(Refusal(SealedThere(0, 6, frame)), SealRefusal::kNone);
  // A later process of the replica has another key, and its counters begin again.
  keys.ack_keys.back().key = KeyOf(50);
  PublishKeys(window(), keys);
  EXPECT_EQ(Refusal(SealedThere(0, 7, frame)), SealRefusal::kWrongTag);
  EXPECT_EQ(Refusal(SealedThere(0, 1, frame, KeyOf(50))), SealRefusal::kNone);
  // Not in use any more.
  PublishKeys(window(), Keys(0x12, 3));
  EXPECT_EQ(Refusal(SealedThere(0, 2, frame, KeyOf(50))), SealRefusal::kNoKey);
}

TEST_F(DirectSealingTest, CountersOfProcessesAndKeysAreNeverUsedTwice) {
  constexpr size_t kChildren = 4, kEach = 500;
  auto* const counters = static_cast<uint64_t*>(
      mmap(nullptr, kChildren * kEach * sizeof(uint64_t), PROT_READ | PROT_WRITE,
           MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(counters, MAP_FAILED);
  std::vector<pid_t> children;
  for (size_t child = 0; child < kChildren; ++child) {
    children.push_back(Fork([&] {
      for (size_t i = 0; i < kEach; ++i) {
        RecordKey key;
        key.id = static_cast<uint32_t>(1 + i % 2);
        FrameSealer sealer(window(), key);
        if (!sealer.valid()) _exit(1);
        sealer.Seal(sealer.bytes(), kFrameHeaderBytes);
        SealPrefix prefix;
        if (DecodeSealPrefix(sealer.bytes(), kFrameHeaderBytes + kSealBytes, &prefix) !=
                SealFault::kNone ||
            prefix.sender != kProcessSender) {
          _exit(1);
        }
        counters[child * kEach + i] = prefix.counter;
      }
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(Join(child), 0);
  const std::set<uint64_t> different(counters, counters + kChildren * kEach);
  EXPECT_EQ(different.size(), kChildren * kEach);
  EXPECT_EQ(header().seal.next_counter.load(), 1 + kChildren * kEach);
  munmap(counters, kChildren * kEach * sizeof(uint64_t));
}

TEST_F(DirectSealingTest, SealerWithoutAKeyOrARoomIsInvalid) {
  EXPECT_FALSE(FrameSealer(window(), RecordKey{}).valid());
  std::vector<std::unique_ptr<FrameSealer>> sealers;
  while (sealers.size() < kMostRooms) {
    sealers.push_back(std::make_unique<FrameSealer>(window(), header().seal.record_key));
    if (!sealers.back()->valid()) break;
  }
  EXPECT_GT(sealers.size(), 8u);
  EXPECT_LT(sealers.size(), kMostRooms);
  sealers.clear();
  EXPECT_TRUE(FrameSealer(window(), header().seal.record_key).valid());
}

// ---- datagrams of claimed records, and acknowledgements that move `durable`

class DirectSealedWindowTest : public DirectSealingTest {
 protected:
  DirectSealedWindowTest() : DirectSealingTest(OneReplica()) {}
  static WindowSpec OneReplica() {
    WindowSpec spec = SmallSpec();
    spec.replicas = 1;
    return spec;
  }
  void SetUp() override {
    PublishReplicated(window(), 1, 1);
    replica_ = Bind(&address_);
    sender_ = Bind(nullptr);
    Peer& peer = header().peers[0];
    std::memcpy(&peer.address, &address_, sizeof(address_));
    peer.address_bytes = sizeof(address_);
    peer.datagram_bytes = 1472;
  }
  void TearDown() override {
    close(replica_);
    close(sender_);
  }
  static int Bind(sockaddr_in* address) {
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_in local{};
    local.sin_family = AF_INET;
    local.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&local), sizeof(local)), 0);
    socklen_t size = sizeof(local);
    EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&local), &size), 0);
    if (address != nullptr) *address = local;
    return fd;
  }
  // Stamps a record with a body of `text`.
  void Issue(std::string text) {
    const iovec part{text.data(), text.size()};
    Draft draft;
    draft.file = 1;
    draft.file_id = 100;
    draft.parts = &part;
    draft.count = 1;
    draft.body_bytes = static_cast<uint32_t>(text.size());
    StripeLock lock(window(), 1);
    ASSERT_EQ(Stamp(window(), draft).why, NoSeq::kNone);
  }
  void SendAll() {
    Claimed claimed;
    {
      WindowLock lock(window());
      claimed = Claim(window(), 1000);
    }
    SendClaimed(window(), sender_, claimed, 1000);
  }
  // Returns the datagrams that arrived: on loopback all that were sent.
  std::vector<std::string> Arrived() const {
    std::vector<std::string> datagrams;
    std::vector<char> room(70000);
    for (;;) {
      const ssize_t got = recv(replica_, room.data(), room.size(), MSG_DONTWAIT);
      if (got < 0) return datagrams;
      datagrams.emplace_back(room.data(), static_cast<size_t>(got));
    }
  }
  static std::string OpenedByADaemon(std::string datagram, const SealKey& key) {
    auto* const bytes = reinterpret_cast<uint8_t*>(datagram.data());
    SealPrefix prefix;
    EXPECT_EQ(DecodeSealPrefix(bytes, datagram.size(), &prefix), SealFault::kNone);
    const absl::Span<const uint8_t> frame =
        Opener(key).Open(prefix, absl::MakeSpan(bytes, datagram.size()));
    return std::string(reinterpret_cast<const char*>(frame.data()), frame.size());
  }
  std::string Ack(Seq contiguous) const {
    FrameHeader frame;
    frame.type = FrameType::kAck;
    frame.volume = header().volume;
    frame.epoch = header().epoch;
    frame.session = header().session;
    frame.send_time_ns = 1000;
    AckPayload payload;
    payload.incarnation = 0x1000;
    payload.base = 1;
    payload.contiguous = contiguous;
    uint8_t bytes[kFrameHeaderBytes + kMaxAckBytes];
    frame.payload_bytes =
        static_cast<uint32_t>(EncodeAckPayload(payload, bytes + kFrameHeaderBytes));
    EncodeFrameHeader(frame, bytes);
    return std::string(reinterpret_cast<const char*>(bytes),
                       kFrameHeaderBytes + frame.payload_bytes);
  }
  AckVerdict Feed(std::string datagram) const {
    Advanced advanced;
    return TakeDatagram(window(), reinterpret_cast<uint8_t*>(datagram.data()), datagram.size(),
                        reinterpret_cast<const sockaddr*>(&address_), 2000, &advanced);
  }

  int replica_ = -1, sender_ = -1;
  sockaddr_in address_{};
};

TEST_F(DirectSealedWindowTest, RecordsAreSentSealedAndWithinTheDatagramsSize) {
  for (const uint32_t most : {1472u, 8972u, 65507u}) {
    header().peers[0].datagram_bytes = most;
    const std::string secret = "a text that must not show on the wire";
    size_t bodies = 0;
    for (const size_t bytes : {100, 1200, 4096, 100000}) {
      std::string body = secret;
      body.resize(bytes, 'x');
      bodies += bytes;
      Issue(std::move(body));
    }
    SendAll();
    size_t payload = 0;
    std::set<uint64_t> counters;
    for (const std::string& datagram : Arrived()) {
      EXPECT_LE(datagram.size(), most);
      EXPECT_EQ(datagram.find(secret), std::string::npos);
      EXPECT_EQ(datagram.find("xxxxxxxx"), std::string::npos);
      SealPrefix prefix;
      DecodeSealPrefix(reinterpret_cast<const uint8_t*>(datagram.data()), datagram.size(), &prefix);
      EXPECT_EQ(prefix.key_id, kKeyId);
      EXPECT_TRUE(counters.insert(prefix.counter).second);
      const std::string frame = OpenedByADaemon(datagram, KeyOf(1));
      FrameHeader header;
      ASSERT_EQ(DecodeFrameHeader(reinterpret_cast<const uint8_t*>(frame.data()), frame.size(),
                                  &header),
                FrameFault::kNone);
      payload += header.payload_bytes;
    }
    EXPECT_GT(payload, bodies);
  }
}

TEST_F(DirectSealedWindowTest, NothingIsSentWithoutAKey) {
  PublishKeys(window(), KeysInUse{});
  Issue("hello");
  SendAll();
  EXPECT_TRUE(Arrived().empty());
}

TEST_F(DirectSealedWindowTest, ChangedKeySealsTheNextRecords) {
  PublishKeys(window(), Keys(0x22, 60));
  Issue("hello");
  SendAll();
  const std::vector<std::string> datagrams = Arrived();
  ASSERT_EQ(datagrams.size(), 1u);
  EXPECT_FALSE(OpenedByADaemon(datagrams[0], KeyOf(60)).empty());
}

TEST_F(DirectSealedWindowTest, SealedAcknowledgementIsCountedOnceAndMailedPlain) {
  Issue("hello");
  EXPECT_EQ(Feed(SealedThere(0, 1, Ack(1))), AckVerdict::kCounted);
  EXPECT_EQ(window().durable(), 1u);
  const Mail& mail = header().mail[0].good;
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(mail.datagram), mail.bytes), Ack(1));
  EXPECT_EQ(Feed(SealedThere(0, 1, Ack(1))), AckVerdict::kRefused);
  EXPECT_EQ(mail.count, 1u);
}

TEST_F(DirectSealedWindowTest, PlainAcknowledgementIsNotCounted) {
  Issue("hello");
  EXPECT_EQ(Feed(Ack(1)), AckVerdict::kRefused);
  EXPECT_EQ(window().durable(), 0u);
  EXPECT_EQ(header().mail[0].good.count + header().mail[0].odd.count, 0u);
  EXPECT_EQ(refused(SealRefusal::kUnsealed), 1u);
}

TEST_F(DirectSealedWindowTest, ForgedAcknowledgementIsNotCounted) {
  Issue("hello");
  EXPECT_EQ(Feed(SealedThere(0, 1, Ack(1), KeyOf(77))), AckVerdict::kRefused);
  EXPECT_EQ(window().durable(), 0u);
}

TEST_F(DirectSealedWindowTest, NoticeIsKeptForTheCoordinatorAndKicksIt) {
  std::string notice(kSealPrefixBytes, '\0');
  const SealPrefix prefix{SealKind::kNoKey, kKeyId, kProcessSender, 3};
  EncodeSealPrefix(prefix, reinterpret_cast<uint8_t*>(notice.data()));
  EXPECT_EQ(Feed(notice), AckVerdict::kRefused);
  EXPECT_EQ(header().seal.notices[0], prefix);
  EXPECT_EQ(header().trouble.load(), kTroubleNoKey);
}

}  // namespace
}  // namespace salius::direct
