// The processes of a volume with commit=external: outputs of those inside, and looks of those
// outside. The state that an output or an answer shows must outlive every crash (I9). And the calls
// of programs on a volume with commit=ordered.
#include "client/gate/rule.h"
#include "tests/sim/volume_sim.h"

namespace salius::sim {

bool VolumeSim::Waited(Seq seq, const char* by) {
  if (seq == 0) return true;
  Count(by);
  return stream_->WaitDurable(seq).ok() && !doom_.dead();
}

// A program prints something that depends on all that any gated process has done so far.
void VolumeSim::Output() {
  const Seq shown = log_.records.size();
  if (Waited(page_.AwaitedByOutput(), "output waited")) Acknowledge(shown, "an output", "I9");
}

// The answer is made first, from memory, and is then sent or kept back.
void VolumeSim::Look(bool inside) {
  switch (outside_.Below(4)) {
    case 0:
      CheckLookup();
      break;
    case 1:
      CheckListing();
      break;
    case 2:
      CheckContent();
      break;
    default:
      CheckXattrs();
      break;
  }
  if (!Alive() || Failed()) return;
  const Seq shown = log_.records.size();
  const bool sent =
      Waited(gate::AnswerWaitsFor(page_, {.inside = inside}), "look from outside waited");
  if (sent && !inside) Acknowledge(shown, "a look from outside", "I9");
}

// As Front::CheckEarly before each sync.
void VolumeSim::SyncFromOutside() {
  if (open_.empty()) return;
  const OpenFile& file = open_[outside_.Below(open_.size())];
  if (!gate::ReturnsEarly(/*inside=*/false, /*mapped=*/false)) file.handle->early.store(false);
  const bool kept = file.handle->early.load();
  Sync(*file.handle, file.id);
  // It has no gate: for this caller a return means that the file is durable.
  if (kept && Alive() && !Failed() && model_.IsNamed(file.id) && last_.contains(file.id)) {
    Acknowledge(last_[file.id], "fsync after an exec", "I9");
  }
}

void VolumeSim::ActOutside() {
  const uint64_t drawn = outside_.Below(16);
  if (drawn == 0) return Output();
  if (drawn == 1) return Look(/*inside=*/false);
  if (drawn == 2) return Look(/*inside=*/true);
  if (drawn == 3) return SyncFromOutside();
  if (drawn < 8 && !open_.empty()) {  // a program asks for early return
    open_[outside_.Below(open_.size())].handle->early.store(
        gate::ReturnsEarly(/*inside=*/true, /*mapped=*/false));
  }
}

void VolumeSim::ActOrdered() {
  const uint64_t drawn = outside_.Below(16);
  if (drawn > 1 || open_.empty()) return;
  const OpenFile& file = open_[outside_.Below(open_.size())];
  if (drawn == 0) {
    if (!volume_->files().Osync().ok() && !Failed()) Break("I2: osync fails");
    return;
  }
  const absl::StatusOr<Ticket> ticket = volume_->files().StartDsync(*file.handle);
  const absl::Status synced = ticket.ok() ? volume_->files().Await(*ticket) : ticket.status();
  if (doom_.dead() || Failed()) return;
  if (!synced.ok()) return Break("I1: dsync fails");
  Count("dsync under ordered");
  if (model_.IsNamed(file.id) && last_.contains(file.id)) Acknowledge(last_[file.id], "dsync");
}

}  // namespace salius::sim
