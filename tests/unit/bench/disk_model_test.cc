#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/bench/disk_model/model.h"

namespace salius::disk {
namespace {

constexpr int64_t kUs = 1'000;
constexpr int64_t kMs = 1'000'000;
constexpr int64_t kSecond = 1'000'000'000;

// Drives a model with `depth` requests outstanding, each of which comes when another ends.
class Driver {
 public:
  explicit Driver(std::unique_ptr<Model> model) : model_(std::move(model)) {}

  // Returns the time from now on until `count` requests have ended.
  template <typename NextRequest>
  int64_t Run(int count, int depth, NextRequest next) {
    const int64_t began_ns = now_ns_;
    int given = 0, ended = 0;
    while (ended < count) {
      while (given < count && given - ended < depth) {
        Request request = next();
        request.id = ++last_id_;
        model_->Submit(now_ns_, request);
        ++given;
      }
      now_ns_ = model_->NextEnd().value();
      ended += static_cast<int>(model_->TakeEnded(now_ns_).size());
    }
    EXPECT_FALSE(model_->NextEnd().has_value());
    return now_ns_ - began_ns;
  }

  void Pause(int64_t ns) { now_ns_ += ns; }

 private:
  std::unique_ptr<Model> model_;
  int64_t now_ns_ = kSecond;
  uint64_t last_id_ = 0;
};

auto Random(const RotatingDisk& disk, uint32_t seed, Call call = Call::kRead) {
  return [disk, random = std::mt19937_64(seed), call]() mutable {
    return Request{0, call, random() % (disk.disk_bytes / 4096) * 4096, 4096};
  };
}
auto Sequential(uint64_t bytes, Call call = Call::kRead) {
  return [bytes, call, at = uint64_t{0}]() mutable {
    at += bytes;
    return Request{0, call, at - bytes, bytes};
  };
}

TEST(FixedDiskTest, FlushesWaitForOneAnotherAndReadsForNothing) {
  const std::unique_ptr<Model> disk = MakeModel(FixedDisk{.flush_ns = 8 * kMs});
  disk->Submit(0, {1, Call::kFlush});
  disk->Submit(kMs, {2, Call::kFlush});
  disk->Submit(kMs, {3, Call::kRead, 0, 4096});
  EXPECT_EQ(disk->TakeEnded(kMs), std::vector<uint64_t>{3});
  EXPECT_EQ(disk->NextEnd(), 8 * kMs);
  EXPECT_EQ(disk->TakeEnded(8 * kMs - 1), std::vector<uint64_t>{});
  EXPECT_EQ(disk->TakeEnded(16 * kMs), (std::vector<uint64_t>{1, 2}));
}

TEST(FixedDiskTest, SoManyRequestsASecond) {
  Driver driver(MakeModel(FixedDisk{10 * kMs, 10 * kMs, 10 * kMs}));
  EXPECT_EQ(driver.Run(100, 32, Sequential(4096, Call::kWrite)), kSecond);
}

TEST(FlashDiskTest, EightAtATime) {
  Driver one(MakeModel(FlashDisk{}));
  EXPECT_EQ(one.Run(100, 1, Sequential(4096)), 100 * 90 * kUs);
  EXPECT_EQ(one.Run(100, 1, Sequential(4096, Call::kWrite)), 100 * 30 * kUs);
  EXPECT_EQ(one.Run(800, 8, Sequential(4096)), 100 * 90 * kUs);
  EXPECT_EQ(one.Run(800, 32, Sequential(4096)), 100 * 90 * kUs);
  // A large request has all units.
  EXPECT_EQ(one.Run(1, 1, Sequential(16 * 4096)), 2 * 90 * kUs);
}

TEST(FlashDiskTest, AFlushEndsAfterWhatCameBefore) {
  const std::unique_ptr<Model> disk = MakeModel(FlashDisk{});
  disk->Submit(0, {1, Call::kWrite, 0, 4096});
  disk->Submit(0, {2, Call::kFlush});
  EXPECT_EQ(disk->TakeEnded(30 * kUs - 1), std::vector<uint64_t>{});
  EXPECT_EQ(disk->TakeEnded(30 * kUs), (std::vector<uint64_t>{1, 2}));
}

TEST(RotatingDiskTest, ARandomReadNeedsASeekAndHalfATurn) {
  const RotatingDisk disk;
  Driver driver(MakeModel(disk, 1));
  const double each_ms = static_cast<double>(driver.Run(1000, 1, Random(disk, 7))) / 1000 / kMs;
  // 8.9 ms of the average seek and 4.2 ms of half a turn, as such a disk's data sheet says.
  EXPECT_GT(each_ms, 11.5);
  EXPECT_LT(each_ms, 15.5);
}

TEST(RotatingDiskTest, AQueueOf32IsServedInABetterOrder) {
  const RotatingDisk disk;
  Driver one(MakeModel(disk, 1)), many(MakeModel(disk, 1)), more(MakeModel(disk, 1));
  const int64_t alone = one.Run(2000, 1, Random(disk, 7));
  const int64_t queued = many.Run(2000, 32, Random(disk, 7));
  const int64_t longer = more.Run(2000, 128, Random(disk, 7));
  EXPECT_GT(alone, 2 * queued);
  EXPECT_LT(alone, 5 * queued);
  // Beyond 32 nothing is gained: the disk does not see them.
  EXPECT_NEAR(static_cast<double>(longer) / static_cast<double>(queued), 1, 0.1);
}

TEST(RotatingDiskTest, NoRequestIsPassedOverForLong) {
  const RotatingDisk disk;
  const std::unique_ptr<Model> model = MakeModel(disk, 1);
  model->Submit(kSecond, {1, Call::kRead, 0, 4096});
  model->TakeEnded(2 * kSecond);
  // One request far away, and always eight near ones.
  int64_t now_ns = 2 * kSecond;
  uint64_t id = 2;
  const auto submit = [&] {
    ++id;
    model->Submit(now_ns, {id, Call::kRead, id % 64 << 20, 4096});
  };
  for (int i = 0; i < 8; ++i) submit();
  model->Submit(now_ns, {2, Call::kRead, disk.disk_bytes - 4096, 4096});
  for (bool ended = false; !ended;) {
    now_ns = model->NextEnd().value();
    ASSERT_LT(now_ns, 2 * kSecond + disk.patience_ns + 100 * kMs);
    for (const uint64_t each : model->TakeEnded(now_ns)) {
      if (each == 2) ended = true;
      submit();
    }
  }
  // It was passed over for as long as that: near ones are served first.
  EXPECT_GT(now_ns, 2 * kSecond + disk.patience_ns / 2);
}

TEST(RotatingDiskTest, SequentialReadsHaveTheRateOfThePlatter) {
  const RotatingDisk disk;
  for (const int depth : {1, 32}) {
    for (const uint64_t bytes : {uint64_t{4096}, uint64_t{131072}}) {
      Driver driver(MakeModel(disk, 1));
      const int count = static_cast<int>((64 << 20) / bytes);
      const double seconds = static_cast<double>(driver.Run(count, depth, Sequential(bytes))) / kSecond;
      // A request of 4 KiB alone costs as much at the interface.
      EXPECT_GT(64 / seconds, bytes == 4096 ? 25 : 100) << bytes << " " << depth;
      EXPECT_LT(64 / seconds, 125) << bytes << " " << depth;
    }
  }
}

TEST(RotatingDiskTest, AReaderThatPausesFindsWhatWasReadAhead) {
  Driver driver(MakeModel(RotatingDisk{}, 1));
  const auto next = [reads = Sequential(4096)]() mutable { return reads(); };
  auto reads = next;
  driver.Run(1, 1, [&] { return reads(); });
  for (int i = 0; i < 100; ++i) {
    driver.Pause(50 * kMs);
    EXPECT_LT(driver.Run(1, 1, [&] { return reads(); }), kMs) << i;
  }
}

TEST(RotatingDiskTest, ASynchronousWriterMissesTheSectorEachTurn) {
  const RotatingDisk disk;
  Driver driver(MakeModel(disk, 1));
  const int64_t each_ns = driver.Run(100, 1, Sequential(4096, Call::kWrite)) / 100;
  EXPECT_GT(each_ns, disk.rotation_ns * 9 / 10);
  EXPECT_LT(each_ns, disk.rotation_ns * 12 / 10);
}

TEST(RotatingDiskTest, AFlushEndsAfterWhatCameBeforeAndBeforeWhatComesLater) {
  const RotatingDisk disk;
  const std::unique_ptr<Model> model = MakeModel(disk, 3);
  auto next = Random(disk, 5, Call::kWrite);
  std::vector<uint64_t> order;
  for (uint64_t id = 1; id <= 21; ++id) {
    Request request = next();
    if (id == 11) request = {0, Call::kFlush, 0, 0};
    request.id = id;
    model->Submit(kSecond, request);
  }
  const std::vector<uint64_t> ended = model->TakeEnded(60 * kSecond);
  ASSERT_EQ(ended.size(), 21u);
  EXPECT_EQ(ended[10], 11u);
  for (size_t i = 0; i < 10; ++i) EXPECT_LT(ended[i], 11u);
}

TEST(RotatingDiskTest, SameSeedGivesSameOrderAndTimesAtDepth32) {
  const RotatingDisk disk;
  const auto run = [&](uint64_t seed) {
    const std::unique_ptr<Model> model = MakeModel(disk, seed);
    auto next = Random(disk, 11);
    std::vector<std::pair<int64_t, uint64_t>> ends;
    uint64_t given = 0;
    int64_t now_ns = kSecond;
    while (ends.size() < 500) {
      for (; given < ends.size() + 32; ++given) {
        Request request = next();
        request.id = given;
        model->Submit(now_ns, request);
      }
      now_ns = model->NextEnd().value();
      for (const uint64_t id : model->TakeEnded(now_ns)) ends.emplace_back(now_ns, id);
    }
    return ends;
  };
  const auto first = run(5);
  EXPECT_EQ(first, run(5));
  EXPECT_NE(first, run(6));
  // The order is not that in which they came.
  EXPECT_FALSE(std::is_sorted(first.begin(), first.end(),
                              [](const auto& a, const auto& b) { return a.second < b.second; }));
}

TEST(RotatingDiskTest, TheSeedDecides) {
  const RotatingDisk disk;
  const auto run = [&](uint64_t seed) {
    Driver driver(MakeModel(disk, seed));
    return driver.Run(1, 1, Random(disk, 7));
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

}  // namespace
}  // namespace salius::disk
