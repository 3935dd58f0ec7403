#include "recovery/agree/fence.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/clock.h"
#include "common/deadline.h"

namespace salius::recovery {
namespace {

constexpr std::chrono::milliseconds kPause{100};  // between two attempts

// One FenceAll. `mutex` guards `stop`, `running` and the peers' results. It is no absl::Mutex
// because timed waits of the distribution's Abseil use the wall clock, which may be set back.
struct Run {
  const VolumeState& state;
  const FenceRequest& request;
  std::mutex mutex = {};
  std::condition_variable changed = {};  // stop, running
  bool stop = false;
  size_t running = 0;
};

absl::Status CheckEpochs(const Answer& answer, Epoch fence_epoch) {
  const Epoch named = std::max(answer.inventory.epoch, answer.inventory.promised_epoch);
  if (named <= fence_epoch || named - fence_epoch <= kFarthestEpoch) return absl::OkStatus();
  // R32
  return absl::DataLossError(absl::StrFormat("replica %s: names epoch %d, to which no volume comes",
                                             answer.address, named));
}

bool WorthAnotherTry(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

// Writes the result into `peer`; returns true when it answered.
bool AskOnce(Run* run, Peer* peer) {
  const VolumeId& volume = run->state.volume;
  absl::Status error;
  std::optional<Answer> answer;
  bool refused = false;
  if (run->request.ask_only) {
    absl::StatusOr<Answer> asked = peer->client->Ask(volume, run->request.rpc_timeout_ms);
    error = asked.status();
    if (asked.ok()) answer = *std::move(asked);
  } else {
    absl::StatusOr<ReplicaClient::FenceResult> fenced = peer->client->Fence(
        volume, run->request.epoch, run->request.token, run->request.rpc_timeout_ms);
    error = fenced.status();
    if (fenced.ok()) {
      refused = !fenced->accepted;
      answer = std::move(fenced->answer);
    }
  }
  if (answer.has_value()) error = CheckEpochs(*answer, run->request.epoch);
  if (!error.ok()) {
    answer.reset();
    refused = false;
  }
  const std::lock_guard lock(run->mutex);
  peer->error = std::move(error);
  peer->answer = std::move(answer);
  peer->refused = refused;
  return peer->answer.has_value();
}

void AskUntilAnswered(Run* run, Peer* peer, bool again) {
  while (!AskOnce(run, peer) && again) {  // R28
    std::unique_lock lock(run->mutex);
    if (!WorthAnotherTry(peer->error)) break;
    if (run->changed.wait_for(lock, kPause, [run] { return run->stop; })) break;
  }
  const std::lock_guard lock(run->mutex);
  --run->running;
  run->changed.notify_all();
}

}  // namespace

std::vector<Peer> MakePeers(const VolumeState& state, absl::Span<const std::string> configured,
                            ReplicaConnector& connector) {
  std::vector<std::string> addresses;
  const auto add = [&addresses](const std::string& address) {
    if (std::find(addresses.begin(), addresses.end(), address) == addresses.end()) {
      addresses.push_back(address);
    }
  };
  for (const Member& member : state.members) add(member.address);
  for (const std::string& address : configured) add(address);
  std::vector<Peer> peers(addresses.size());
  for (size_t i = 0; i < addresses.size(); ++i) {
    peers[i].client = connector.Connect(addresses[i]);
    peers[i].address = std::move(addresses[i]);
    peers[i].error = absl::UnavailableError("not asked");
  }
  return peers;
}

std::vector<Answer> AnswersOf(absl::Span<const Peer> peers) {
  std::vector<Answer> answers;
  for (const Peer& peer : peers) {
    if (peer.answer.has_value() && !peer.refused) answers.push_back(*peer.answer);
  }
  return answers;
}

void FenceAll(const VolumeState& state, const FenceRequest& request,
              const std::function<void(uint64_t)>& on_answers, std::vector<Peer>* peers) {
  const bool needed = QuorumNeeded(state) > 0;
  Run run{state, request};
  run.running = peers->size();
  if (request.one_thread) {
    uint64_t answers = 0;
    for (Peer& peer : *peers) answers += AskOnce(&run, &peer) ? 1 : 0;
    on_answers(answers);
    return;
  }
  std::vector<std::thread> threads;
  threads.reserve(peers->size());
  for (Peer& peer : *peers) {
    threads.emplace_back(AskUntilAnswered, &run, &peer, needed);  // R29: once if none is needed
  }
  Clock& clock = SystemClock();
  Deadline until = Deadline::After(clock, std::chrono::milliseconds(request.total_timeout_ms));
  bool enough = false;
  while (true) {
    uint64_t answers = 0;
    bool finished = false;
    {
      std::unique_lock lock(run.mutex);
      for (const Peer& peer : *peers) answers += peer.answer.has_value() ? 1 : 0;
      if (needed && !enough && CountQuorum(state, AnswersOf(*peers)).enough()) {
        enough = true;
        // R28
        until =
            std::min(until, Deadline::After(clock, std::chrono::milliseconds(request.grace_ms)));
      }
      const std::chrono::nanoseconds left(until.RemainingNs(clock));
      finished = run.running == 0 || left.count() == 0;
      if (!finished) {
        const size_t running = run.running;
        run.changed.wait_for(lock, left, [&] { return run.running != running; });
      }
    }
    on_answers(answers);
    if (finished) break;
  }
  {
    const std::lock_guard lock(run.mutex);
    run.stop = true;
    run.changed.notify_all();
    for (Peer& peer : *peers) {
      if (!peer.answer.has_value()) peer.client->Cancel();
    }
  }
  for (std::thread& thread : threads) thread.join();
}

absl::Status CheckRefusals(absl::Span<const Peer> peers, Epoch fence_epoch) {
  for (const Peer& peer : peers) {
    if (!peer.refused) continue;
    const Inventory& inventory = peer.answer->inventory;
    if (inventory.epoch >= fence_epoch || inventory.promised_epoch > fence_epoch) {  // R31
      return absl::DataLossError(absl::StrFormat(
          "replica %s knows epoch %d, later than this disk's (recovery would use %d); the disk may "
          "have been restored from an older snapshot",
          peer.address, std::max(inventory.epoch, inventory.promised_epoch), fence_epoch));
    }
    // R30
    return absl::FailedPreconditionError(absl::StrFormat(
        "replica %s has promised epoch %d to another recovery of this volume; if that one ran on "
        "another copy of this disk, the volume may live on there",
        peer.address, inventory.promised_epoch));
  }
  return absl::OkStatus();
}

}  // namespace salius::recovery
