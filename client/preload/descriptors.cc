#include "client/preload/descriptors.h"

#include <sys/mman.h>

#include "client/preload/raw_call.h"

namespace salius::preload {
namespace {

constexpr unsigned kGenerationShift = 32;
constexpr unsigned kMarksShift = 8;

// Replaces both words at `words` if they hold `head` and `file`; else reads them into these two.
bool ReplaceBoth(void* words, uint64_t& head, uint64_t& file, uint64_t new_head,
                 uint64_t new_file) {
  bool done;
  __asm__ volatile("lock cmpxchg16b %1"
                   : "=@ccz"(done), "+m"(*static_cast<__int128*>(words)), "+a"(head), "+d"(file)
                   : "b"(new_head), "c"(new_file)
                   : "memory");
  return done;
}

uint64_t WordOf(direct::File file) { return static_cast<uint64_t>(file.tag) << 32 | file.index; }

}  // namespace

const Descriptors::Entry* Descriptors::Find(unsigned fd) const {
  const unsigned chunk = fd >> kChunkBits;
  if (chunk >= kChunks) return nullptr;
  const Chunk* found = chunks_[chunk].load(std::memory_order_acquire);
  return found == nullptr ? nullptr : &found->entries[fd & (kChunkEntries - 1)];
}

Descriptors::Entry* Descriptors::Make(unsigned fd) {
  const unsigned chunk = fd >> kChunkBits;
  if (chunk >= kChunks) return nullptr;
  Chunk* found = chunks_[chunk].load(std::memory_order_acquire);
  if (found == nullptr) {
    const long mapped = Raw(SYS_mmap, nullptr, sizeof(Chunk), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped < 0 && mapped >= -4095) return nullptr;
    Chunk* made = reinterpret_cast<Chunk*>(mapped);
    if (chunks_[chunk].compare_exchange_strong(found, made, std::memory_order_acq_rel)) {
      found = made;
    } else {
      Raw(SYS_munmap, made, sizeof(Chunk));
    }
  }
  unsigned end = end_.load(std::memory_order_relaxed);
  while (end <= fd && !end_.compare_exchange_weak(end, fd + 1, std::memory_order_release)) {
  }
  return &found->entries[fd & (kChunkEntries - 1)];
}

Descriptor Descriptors::Get(int fd) const {
  const Entry* entry = Find(static_cast<unsigned>(fd));
  if (entry == nullptr) return {};
  uint64_t head = entry->head.load(std::memory_order_acquire);
  for (;;) {
    const uint64_t file = entry->file.load(std::memory_order_acquire);
    const uint64_t again = entry->head.load(std::memory_order_acquire);
    if (again == head) {
      Descriptor found;
      found.state = static_cast<Descriptor::State>(head & 0xFF);
      found.marks = static_cast<uint8_t>(head >> kMarksShift);
      found.generation = static_cast<uint32_t>(head >> kGenerationShift);
      found.file = {static_cast<uint32_t>(file), static_cast<uint32_t>(file >> 32)};
      return found;
    }
    head = again;
  }
}

void Descriptors::Replace(Entry& entry, uint64_t state_and_marks, uint64_t file) {
  uint64_t head = entry.head.load(std::memory_order_relaxed);
  uint64_t old_file = entry.file.load(std::memory_order_relaxed);
  for (;;) {
    const uint64_t next = (head >> kGenerationShift) + 1;
    if (ReplaceBoth(&entry, head, old_file, next << kGenerationShift | state_and_marks, file)) {
      return;
    }
  }
}

void Descriptors::Set(int fd, Descriptor::State state, direct::File file, uint8_t marks) {
  if (Entry* entry = Make(static_cast<unsigned>(fd))) {
    Replace(*entry, static_cast<uint64_t>(marks) << kMarksShift | static_cast<uint64_t>(state),
            WordOf(file));
  }
}

void Descriptors::Forget(int fd) {
  // An entry that never existed is unknown already.
  if (const Entry* entry = Find(static_cast<unsigned>(fd))) {
    Replace(const_cast<Entry&>(*entry), 0, 0);
  }
}

void Descriptors::ForgetRange(unsigned first, unsigned last) {
  const unsigned end = end_.load(std::memory_order_acquire);
  for (unsigned fd = first; fd < end && fd <= last; ++fd) Forget(static_cast<int>(fd));
}

int Descriptors::Find(direct::File file) const {
  const unsigned end = end_.load(std::memory_order_acquire);
  for (unsigned fd = 0; fd < end; ++fd) {
    const Descriptor found = Get(static_cast<int>(fd));
    if (found.tracked() && found.file.index == file.index && found.file.tag == file.tag) {
      return static_cast<int>(fd);
    }
  }
  return -1;
}

}  // namespace salius::preload
