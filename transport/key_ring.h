// The keys of sealed datagrams at one end: a primary's or a replica's. docs/protocol.md, "Keys",
// says how both ends get them.
//
//   end      opens with                          seals with
//   replica  a session's record key, any sender  the acknowledgement key of the same key id
//   primary  each replica's acknowledgement key  its current record key
//
// A key for opening belongs to one session, and each sender under it has a replay window.
//
// Threads: thread safe. The lock is held over the opening of one datagram; sealing holds none.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "proto/sealed_frame.h"
#include "transport/flood_filter.h"
#include "transport/replay_window.h"
#include "transport/seal_refusal.h"
#include "transport/sealer.h"

namespace salius {

// Returns its name as a label value of metrics.
std::string_view SealRefusalName(SealRefusal refusal);

// A sender's key, its counters, and contexts for the threads that use it at the same time.
class SealingKey {
 public:
  SealingKey(uint32_t key_id, uint32_t sender, const SealKey& key)
      : key_id_(key_id), sender_(sender), key_(key) {}

  uint32_t key_id() const { return key_id_; }
  // Whether a datagram with this prefix was sealed here.
  bool Sealed(const SealPrefix& prefix) const {
    return prefix.key_id == key_id_ && prefix.sender == sender_ && prefix.counter < counter_.next();
  }

  // Seals frames on one thread.
  class Use {
   public:
    explicit Use(SealingKey& key) : key_(key), sealer_(key.Borrow()) {}
    ~Use() { key_.GiveBack(std::move(sealer_)); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    // As Sealer::Seal, with the next counter.
    size_t Seal(absl::Span<const iovec> parts, uint8_t* out) {
      const SealPrefix prefix{SealKind::kSealed, key_.key_id_, key_.sender_, key_.counter_.Take(1)};
      return sealer_->Seal(prefix, parts, out);
    }

   private:
    SealingKey& key_;
    std::unique_ptr<Sealer> sealer_;
  };

 private:
  std::unique_ptr<Sealer> Borrow();
  void GiveBack(std::unique_ptr<Sealer> sealer);

  const uint32_t key_id_, sender_;
  const SealKey key_;
  NonceCounter counter_;
  absl::Mutex mutex_;
  std::vector<std::unique_ptr<Sealer>> idle_ ABSL_GUARDED_BY(mutex_);
};

class KeyRing {
 public:
  static constexpr uint32_t kAnySender = 0;
  // The most senders under one key.
  static constexpr size_t kMostSenders = 16384;

  // Opens datagrams of `sender` with the key of this id from now on. Adding the same again keeps
  // its replay windows. ALREADY_EXISTS: the id has another key or session.
  absl::Status AddOpening(uint32_t key_id, uint32_t sender, const SealKey& key,
                          const FrameSession& session);
  // As AddOpening, and forgets another key that the sender had under this id.
  void SetOpening(uint32_t key_id, uint32_t sender, const SealKey& key,
                  const FrameSession& session);
  // Seals datagrams that name the key of this id, as `sender`. A key that is there already stays:
  // its counters continue.
  void AddSealing(uint32_t key_id, uint32_t sender, const SealKey& key);
  // Seals datagrams that name no key with the one of this id, which is there.
  void SealWith(uint32_t key_id);
  // Accepts plain frames that name the session, or no more.
  void AllowPlain(const FrameSession& session);
  void ForbidPlain(const FrameSession& session);
  // Accepts all plain frames from now on: their receiver knows the sessions that are sealed.
  void AllowAllPlain() { all_plain_.store(true); }
  bool all_plain() const { return all_plain_.load(std::memory_order_relaxed); }
  // Returns the number of sessions of AllowPlain.
  size_t plain_sessions() const;
  // Calls `changed` after each new key or plain session, from the thread that adds it; `owner` names
  // the watcher. Unwatch returns when no such call is under way.
  void Watch(const void* owner, std::function<void()> changed);
  void Unwatch(const void* owner);
  // Returns what a filter may know of the datagrams that are opened here now, and of notices if
  // `notices`.
  FloodRules Rules(bool notices) const;
  // Forgets the keys of this id, for opening and sealing. The key of SealWith stays.
  void Remove(uint32_t key_id);

  // Returns the key for datagrams that name `key_id` (0: that of SealWith); null: there is none.
  std::shared_ptr<SealingKey> Sealing(uint32_t key_id) const;
  // Whether a datagram with this prefix was sealed here.
  bool Sealed(const SealPrefix& prefix) const;

  struct Opened {
    SealPrefix prefix;  // valid also with kNoKey
    absl::Span<const uint8_t> frame;
  };
  // Opens a datagram in place, and counts its refusal. A notice gives kNone, and no frame. A plain
  // frame that is allowed gives itself, and a key id of 0.
  SealRefusal Open(absl::Span<uint8_t> datagram, Opened* opened);

  // Counts datagrams that the kernel dropped while a channel of these keys had a filter.
  void CountFiltered(uint64_t datagrams) { filtered_.fetch_add(datagrams); }
  uint64_t filtered() const { return filtered_.load(std::memory_order_relaxed); }
  uint64_t refused(SealRefusal refusal) const {
    return refused_[static_cast<size_t>(refusal)].load(std::memory_order_relaxed);
  }

 private:
  struct OpeningKey {
    OpeningKey(const SealKey& bytes, const FrameSession& of)
        : key(bytes), session(of), opener(key) {}
    const SealKey key;
    const FrameSession session;
    Opener opener;
    absl::flat_hash_map<uint32_t, ReplayWindow> windows;  // by sender
  };
  using OpeningId = std::pair<uint32_t, uint32_t>;  // key id, sender

  SealRefusal DoOpen(absl::Span<uint8_t> datagram, Opened* opened);
  void CallWatchers();

  mutable absl::Mutex watchers_mutex_;  // is never taken under mutex_
  absl::flat_hash_map<const void*, std::function<void()>> watchers_
      ABSL_GUARDED_BY(watchers_mutex_);
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<OpeningId, std::unique_ptr<OpeningKey>> opening_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<uint32_t, std::shared_ptr<SealingKey>> sealing_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<SealingKey> current_ ABSL_GUARDED_BY(mutex_);
  std::vector<FrameSession> plain_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> all_plain_{false};
  std::array<std::atomic<uint64_t>, kSealRefusals> refused_{};
  std::atomic<uint64_t> filtered_{0};
};

}  // namespace salius
