// Numbers for the kernel: unique, safe to look up whatever they are, from any thread.
#include "client/fuse/id_table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <random>
#include <set>
#include <thread>
#include <vector>

namespace salius {
namespace {

TEST(IdTableTest, FirstNumberIsOne) {
  IdTable<int> table;
  int object = 0;
  EXPECT_EQ(table.Insert(object), 1u);
  EXPECT_EQ(table.Find(1), &object);
}

TEST(IdTableTest, ErasedNumberLeadsNowhere) {
  IdTable<int> table;
  int object = 0;
  const uint64_t number = table.Insert(object);
  EXPECT_EQ(table.Erase(number), &object);
  EXPECT_EQ(table.Find(number), nullptr);
  EXPECT_EQ(table.Erase(number), nullptr);
  EXPECT_EQ(table.size(), 0u);
}

TEST(IdTableTest, SlotIsUsedAgainUnderAnotherNumber) {
  IdTable<int> table;
  int objects[2] = {};
  const uint64_t before = table.Insert(objects[0]);
  table.Erase(before);
  const uint64_t after = table.Insert(objects[1]);
  EXPECT_NE(after, before);
  EXPECT_EQ(static_cast<uint32_t>(after), static_cast<uint32_t>(before));
  EXPECT_EQ(table.Find(before), nullptr);
  EXPECT_EQ(table.Erase(before), nullptr);
  EXPECT_EQ(table.Find(after), &objects[1]);
}

TEST(IdTableTest, NumbersOfManyChunksAreDistinct) {
  IdTable<int> table;
  std::vector<int> objects(10'000);
  std::vector<uint64_t> numbers;
  for (int& object : objects) numbers.push_back(table.Insert(object));
  EXPECT_EQ(std::set<uint64_t>(numbers.begin(), numbers.end()).size(), objects.size());
  for (size_t i = 0; i < objects.size(); ++i) EXPECT_EQ(table.Find(numbers[i]), &objects[i]);
  EXPECT_EQ(table.size(), objects.size());
}

TEST(IdTableTest, RandomNumbersAreUnknown) {
  IdTable<int> table;
  std::vector<int> objects(3'000);
  std::set<uint64_t> known;
  for (int& object : objects) known.insert(table.Insert(object));
  std::mt19937_64 random(1);
  std::vector<uint64_t> hostile = {0, UINT64_MAX, UINT32_MAX, uint64_t{1} << 32, 1024, 4096};
  for (int i = 0; i < 100'000; ++i) hostile.push_back(random() >> (random() % 64));
  for (const uint64_t number : hostile) {
    EXPECT_EQ(table.Find(number) != nullptr, known.contains(number)) << number;
    if (known.contains(number)) continue;
    EXPECT_EQ(table.Erase(number), nullptr) << number;
  }
  EXPECT_EQ(table.size(), objects.size());
}

TEST(IdTableTest, ClearReturnsAllObjects) {
  IdTable<int> table;
  int objects[3] = {};
  const uint64_t first = table.Insert(objects[0]);
  const uint64_t second = table.Insert(objects[1]);
  table.Erase(first);
  EXPECT_EQ(table.Clear(), std::vector<int*>{&objects[1]});
  EXPECT_EQ(table.Find(second), nullptr);
  EXPECT_EQ(table.size(), 0u);
  const uint64_t third = table.Insert(objects[2]);
  EXPECT_NE(third, first);
  EXPECT_NE(third, second);
}

// Numbers come and go in two threads, which share the slots. Meanwhile others look every number up,
// and must find an object that had just this number.
TEST(IdTableTest, FindDuringReuseNeverReturnsAnotherObject) {
  struct Object {
    std::atomic<uint64_t> number{0};  // set before other threads may know the number
  };
  constexpr int kRounds = 20'000;
  IdTable<Object> table;
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> newest{1};
  std::atomic<uint64_t> wrong{0};
  std::vector<std::vector<Object>> objects;
  for (int i = 0; i < 2; ++i) objects.emplace_back(kRounds);
  std::vector<std::thread> writers;
  for (std::vector<Object>& own : objects) {
    writers.emplace_back([&] {
      for (Object& object : own) {
        const uint64_t number = table.Insert(object);
        object.number.store(number);
        newest.store(number);
        if (table.Find(number) != &object || table.Erase(number) != &object) wrong.fetch_add(1);
      }
    });
  }
  std::vector<std::thread> readers;
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      while (!stop.load()) {
        const uint64_t number = newest.load();
        // The last number, one that may have its slot next, and one of the other slot.
        for (const uint64_t asked : {number, number + (uint64_t{1} << 32), number ^ 3}) {
          const Object* const found = table.Find(asked);
          const uint64_t has = found == nullptr ? 0 : found->number.load();
          if (has != 0 && has != asked) wrong.fetch_add(1);
        }
      }
    });
  }
  for (std::thread& thread : writers) thread.join();
  stop.store(true);
  for (std::thread& thread : readers) thread.join();
  EXPECT_EQ(wrong.load(), 0u);
  EXPECT_EQ(table.size(), 0u);
}

}  // namespace
}  // namespace salius
