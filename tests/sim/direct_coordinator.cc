#include "tests/sim/direct_coordinator.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/direct/process/acknowledged.h"
#include "client/direct/window/robust_lock.h"
#include "client/direct/window/system.h"
#include "client/direct/window/waits.h"
#include "common/check.h"
#include "common/host.h"
#include "transport/packer.h"

namespace salius::sim {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr uint32_t kDatagramBytes = 1472;

SessionTuning Tuning(FileId block, ForeignRecords* records) {
  SessionTuning tuning;
  tuning.file_id_block = block;
  tuning.foreign = records;
  return tuning;
}

absl::Span<const uint8_t> Bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace

DirectCoordinator::DirectCoordinator(DirectMachine& machine, DirectKernel& kernel, World& world,
                                     const VolumeConfig& config, const direct::SharedWindow& window,
                                     StateFile state, uint64_t session, FileId file_id_block)
    : machine_(machine),
      kernel_(kernel),
      world_(world),
      config_(config),
      window_(window),
      process_(machine.NewProcess()),
      session_(session),
      file_id_block_(file_id_block),
      state_(std::move(state)),
      records_(window),
      core_(config_, Tuning(file_id_block, &records_), machine.now()),
      round_(window, *this) {}

absl::Status DirectCoordinator::Begin() {
  StateNotes::Place place;
  SALIUS_ASSIGN_OR_RETURN(place.boot_id, BootId());
  const VolumeState first = StateNotes::First(state_.state(), place, config_.acks, file_id_block_);
  SALIUS_RETURN_IF_ERROR(state_.Write(first));
  core_.Begin(first, session_);
  for (size_t i = 0; i < config_.replicas.size(); ++i) {
    const SocketAddress address = DirectKernel::AddressOf(i);
    records_.SetAddress(i, &address);
    core_.paths()[i].SetRoute(kDatagramBytes, false);
  }
  machine_.Spawn(process_, [this] { Main(); });
  return absl::OkStatus();
}

// The first thread. It holds the life lock as long as the process lives.
void DirectCoordinator::Main() {
  SALIUS_CHECK(direct::TakeLock(window_.header().life) == direct::Taken::kYes);
  for (const auto loop : {&DirectCoordinator::PolicyLoop, &DirectCoordinator::SyncLoop,
                          &DirectCoordinator::NoteLoop}) {
    ++loops_;
    machine_.Spawn(process_, [this, loop] {
      (this->*loop)();
      --loops_;
    });
  }
  while (!may_drain_ || !may_drain_()) machine_.Sleep(5 * kMs);
  Drain();
  direct::GiveLock(window_.header().life);
}

void DirectCoordinator::PolicyLoop() {
  const direct::Acknowledged receiver(window_, DirectKernel::kSocketFd, /*cpus=*/1);
  while (!stopping_) {
    const int64_t now = machine_.now();
    direct::SleepUntilKicked(window_, round_.SleepNs(now, policy().NextTick(now), stripes_wanted_));
    const uint32_t trouble = direct::TakeTrouble(window_);
    if (!direct::PolicyRound::IsLed(window_, machine_.now())) {
      while (receiver.Receive(false) > 0) {
      }
    }
    machine_.running().doing = "the coordinator dies in a round";
    round_.Run(trouble);
    FeedNow(input::TimePassed{});
  }
}

void DirectCoordinator::SyncLoop() {
  while (!stopping_) {
    if (!std::exchange(sync_wanted_, false)) {
      machine_.Block(&sync_wanted_, 100 * kMs);
      continue;
    }
    machine_.running().doing = "the coordinator dies in a sync";
    const Seq before = window_.window().issued();
    const int error = kernel_.SyncFs();
    FeedNow(input::Synced{before, error == 0 ? absl::OkStatus() : absl::InternalError("EIO")});
    direct::Kick(window_, direct::kTroubleWaiting);
  }
}

void DirectCoordinator::NoteLoop() {
  while (!stopping_ || noting_) {
    if (!note_wanted_.has_value()) {
      machine_.Block(&note_wanted_, 100 * kMs);
      continue;
    }
    machine_.running().doing = "the coordinator dies in a note";
    const VolumeState note = *std::exchange(note_wanted_, std::nullopt);
    const int64_t time = world_.NoteTime();
    const int64_t before = world_.NoteTime() % (time + 1);
    machine_.Sleep(before);
    absl::Status status = absl::InternalError("EIO");
    if (!world_.NoteFails()) status = state_.Write(note);
    machine_.Sleep(time - before);
    noting_ = false;
    FeedNow(input::NoteWritten{status});
  }
}

void DirectCoordinator::DrainWhen(std::function<bool()> may_drain) {
  may_drain_ = std::move(may_drain);
}

void DirectCoordinator::Drain() {
  const uint64_t wanted = policy().syncs_begun() + 1;
  FeedNow(input::SyncWanted{});
  while (policy().failure().ok() &&
         (policy().clean_sync() < wanted || policy().checkpoint() != policy().issued())) {
    machine_.Sleep(kMs);
  }
  if (!policy().failure().ok()) return;
  stopping_ = true;
  FeedNow(input::Stopping{});
  while (loops_ > 0) machine_.Sleep(kMs);
  machine_.running().doing = "the coordinator dies while it drains";
  machine_.Sleep(world_.NoteTime());
  SALIUS_CHECK_OK(state_.Write(core_.ClosedNote()));
  machine_.Sleep(world_.NoteTime());
  records_.End();
  drained_ = true;
}

std::string DirectCoordinator::DrainState() const {
  return absl::StrCat("checkpoint ", policy().checkpoint(), " of ", policy().issued(), ", sync ",
                      policy().clean_sync(), " of ", policy().syncs_begun(), " is clean, ", loops_,
                      " threads run", stopping_ ? ", stopping" : "", noting_ ? ", noting" : "");
}

void DirectCoordinator::FeedNow(const Input& input) { Feed(INT64_MAX, input); }

void DirectCoordinator::Feed(int64_t now, const Input& input) {
  mu_.Lock();
  Work work;
  core_.Feed(std::min(now, machine_.now()), input, work);
  if (work.note) {
    SALIUS_CHECK(!note_wanted_.has_value());
    note_wanted_ = std::move(work.note);
    noting_ = true;
    machine_.Wake(&note_wanted_, 1);
  }
  if (work.start_sync) {
    sync_wanted_ = true;
    machine_.Wake(&sync_wanted_, 1);
  }
  stripes_wanted_ |= work.pass_stripes;
  CheckMode();
  mu_.Unlock();
  for (const SendJob& job : work.jobs) Send(job);
  for (const Replicator::OpenRequest& request : work.opens) Open(request);
}

// I10: the mode shown is the one that the processes see.
void DirectCoordinator::CheckMode() {
  const direct::Phase phase = window_.phase().phase();
  const std::string_view mode = core_.mode();
  if (dishonest_.empty() && (mode == "replicated") != (phase == direct::Phase::kReplicated)) {
    dishonest_ =
        absl::StrCat("mode ", std::string(mode), " is shown in phase ", static_cast<int>(phase));
  }
  if (std::exchange(mode_, mode) != mode) ++mode_changes_;
  world_.Changed(mode, phase);
}

void DirectCoordinator::Open(const Replicator::OpenRequest& request) {
  machine_.Spawn(process_, [this, request] {
    machine_.Sleep(world_.OpenTime());
    const absl::StatusOr<Opening> opened =
        world_.OpenAt(request.replica, epoch(), session_, request.base);
    machine_.Sleep(world_.OpenTime());
    if (opened.ok()) {
      mu_.Lock();
      core_.paths().SetCompact(static_cast<size_t>(request.replica), opened->compact_records);
      mu_.Unlock();
      FeedNow(input::Opened{request.replica, opened->incarnation, opened->store, request.base,
                            opened->free_bytes});
    } else {
      FeedNow(input::OpenFailed{request.replica, std::string(opened.status().message()),
                                absl::IsFailedPrecondition(opened.status())});
    }
  });
}

void DirectCoordinator::Send(const SendJob& job) {
  std::vector<RecordBytes> records;
  for (const RecordRef& record : job.records) {
    records.push_back(
        {record->seq(), {record->encoded_header(), kRecordHeaderBytes}, Bytes(record->body())});
  }
  Packer packer;
  for (size_t replica = 0; replica < config_.replicas.size(); ++replica) {
    if ((job.targets >> replica & 1) == 0) continue;
    packer.Pack(job.header, records, kDatagramBytes,
                (job.compact >> replica & 1) != 0 ? Packer::Coding::kCompact : Packer::Coding::kFull);
    for (size_t i = 0; i < packer.size(); ++i) {
      std::string datagram;
      for (const iovec& part : packer[i]) {
        datagram.append(static_cast<const char*>(part.iov_base), part.iov_len);
      }
      world_.SendToReplica(replica, std::move(datagram));
    }
  }
}

}  // namespace salius::sim
