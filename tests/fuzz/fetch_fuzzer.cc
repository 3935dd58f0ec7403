// Feeds any content to the decoders of recovery: answers and record streams from replicas, records
// of the stable log, decisions.
//
// The input is a small program. It writes each replica's answer and stream, and the members in the
// state. The fuzzer checks:
// - The quorum counts each noted memory at most once. Its replica answered for the epoch from the
//   checkpoint on, and brought all records that it reported.
// - Fewer than |members| - f + 1 members are never enough.
// - Collecting and merging return a Status.
// - Every merged record has the bytes of a replica's or the stable log's record.
// - A merge has one record for each seq from the checkpoint to T. T is not below a durable mark,
//   unless the merge is forced or has an upper limit.
// - The decision made from a merge is found again. A decision that differs is refused.
#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/limits.h"
#include "log/record.h"
#include "log/stable_log_format.h"
#include "log/state_file.h"
#include "recovery/agree/account.h"
#include "recovery/agree/collect.h"
#include "recovery/agree/fence.h"
#include "recovery/agree/merge.h"
#include "recovery/agree/quorum.h"
#include "recovery/agree/record_set.h"
#include "tests/fuzz/fuzz_util.h"

namespace salius::recovery {
namespace {

constexpr Epoch kEpoch = 5;

VolumeId TheVolume() {
  VolumeId volume;
  volume.bytes.fill(1);
  return volume;
}

uint64_t Number(ByteReader& in) {
  const uint8_t what = in.U8();
  if (what < 0xf0) return what % 32;
  return what % 2 == 0 ? UINT64_MAX - in.U8() % 4 : in.U64();
}

std::string Record(ByteReader& in) {
  const uint8_t what = in.U8();
  RecordHeader header;
  header.volume = TheVolume();
  header.epoch = kEpoch;
  header.seq = Number(in);
  if (what >= 0xe0) header.epoch = Number(in);
  if (what % 16 == 15) header.durable_mark = Number(in);
  if (what % 32 == 14) header.checkpoint_mark = Number(in);
  if (what == 0xdf) header.volume.bytes.fill(2);
  if (what == 0xde) header.arg0 = in.U8();  // one seq may have different records
  return EncodeRecord(header, std::string(header.seq % 16, 'b'));
}

// Returns records back to back, sometimes damaged or cut off. They are mostly in order: `next` is
// the seq that a correct sender would give.
std::string Chunk(ByteReader& in) {
  std::string chunk;
  const uint8_t what = in.U8();
  Seq next = in.U8() % 32;
  for (int i = what % 8; i > 0; --i) {
    if (what & 0x40) {
      chunk += Record(in);
    } else {
      RecordHeader header;
      header.volume = TheVolume();
      header.epoch = kEpoch;
      header.seq = next++;
      chunk += EncodeRecord(header, std::string(header.seq % 16, 'b'));
    }
  }
  if (what >= 0xf0 && !chunk.empty()) {
    chunk[in.U16() % chunk.size()] ^= static_cast<char>(in.U8());
  } else if (what >= 0xe0) {
    chunk.resize(in.U16() % (chunk.size() + 1));
  } else if (what >= 0xd0) {
    chunk = in.String(std::min<size_t>(in.U8(), in.remaining()));
  }
  return chunk;
}

void CheckAdd(const std::string& chunk) {
  RecordSet set;
  SALIUS_CHECK_OK(set.Add(""));
  const absl::Status added = set.Add(chunk);
  if (!added.ok()) {
    SALIUS_CHECK(set.empty() && set.bytes() == 0);
    return;
  }
  std::string all;
  for (const RecordView& view : set.views()) all += view.encoded();
  SALIUS_CHECK(all == chunk && set.bytes() == chunk.size());
}

// A replica that streams the given chunks, with a count that may be wrong.
class Streamer : public ReplicaClient {
 public:
  Streamer(FenceResult says, Incarnation memory, uint64_t count, std::vector<std::string> chunks)
      : says_(std::move(says)), memory_(memory), count_(count), chunks_(std::move(chunks)) {}

  absl::StatusOr<FenceResult> Fence(const VolumeId&, Epoch, uint64_t, uint64_t) override {
    return says_;
  }
  absl::StatusOr<Answer> Ask(const VolumeId&, uint64_t) override { return says_.answer; }
  absl::Status Fetch(const VolumeId&, Epoch, Seq, uint64_t,
                     const std::function<absl::Status(uint64_t, Incarnation)>& on_count,
                     const std::function<absl::Status(std::string)>& on_chunk) override {
    // Each call streams one chunk; the caller asks again for the rest.
    if (absl::Status status = on_count(count_, memory_); !status.ok()) return status;
    if (at_ < chunks_.size()) {
      const absl::Status status = on_chunk(chunks_[at_++]);
      if (!status.ok()) return absl::IsCancelled(status) ? absl::OkStatus() : status;
    }
    return absl::OkStatus();
  }
  absl::Status Drop(const VolumeId&, Epoch, uint64_t) override { return absl::OkStatus(); }
  void CancelCall() override {}
  void Cancel() override {}

 private:
  const FenceResult says_;
  const Incarnation memory_;  // the incarnation while it streams
  const uint64_t count_;
  const std::vector<std::string> chunks_;
  size_t at_ = 0;
};

Inventory Says(ByteReader& in) {
  Inventory inventory;
  inventory.known = true;
  inventory.epoch = kEpoch;
  const uint8_t what = in.U8();
  inventory.highest = what % 4 == 3 ? Number(in) : 32;
  inventory.contiguous = what % 8 == 2 ? Number(in) : 0;
  inventory.records = what % 8 == 5 ? Number(in) : 32;
  inventory.bytes = what % 16 == 6 ? Number(in) : 4096;
  if (what >= 0xc0) inventory.durable_mark = Number(in);
  if (what >= 0xe0) inventory.trimmed = Number(in);
  if (what >= 0xf0) inventory.promised_epoch = Number(in);
  if (what >= 0xf8) inventory.epoch = Number(in);
  return inventory;
}

void CheckMerge(const MergeInput& input, const std::vector<std::string_view>& known) {
  const auto merged = Merge(input);
  if (!merged.ok()) {
    SALIUS_CHECK(absl::IsDataLoss(merged.status()) || absl::IsInvalidArgument(merged.status()));
    SALIUS_CHECK(!input.force || absl::IsInvalidArgument(merged.status()) ||
                 absl::IsDataLoss(merged.status()));
    return;
  }
  Seq seq = input.checkpoint;
  std::string pinned;
  for (const RecordView* record : merged->records) {
    SALIUS_CHECK(record->seq() == ++seq && record->header.epoch == input.epoch);
    SALIUS_CHECK(std::find(known.begin(), known.end(), record->encoded()) != known.end());
    pinned += record->encoded();
  }
  SALIUS_CHECK(seq == merged->last);
  if (!input.force && !input.until.has_value()) SALIUS_CHECK(seq >= merged->durable_mark);
  if (input.until.has_value()) SALIUS_CHECK(seq <= *input.until);

  Decision decision{input.epoch, merged->last, input.checkpoint, merged->records.size(),
                    DigestOf(merged->records)};
  const auto read = stable::DecodeDecision(AsBytes(stable::EncodeDecision(decision)));
  SALIUS_CHECK_OK(read);
  RecordSet stable;
  SALIUS_CHECK_OK(stable.Add(pinned));
  const auto found = FindDecision(input.epoch, {*read, *read});
  SALIUS_CHECK_OK(found);
  SALIUS_CHECK(found->has_value() && **found == decision);
  const auto again = RecordsOfDecision(decision, stable.views());
  SALIUS_CHECK_OK(again);
  SALIUS_CHECK(again->size() == merged->records.size());
  // A decision that differs for the same records is refused.
  Decision other = decision;
  other.digest ^= 1;
  SALIUS_CHECK(!RecordsOfDecision(other, stable.views()).ok());
  SALIUS_CHECK(!FindDecision(input.epoch, {decision, other}).ok());
  if (decision.count > 0) {
    other = decision;
    --other.last;
    SALIUS_CHECK(!RecordsOfDecision(other, stable.views()).ok());
  }
}

// Returns a state whose members are peers, or look like them.
VolumeState State(ByteReader& in, const MergeInput& input, const std::vector<Peer>& peers) {
  VolumeState state;
  state.volume = TheVolume();
  state.open = true;
  state.epoch = kEpoch;
  state.mode = input.mode;
  state.checkpoint = input.checkpoint;
  for (int i = in.U8() % 5; i > 0; --i) {
    const uint8_t what = in.U8();
    Member member{"elsewhere", what / 4u % 4, what < 0xe0 ? 0 : Number(in)};
    if (what % 4 < peers.size()) member.address = peers[what % 4].address;
    state.members.push_back(member);
  }
  state.acks = 1 + in.U8() % kMaxReplicas;
  return state;
}

// Returns whether `answer` counts for `member`: it has the same incarnation and epoch, and both
// bases leave no gap behind the checkpoint.
bool Counts(const VolumeState& state, const Member& member, const Answer& answer) {
  const Inventory& inventory = answer.inventory;
  return answer.incarnation == member.incarnation && inventory.known &&
         inventory.epoch == state.epoch && member.base <= state.checkpoint + 1 &&
         inventory.base <= state.checkpoint + 1;
}

// Checks the quorum after the collection, or before it if `collected` is empty.
void CheckQuorum(const VolumeState& state, const std::vector<Peer>& peers,
                 const std::vector<Collected>& collected) {
  std::vector<Answer> answers;
  for (size_t i = 0; i < peers.size(); ++i) {
    const bool complete = collected.empty() || collected[i].complete;
    if (!peers[i].refused && complete) answers.push_back(*peers[i].answer);
  }
  std::map<Incarnation, int> noted;
  for (const Member& member : state.members) ++noted[member.incarnation];
  std::set<Incarnation> memories;
  size_t undisputed = 0;
  for (const Member& member : state.members) {
    const bool counts = std::any_of(answers.begin(), answers.end(), [&](const Answer& answer) {
      return Counts(state, member, answer);
    });
    if (!counts) continue;
    memories.insert(member.incarnation);
    if (noted[member.incarnation] == 1) ++undisputed;
  }
  const QuorumAccount account = AccountFor(state, peers, collected, {});
  const QuorumCount& count = account.count;
  SALIUS_CHECK(undisputed <= count.counted && count.counted <= memories.size());
  SALIUS_CHECK(count.counted + count.missing.size() == state.members.size());
  SALIUS_CHECK(count.enough() == account.text.empty());
  if (state.mode == Mode::kReplicated && count.enough()) {
    // At least one of the f members that hold a record is counted.
    SALIUS_CHECK(count.counted > 0 && count.counted + state.acks > state.members.size());
  }
  SALIUS_CHECK(account.replicas.size() == peers.size());
  for (size_t i = 0; i < peers.size(); ++i) {
    SALIUS_CHECK(!account.replicas[i].counted || memories.contains(peers[i].answer->incarnation));
  }
  // The order of the answers and repeated answers do not change the count.
  std::vector<Answer> again(answers.rbegin(), answers.rend());
  again.insert(again.end(), answers.begin(), answers.end());
  SALIUS_CHECK(CountQuorum(state, again).counted == count.counted);
}

// Checks that `coverage` contains all records that a complete replica reported without a gap. The
// replica or another source brought them.
void CheckComplete(const CollectRequest& request, const Inventory& inventory,
                   const Coverage& coverage) {
  constexpr Seq kMost = 200;  // there are fewer records
  if (!inventory.known || inventory.epoch != request.epoch) return;
  const Seq before = std::max(request.checkpoint, std::max<Seq>(inventory.base, 1) - 1);
  for (Seq i = 1; i <= kMost && before < inventory.contiguous; ++i) {
    if (i > inventory.contiguous - before) break;
    SALIUS_CHECK(coverage.Contains(before + i)) << before + i;
  }
}

// Checks that the fence accepts every answer but one with an epoch too far ahead. After such an
// epoch a forced recovery, or the sessions behind it, would run out of epochs.
void CheckFence(const VolumeState& state, const std::vector<Peer>& peers) {
  std::vector<Peer> asked(peers.size());
  for (size_t i = 0; i < peers.size(); ++i) {
    asked[i].address = peers[i].address;
    asked[i].client =
        std::make_unique<Streamer>(ReplicaClient::FenceResult{!peers[i].refused, *peers[i].answer},
                                   0, 0, std::vector<std::string>());
  }
  FenceRequest request{kEpoch + 1, 1};
  request.one_thread = true;
  FenceAll(
      state, request, [](uint64_t) {}, &asked);
  bool refused = false;
  for (size_t i = 0; i < peers.size(); ++i) {
    const Inventory& inventory = peers[i].answer->inventory;
    const Epoch named = std::max(inventory.epoch, inventory.promised_epoch);
    SALIUS_CHECK(asked[i].answer.has_value() == (named <= request.epoch + kFarthestEpoch));
    SALIUS_CHECK(asked[i].refused == (asked[i].answer.has_value() && peers[i].refused));
    SALIUS_CHECK(asked[i].answer.has_value() || absl::IsDataLoss(asked[i].error));
    refused = refused || asked[i].refused;
  }
  SALIUS_CHECK(CheckRefusals(asked, request.epoch).ok() == !refused);
}

void Fuzz(ByteReader& in) {
  const uint8_t what = in.U8();
  MergeInput input;
  input.volume = TheVolume();
  input.epoch = kEpoch;
  input.checkpoint = in.U8() % 8;
  input.mode = what & 1 ? Mode::kLocal : Mode::kReplicated;
  input.force = (what & 2) != 0;
  if (what & 4) input.until = Number(in);

  std::string log = Chunk(in);
  CheckAdd(log);
  RecordSet stable;
  stable.Add(std::move(log)).IgnoreError();
  input.stable = stable.views();

  std::vector<Peer> peers(in.U8() % 4);
  std::vector<std::pair<uint64_t, std::vector<std::string>>> streams;  // count and chunks
  for (Peer& peer : peers) {
    peer.address = absl::StrCat("replica", streams.size());
    peer.answer = Answer{peer.address, 0, Says(in)};
    peer.refused = in.U8() == 0xff;
    std::vector<std::string> chunks;
    for (int i = in.U8() % 4; i > 0; --i) {
      chunks.push_back(Chunk(in));
      CheckAdd(chunks.back());
    }
    streams.emplace_back(in.U8() % 16, std::move(chunks));
  }
  for (size_t i = 0; i < peers.size(); ++i) {
    const uint8_t life = in.U8();
    peers[i].answer->incarnation = 1 + life % 4;
    if (life % 16 >= 12) peers[i].answer->inventory.base = Number(in);
    if (life % 16 == 8) peers[i].answer->inventory.known = false;
    const Incarnation memory = life < 0xe0 ? peers[i].answer->incarnation : life % 8;
    peers[i].client =
        std::make_unique<Streamer>(ReplicaClient::FenceResult{!peers[i].refused, *peers[i].answer},
                                   memory, streams[i].first, std::move(streams[i].second));
  }
  const VolumeState state = State(in, input, peers);
  CheckFence(state, peers);
  CheckQuorum(state, peers, {});
  CollectRequest request{TheVolume(), kEpoch, input.checkpoint, 100, 1};
  request.least_piece = 2;
  request.one_thread = true;
  Coverage coverage;
  for (const RecordView& record : stable.views()) {
    if (record.header.epoch == kEpoch) coverage.Add(record.seq());
  }
  std::vector<Collected> collected;
  SALIUS_CHECK_OK(CollectAll(
      request, &peers, [](uint64_t, uint64_t) {}, [] { return absl::OkStatus(); }, &coverage,
      &collected));
  SALIUS_CHECK(collected.size() == peers.size());
  CheckQuorum(state, peers, collected);
  std::vector<std::string_view> known;
  for (const RecordView& record : stable.views()) known.push_back(record.encoded());
  for (size_t i = 0; i < peers.size(); ++i) {
    if (collected[i].complete && !peers[i].refused)
      CheckComplete(request, peers[i].answer->inventory, coverage);
    for (const RecordView& record : collected[i].records.views()) {
      SALIUS_CHECK(record.header.epoch == kEpoch && record.seq() > input.checkpoint);
      SALIUS_CHECK(coverage.Contains(record.seq()));
      known.push_back(record.encoded());
    }
    input.replicas.push_back(
        {peers[i].address, peers[i].answer->inventory, collected[i].records.views()});
  }
  CheckMerge(input, known);
}

}  // namespace
}  // namespace salius::recovery

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace salius;  // NOLINT: the function has to be outside
  ByteReader in(absl::MakeConstSpan(data, size));
  recovery::Fuzz(in);
  return 0;
}
