// Floods of datagrams that are refused: the kernel drops most of them, and no good one. The sockets
// are real, the clock is not.
#include "transport/flood_guard.h"

#include <errno.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/bytes.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/net.h"
#include "gtest/gtest.h"
#include "proto/frame_format.h"
#include "transport/flood_filter.h"
#include "transport/key_ring.h"
#include "transport/sealed_channel.h"
#include "transport/udp_socket.h"

namespace salius {
namespace {

constexpr uint32_t kKeyId = 0x77, kOtherKeyId = 0x1234;
constexpr uint32_t kSender = 3;
constexpr SealKey kKey{1, 2, 3};
constexpr SealKey kOtherKey{9};
constexpr size_t kMessages = 64;

FrameSession Session() {
  FrameSession session;
  session.volume.bytes[0] = 7;
  session.epoch = 3;
  session.session = 5;
  return session;
}

std::string PlainFrame() {
  const FrameSession session = Session();
  FrameHeader header;
  header.volume = session.volume;
  header.epoch = session.epoch;
  header.session = session.session;
  std::string frame(kFrameHeaderBytes, 0);
  EncodeFrameHeader(header, reinterpret_cast<uint8_t*>(frame.data()));
  return frame;
}

// Returns a datagram that looks sealed; its tag is wrong.
std::string Forged(uint64_t counter, uint32_t key_id = kKeyId, uint32_t sender = kSender) {
  std::string bytes(kSealBytes + kFrameHeaderBytes, 'x');
  EncodeSealPrefix({SealKind::kSealed, key_id, sender, counter},
                   reinterpret_cast<uint8_t*>(bytes.data()));
  return bytes;
}

std::string Notice(uint32_t key_id) {
  std::string bytes(kSealPrefixBytes, 0);
  EncodeSealPrefix({SealKind::kNoKey, key_id, kSender, 1},
                   reinterpret_cast<uint8_t*>(bytes.data()));
  return bytes;
}

std::unique_ptr<UdpSocket> Socket() {
  const absl::StatusOr<SocketAddress> any = ResolveAddress({"127.0.0.1", 0});
  UdpSocket::Options options;
  options.coalesce = true;
  auto bound = UdpSocket::Bind(*any, options);
  EXPECT_TRUE(bound.ok()) << bound.status();
  EXPECT_TRUE(bound->SetReceiveTimeout(60'000'000).ok());
  return std::make_unique<UdpSocket>(*std::move(bound));
}

void SendTo(DatagramChannel& from, const SocketAddress& to, const std::string& bytes,
            uint32_t key_id = 0) {
  const iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  const OutDatagram datagram{&to, absl::MakeConstSpan(&part, 1), nullptr, key_id};
  ASSERT_EQ(from.Send(absl::MakeConstSpan(&datagram, 1)), 1u);
}

constexpr std::chrono::seconds kPatience{60};

// A socket with a program, and a sender.
class FloodFilterTest : public testing::Test {
 protected:
  FloodFilterTest() { to = *in->local(); }

  void Filter(const FloodRules& rules) {
    const absl::Status set = in->SetFilter(FloodProgram(rules));
    ASSERT_TRUE(set.ok()) << set;
  }
  // Returns how many of `times` equal datagrams arrive.
  size_t Arrive(const std::string& bytes, size_t times = 64) {
    size_t arrived = 0;
    for (size_t done = 0; done < times;) {
      const uint32_t dropped = in->dropped();
      const size_t some = std::min(times - done, size_t{32});
      for (size_t i = 0; i < some; ++i) SendTo(*out, to, bytes);
      arrived += Settle(some, dropped);
      done += some;
    }
    return arrived;
  }
  // Receives until `sent` datagrams have arrived or were dropped; `dropped`: by in->dropped()
  // before. Returns how many arrived.
  size_t Settle(size_t sent, uint32_t dropped) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    size_t arrived = 0;
    while (arrived + (in->dropped() - dropped) < sent) {
      EXPECT_TRUE(in->Receive(batch, /*wait=*/false).ok());
      arrived += batch.size();
      for (size_t i = 0; i < batch.size(); ++i) last.push_back(std::string(AsText(batch[i].bytes)));
      if (std::chrono::steady_clock::now() > end) {
        ADD_FAILURE() << "a datagram is missing";
        break;
      }
    }
    return arrived;
  }
  // The chance of a wrong verdict is below 10^-15 for each.
  void ExpectDropped(const std::string& bytes) { EXPECT_LT(Arrive(bytes), 32u); }
  void ExpectPassed(const std::string& bytes) { EXPECT_EQ(Arrive(bytes), 64u); }

  const std::unique_ptr<UdpSocket> in = Socket(), out = Socket();
  SocketAddress to;
  InBatch batch{kMessages, 65536};
  std::vector<std::string> last;  // all datagrams that arrived
};

FloodRules Known(uint64_t oldest) {
  FloodRules rules;
  rules.senders.push_back({kKeyId, kSender, true, oldest});
  return rules;
}

TEST_F(FloodFilterTest, FramesOfKnownSendersPass) {
  Filter(Known(1000));
  for (const uint64_t counter : {1000ULL, 1001ULL, 1000ULL + kFilterSpan}) {
    ExpectPassed(Forged(counter));
  }
}

TEST_F(FloodFilterTest, CountersAcrossPowersOfTwoPass) {
  for (const uint64_t oldest : {0xFFFFFFF0ULL, 0x2FFFFFFF0ULL, 0x100000000ULL}) {
    Filter(Known(oldest));
    ExpectPassed(Forged(oldest));
    ExpectPassed(Forged(oldest + 0x20));
    ExpectDropped(Forged(oldest - 1));
    ExpectDropped(Forged(oldest + kFilterSpan + 1));
    ExpectDropped(Forged(oldest + (5ULL << 32)));
  }
}

TEST_F(FloodFilterTest, OldAndFarCountersAreDropped) {
  Filter(Known(1000));
  for (const uint64_t counter : {1ULL, 999ULL, 1001ULL + kFilterSpan, 1ULL << 40}) {
    ExpectDropped(Forged(counter));
  }
}

TEST_F(FloodFilterTest, UnknownKeysAndSendersAreDropped) {
  Filter(Known(1000));
  ExpectDropped(Forged(1000, kOtherKeyId));
  ExpectDropped(Forged(1000, kKeyId, kSender + 1));
}

TEST_F(FloodFilterTest, EverySenderOfANewKeyPasses) {
  FloodRules rules = Known(1000);
  rules.senders.push_back({kOtherKeyId, 0, false, 0});
  Filter(rules);
  ExpectPassed(Forged(1, kOtherKeyId, 99));
  ExpectPassed(Forged(uint64_t{1} << 50, kOtherKeyId));
  ExpectDropped(Forged(1));
}

TEST_F(FloodFilterTest, EveryKeyPassesWithoutKeys) {
  FloodRules rules;
  rules.any_key = true;
  Filter(rules);
  ExpectPassed(Forged(1, kOtherKeyId));
  ExpectDropped(std::string(200, 'n'));
}

TEST_F(FloodFilterTest, MalformedDatagramsAreDropped) {
  Filter(Known(0));
  std::string version = Forged(1), kind = Forged(1), reserved = Forged(1);
  version[4] = 3;
  kind[5] = 2;
  reserved[6] = 1;
  for (const std::string& bytes :
       {std::string(1, 'n'), std::string(kSealPrefixBytes, 'n'), std::string(1472, 'n'), version,
        kind, reserved, Forged(1).substr(0, kSealBytes + kFrameHeaderBytes - 1),
        Forged(1).substr(0, 7), PlainFrame(), std::string()}) {
    ExpectDropped(bytes);
  }
}

TEST_F(FloodFilterTest, PlainFramesPassWhereTheyAreAllowed) {
  FloodRules rules = Known(0);
  rules.plain = true;
  Filter(rules);
  ExpectPassed(PlainFrame());
  ExpectDropped(std::string(200, 'n'));
}

TEST_F(FloodFilterTest, NoticesForKnownKeysPass) {
  FloodRules rules = Known(0);
  rules.notices = {1, kOtherKeyId};
  Filter(rules);
  ExpectPassed(Notice(kOtherKeyId));
  ExpectDropped(Notice(kKeyId));
  ExpectDropped(Notice(kOtherKeyId) + "x");
}

TEST_F(FloodFilterTest, OwnWakeUpPasses) {
  Filter(Known(0));
  SendTo(*in, to, std::string());
  const auto got = in->Receive(batch, /*wait=*/true);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(*got, 1u);
}

TEST_F(FloodFilterTest, AsManySendersAsAllowedFitIn) {
  FloodRules rules;
  for (uint32_t i = 0; i < FloodRules::kMostSenders; ++i) {
    rules.senders.push_back({i + 1, kSender, true, 5000000000});
    rules.notices.push_back(i + 1);
  }
  Filter(rules);
  ExpectPassed(Forged(5000000000, FloodRules::kMostSenders));
  ExpectPassed(Notice(FloodRules::kMostSenders));
}

TEST_F(FloodFilterTest, SomeOfEachKindPassByChance) {
  Filter(Known(1000));
  // None of 64,000 passes by chance once in 10^27 times, none of 6,400 once in 10^43.
  EXPECT_GT(Arrive(std::string(64, 'n'), 64000), 0u);
  EXPECT_GT(Arrive(Forged(1000, kOtherKeyId), 6400), 0u);
}

TEST_F(FloodFilterTest, DropsAreCountedAndEndWithTheFilter) {
  Filter(Known(1000));
  const uint32_t before = in->dropped();
  const size_t arrived = Arrive(std::string(64, 'n'));
  EXPECT_EQ(in->dropped() - before, 64 - arrived);
  ASSERT_TRUE(in->SetFilter({}).ok());
  ExpectPassed(std::string(64, 'n'));
  EXPECT_TRUE(in->SetFilter({}).ok());
}

// A datagram that goes as part of a run is judged alone.
TEST_F(FloodFilterTest, DatagramsOfARunAreJudgedOneByOne) {
  Filter(Known(1000));
  const std::string good = Forged(1000), bad = Forged(1);
  std::vector<iovec> parts;
  for (int i = 0; i < 32; ++i) {
    const std::string& bytes = i % 2 == 0 ? bad : good;
    parts.push_back({const_cast<char*>(bytes.data()), bytes.size()});
  }
  std::vector<OutDatagram> run;
  for (const iovec& part : parts) run.push_back({&to, absl::MakeConstSpan(&part, 1)});
  const uint32_t dropped = in->dropped();
  ASSERT_EQ(out->Send(run), run.size());
  Settle(run.size(), dropped);
  EXPECT_EQ(std::count(last.begin(), last.end(), good), 16);
  EXPECT_LT(last.size(), 30u);
}

// A sealed channel with a guard, and its peer.
class FloodGuardTest : public testing::Test {
 protected:
  FloodGuardTest() {
    out_ring.AddSealing(kKeyId, kSender, kKey);
    out_ring.AddSealing(kOtherKeyId, kSender, kOtherKey);
    out_ring.SealWith(kKeyId);
    EXPECT_TRUE(in_ring.AddOpening(kKeyId, KeyRing::kAnySender, kKey, Session()).ok());
    out = std::make_unique<SealedChannel>(Socket(), out_ring, SealedChannel::Options());
    SealedChannel::Options guarded;
    guarded.clock = &clock;
    std::unique_ptr<UdpSocket> inner = Socket();
    socket = inner.get();
    in = std::make_unique<SealedChannel>(std::move(inner), in_ring, guarded);
    to = *in->local();
  }

  // Sends as many bad datagrams, and receives until none is left. Returns how many were refused.
  uint64_t Flood(size_t datagrams) {
    return Flood(datagrams, std::string(100, 'n'), SealRefusal::kMalformed);
  }
  uint64_t Flood(size_t datagrams, const std::string& bytes, SealRefusal reason) {
    const uint64_t before = in_ring.refused(reason);
    for (size_t done = 0; done < datagrams;) {
      const uint64_t gone = in_ring.refused(reason) + Dropped();
      const size_t some = std::min(datagrams - done, size_t{32});
      for (size_t i = 0; i < some; ++i) SendTo(*noise, to, bytes);
      const auto end = std::chrono::steady_clock::now() + kPatience;
      while (in_ring.refused(reason) + Dropped() - gone < some) {
        const auto got = in->Receive(batch, /*wait=*/false);
        EXPECT_TRUE(got.ok()) << got.status();
        EXPECT_EQ(batch.size(), 0u);
        if (std::chrono::steady_clock::now() > end) {
          ADD_FAILURE() << "a datagram is missing";
          return in_ring.refused(reason) - before;
        }
      }
      done += some;
    }
    return in_ring.refused(reason) - before;
  }
  uint64_t Dropped() const { return socket == nullptr ? 0 : socket->dropped(); }
  // Whether a good frame under this key arrives.
  bool Arrives(uint32_t key_id = kKeyId) {
    SendTo(*out, to, PlainFrame(), key_id);
    return Receives(PlainFrame());
  }
  bool Receives(const std::string& frame) {
    const auto got = in->Receive(batch, /*wait=*/true);
    return got.ok() && *got == 1 && AsText(batch[0].bytes) == frame;
  }

  KeyRing out_ring, in_ring;
  ManualClock clock;
  const std::unique_ptr<UdpSocket> noise = Socket();
  UdpSocket* socket = nullptr;  // of `in`
  std::unique_ptr<SealedChannel> out, in;
  SocketAddress to;
  InBatch batch{kMessages, 65536};
};

TEST_F(FloodGuardTest, FewRefusalsAreAllReceivedAndCounted) {
  EXPECT_EQ(Flood(FloodGuard::kBegins - 1), FloodGuard::kBegins - 1);
  EXPECT_FALSE(in->filters());
  clock.Advance(FloodGuard::kWindowNs);
  EXPECT_EQ(Flood(FloodGuard::kBegins - 1), FloodGuard::kBegins - 1);
  EXPECT_FALSE(in->filters());
}

TEST_F(FloodGuardTest, FloodIsDroppedByTheKernelAndGoodFramesArrive) {
  ASSERT_TRUE(Arrives());
  EXPECT_EQ(Flood(FloodGuard::kBegins), FloodGuard::kBegins);
  EXPECT_TRUE(in->filters());
  EXPECT_LT(Flood(2000), 200u);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(Arrives());
  clock.Advance(FloodGuard::kWindowNs);
  ASSERT_TRUE(Arrives());
  EXPECT_GT(in_ring.filtered(), 1800u);
}

TEST_F(FloodGuardTest, NewKeyPassesAtOnce) {
  ASSERT_TRUE(Arrives());
  Flood(FloodGuard::kBegins);
  ASSERT_TRUE(in->filters());
  ASSERT_TRUE(in_ring.AddOpening(kOtherKeyId, KeyRing::kAnySender, kOtherKey, Session()).ok());
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(Arrives(kOtherKeyId));
}

TEST_F(FloodGuardTest, PlainSessionPassesAtOnce) {
  Flood(FloodGuard::kBegins);
  ASSERT_TRUE(in->filters());
  in_ring.AllowPlain(Session());
  SendTo(*noise, to, PlainFrame());
  EXPECT_TRUE(Receives(PlainFrame()));
}

TEST_F(FloodGuardTest, FilterFollowsTheCounters) {
  ASSERT_TRUE(Arrives());
  Flood(FloodGuard::kBegins);
  for (int i = 0; i < 5000; ++i) ASSERT_TRUE(Arrives());
  clock.Advance(FloodGuard::kFollowsNs);
  ASSERT_TRUE(Arrives());
  EXPECT_LT(Flood(640, Forged(2), SealRefusal::kTooOld), 100u);
}

TEST_F(FloodGuardTest, FilterEndsWithTheFlood) {
  ASSERT_TRUE(Arrives());
  Flood(FloodGuard::kBegins + 1000);
  clock.Advance(FloodGuard::kWindowNs);
  ASSERT_TRUE(Arrives());
  EXPECT_TRUE(in->filters());  // many were dropped in this window
  clock.Advance(FloodGuard::kWindowNs);
  ASSERT_TRUE(Arrives());
  EXPECT_FALSE(in->filters());
  EXPECT_EQ(Flood(100), 100u);
}

TEST_F(FloodGuardTest, ChannelWithoutFiltersWorksOn) {
  // A channel that does not know filters.
  class Bare final : public DatagramChannel {
   public:
    size_t Send(absl::Span<const OutDatagram> batch) override { return inner->Send(batch); }
    absl::StatusOr<size_t> Receive(InBatch& batch, bool wait) override {
      return inner->Receive(batch, wait);
    }
    absl::Status SetReceiveTimeout(int64_t micros) override {
      return inner->SetReceiveTimeout(micros);
    }
    int fd() const override { return inner->fd(); }
    absl::StatusOr<SocketAddress> local() const override { return inner->local(); }
    uint64_t send_errors() const override { return 0; }
    const std::unique_ptr<UdpSocket> inner = Socket();
  };
  SealedChannel::Options guarded;
  guarded.clock = &clock;
  in = std::make_unique<SealedChannel>(std::make_unique<Bare>(), in_ring, guarded);
  socket = nullptr;
  to = *in->local();
  EXPECT_EQ(Flood(FloodGuard::kBegins + 100), FloodGuard::kBegins + 100);
  EXPECT_FALSE(in->filters());
  EXPECT_TRUE(Arrives());
}

// A guard on a channel that keeps its program, and takes only what the kernel has memory for.
class FilterMemoryTest : public testing::Test {
 protected:
  class Channel final : public DatagramChannel {
   public:
    size_t Send(absl::Span<const OutDatagram> batch) override { return batch.size(); }
    absl::StatusOr<size_t> Receive(InBatch&, bool) override { return 0; }
    absl::Status SetReceiveTimeout(int64_t) override { return absl::OkStatus(); }
    int fd() const override { return -1; }
    absl::StatusOr<SocketAddress> local() const override { return SocketAddress(); }
    uint64_t send_errors() const override { return 0; }
    absl::Status SetFilter(absl::Span<const sock_filter> code) override {
      if (code.empty()) {
        program.clear();
        return absl::OkStatus();
      }
      if (on_attach) std::exchange(on_attach, {})();
      // The program before counts until this one has replaced it.
      if (program.size() + code.size() > most) return ErrnoStatus(ENOMEM, "SO_ATTACH_FILTER");
      program.assign(code.begin(), code.end());
      return absl::OkStatus();
    }
    uint32_t dropped() const override { return drops; }

    size_t most = 100000;  // instructions
    uint32_t drops = 0;
    std::vector<sock_filter> program;
    std::function<void()> on_attach;  // runs once, in the next SetFilter
  };

  FilterMemoryTest() {
    for (uint32_t i = 0; i < 20; ++i) {
      EXPECT_TRUE(ring.AddOpening(kKeyId + i, kSender, kKey, Session()).ok());
    }
  }
  static bool Same(const std::vector<sock_filter>& a, const std::vector<sock_filter>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const sock_filter& x, const sock_filter& y) {
                        return x.code == y.code && x.jt == y.jt && x.jf == y.jf && x.k == y.k;
                      });
  }
  std::vector<sock_filter> Whole() { return FloodProgram(ring.Rules(false)); }
  std::vector<sock_filter> Short() {
    FloodRules any;
    any.any_key = true;
    return FloodProgram(any);
  }
  void Begin() { guard.Received(FloodGuard::kBegins); }
  void Follow() {
    clock.Advance(FloodGuard::kFollowsNs);
    guard.Received(1);
  }

  KeyRing ring;
  Channel channel;
  ManualClock clock;
  FloodGuard guard{channel, ring, /*notices=*/false, clock};
};

TEST_F(FilterMemoryTest, NextProgramIsAttachedThoughTwoAreTooMuch) {
  channel.most = Whole().size() * 3 / 2;
  Begin();
  ASSERT_TRUE(guard.filters());
  ASSERT_TRUE(ring.AddOpening(kOtherKeyId, kSender, kOtherKey, Session()).ok());
  EXPECT_TRUE(guard.filters());
  EXPECT_TRUE(Same(channel.program, Whole()));
  Follow();
  EXPECT_TRUE(guard.filters());
  EXPECT_TRUE(Same(channel.program, Whole()));
}

TEST_F(FilterMemoryTest, ShortProgramIsAttachedWhereTheWholeIsTooMuch) {
  channel.most = 3 * Short().size();
  Begin();
  EXPECT_TRUE(guard.filters());
  EXPECT_TRUE(Same(channel.program, Short()));
  Follow();
  EXPECT_TRUE(Same(channel.program, Short()));
}

TEST_F(FilterMemoryTest, WithoutMemoryTheNextFloodTriesAgain) {
  channel.most = 0;
  Begin();
  EXPECT_FALSE(guard.filters());
  channel.most = 100000;
  Begin();
  EXPECT_TRUE(guard.filters());
  EXPECT_TRUE(Same(channel.program, Whole()));
}

TEST_F(FilterMemoryTest, KeyThatIsAddedWhileAProgramIsAttachedPasses) {
  std::future<absl::Status> added;
  channel.on_attach = [&] {
    added = std::async(std::launch::async, [&] {
      return ring.AddOpening(kOtherKeyId, kSender, kOtherKey, Session());
    });
    // A call that sees no filter ends. One that sees it waits for the lock that is held here.
    while (ring.Rules(false).senders.size() == 20) std::this_thread::yield();
    added.wait_for(std::chrono::milliseconds(100));
  };
  Begin();
  ASSERT_TRUE(added.get().ok());
  EXPECT_TRUE(Same(channel.program, Whole()));
}

TEST_F(FilterMemoryTest, FullBufferAloneKeepsNoFilter) {
  const auto window = [this](size_t refused) {
    clock.Advance(FloodGuard::kWindowNs);
    channel.drops += 1000;
    guard.Received(refused);
    return guard.filters();
  };
  Begin();
  // In a flood some are refused.
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(window(i % 5 == 0 ? 1 : 0)) << i;
  int windows = 0;
  while (window(0)) ASSERT_LT(++windows, 20);
}

}  // namespace
}  // namespace salius
