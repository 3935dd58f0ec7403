#include "client/volume/elevator.h"

#include <cstdint>
#include <set>
#include <vector>

#include "common/random.h"
#include "gtest/gtest.h"

namespace salius {
namespace {

class ElevatorTest : public ::testing::Test {
 protected:
  void Add(FileId file, uint64_t offset, int name) {
    elevator_.Add({file, offset}, [this, name] { done_.push_back(name); });
  }
  int Take() {
    elevator_.Take()();
    return done_.back();
  }

  Elevator elevator_;
  std::vector<int> done_;
};

TEST_F(ElevatorTest, GoesUpThroughFilesAndBeginsAgainBelow) {
  Add(1, 500, 1);
  Add(1, 900, 2);
  Add(2, 0, 3);
  Add(1, 700, 4);
  EXPECT_EQ(Take(), 1);
  EXPECT_EQ(Take(), 4);
  Add(1, 600, 5);  // passed already
  Add(1, 800, 6);
  for (const int name : {6, 2, 3, 5}) EXPECT_EQ(Take(), name);
  EXPECT_TRUE(elevator_.empty());
}

TEST_F(ElevatorTest, WorkAtOnePlaceKeepsItsOrder) {
  Add(1, 500, 1);
  Add(1, 500, 2);
  EXPECT_EQ(Take(), 1);
  Add(1, 500, 3);
  EXPECT_EQ(Take(), 2);
  EXPECT_EQ(Take(), 3);
}

TEST_F(ElevatorTest, PassedWorkIsTakenAlthoughOthersComeBeforeTheHead) {
  Add(1, 1'000, 0);
  EXPECT_EQ(Take(), 0);
  Add(1, 0, 1);  // below the head
  int takes = 0, taken = 0;
  for (; taken != 1 && takes < 100'000; ++takes) {
    Add(1, 2'000 + static_cast<uint64_t>(takes), 2);
    taken = Take();
  }
  EXPECT_EQ(taken, 1);
  EXPECT_LT(takes, 2'000);
}

TEST_F(ElevatorTest, MuchWorkThatCameAtOnceIsTakenInOrder) {
  Random random(5);
  std::vector<uint64_t> places;
  uint64_t last = 0;
  int sweeps = 1;
  const auto take = [&] {
    const uint64_t place = places[static_cast<size_t>(Take())];
    sweeps += place < last;
    last = place;
  };
  for (int name = 0; name < 20'000; ++name) {
    places.push_back(random.Below(1'000'000));
    Add(1, places.back(), name);
    if (name >= 10'000 && name % 50 == 0) take();  // the first ones, while others come
  }
  while (!elevator_.empty()) take();
  EXPECT_EQ(sweeps, 2);  // work that came behind the head is left to the second
}

TEST_F(ElevatorTest, EachWorkIsTakenOnce) {
  Random random(3);
  std::set<int> waiting;
  for (int step = 0; step < 20'000; ++step) {
    if (waiting.empty() || random.Chance(0.5)) {
      Add(1 + random.Below(3), random.Below(50), step);
      waiting.insert(step);
    } else {
      EXPECT_EQ(waiting.erase(Take()), 1u);
    }
    ASSERT_EQ(elevator_.size(), waiting.size());
  }
}

}  // namespace
}  // namespace salius
