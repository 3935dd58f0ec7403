#include "client/direct/coordinator/shared_records.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/direct/window/acks.h"
#include "client/direct/window/file_table.h"
#include "client/direct/window/sealing.h"
#include "client/direct/window/waits.h"
#include "common/check.h"
#include "log/record.h"
#include "proto/frame.h"

namespace salius::direct {
namespace {

Phase ToPhase(StampPhase phase) {
  switch (phase) {
    case StampPhase::kLocal:
      return Phase::kLocal;
    case StampPhase::kStamping:
      return Phase::kStamping;
    case StampPhase::kReplicated:
      return Phase::kReplicated;
    case StampPhase::kGoingLocal:
      return Phase::kGoingLocal;
    case StampPhase::kFailed:
      break;
  }
  return Phase::kFailed;
}

}  // namespace

void SharedRecords::SetAddress(size_t index, const salius::SocketAddress* address) {
  addresses_[index] = address == nullptr ? salius::SocketAddress() : *address;
}

FileId SharedRecords::Enter(int64_t now, Replicator& policy, PeerPaths& paths) {
  lock_.emplace(window_);
  now_ = now;
  const Header& header = window_.header();
  policy.NoticeIssued();
  policy.NoticeSent(now, header.sent.load());
  policy.NoticeDurable(header.durable.load());
  NoticeClaims(paths);
  return header.file_ids.next;
}

void SharedRecords::NoticeClaims(PeerPaths& paths) {
  const Header& header = window_.header();
  const Window& slots = window_.window();
  const Seq upto = std::min(header.sent.load(), slots.issued());
  Seq seq = std::max(claims_upto_, slots.checkpoint()) + 1;
  claims_upto_ = std::max(claims_upto_, upto);
  while (seq <= upto) {
    const Seq first = seq;
    uint64_t bytes = kFrameHeaderBytes + (IsSealed(window_) ? kSealBytes : 0);
    do {
      bytes += window_.record(seq).bytes;
      ++seq;
    } while (seq <= upto && window_.record(seq).first_of_claim == 0);
    for (size_t i = 0; i < header.replicas; ++i) {
      // It was sent as these say: they change under the lock only.
      const Peer& peer = header.peers[i];
      if (peer.address_bytes == 0 || peer.datagram_bytes == 0) continue;
      paths[i].NoticeSent(slots.At(first).issued_ns, first, seq - 1, bytes, peer.datagram_bytes);
    }
  }
}

void SharedRecords::Leave(const Replicator& policy, const PeerPaths& paths, FileId file_id_limit) {
  Header& header = window_.header();
  const DurableRule rule = policy.configurations().Rule(policy.counting_acks());
  for (size_t i = 0; i < header.replicas; ++i) PublishPeer(i, policy, paths);
  header.rule = rule;
  header.counting = policy.counting_acks() ? 1 : 0;
  header.file_ids.limit = file_id_limit;
  bool news = PublishPhase(ToPhase(policy.phase()));
  while (header.sync_epoch.load() <= policy.syncs_begun()) BeginSync(window_);
  if (policy.clean_sync() > header.clean_epoch.load()) {
    EndSync(window_, policy.clean_sync());
    news = true;
  }
  news |= PublishCheckpoint(window_, policy.checkpoint()).any();
  news |= AdvanceDurable(window_).any();
  lock_.reset();
  if (news) WakeAll(window_);
}

bool SharedRecords::PublishPhase(Phase phase) {
  if (window_.phase().phase() == phase) return false;
  SetPhase(window_, phase);
  return true;
}

void SharedRecords::PublishPeer(size_t index, const Replicator& policy, const PeerPaths& paths) {
  Header& header = window_.header();
  const salius::SocketAddress& address = addresses_[index];
  const bool target = (policy.targets() & ReplicaBit(index)) != 0;
  Peer peer{};
  // Acknowledgements of a replica without room are still expected from its address, but it gets
  // nothing new.
  const bool connected = (policy.connected() & ReplicaBit(index)) != 0;
  if (connected && address.length != 0 && address.length <= sizeof(peer.address)) {
    std::memcpy(&peer.address, &address.storage, address.length);
    peer.address_bytes = address.length;
  }
  peer.datagram_bytes = target ? paths[index].NextDatagramBytes(now_) : 0;
  peer.incarnation = connected ? policy.configurations().incarnation(static_cast<int>(index)) : 0;
  peer.base = policy.base(static_cast<int>(index));
  peer.counts_from_ns = policy.counts_from_ns(static_cast<int>(index));
  Peer& published = header.peers[index];
  if (peer.incarnation != published.incarnation ||
      peer.counts_from_ns != published.counts_from_ns) {
    header.heard[index].Forget(0);
  }
  published = peer;
}

void SharedRecords::End() {
  {
    const WindowLock lock(window_);
    PublishPhase(Phase::kEnded);
  }
  WakeAll(window_);
}

RecordRef SharedRecords::At(Seq seq) const {
  const uint32_t bytes = window_.record(seq).bytes;
  const uint8_t* const record = window_.record_bytes(seq);
  RecordDraft draft;
  absl::StatusOr<RecordHeader> header = absl::DataLossError("its slot is damaged");
  // A damaged slot may name bytes behind the ring: nothing of it is read.
  if (bytes >= kRecordHeaderBytes && window_.record_at(seq) + bytes <= window_.header().ring_bytes) {
    header = DecodeRecordHeader(absl::MakeConstSpan(record, kRecordHeaderBytes));
  }
  // A record that a process damaged is sent without its names, so replicas refuse it.
  if (header.ok()) {
    draft.op = header->op;
    draft.file_id = header->file_id;
    draft.arg0 = header->arg0;
    draft.arg1 = header->arg1;
    draft.arg2 = header->arg2;
    draft.body.assign(reinterpret_cast<const char*>(record) + kRecordHeaderBytes,
                      bytes - kRecordHeaderBytes);
  }
  auto copy = std::make_shared<Record>(std::move(draft));
  if (header.ok()) copy->stamp() = *header;
  copy->stamp().seq = seq;
  copy->Encode();
  return copy;
}

}  // namespace salius::direct
