// Several writers and readers of one file at the same time, without a lock: each word of the file
// holds the number of its last write. A read must see every write of a word that had ended before
// it began, and none that begins after it ended.
//
// A word belongs to one writer, and words of one page belong to all: writes of parts of a page meet.
// Readers and writers use read and write calls, maps or O_DIRECT, and drop pages from memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace salius::differential {

constexpr uint64_t kStampWords = 64 * 512;  // 64 pages

// In memory that all processes share.
struct Stamps {
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> writes{0};
  std::atomic<uint64_t> reads{0};
  std::atomic<uint64_t> begun[kStampWords];  // numbers of writes of a word
  std::atomic<uint64_t> ended[kStampWords];
};

struct StampTask {
  std::string path;     // of the file, which exists with kStampWords words of 0
  std::string backing;  // of the same file below the mount; empty: none
  uint64_t seed = 0;
  uint64_t writers = 0;
  uint64_t number = 0;  // of this process; from `writers` on they are readers
  uint64_t operations = 0;
  uint64_t plant = 0;  // the number of a write that each writer leaves out: a control. 0: none
};

// Runs one process's operations. Returns whether all it read was right; prints the first mistake.
bool RunStamps(const StampTask& task, Stamps& stamps);

}  // namespace salius::differential
