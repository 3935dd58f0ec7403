#include "recovery/agree/account.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace salius::recovery {
namespace {

// Returns the message without the address, which the text has already.
std::string WithoutPrefix(const absl::Status& status, const std::string& prefix) {
  const std::string message(status.message());
  return message.compare(0, prefix.size(), prefix) == 0 ? message.substr(prefix.size()) : message;
}

RecoveryReplica Describe(const VolumeState& state, const Peer& peer, const Collected* collected) {
  RecoveryReplica replica;
  replica.address = peer.address;
  replica.member =
      std::any_of(state.members.begin(), state.members.end(),
                  [&](const Member& member) { return member.address == peer.address; }) ||
      (peer.answer.has_value() && MemberOf(state, *peer.answer) != nullptr);
  replica.answered = peer.answer.has_value();
  if (collected != nullptr) replica.fetched = collected->records.views().size();
  const std::string prefix = "replica " + peer.address + ": ";
  if (!replica.answered) {
    replica.detail = WithoutPrefix(peer.error, prefix);
    return replica;
  }
  if (peer.refused) {
    replica.detail = "refused the fence";
    return replica;
  }
  if (peer.answer->inventory.epoch == state.epoch) {
    replica.records = peer.answer->inventory.records;
  }
  const Standing standing = StandingOf(state, *peer.answer);
  replica.counted = standing == Standing::kCounts;
  replica.detail = StandingText(state, *peer.answer, standing);
  if (collected != nullptr && !collected->complete) {
    replica.counted = false;
    replica.detail = WithoutPrefix(collected->status, prefix);
  }
  return replica;
}

// Returns how far the records go that are at hand, or that an answering replica holds without a
// gap.
Seq Reach(const VolumeState& state, absl::Span<const Peer> peers,
          absl::Span<const RecordView> stable) {
  Seq reach = state.checkpoint;
  for (const Peer& peer : peers) {
    if (!peer.answer.has_value() || peer.refused) continue;
    const Inventory& inventory = peer.answer->inventory;
    if (inventory.epoch == state.epoch) reach = std::max(reach, inventory.contiguous);
  }
  for (const RecordView& record : stable) {
    if (record.header.epoch == state.epoch) reach = std::max(reach, record.seq());
  }
  return reach;
}

std::string MissingText(const QuorumAccount& account) {
  std::vector<std::string> parts;
  for (const std::string& address : account.count.missing) {
    std::string part = address;
    for (const RecoveryReplica& replica : account.replicas) {
      if (replica.address == address) absl::StrAppend(&part, " (", replica.detail, ")");
    }
    parts.push_back(std::move(part));
  }
  return absl::StrJoin(parts, ", ");
}

}  // namespace

QuorumAccount AccountFor(const VolumeState& state, absl::Span<const Peer> peers,
                         absl::Span<const Collected> collected,
                         absl::Span<const RecordView> stable) {
  QuorumAccount account;
  std::vector<Answer> answers;
  for (size_t i = 0; i < peers.size(); ++i) {
    const Collected* const mine = i < collected.size() ? &collected[i] : nullptr;
    account.replicas.push_back(Describe(state, peers[i], mine));
    if (peers[i].answer.has_value() && !peers[i].refused && (mine == nullptr || mine->complete)) {
      answers.push_back(*peers[i].answer);
    }
  }
  account.count = CountQuorum(state, answers);
  if (!account.count.enough()) {
    account.text = absl::StrFormat(
        "%d of %d members must answer, %d did; missing: %s. Records above %d (the checkpoint) that "
        "only they hold would be lost; the records found reach to about %d",
        account.count.needed, state.members.size(), account.count.counted, MissingText(account),
        state.checkpoint, Reach(state, peers, stable));
  }
  return account;
}

}  // namespace salius::recovery
