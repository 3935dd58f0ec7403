// The descriptors of this process: which are files of the volume.
//
// The table is a cache: everything in it can be found again from the descriptor, so forgetting an
// entry is always safe. It must never keep an entry of a descriptor that has been closed, nor of one
// that dup2(2) has replaced while another thread uses its number. So what a look at a descriptor
// found is stored only if the entry did not change meanwhile, and nothing is stored during a dup2(2).
// Readers and writers are wait-free, take no lock and allocate only whole pages by mmap(2), so that
// signal handlers and allocators may use it. A child of fork(2) has a copy, which is right.
#pragma once

#include <atomic>
#include <cstdint>

#include "client/direct/process/files.h"

namespace salius::preload {

// One descriptor. Every change has a new generation.
struct Descriptor {
  enum class State : uint8_t {
    kUnknown,  // never looked at, or forgotten
    kOther,    // not a file of the volume
    kTracked,  // a file of the volume
    kMounted,  // a file of a mount at whose gate this process is registered
  };
  // The descriptor was opened with O_DSYNC, which the kernel does not have.
  static constexpr uint8_t kDataSync = 1;
  // The same with O_SYNC.
  static constexpr uint8_t kFullSync = 2;
  // A stdio stream may write to it unseen.
  static constexpr uint8_t kStdio = 4;
  // With kMounted: early return was asked for.
  static constexpr uint8_t kAsked = 8;

  State state = State::kUnknown;
  uint8_t marks = 0;
  bool changing = false;  // a change is under way: BeginChange
  uint32_t generation = 0;
  direct::File file;

  bool tracked() const { return state == State::kTracked; }
  // With kMounted: what Files::AskEarly granted, in the place of a tracked file.
  uint64_t grant() const { return static_cast<uint64_t>(file.tag) << 32 | file.index; }
};

class Descriptors {
 public:
  // Returns what is known of `fd`: kUnknown for a number that cannot be a descriptor.
  Descriptor Get(int fd) const;

  // Stores what `fd` is. Nothing is stored, so that it stays unknown, when there is no memory.
  void Set(int fd, Descriptor::State state, direct::File file, uint8_t marks);

  // Does so if the entry's generation is `found.generation` still, which then becomes the new one.
  void SetIf(int fd, Descriptor& found);

  // Makes `fd` unknown. Returns the entry's new generation.
  uint32_t Forget(int fd);
  // Forgets what looks at `fd` have found since Forget returned `generation`, also those that have
  // not stored it yet. An open, or a duplication, of the number in between stays.
  void ForgetLooks(int fd, uint32_t generation);
  // Makes all descriptors of [first, last] unknown.
  void ForgetRange(unsigned first, unsigned last);

  // The kernel will put another descriptor in the place of `fd`. Until EndChange it is unknown, and no
  // descriptor is Still what it was. Changes by several threads may overlap.
  void BeginChange(int fd);
  // The kernel has done it, or has failed. `now`: what `fd` is, if that is known. It is stored unless
  // another thread has changed the entry meanwhile, which leaves it unknown.
  void EndChange(int fd, const Descriptor& now);

  // Returns whether `fd` is still what `descriptor` says, without a change in between.
  bool Still(int fd, const Descriptor& descriptor) const {
    const Descriptor now = Get(fd);
    return now.generation == descriptor.generation && !now.changing;
  }

  // Returns a tracked descriptor of `file`, or -1.
  int Find(direct::File file) const;

 private:
  // Two words that change as one.
  struct alignas(16) Entry {
    std::atomic<uint64_t> head;  // generation, changes under way, marks, state
    std::atomic<uint64_t> file;  // tag, index
  };
  static constexpr unsigned kChunkBits = 12;
  static constexpr unsigned kChunkEntries = 1u << kChunkBits;
  static constexpr unsigned kChunks = 1u << 15;  // 134 million descriptors
  struct Chunk {
    Entry entries[kChunkEntries];
  };

  const Entry* Find(unsigned fd) const;
  Entry* Make(unsigned fd);
  template <typename Next>
  static void Replace(Entry& entry, Next next);

  std::atomic<Chunk*> chunks_[kChunks] = {};
  std::atomic<unsigned> end_{0};  // no entry at or above it was ever stored
};

}  // namespace salius::preload
