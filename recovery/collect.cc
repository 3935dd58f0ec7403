#include "recovery/collect.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace salius::recovery {
namespace {

constexpr absl::Duration kPause = absl::Milliseconds(200);  // after a stream that brought nothing
constexpr uint64_t kBytesPerSecond = uint64_t{4} << 20;  // the slowest replica that is waited for

bool Holds(const CollectRequest& request, const Peer& peer) {
  return peer.answer.has_value() && !peer.refused && peer.answer->inventory.known &&
         peer.answer->inventory.epoch == request.epoch;
}

// One replica's part of the collection.
class PeerFetch {
 public:
  PeerFetch(const CollectRequest& request, Peer* peer, Coverage* coverage, Collected* out,
            const std::function<void(uint64_t, uint64_t)>& on_records)
      : request_(request), peer_(peer), coverage_(coverage), out_(out), on_records_(on_records) {}

  // Fetches until nothing that the peer may hold is missing, or it is given up.
  void Run() {
    const Inventory& inventory = peer_->answer->inventory;
    const std::optional<Seq> first =
        coverage_->FirstMissing(request_.checkpoint, inventory.highest);
    if (!first.has_value()) return;
    enough_at_ = *coverage_->LastMissing(request_.checkpoint, inventory.highest);
    after_ = *first - 1;
    total_ = inventory.records;
    const uint64_t timeout_ms = request_.timeout_ms + inventory.bytes * 1000 / kBytesPerSecond;
    int idle = 0;
    while (true) {
      const Seq before = after_;
      out_->status = OneStream(timeout_ms);
      if (out_->status.ok()) return;
      idle = after_ > before ? 0 : idle + 1;
      if (idle >= request_.attempts || absl::IsDataLoss(out_->status)) return;
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
        [&](uint64_t count) {
          expected = count;
          return absl::OkStatus();
        },
        [&](std::string chunk) -> absl::Status {
          const absl::Status taken = Take(std::move(chunk), &received);
          if (!taken.ok()) return taken;
          if (after_ < enough_at_) return absl::OkStatus();
          cut_short = true;
          return absl::CancelledError("enough");
        });
    if (!status.ok() || cut_short) return status;
    if (received < expected) {
      return absl::UnavailableError(
          absl::StrFormat("replica %s: the stream ended after %d of %d records", peer_->address,
                          received, expected));
    }
    return absl::OkStatus();
  }

  absl::Status Take(std::string chunk, uint64_t* received) {
    RecordSet set;
    absl::Status added = set.Add(std::move(chunk));
    if (!added.ok()) {
      return absl::DataLossError(
          absl::StrFormat("replica %s: %s", peer_->address, added.message()));
    }
    bool news = false;
    for (const RecordView& record : set.views()) {
      if (record.header.epoch != request_.epoch || record.seq() <= after_) {
        return absl::DataLossError(
            absl::StrFormat("replica %s: record %d of epoch %d was not asked for", peer_->address,
                            record.seq(), record.header.epoch));
      }
      after_ = record.seq();
      news = coverage_->Add(record.seq()) || news;
    }
    *received += set.views().size();
    // What is known already is dropped, so that memory is bounded by the log.
    if (news) out_->records.Append(std::move(set));
    on_records_(out_->records.views().size(), total_);
    return absl::OkStatus();
  }

  const CollectRequest& request_;
  Peer* peer_;
  Coverage* coverage_;
  Collected* out_;
  const std::function<void(uint64_t, uint64_t)>& on_records_;
  Seq after_ = 0;
  Seq enough_at_ = 0;
  uint64_t total_ = 0;
};

}  // namespace

absl::Status CollectAll(const CollectRequest& request, std::vector<Peer>* peers,
                        const std::function<void(uint64_t, uint64_t)>& on_records,
                        const std::function<absl::Status()>& on_peer, Coverage* coverage,
                        std::vector<Collected>* collected) {
  collected->clear();
  collected->resize(peers->size());
  std::vector<size_t> order;
  for (size_t i = 0; i < peers->size(); ++i) {
    if (Holds(request, (*peers)[i])) order.push_back(i);
  }
  const auto fullness = [&](size_t i) {
    const Inventory& inventory = (*peers)[i].answer->inventory;
    return std::make_pair(inventory.contiguous, inventory.records);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return fullness(a) > fullness(b); });
  for (const size_t i : order) {
    PeerFetch(request, &(*peers)[i], coverage, &(*collected)[i], on_records).Run();
    if (absl::Status status = on_peer(); !status.ok()) return status;
  }
  for (size_t i = 0; i < peers->size(); ++i) {
    Collected& mine = (*collected)[i];
    mine.complete =
        mine.status.ok() ||
        !coverage->FirstMissing(request.checkpoint, (*peers)[i].answer->inventory.highest)
             .has_value();
  }
  return absl::OkStatus();
}

}  // namespace salius::recovery
