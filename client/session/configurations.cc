#include "client/session/configurations.h"

#include <algorithm>
#include <bit>

#include "common/check.h"

namespace salius {

void Configurations::AddMember(int replica, Configuration* config) const {
  config->members |= ReplicaBit(replica);
  config->incarnation[replica] = incarnation_[replica];
  config->losses[replica] = losses_[replica];
}

void Configurations::Start(const Configuration& config) {
  SALIUS_CHECK(!pending_.has_value());
  SALIUS_CHECK(config.mode == Mode::kLocal || std::popcount(config.members) >= acks_);
  pending_ = config;
}

void Configurations::Written() {
  SALIUS_CHECK(pending_.has_value());
  noted_ = *pending_;
  pending_.reset();
  if (noted_.mode == Mode::kReplicated) replicated_ = noted_;
}

ReplicaMask Configurations::Effective(const Configuration& config) const {
  ReplicaMask mask = 0;
  for (int i = 0; config.members >> i != 0; ++i) {
    if ((config.members & ReplicaBit(i)) && config.losses[i] == losses_[i] &&
        config.incarnation[i] == incarnation_[i]) {
      mask |= ReplicaBit(i);
    }
  }
  return mask;
}

ReplicaMask Configurations::all_members() const {
  return members() | (pending_.has_value() ? Effective(*pending_) : ReplicaMask{0});
}

bool Configurations::NamesALostOne(const Configuration& config) const {
  return config.mode == Mode::kReplicated && Effective(config) != config.members;
}

bool Configurations::AwaitsNoteOfLoss() const {
  return NamesALostOne(noted_) || (pending_ && NamesALostOne(*pending_));
}

bool Configurations::AllRecoverable(const Configuration& config, Seq durable) const {
  const DurableRule::Side side = Side(config, Effective(config));
  for (Seq seq = std::max(config.checkpoint, noted_.checkpoint) + 1; seq <= durable; ++seq) {
    if (!side.Recoverable(window_, seq, acks_)) return false;
  }
  return true;
}

DurableRule Configurations::Rule(bool counting) const {
  DurableRule rule;
  rule.acks = acks_;
  rule.awaits_note_of_loss = AwaitsNoteOfLoss();
  rule.noted = Side(noted_, counting ? noted_.members : ReplicaMask{0});
  rule.has_pending = pending_.has_value();
  if (pending_) rule.pending = Side(*pending_, pending_->members);
  return rule;
}

}  // namespace salius
