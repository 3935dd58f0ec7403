// More workers while all are held up.
#include "client/fuse/workers.h"

#include <atomic>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

namespace salius {
namespace {

// Requests as from a device: 's' is answered at once, 'd' waits for the disk.
class WorkersTest : public ::testing::Test {
 protected:
  void Start(int threads) {
    workers.Start(
        threads, [this](Workers::Worker& worker) { Work(worker); }, [this] { ended.Notify(); });
  }
  void End() {
    {
      absl::MutexLock lock(&mu);
      thawed = true;
      closed = true;
    }
    workers.Join();
    EXPECT_TRUE(ended.HasBeenNotified());
  }
  void Ask(char kind, int count = 1) {
    absl::MutexLock lock(&mu);
    requests.append(count, kind);
  }
  // Waits; returns whether `count` requests of the kind were answered in the end.
  bool Answered(int* of, int count) {
    absl::MutexLock lock(&mu);
    const auto enough = [&] { return *of >= count; };
    return mu.AwaitWithTimeout(absl::Condition(&enough), absl::Seconds(60));
  }
  void Thaw() {
    absl::MutexLock lock(&mu);
    thawed = true;
  }

  void Work(Workers::Worker& worker) {
    worker.Reads();
    while (true) {
      char kind = 0;
      {
        absl::MutexLock lock(&mu);
        mu.Await(absl::Condition(
            +[](WorkersTest* test) { return test->closed || !test->requests.empty(); }, this));
        if (closed) return;
        kind = requests.front();
        requests.erase(0, 1);
      }
      worker.Works();
      Handle(worker, kind);
      for (std::string parked; workers.TakeParked(worker, &parked);) Handle(worker, parked[0]);
      worker.Reads();
      if (workers.MayLeave(worker)) return;
    }
  }
  void Handle(Workers::Worker& worker, char kind) {
    if (kind == 'd' && workers.MustPark(worker)) return workers.Park("d");
    absl::MutexLock lock(&mu);
    if (kind == 'd') {
      ++waiting;
      mu.Await(absl::Condition(&thawed));
      ++disk;
    } else {
      ++memory;
    }
  }

  Workers workers;
  absl::Notification ended;
  absl::Mutex mu;
  std::string requests;
  bool thawed = false, closed = false;
  int waiting = 0, disk = 0, memory = 0;
};

TEST_F(WorkersTest, RequestWithoutTheDiskIsAnsweredThoughAllWait) {
  Start(4);
  Ask('d', 4);
  ASSERT_TRUE(Answered(&waiting, 4));
  Ask('s');
  EXPECT_TRUE(Answered(&memory, 1));
  EXPECT_EQ(disk, 0);
  End();
}

TEST_F(WorkersTest, OneAlwaysReadsHoweverManyWait) {
  Start(2);
  Ask('d', 3 * Workers::kMaxWorkers);
  ASSERT_TRUE(Answered(&waiting, Workers::kMaxWorkers / 2));
  for (int i = 1; i <= 20; ++i) {
    Ask('s');
    ASSERT_TRUE(Answered(&memory, i));
  }
  Thaw();
  // Workers that become free take the parked requests.
  for (int i = 1; i <= 100; ++i) {
    Ask('s');
    ASSERT_TRUE(Answered(&memory, 20 + i));
  }
  EXPECT_TRUE(Answered(&disk, 3 * Workers::kMaxWorkers));
  End();
}

}  // namespace
}  // namespace salius
