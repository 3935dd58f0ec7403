// The record stream under a simulated volume: no threads, no network. Which records become durable,
// which are applied and when the disk is synced is drawn, between the volume's calls and inside
// them. It keeps the rules of RecordStream: the sink gets records in order, and only durable ones.
// Records in lanes are applied in a drawn order.
//
// Threads: one thread uses the volume. A thread of the volume's own may ask for the watermarks. It
// gets a checkpoint of 0 and finds nothing to do, like a thread that is always late. So every event
// is the seed's.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/gate/page.h"
#include "client/session/applied_order.h"
#include "client/session/record_stream.h"
#include "common/ids.h"
#include "common/random.h"
#include "tests/unit/volume/queue_workers.h"

namespace salius::sim {

// Counts the moments at which the process may die. At the drawn one it dies: from then on nothing
// that the volume does has an effect.
class Doom {
 public:
  // Lets the process die at the nth moment from now on; 0: it does not.
  void DieAfter(uint64_t n) {
    left_ = n;
    dead_ = false;
  }
  bool dead() const { return dead_; }
  // Returns what the process was doing when it died.
  const char* during() const { return during_; }
  // Passes a moment. Returns whether the process is alive.
  bool Passes(const char* during) {
    if (dead_) return false;
    if (left_ == 0 || --left_ > 0) return true;
    dead_ = true;
    during_ = during;
    return false;
  }

 private:
  uint64_t left_ = 0;
  bool dead_ = false;
  const char* during_ = "";
};

// The records of a session's stream, and its watermarks. It outlives the process.
struct StreamLog {
  std::vector<RecordRef> records;  // all that were stamped
  Seq durable = 0, applied = 0, checkpoint = 0;
  Seq mark = 0;  // the applied mark, for a recovery in the same life
};

struct StreamChances {
  double durable = 0.2;      // per step, and per record: records become durable
  double apply = 0.2;        // per step, and per record: durable records are applied
  double checkpoint = 0.01;  // per step: the disk is synced
  double brief = 0.3;        // per brief wait: it ends without an apply
};

class VolumeStream final : public RecordStream {
 public:
  // `log` gets the records, and `page` the marks. Ids are handed out from `*next_id` on, which is moved.
  // `lanes` has the sink's work, and `lanes_random` draws its order.
  VolumeStream(ApplySink& sink, Epoch epoch, StreamLog& log, FileId& next_id, Doom& doom,
               Random& random, const StreamChances& chances, gate::Page& page,
               QueueWorkers& lanes, Random& lanes_random)
      : sink_(sink),
        epoch_(epoch),
        log_(log),
        next_id_(next_id),
        doom_(doom),
        random_(random),
        chances_(chances),
        page_(page),
        lanes_(lanes),
        lanes_random_(lanes_random) {}

  // Lets other threads work for a moment.
  void Step();
  // Returns whether a record is being applied: for errors of the disk.
  bool applying() const { return applying_; }
  bool syncing() const { return syncing_; }

  absl::StatusOr<RecordRef> Issue(RecordDraft draft) override;
  absl::Status WaitDurable(Seq seq) override;
  void WhenDurable(Seq seq, DurableCallback done) override { std::move(done)(WaitDurable(seq)); }
  bool ManyWait() const override { return false; }
  absl::Status WaitApplied(Seq seq) override;
  absl::Status WaitAppliedFor(Seq seq, int64_t bound_ns) override;
  void TryApply() override;
  absl::Status Checkpoint() override;
  absl::Status SyncNow() override;
  absl::StatusOr<FileId> NewFileId() override;
  Watermarks watermarks() const override;
  int64_t oldest_uncheckpointed_ns() const override { return 0; }
  absl::Status health() const override { return failure_; }
  SessionStatus status() const override;
  absl::Status Stop() override { return Checkpoint(); }

 private:
  Seq issued() const { return log_.records.size(); }
  // Returns an error when the process is dead or the volume has failed.
  absl::Status Usable() const;
  void SomeBecomeDurable();
  void Publish() { page_.Store(issued(), log_.durable); }
  // Gives the records up to `seq` to the sink.
  absl::Status GiveTo(Seq seq);
  absl::Status ApplyTo(Seq seq);
  // Does a drawn piece of the sink's work. Returns false when there is none.
  bool WorkInLanes();
  // Moves `applied` to the end of the prefix that is applied.
  void Advance();

  ApplySink& sink_;
  const Epoch epoch_;
  StreamLog& log_;
  FileId& next_id_;
  Doom& doom_;
  Random& random_;
  const StreamChances chances_;
  gate::Page& page_;
  const std::thread::id user_ = std::this_thread::get_id();
  std::atomic<Seq> issued_{0};  // for other threads
  absl::Status failure_;
  bool applying_ = false, syncing_ = false;
  Seq taken_ = 0;            // the last record that the sink has
  Seq taken_by_volume_ = 0;  // also if the process died in it, before that was noted
  AppliedOrder order_;
  QueueWorkers& lanes_;
  Random& lanes_random_;
};

}  // namespace salius::sim
