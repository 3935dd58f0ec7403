#include "tests/bench/disk_model/model.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <random>
#include <utility>

namespace salius::disk {
namespace {

// Requests whose end is known when they begin, ordered by it.
class Ends {
 public:
  void Add(int64_t end_ns, uint64_t id) { ends_.emplace(end_ns, id); }
  std::optional<int64_t> Next() const {
    if (ends_.empty()) return std::nullopt;
    return ends_.begin()->first;
  }
  std::vector<uint64_t> Take(int64_t now_ns) {
    std::vector<uint64_t> ended;
    while (!ends_.empty() && ends_.begin()->first <= now_ns) {
      ended.push_back(ends_.begin()->second);
      ends_.erase(ends_.begin());
    }
    return ended;
  }

 private:
  std::multimap<int64_t, uint64_t> ends_;
};

class Fixed final : public Model {
 public:
  explicit Fixed(const FixedDisk& disk) : disk_(disk) {}

  void Submit(int64_t now_ns, const Request& request) override {
    const int64_t takes = request.call == Call::kRead    ? disk_.read_ns
                          : request.call == Call::kWrite ? disk_.write_ns
                                                         : disk_.flush_ns;
    if (takes == 0) return ends_.Add(now_ns, request.id);
    free_ns_ = std::max(free_ns_, now_ns) + takes;
    ends_.Add(free_ns_, request.id);
  }
  std::optional<int64_t> NextEnd() const override { return ends_.Next(); }
  std::vector<uint64_t> TakeEnded(int64_t now_ns) override { return ends_.Take(now_ns); }

 private:
  const FixedDisk disk_;
  int64_t free_ns_ = 0;
  Ends ends_;
};

class Flash final : public Model {
 public:
  explicit Flash(const FlashDisk& disk) : disk_(disk), free_ns_(disk.units, 0) {}

  void Submit(int64_t now_ns, const Request& request) override {
    int64_t end_ns = now_ns;
    if (request.call == Call::kFlush) {
      end_ns = std::max(now_ns, last_end_ns_);
    } else {
      const int64_t takes = request.call == Call::kRead ? disk_.read_ns : disk_.write_ns;
      const uint64_t first = request.offset / kPage;
      const uint64_t last = (request.offset + std::max<uint64_t>(request.bytes, 1) - 1) / kPage;
      for (uint64_t page = first; page <= last; ++page) {
        int64_t& unit = *std::min_element(free_ns_.begin(), free_ns_.end());
        unit = std::max(unit, now_ns) + takes;
        end_ns = std::max(end_ns, unit);
      }
      last_end_ns_ = std::max(last_end_ns_, end_ns);
    }
    ends_.Add(end_ns, request.id);
  }
  std::optional<int64_t> NextEnd() const override { return ends_.Next(); }
  std::vector<uint64_t> TakeEnded(int64_t now_ns) override { return ends_.Take(now_ns); }

 private:
  static constexpr uint64_t kPage = 4096;
  const FlashDisk disk_;
  std::vector<int64_t> free_ns_;
  int64_t last_end_ns_ = 0;
  Ends ends_;
};

class Rotating final : public Model {
 public:
  Rotating(const RotatingDisk& disk, uint64_t seed)
      : disk_(disk), tracks_(std::max<uint64_t>(1, disk.disk_bytes / disk.track_bytes)) {
    std::mt19937_64 random(seed);
    phase_ns_ = static_cast<int64_t>(random() % static_cast<uint64_t>(disk.rotation_ns));
    head_ = random() % tracks_ * disk.track_bytes;
  }

  void Submit(int64_t now_ns, const Request& request) override {
    Serve(now_ns);
    waiting_.push_back({request, kNotSeen});
    Begin(now_ns);
  }
  std::optional<int64_t> NextEnd() const override {
    if (!ended_.empty()) return last_end_ns_;
    if (!busy_) return std::nullopt;
    return free_ns_;
  }
  std::vector<uint64_t> TakeEnded(int64_t now_ns) override {
    Serve(now_ns);
    return std::exchange(ended_, {});
  }

 private:
  struct Waiting {
    Request request;
    int64_t seen_ns;  // since when it has been among those that the disk chooses from
  };
  // When a request ends if it is served now, and whether it only goes on with what is read ahead.
  struct Way {
    int64_t end_ns = 0;
    bool buffered = false;
  };

  // Ends what has ended by now, and begins what follows it.
  void Serve(int64_t now_ns) {
    while (busy_ && free_ns_ <= now_ns) {
      busy_ = false;
      End(serving_, free_ns_);
      Begin(free_ns_);
    }
  }

  void End(uint64_t id, int64_t end_ns) {
    ended_.push_back(id);
    last_end_ns_ = end_ns;
  }

  // Begins the next request, if the disk is free and one waits. A flush is the next only when it is
  // the oldest, and none that came after it is served before.
  void Begin(int64_t now_ns) {
    while (!busy_ && !waiting_.empty()) {
      if (waiting_.front().request.call == Call::kFlush) {
        End(waiting_.front().request.id, now_ns);
        waiting_.pop_front();
        continue;
      }
      size_t best = 0;
      Way best_way;
      for (size_t i = 0; i < std::min<size_t>(disk_.queue, waiting_.size()); ++i) {
        if (waiting_[i].request.call == Call::kFlush) break;
        if (waiting_[i].seen_ns == kNotSeen) waiting_[i].seen_ns = now_ns;
        const Way way = WayTo(now_ns, waiting_[i].request);
        if (i == 0 || way.end_ns < best_way.end_ns) best = i, best_way = way;
        if (i == 0 && now_ns - waiting_[0].seen_ns > disk_.patience_ns) break;
      }
      const Request request = waiting_[best].request;
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(best));
      const uint64_t end = request.offset + request.bytes;
      ahead_ = request.call == Call::kRead ? end : kNoOffset;
      if (!best_way.buffered) {
        ahead_from_ = end;
        ahead_from_ns_ = best_way.end_ns;
      } else if (ahead_from_ + Passed(now_ns - ahead_from_ns_) > end + disk_.look_ahead) {
        // The buffer was full: the head goes on from its end, which it meets again later.
        ahead_from_ = end + disk_.look_ahead;
        ahead_from_ns_ = best_way.end_ns + disk_.rotation_ns / 2;
      }
      head_ = end;
      serving_ = request.id;
      busy_ = true;
      free_ns_ = best_way.end_ns;
    }
  }

  Way WayTo(int64_t now_ns, const Request& request) const {
    const int64_t transfer = Pass(request.bytes);
    if (request.call == Call::kRead && ahead_ == request.offset) {
      // The head has gone on reading since `ahead_from_ns_`.
      const uint64_t end = request.offset + request.bytes;
      const int64_t passed_ns = end > ahead_from_ ? ahead_from_ns_ + Pass(end - ahead_from_) : now_ns;
      return {std::max(now_ns, passed_ns) + disk_.overhead_ns, true};
    }
    const uint64_t from = head_ / disk_.track_bytes, to = request.offset / disk_.track_bytes;
    const uint64_t distance = from > to ? from - to : to - from;
    const int64_t seek =
        distance == 0 ? 0
                      : disk_.settle_ns + static_cast<int64_t>(
                                              static_cast<double>(disk_.full_seek_ns - disk_.settle_ns) *
                                              std::sqrt(static_cast<double>(distance) / static_cast<double>(tracks_)));
    const int64_t there_ns = now_ns + disk_.overhead_ns + seek;
    // A track begins later than the one before it by the time of the move between them.
    const int64_t at = (Pass(request.offset % disk_.track_bytes) +
                        static_cast<int64_t>(to % kSkewed) * disk_.settle_ns) % disk_.rotation_ns;
    const int64_t now_at = (there_ns + phase_ns_) % disk_.rotation_ns;
    const int64_t wait = (at - now_at + disk_.rotation_ns) % disk_.rotation_ns;
    return {there_ns + wait + transfer, false};
  }

  // Returns the time in which the bytes pass under the head, and the bytes that pass in a time.
  int64_t Pass(uint64_t bytes) const {
    return static_cast<int64_t>(static_cast<double>(bytes) / static_cast<double>(disk_.track_bytes) *
                                static_cast<double>(disk_.rotation_ns));
  }
  uint64_t Passed(int64_t ns) const {
    return ns <= 0 ? 0
                   : static_cast<uint64_t>(static_cast<double>(ns) / static_cast<double>(disk_.rotation_ns) *
                                           static_cast<double>(disk_.track_bytes));
  }

  static constexpr int64_t kNotSeen = std::numeric_limits<int64_t>::min();
  static constexpr uint64_t kNoOffset = std::numeric_limits<uint64_t>::max();
  static constexpr uint64_t kSkewed = 1u << 20;  // keeps the product small

  const RotatingDisk disk_;
  const uint64_t tracks_;
  int64_t phase_ns_ = 0;
  uint64_t head_ = 0;  // the byte after the last one served
  // The end of the last read, if the head reads on from `ahead_from_`, which it passed at
  // `ahead_from_ns_`.
  uint64_t ahead_ = kNoOffset;
  uint64_t ahead_from_ = 0;
  int64_t ahead_from_ns_ = 0;

  std::deque<Waiting> waiting_;
  bool busy_ = false;
  uint64_t serving_ = 0;
  int64_t free_ns_ = 0;      // when `serving_` ends
  int64_t last_end_ns_ = 0;  // of `ended_`
  std::vector<uint64_t> ended_;
};

}  // namespace

std::unique_ptr<Model> MakeModel(const FixedDisk& disk) { return std::make_unique<Fixed>(disk); }
std::unique_ptr<Model> MakeModel(const RotatingDisk& disk, uint64_t seed) {
  return std::make_unique<Rotating>(disk, seed);
}
std::unique_ptr<Model> MakeModel(const FlashDisk& disk) { return std::make_unique<Flash>(disk); }

}  // namespace salius::disk
