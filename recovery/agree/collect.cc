#include "recovery/agree/collect.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/deadline.h"

namespace salius::recovery {
namespace {

constexpr absl::Duration kPause = absl::Milliseconds(200);  // after a stream without a record
constexpr uint64_t kBytesPerSecond = uint64_t{4} << 20;  // the slowest replica that is waited for
constexpr uint64_t kMostSeconds = 24 * 3600;             // for any number of bytes
constexpr auto kProgressEvery = std::chrono::milliseconds(100);
constexpr uint64_t kLeastPieceBytes = uint64_t{16} << 20;  // of few large records
constexpr size_t kPiecesPerReplica = 4;  // so that a slow replica delays the others little
// Wait for the last pieces, beside the time that all pieces took.
constexpr auto kGrace = std::chrono::seconds(1);
const std::atomic<bool> kGoOn = false;

bool Holds(const CollectRequest& request, const Peer& peer) {
  return peer.answer.has_value() && !peer.refused && peer.answer->inventory.known &&
         peer.answer->inventory.epoch == request.epoch;
}

// The records in (after, last].
struct Piece {
  Seq after = 0;
  Seq last = 0;
};

// Fetches from one replica.
class PeerFetch {
 public:
  // `arrived` counts the records that came. Once `enough` is true no more are wanted.
  PeerFetch(const CollectRequest& request, Peer* peer, Collected* out,
            const std::function<void(uint64_t)>& arrived, const std::atomic<bool>& enough)
      : request_(request), peer_(peer), out_(out), arrived_(arrived), enough_(enough) {}

  // Fetches the records of `piece` that `coverage` lacks and the peer may hold. It ends when none
  // is missing, when the peer is given up, or when `enough` is true. When none was missing nothing
  // changes, else out->status gives the result.
  void Run(const Piece& piece, Coverage* coverage) {
    const Inventory& inventory = peer_->answer->inventory;
    const Seq last = std::min(piece.last, inventory.highest);
    const std::optional<Seq> first = coverage->FirstMissing(piece.after, last);
    if (!first.has_value()) return;
    coverage_ = coverage;
    enough_at_ = *coverage->LastMissing(piece.after, last);
    after_ = *first - 1;
    const uint64_t timeout_ms =
        request_.timeout_ms + std::min(inventory.bytes / kBytesPerSecond, kMostSeconds) * 1000;
    int idle = 0;
    while (true) {
      const Seq before = after_;
      out_->status = OneStream(timeout_ms);
      if (out_->status.ok()) return;
      idle = after_ > before ? 0 : idle + 1;  // R35
      if (enough_ || idle >= request_.attempts || absl::IsDataLoss(out_->status)) return;
      if (idle > 0) absl::SleepFor(kPause);
    }
  }

 private:
  absl::Status OneStream(uint64_t timeout_ms) {
    uint64_t expected = 0;
    uint64_t received = 0;
    bool cut_short = false;
    const absl::Status status = peer_->client->Fetch(
        request_.volume, request_.epoch, after_, timeout_ms,
        [&](uint64_t count, Incarnation incarnation) {
          expected = count;
          if (incarnation == peer_->answer->incarnation) return absl::OkStatus();  // R38
          return absl::DataLossError(absl::StrFormat(
              "replica %s: lost its memory since it was asked what it holds", peer_->address));
        },
        [&](std::string chunk) -> absl::Status {
          const absl::Status taken = Take(std::move(chunk), &received);
          if (!taken.ok()) return taken;
          if (after_ < enough_at_ && !enough_) return absl::OkStatus();
          cut_short = true;
          return absl::CancelledError("enough");
        });
    if (cut_short && after_ < enough_at_) return absl::CancelledError("not waited for any longer");
    if (!status.ok() || cut_short) return status;
    if (received < expected) {  // R35
      return absl::UnavailableError(
          absl::StrFormat("replica %s: the stream ended after %d of %d records", peer_->address,
                          received, expected));
    }
    return absl::OkStatus();
  }

  absl::Status Take(std::string chunk, uint64_t* received) {
    RecordSet set;
    absl::Status added = set.Add(std::move(chunk));
    if (!added.ok()) {  // R37
      return absl::DataLossError(
          absl::StrFormat("replica %s: %s", peer_->address, added.message()));
    }
    bool news = false;
    for (const RecordView& record : set.views()) {
      if (record.header.epoch != request_.epoch || record.seq() <= after_) {  // R37
        return absl::DataLossError(
            absl::StrFormat("replica %s: record %d of epoch %d was not asked for", peer_->address,
                            record.seq(), record.header.epoch));
      }
      after_ = record.seq();
      news = coverage_->Add(record.seq()) || news;
    }
    const uint64_t count = set.views().size();
    *received += count;
    // Records that are already known are dropped, so that memory is bounded by the log.
    if (news) out_->records.Append(std::move(set));
    arrived_(count);
    return absl::OkStatus();
  }

  const CollectRequest& request_;
  Peer* peer_;
  Collected* out_;
  const std::function<void(uint64_t)>& arrived_;
  const std::atomic<bool>& enough_;
  Coverage* coverage_ = nullptr;
  Seq after_ = 0;
  Seq enough_at_ = 0;
};

class Collection {
 public:
  Collection(const CollectRequest& request, std::vector<Peer>* peers,
             const std::function<void(uint64_t, uint64_t)>& on_records, Coverage* coverage,
             std::vector<Collected>* collected)
      : request_(request),
        peers_(*peers),
        on_records_(on_records),
        coverage_(*coverage),
        collected_(*collected) {
    for (size_t i = 0; i < peers_.size(); ++i) {
      if (Holds(request_, peers_[i])) holders_.push_back(i);
    }
    const auto fullness = [this](size_t i) {
      const Inventory& inventory = InventoryOf(i);
      return std::make_pair(inventory.contiguous, inventory.records);
    };
    std::stable_sort(holders_.begin(), holders_.end(),
                     [&](size_t a, size_t b) { return fullness(a) > fullness(b); });
    Seq highest = request_.checkpoint;
    for (const size_t i : holders_) highest = std::max(highest, InventoryOf(i).highest);
    if (const auto first = coverage_.FirstMissing(request_.checkpoint, highest)) {
      total_ = *coverage_.LastMissing(request_.checkpoint, highest) - *first + 1;
    }
  }

  // R34: asks several replicas at once, each for other pieces, when there is enough to share.
  void Share() {
    // A replica that holds less than half of the fullest would leave most pieces to the others.
    std::vector<size_t> sharers;
    Seq upto = 0;
    for (const size_t i : holders_) {
      const Inventory& inventory = InventoryOf(i);
      const Seq contiguous = inventory.contiguous;
      // A replica holds nothing below its base.
      if (contiguous <= request_.checkpoint || inventory.base > request_.checkpoint + 1) continue;
      if (!sharers.empty() && contiguous - request_.checkpoint <
                                  (InventoryOf(sharers[0]).contiguous - request_.checkpoint) / 2) {
        continue;
      }
      sharers.push_back(i);
      upto = contiguous;  // the least so far: they come in this order
    }
    if (sharers.size() < 2) return;
    pieces_ = Pieces(upto, sharers.size());
    if (pieces_.size() < 2) return;
    sharers.resize(std::min(sharers.size(), pieces_.size()));
    if (request_.one_thread) {
      InTurn(sharers);
    } else {
      AtOnce(sharers);
    }
    for (const size_t i : sharers) {
      for (const RecordView& record : collected_[i].records.views()) coverage_.Add(record.seq());
    }
  }

  // R33, R39: asks one replica after the other for missing records that it holds: the fullest
  // first, and those that failed or were too slow last.
  absl::Status FillIn(const std::function<absl::Status()>& on_peer) {
    std::stable_partition(holders_.begin(), holders_.end(),
                          [this](size_t i) { return collected_[i].status.ok(); });
    std::vector<Piece> ranges = pieces_;
    const Seq upto = ranges.empty() ? request_.checkpoint : ranges.back().last;
    ranges.push_back({upto, std::numeric_limits<Seq>::max()});
    for (const size_t i : holders_) {
      absl::Status failed;
      for (const Piece& range : ranges) {
        collected_[i].status = absl::OkStatus();
        Fetch(
            i, range, &coverage_,
            [this](uint64_t count) {
              arrived_ += count;
              on_records_(arrived_, total_);
            },
            kGoOn);
        failed.Update(collected_[i].status);
        // A replica with damage in one range may be right in another.
        if (!collected_[i].status.ok() && !absl::IsDataLoss(collected_[i].status)) break;
      }
      collected_[i].status = failed;
      if (absl::Status status = on_peer(); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

 private:
  const Inventory& InventoryOf(size_t peer) const { return peers_[peer].answer->inventory; }

  void Fetch(size_t peer, const Piece& piece, Coverage* coverage,
             const std::function<void(uint64_t)>& arrived, const std::atomic<bool>& enough) {
    PeerFetch(request_, &peers_[peer], &collected_[peer], arrived, enough).Run(piece, coverage);
  }

  // Returns the missing records up to `upto`, in pieces.
  std::vector<Piece> Pieces(Seq upto, size_t sharers) const {
    std::vector<Piece> pieces;
    const auto first = coverage_.FirstMissing(request_.checkpoint, upto);
    if (!first.has_value()) return pieces;
    const Seq last = *coverage_.LastMissing(request_.checkpoint, upto);
    const Inventory& fullest = InventoryOf(holders_.front());
    const uint64_t each = fullest.bytes / std::max<uint64_t>(fullest.records, 1);
    const uint64_t least =
        std::min(request_.least_piece, kLeastPieceBytes / std::max<uint64_t>(each, 1) + 1);
    const uint64_t length = std::max(least, (last - *first) / (sharers * kPiecesPerReplica) + 1);
    for (Seq after = *first - 1; after < last;) {
      const Seq end = last - after <= length ? last : after + length;
      pieces.push_back({after, end});
      after = end;
    }
    return pieces;
  }

  void InTurn(std::vector<size_t> sharers) {
    for (size_t turn = 0; next_ < pieces_.size() && !sharers.empty(); ++turn) {
      const auto sharer = sharers.begin() + static_cast<std::ptrdiff_t>(turn % sharers.size());
      Coverage mine = coverage_;
      Fetch(
          *sharer, pieces_[next_++], &mine, [this](uint64_t count) { arrived_ += count; }, kGoOn);
      if (!collected_[*sharer].status.ok()) sharers.erase(sharer);
      on_records_(arrived_, total_);
    }
  }

  void AtOnce(const std::vector<size_t>& sharers) {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<bool> running(peers_.size(), false);
    for (const size_t peer : sharers) running[peer] = true;
    size_t left = sharers.size();
    std::atomic<bool> enough = false;
    const auto work = [&](size_t peer) {
      Coverage mine = coverage_;
      while (collected_[peer].status.ok()) {
        const size_t piece = next_++;
        if (piece >= pieces_.size()) break;
        Fetch(
            peer, pieces_[piece], &mine, [this](uint64_t count) { arrived_ += count; }, enough);
      }
      const std::lock_guard lock(mutex);
      running[peer] = false;
      --left;
      changed.notify_all();
    };
    Clock& clock = SystemClock();
    const int64_t began_ns = clock.MonotonicNanos();
    std::optional<Deadline> until;
    std::vector<std::thread> threads;
    threads.reserve(sharers.size());
    for (const size_t peer : sharers) threads.emplace_back(work, peer);
    for (bool finished = false; !finished;) {
      {
        std::unique_lock lock(mutex);
        finished = changed.wait_for(lock, kProgressEvery, [&] { return left == 0; });
        // R36: a replica that stalls is not waited for: the others hold its records too.
        if (!until.has_value() && left < sharers.size() && next_ >= pieces_.size()) {
          const std::chrono::nanoseconds taken(clock.MonotonicNanos() - began_ns);
          until = Deadline::After(clock, taken + kGrace);
        }
        if (!finished && until.has_value() && until->Expired(clock)) {
          enough = true;
          for (const size_t peer : sharers) {
            if (running[peer]) peers_[peer].client->CancelCall();
          }
        }
      }
      on_records_(arrived_, total_);
    }
    for (std::thread& thread : threads) thread.join();
  }

  const CollectRequest& request_;
  std::vector<Peer>& peers_;
  const std::function<void(uint64_t, uint64_t)>& on_records_;
  Coverage& coverage_;
  std::vector<Collected>& collected_;
  std::vector<size_t> holders_;  // of records of the epoch, the fullest first
  std::vector<Piece> pieces_;
  std::atomic<size_t> next_ = 0;       // of the pieces
  std::atomic<uint64_t> arrived_ = 0;  // records
  uint64_t total_ = 0;                 // that are missing, at most
};

}  // namespace

absl::Status CollectAll(const CollectRequest& request, std::vector<Peer>* peers,
                        const std::function<void(uint64_t, uint64_t)>& on_records,
                        const std::function<absl::Status()>& on_peer, Coverage* coverage,
                        std::vector<Collected>* collected) {
  collected->clear();
  collected->resize(peers->size());
  Collection collection(request, peers, on_records, coverage, collected);
  collection.Share();
  if (absl::Status status = collection.FillIn(on_peer); !status.ok()) return status;
  for (size_t i = 0; i < peers->size(); ++i) {
    Collected& mine = (*collected)[i];
    if (!Holds(request, (*peers)[i])) {
      mine.complete = true;
      continue;
    }
    const Inventory& inventory = (*peers)[i].answer->inventory;
    const Seq before = std::max(request.checkpoint, std::max<Seq>(inventory.base, 1) - 1);
    // Beyond its first gap it has not named the seqs that it holds; it brought those that it holds.
    // A replica that names a contiguous seq above its highest contradicts itself: both must be
    // here.
    const Seq highest = std::max(inventory.contiguous, inventory.highest);
    const Seq upto = mine.status.ok() ? inventory.contiguous : highest;  // R39
    mine.complete = !coverage->FirstMissing(before, upto).has_value();
    if (mine.status.ok() && !mine.complete) {  // R40
      mine.status = absl::DataLossError(
          absl::StrFormat("replica %s: brought less than it said it holds", (*peers)[i].address));
    }
  }
  return absl::OkStatus();
}

}  // namespace salius::recovery
