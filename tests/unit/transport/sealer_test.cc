// Sealing: golden bytes, each kind of damage, and counters that are never given twice.
#include "transport/sealer.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "common/bytes.h"
#include "common/random.h"
#include "gtest/gtest.h"
#include "proto/frame_format.h"
#include "tests/unit/log/golden.h"

namespace salius {
namespace {

const SealPrefix kGolden{SealKind::kSealed, 0x0A0B0C0D, 3, 0x1122334455};

SealKey GoldenKey() {
  SealKey key;
  std::iota(key.begin(), key.end(), uint8_t{0x80});
  return key;
}

uint8_t* Data(std::string& bytes) { return reinterpret_cast<uint8_t*>(bytes.data()); }

// Seals `frame` as parts of the given sizes and the rest.
std::string Seal(const SealKey& key, const SealPrefix& prefix, std::string frame,
                 const std::vector<size_t>& sizes = {}) {
  std::vector<iovec> parts;
  size_t at = 0;
  for (const size_t size : sizes) {
    parts.push_back({frame.data() + at, size});
    at += size;
  }
  parts.push_back({frame.data() + at, frame.size() - at});
  std::string out(frame.size() + kSealBytes, '\xff');
  Sealer sealer(key);
  EXPECT_EQ(sealer.Seal(prefix, parts, Data(out)), out.size());
  return out;
}

std::string Open(const SealKey& key, const SealPrefix& prefix, std::string datagram) {
  Opener opener(key);
  const auto frame = opener.Open(prefix, {Data(datagram), datagram.size()});
  return std::string(AsText(frame));
}

std::string GoldenFrame() { return absl::HexStringToBytes(golden::kFrameProbe); }
std::string GoldenSealed() { return absl::HexStringToBytes(golden::kSealedProbe); }

TEST(SealerTest, SealedFrameHasTheGoldenBytes) {
  EXPECT_EQ(Seal(GoldenKey(), kGolden, GoldenFrame()), GoldenSealed());
}

TEST(SealerTest, GoldenBytesAreOpened) {
  EXPECT_EQ(Open(GoldenKey(), kGolden, GoldenSealed()), GoldenFrame());
}

TEST(SealerTest, PartsMakeOneDatagram) {
  EXPECT_EQ(Seal(GoldenKey(), kGolden, GoldenFrame(), {1, 0, 16, 37}), GoldenSealed());
}

TEST(SealerTest, LargestDatagramIsOpened) {
  const std::string frame(65467, 'a');
  EXPECT_EQ(Open(GoldenKey(), kGolden, Seal(GoldenKey(), kGolden, frame)), frame);
}

TEST(SealerTest, ContextSealsAndOpensMany) {
  Sealer sealer(GoldenKey());
  Opener opener(GoldenKey());
  for (uint64_t counter = 1; counter < 200; ++counter) {
    SealPrefix prefix = kGolden;
    prefix.counter = counter;
    std::string frame(100 + counter, static_cast<char>(counter));
    const iovec part{frame.data(), frame.size()};
    std::string out(frame.size() + kSealBytes, '\0');
    sealer.Seal(prefix, absl::MakeConstSpan(&part, 1), Data(out));
    // A datagram that is refused does not disturb the next one.
    std::string damaged = out;
    damaged.back() ^= 1;
    EXPECT_TRUE(opener.Open(prefix, {Data(damaged), damaged.size()}).empty());
    EXPECT_EQ(AsText(opener.Open(prefix, {Data(out), out.size()})), frame);
  }
}

TEST(SealerTest, EveryFlippedBitIsRefused) {
  for (size_t bit = 0; bit < 8 * GoldenSealed().size(); ++bit) {
    std::string datagram = GoldenSealed();
    datagram[bit / 8] = static_cast<char>(datagram[bit / 8] ^ (1 << bit % 8));
    EXPECT_EQ(Open(GoldenKey(), kGolden, datagram), "") << bit;
  }
}

TEST(SealerTest, EveryTruncationAndAnAddedByteAreRefused) {
  for (size_t size = 0; size < GoldenSealed().size(); ++size) {
    EXPECT_EQ(Open(GoldenKey(), kGolden, GoldenSealed().substr(0, size)), "") << size;
  }
  EXPECT_EQ(Open(GoldenKey(), kGolden, GoldenSealed() + '\0'), "");
}

TEST(SealerTest, AnotherKeySenderOrCounterIsRefused) {
  SealKey key = GoldenKey();
  key[15] ^= 1;
  EXPECT_EQ(Open(key, kGolden, GoldenSealed()), "");
  SealPrefix prefix = kGolden;
  ++prefix.sender;
  EXPECT_EQ(Open(GoldenKey(), prefix, GoldenSealed()), "");
  prefix = kGolden;
  ++prefix.counter;
  EXPECT_EQ(Open(GoldenKey(), prefix, GoldenSealed()), "");
}

TEST(SealerTest, RefusedDatagramShowsNoPlainText) {
  std::string datagram = GoldenSealed();
  datagram.back() ^= 1;
  Opener opener(GoldenKey());
  EXPECT_TRUE(opener.Open(kGolden, {Data(datagram), datagram.size()}).empty());
  EXPECT_EQ(datagram.substr(kSealPrefixBytes), std::string(datagram.size() - kSealPrefixBytes, '\0'));
}

TEST(SealerTest, NewKeysDiffer) { EXPECT_NE(NewSealKey(), NewSealKey()); }

TEST(NonceCounterTest, CountersAreNeverGivenTwice) {
  constexpr size_t kThreads = 4, kTakes = 5000;
  NonceCounter counter;
  std::vector<std::vector<uint64_t>> given(kThreads);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (uint64_t take = 0; take < kTakes; ++take) {
        const uint64_t count = 1 + take % 3;
        const uint64_t first = counter.Take(count);
        for (uint64_t j = 0; j < count; ++j) given[i].push_back(first + j);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<uint64_t> all;
  for (const auto& of_one : given) all.insert(all.end(), of_one.begin(), of_one.end());
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all.front(), 1u);
  EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end());
}

}  // namespace
}  // namespace salius
