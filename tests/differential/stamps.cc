#include "tests/differential/stamps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "tests/differential/evict.h"
#include "tests/differential/random.h"

namespace salius::differential {
namespace {

constexpr uint64_t kWord = sizeof(uint64_t);
constexpr uint64_t kPageWords = 4096 / kWord;
constexpr uint64_t kMostWords = 3 * kPageWords;  // of one read
constexpr uint64_t kOwnedTogether = 24;  // words next to each other that have one writer

class Process {
 public:
  Process(const StampTask& task, Stamps& stamps) : task_(task), stamps_(stamps), random_(task.seed * 64 + task.number) {
    fd_ = open(task.path.c_str(), O_RDWR | O_CLOEXEC);
    direct_ = open(task.path.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);
    if (fd_ < 0 || direct_ < 0) Fail("open");
    void* const memory = mmap(nullptr, kMostWords * kWord, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) Fail("mmap");
    buffer_ = static_cast<uint64_t*>(memory);
  }
  ~Process() {
    munmap(buffer_, kMostWords * kWord);
    close(direct_);
    close(fd_);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  bool Run() {
    const bool writes = task_.number < task_.writers;
    for (uint64_t i = 0; i < task_.operations && !stamps_.stop.load(); ++i) {
      if (random_.Chance(4)) Evict(fd_, task_.backing);
      if (writes) {
        Write();
        if (random_.Below(200) == 0 && fdatasync(fd_) != 0) Fail("fdatasync");
      } else if (!Read()) {
        stamps_.stop.store(true);
        return false;
      }
    }
    return true;
  }

 private:
  [[noreturn]] void Fail(const char* what) {
    perror(what);
    exit(2);
  }

  void Write() {
    // A group of words of this writer.
    const uint64_t groups = kStampWords / kOwnedTogether / task_.writers;
    const uint64_t group = random_.Below(groups) * task_.writers + task_.number;
    const uint64_t skipped = random_.Below(kOwnedTogether);
    const uint64_t first = group * kOwnedTogether + skipped;
    const uint64_t count = 1 + random_.Below(kOwnedTogether - skipped);
    const auto number = [&](uint64_t i) { return stamps_.begun[first + i].load(); };
    for (uint64_t i = 0; i < count; ++i) stamps_.begun[first + i].fetch_add(1);
    for (uint64_t i = 0; i < count; ++i) buffer_[i] = number(i);
    const ssize_t bytes = static_cast<ssize_t>(count * kWord);
    if (++writes_ != task_.plant && pwrite(fd_, buffer_, count * kWord, static_cast<off_t>(first * kWord)) != bytes) Fail("pwrite");
    for (uint64_t i = 0; i < count; ++i) stamps_.ended[first + i].store(number(i));
    stamps_.writes.fetch_add(1, std::memory_order_relaxed);
  }

  bool Read() {
    uint64_t first = random_.Below(kStampWords);
    uint64_t count = 1 + random_.Below(std::min(kMostWords, kStampWords - first));
    const bool direct = random_.Chance(15);
    const bool mapped = !direct && random_.Chance(15);
    if (direct || mapped) {
      first = first / kPageWords * kPageWords;
      count = kPageWords;
    }
    before_.resize(count);
    for (uint64_t i = 0; i < count; ++i) before_[i] = stamps_.ended[first + i].load();
    const off_t offset = static_cast<off_t>(first * kWord);
    if (mapped) {
      void* const map = mmap(nullptr, count * kWord, PROT_READ, MAP_SHARED, fd_, offset);
      if (map == MAP_FAILED) Fail("mmap");
      const volatile uint64_t* const words = static_cast<const uint64_t*>(map);
      for (uint64_t i = 0; i < count; ++i) buffer_[i] = words[i];
      munmap(map, count * kWord);
    } else if (pread(direct ? direct_ : fd_, buffer_, count * kWord, offset) != static_cast<ssize_t>(count * kWord)) {
      Fail(direct ? "pread with O_DIRECT" : "pread");
    }
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t latest = stamps_.begun[first + i].load();
      if (buffer_[i] >= before_[i] && buffer_[i] <= latest) continue;
      printf("DIFFERENCE: process %lu, seed %lu: word %lu, %s: %lu, and writes %lu to %lu are possible\n",
             task_.number, task_.seed, first + i, direct ? "O_DIRECT" : mapped ? "map" : "read", buffer_[i],
             before_[i], latest);
      fflush(stdout);
      return false;
    }
    stamps_.reads.fetch_add(1, std::memory_order_relaxed);
    return true;
  }

  const StampTask& task_;
  Stamps& stamps_;
  Random random_;
  int fd_;
  int direct_;
  uint64_t* buffer_;
  uint64_t writes_ = 0;
  std::vector<uint64_t> before_;
};

}  // namespace

bool RunStamps(const StampTask& task, Stamps& stamps) { return Process(task, stamps).Run(); }

}  // namespace salius::differential
