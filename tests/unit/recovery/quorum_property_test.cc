// The promise of the quorum rule (DESIGN: fence at |members| - f + 1 members) over random members,
// losses and answers: T is never older than the last durable record, and it is the end of the
// longest run without a gap that the answers and the stable log hold. RapidCheck: a failure prints
// the smallest case that it finds; RC_PARAMS="reproduce=..." runs it again.
#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
// After gtest, which it needs.
#include <rapidcheck/gtest.h>

#include "recovery/agree/merge.h"
#include "recovery/agree/quorum.h"
#include "tests/unit/recovery/test_util.h"

namespace salius::recovery {
namespace {

constexpr Epoch kEpoch = 7;

// A session that ended: the holders of each seq, and the members' losses and answers since.
struct Ended {
  VolumeState state;
  Seq last = 0;                      // issued
  std::vector<std::set<Seq>> held;   // by each member, while it had its memory
  std::set<Seq> stable;              // in the stable log
  std::vector<bool> lost, answers;   // members that lost their memory; members that answer
  std::vector<std::string> records;  // of seqs 1 to `last`

  bool InStable(Seq seq) const { return seq <= state.checkpoint || stable.contains(seq); }
  // Returns the last record that was durable: it and all before it are held by f members, in the
  // stable log, or at or below the checkpoint.
  Seq Durable() const {
    for (Seq seq = 1; seq <= last; ++seq) {
      const auto holders = std::count_if(held.begin(), held.end(),
                                         [&](const auto& some) { return some.contains(seq); });
      if (!InStable(seq) && holders < static_cast<long>(state.acks)) return seq - 1;
    }
    return last;
  }
  // Returns the end of the longest run without a gap above the checkpoint that is at hand.
  Seq Reach() const {
    Seq seq = state.checkpoint;
    const auto at_hand = [&](Seq next) {
      for (size_t i = 0; i < held.size(); ++i) {
        if (answers[i] && !lost[i] && held[i].contains(next)) return true;
      }
      return stable.contains(next);
    };
    while (seq < last && at_hand(seq + 1)) ++seq;
    return seq;
  }
};

std::set<Seq> SomeSeqs(Seq last) {
  std::set<Seq> seqs;
  for (Seq seq = 1; seq <= last; ++seq) {
    if (*rc::gen::inRange(0, 4) > 0) seqs.insert(seq);
  }
  return seqs;
}

// With `quorum` enough members answer with their memory.
Ended AnyEnded(bool quorum) {
  Ended ended;
  VolumeState& state = ended.state;
  state.volume = TestVolume();
  state.epoch = kEpoch;
  state.mode = Mode::kReplicated;
  const size_t members = *rc::gen::inRange<size_t>(1, 6);
  state.acks = *rc::gen::inRange<uint32_t>(1, static_cast<uint32_t>(members) + 1);
  ended.last = *rc::gen::inRange<Seq>(0, 10);
  state.checkpoint = *rc::gen::inRange<Seq>(0, ended.last + 1);
  for (Seq seq = 1; seq <= ended.last; ++seq) {
    if (*rc::gen::inRange(0, 8) == 0) ended.stable.insert(seq);
  }
  for (size_t i = 0; i < members; ++i) {
    state.members.push_back({"m" + std::to_string(i) + ":1", 100 + i, 1});
    ended.held.push_back(SomeSeqs(ended.last));
    const bool counts = quorum && i < members - state.acks + 1;
    ended.lost.push_back(!counts && *rc::gen::inRange(0, 3) == 0);
    ended.answers.push_back(counts || *rc::gen::arbitrary<bool>());
  }
  Stamper stamper(kEpoch);
  stamper.durable = ended.Durable();
  for (Seq seq = 1; seq <= ended.last; ++seq) {
    // A record carries a mark of the time when it was sent.
    stamper.durable = std::min(ended.Durable(), seq - 1);
    ended.records.push_back(stamper.Write(5, seq, "x"));
  }
  return ended;
}

std::vector<Answer> AnswersOf(const Ended& ended) {
  std::vector<Answer> answers;
  for (size_t i = 0; i < ended.held.size(); ++i) {
    if (!ended.answers[i]) continue;
    Answer answer;
    answer.address = ended.state.members[i].address;
    answer.incarnation = ended.state.members[i].incarnation + (ended.lost[i] ? 1000 : 0);
    answer.inventory.known = !ended.lost[i];
    answer.inventory.epoch = ended.lost[i] ? 0 : kEpoch;
    answer.inventory.base = 1;
    answers.push_back(answer);
  }
  return answers;
}

absl::StatusOr<MergeResult> Decide(const Ended& ended,
                                   std::vector<std::unique_ptr<RecordSet>>* sets) {
  const auto keep = [&](const std::set<Seq>& seqs) {
    std::vector<std::string> records;
    for (const Seq seq : seqs) records.push_back(ended.records[seq - 1]);
    sets->push_back(std::make_unique<RecordSet>(SetOf(records)));
    return sets->back()->views();
  };
  MergeInput input;
  input.volume = TestVolume();
  input.epoch = kEpoch;
  input.checkpoint = ended.state.checkpoint;
  input.stable = keep(ended.stable);
  for (const Answer& answer : AnswersOf(ended)) {
    ReplicaEvidence evidence{answer.address, answer.inventory, {}};
    if (answer.inventory.known) {
      const Member* const member = MemberOf(ended.state, answer);
      evidence.records = keep(ended.held[static_cast<size_t>(member - ended.state.members.data())]);
    }
    input.replicas.push_back(evidence);
  }
  return Merge(input);
}

RC_GTEST_PROP(QuorumPropertyTest, EveryQuorumKeepsEveryDurableRecord, ()) {
  const bool quorum = *rc::gen::arbitrary<bool>();
  const Ended ended = AnyEnded(quorum);
  const bool enough = CountQuorum(ended.state, AnswersOf(ended)).enough();
  RC_ASSERT((enough || !quorum));
  if (!enough) return;
  std::vector<std::unique_ptr<RecordSet>> sets;
  const absl::StatusOr<MergeResult> decided = Decide(ended, &sets);
  RC_ASSERT(decided.ok());
  RC_ASSERT(decided->last >= ended.Durable());
  RC_ASSERT(decided->last == ended.Reach());
}

// Without a quorum the outcome is refused by the rule, or it is still exact: a loss below a durable
// mark is seen, and every other T is the end of the longest run.
RC_GTEST_PROP(QuorumPropertyTest, AnyAnswersGiveTheLongestRunOrDataLoss, ()) {
  const Ended ended = AnyEnded(*rc::gen::arbitrary<bool>());
  std::vector<std::unique_ptr<RecordSet>> sets;
  const absl::StatusOr<MergeResult> decided = Decide(ended, &sets);
  if (decided.ok()) {
    RC_ASSERT(decided->last == ended.Reach());
  } else {
    RC_ASSERT(absl::IsDataLoss(decided.status()));
    RC_ASSERT(ended.Reach() < ended.Durable());
  }
}

}  // namespace
}  // namespace salius::recovery
