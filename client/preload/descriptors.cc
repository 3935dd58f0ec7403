#include "client/preload/descriptors.h"

#include <sys/mman.h>

#include "client/preload/raw_call.h"

namespace salius::preload {
namespace {

// An entry's head: state (8 bits), marks (8), changes under way (15), overlap (1), generation (32).
constexpr uint64_t kStateMask = 0xFF;
constexpr unsigned kMarksShift = 8;
constexpr unsigned kChangesShift = 16;
constexpr unsigned kGenerationShift = 32;
constexpr uint64_t kOneChange = uint64_t{1} << kChangesShift;
// The entry was changed by another thread while a change was under way.
constexpr uint64_t kOverlap = uint64_t{1} << 31;
constexpr uint64_t kChanges = kOverlap - kOneChange;

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

// The lower half of a head, and the second word.
struct Content {
  uint64_t low = 0, file = 0;
};

uint64_t WordOf(direct::File file) { return static_cast<uint64_t>(file.tag) << 32 | file.index; }

Content ContentOf(Descriptor::State state, uint8_t marks, direct::File file) {
  return {static_cast<uint64_t>(marks) << kMarksShift | static_cast<uint64_t>(state), WordOf(file)};
}

// Returns what an entry becomes that is to be `content`: unknown while a change is under way.
Content Stored(uint64_t head, const Content& content) {
  const uint64_t changes = head & kChanges;
  return changes == 0 ? content : Content{.low = changes | kOverlap};
}

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
      found.state = static_cast<Descriptor::State>(head & kStateMask);
      found.marks = static_cast<uint8_t>(head >> kMarksShift);
      found.changing = (head & kChanges) != 0;
      found.generation = static_cast<uint32_t>(head >> kGenerationShift);
      found.file = {static_cast<uint32_t>(file), static_cast<uint32_t>(file >> 32)};
      return found;
    }
    head = again;
  }
}

// `next(head, content)` stores what the entry with this head becomes; false: it stays.
template <typename Next>
void Descriptors::Replace(Entry& entry, Next next) {
  uint64_t head = entry.head.load(std::memory_order_relaxed);
  uint64_t file = entry.file.load(std::memory_order_relaxed);
  for (;;) {
    Content content;
    if (!next(head, content)) return;
    const uint64_t generation = (head >> kGenerationShift) + 1;
    if (ReplaceBoth(&entry, head, file, generation << kGenerationShift | content.low,
                    content.file)) {
      return;
    }
  }
}

void Descriptors::Set(int fd, Descriptor::State state, direct::File file, uint8_t marks) {
  Entry* const entry = Make(static_cast<unsigned>(fd));
  if (entry == nullptr) return;
  Replace(*entry, [&](uint64_t head, Content& content) {
    content = Stored(head, ContentOf(state, marks, file));
    return true;
  });
}

void Descriptors::SetIf(int fd, Descriptor& found) {
  Entry* const entry = Make(static_cast<unsigned>(fd));
  if (entry == nullptr) return;
  bool stored = false;
  Replace(*entry, [&](uint64_t head, Content& content) {
    stored = static_cast<uint32_t>(head >> kGenerationShift) == found.generation &&
             (head & kChanges) == 0;
    content = ContentOf(found.state, found.marks, found.file);
    return stored;
  });
  if (stored) ++found.generation;
}

uint32_t Descriptors::Forget(int fd) {
  // An entry that never existed is unknown already.
  const Entry* const entry = Find(static_cast<unsigned>(fd));
  if (entry == nullptr) return 0;
  uint32_t generation = 0;
  Replace(const_cast<Entry&>(*entry), [&](uint64_t head, Content& content) {
    generation = static_cast<uint32_t>(head >> kGenerationShift) + 1;
    content = Stored(head, {});
    return true;
  });
  return generation;
}

void Descriptors::ForgetLooks(int fd, uint32_t generation) {
  const Entry* const entry = Find(static_cast<unsigned>(fd));
  if (entry == nullptr) return;
  Replace(const_cast<Entry&>(*entry), [&](uint64_t head, Content& content) {
    // Set after Forget is two generations later, SetIf of a look is one.
    const uint32_t now = static_cast<uint32_t>(head >> kGenerationShift);
    const bool looked = now == generation + 1 && (head & kStateMask) != 0;
    content = Stored(head, {});
    return now == generation || looked;
  });
}

void Descriptors::BeginChange(int fd) {
  Entry* const entry = Make(static_cast<unsigned>(fd));
  if (entry == nullptr) return;
  Replace(*entry, [](uint64_t head, Content& content) {
    content = Stored(head, {});
    content.low += kOneChange;
    return true;
  });
}

void Descriptors::EndChange(int fd, const Descriptor& now) {
  Entry* const entry = Make(static_cast<unsigned>(fd));
  if (entry == nullptr) return;
  Replace(*entry, [&](uint64_t head, Content& content) {
    const uint64_t under_way = head & kChanges;
    if (under_way == 0) return true;  // there was no memory for the entry at its beginning
    const uint64_t left = under_way - kOneChange;
    if (left != 0) {
      content.low = left | kOverlap;
    } else if ((head & kOverlap) == 0) {
      content = ContentOf(now.state, now.marks, now.file);
    }
    return true;
  });
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
