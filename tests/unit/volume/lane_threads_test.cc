// Writers and readers beside the threads that fetch pages and apply (LaneWorkers): each writer has
// ranges of shared files, which begin and end inside pages, and always reads what it wrote last.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "common/random.h"
#include "tests/unit/volume/fake_stream.h"
#include "tests/unit/volume/volume_fixture.h"

namespace salius {
namespace {

class LaneThreadsTest : public VolumeFixture {
 protected:
  static constexpr size_t kWriters = 4, kFiles = 2, kRanges = 5;
  static constexpr uint64_t kRange = 3000;
  static constexpr int kSteps = 250;

  // Writes and reads the writer's ranges in all files, and takes pages out of memory.
  void Use(size_t writer, uint64_t seed) {
    Random random(seed * 100 + writer);
    std::string shadows[kFiles][kRanges];
    for (auto& file : shadows) {
      for (std::string& range : file) range = std::string(kRange, 'o');
    }
    for (int step = 0; step < kSteps; ++step) {
      if (random.Chance(0.2)) memory->DropAllPages();
      const size_t file = random.Below(kFiles), range = random.Below(kRanges);
      std::string& shadow = shadows[file][range];
      const uint64_t base = (range * kWriters + writer) * kRange;
      if (random.Chance(0.6)) {
        const uint64_t at = random.Below(kRange);
        const std::string data(1 + random.Below(kRange - at),
                               static_cast<char>('a' + random.Below(26)));
        shadow.replace(at, data.size(), data);
        const auto written = volume->files().Write(*files_[file], base + at, data, false,
                                                   random.Chance(0.1) ? Contract::kDurable
                                                                      : Contract::kPlain);
        EXPECT_TRUE(written.ok()) << written.status();
      }
      EXPECT_EQ(Read(files_[file], base, kRange), shadow) << "step " << step;
    }
  }

  // Has records applied until the writers have ended.
  void Disturb(uint64_t seed) {
    Random random(seed);
    while (!ended_.load()) {
      FakeOf(volume->stream()).Give(random.Below(20));
      if (random.Chance(0.02)) SALIUS_CHECK_OK(volume->stream().Checkpoint());
      std::this_thread::yield();
    }
  }

  void Run(FetchMode mode) {
    fetch = mode;
    patch_memory = 200'000;
    Make();
    for (size_t i = 0; i < kFiles; ++i) {
      files_.push_back(Create("f" + std::to_string(i)));
      Write(files_[i], 0, std::string(kWriters * kRanges * kRange, 'o'));
    }
    std::vector<std::thread> writers;
    for (size_t i = 0; i < kWriters; ++i) writers.emplace_back([this, i] { Use(i, 7); });
    std::thread disturber([this] { Disturb(11); });
    for (std::thread& writer : writers) writer.join();
    ended_.store(true);
    disturber.join();
    EXPECT_TRUE(volume->stream().Checkpoint().ok());
    EXPECT_EQ(volume->patch_memory().used(), 0u);
    for (size_t i = 0; i < kFiles; ++i) {
      const std::string shown = Read(files_[i], 0, kWriters * kRanges * kRange);
      EXPECT_EQ(BackingContent("f" + std::to_string(i)), shown);
      volume->open_files().Release(files_[i]);
    }
  }

  std::vector<Handle*> files_;
  std::atomic<bool> ended_{false};
};

TEST_F(LaneThreadsTest, WritersReadTheirLastWriteWithAsyncBg) { Run(FetchMode::kAsyncBg); }
TEST_F(LaneThreadsTest, WritersReadTheirLastWriteWithLazy) { Run(FetchMode::kLazy); }
TEST_F(LaneThreadsTest, WritersReadTheirLastWriteWithAsyncFg) { Run(FetchMode::kAsyncFg); }
TEST_F(LaneThreadsTest, WritersReadTheirLastWriteWithBlocking) { Run(FetchMode::kBlocking); }

}  // namespace
}  // namespace salius
