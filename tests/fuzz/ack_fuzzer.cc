// Feeds the replicator acknowledgements and answers to OpenSession of any content. The replicas
// lie, lose their memory and come back, or are one replica under two names.
//
// The input is a small program of the replicator's inputs. After each step the fuzzer checks:
// - checkpoint <= applied <= durable <= issued.
// - The durable and the checkpoint sequence number never decrease.
// - A record that is durable without the stable log was named by f replicas and f incarnations.
//   Only the incarnation that a replica was opened with counts (I1, I5).
#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "client/session/replicator.h"
#include "client/session/session_answer.h"
#include "common/check.h"
#include "tests/fuzz/fuzz_util.h"

namespace salius {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int kMaxSteps = 200;

class Session {
 public:
  explicit Session(ByteReader& in) : in_(in) {
    ReplicatorOptions options;
    options.replicas = replicas_ = 1 + in.U8() % 3;
    options.acks = acks_ = 1 + in.U8() % replicas_;
    options.delta_ns = 50 * kMs;
    options.tau_ns = 1000 * kMs;
    options.log_max_bytes = 1 << 20;
    core_.emplace(options, *window_, now_);
  }

  void Run() {
    for (int step = 0; step < kMaxSteps && in_.remaining() > 0; ++step) {
      Step();
      Take();
      Check();
    }
  }

 private:
  uint64_t Number() {
    const uint8_t what = in_.U8();
    if (what < 0xc0) return what % 32;
    if (what < 0xe0) return core_->issued() + what % 4;
    return what % 2 == 0 ? UINT64_MAX - in_.U8() % 4 : in_.U64();
  }

  void Ack() {
    const int replica = in_.U8() % (replicas_ + 1);  // one value is out of range
    AckPayload ack;
    const uint8_t what = in_.U8();
    ack.incarnation = what % 16 == 15 ? Number() : life_[replica];
    ack.base = what % 8 == 6 ? Number() : 1;
    ack.contiguous = Number();
    ack.free_bytes = what % 8 == 5 ? Number() : 64 << 20;
    ack.trimmed = what % 16 == 3 ? Number() : 0;
    if (what >= 0xf8) ack.flags = in_.U8() & 0x0f;
    for (int ranges = what % 4; ranges > 0; --ranges) {
      const Seq first = Number();
      ack.ranges.push_back({first, first + in_.U8() % 4});
    }
    // Only an acknowledgement that a datagram can carry is delivered.
    std::string bytes(kMaxAckBytes, '\0');
    bytes.resize(EncodeAckPayload(ack, MutableBytes(bytes)));
    const auto decoded = DecodeAckPayload(AsBytes(bytes));
    if (!decoded.ok()) return;
    // The echoed send time lies between 0 and now; -1 means that there is no echo.
    const int64_t rtt = what % 8 == 7 ? in_.U32() % now_ : what % 16 == 4 ? -1 : kMs / 10;
    Note(replica, *decoded);
    core_->OnAck(now_, replica, rtt, *decoded);
  }

  // Notes the records that the replica has named so far in this incarnation. They are an upper
  // bound on the copies that may count.
  void Note(int replica, const AckPayload& ack) {
    if (replica >= replicas_ || ack.incarnation == 0) return;
    if (ack.incarnation != core_->replica(replica, now_).incarnation) return;
    const Seq issued = core_->issued();
    // The replicator ignores an acknowledgement of a record that was never issued.
    if (ack.contiguous > issued || (!ack.ranges.empty() && ack.ranges.back().last > issued)) return;
    if (named_.size() < issued) named_.resize(issued);
    const auto mark = [&](Seq first, Seq last) {
      for (Seq seq = std::max<Seq>(first, 1); seq <= std::min(last, issued); ++seq) {
        named_[seq - 1].replicas.insert(replica);
        named_[seq - 1].memories.insert(ack.incarnation);
      }
    };
    mark(1, ack.contiguous);
    for (const SeqRange& range : ack.ranges) mark(range.first, range.last);
  }

  // Delivers an answer to OpenSession, or a failed open if the client refuses the answer.
  void Open(int replica, uint8_t what) {
    control::OpenSessionResponse message;
    if (what % 4 == 0) ++life_[replica];
    if (what >= 0xe0 && what % 4 == 1) life_[replica] = life_[in_.U8() % replicas_];
    if (what >= 0xe0 && what % 4 == 2) life_[replica] = Number();
    message.set_incarnation(life_[replica]);
    message.set_udp_port(what == 0xff ? in_.U32() : 7400);
    message.set_free_bytes(what >= 0xe0 ? Number() : 64 << 20);
    const auto opened = OpenedFrom("a:1", message);
    if (!opened.ok()) {
      core_->OnOpenFailed(now_, replica, std::string(opened.status().message()), false);
      return;
    }
    core_->OnOpened(now_, replica, opened->incarnation, opened->store, base_[replica],
                    opened->free_bytes);
  }

  void Step() {
    switch (in_.U8() % 12) {
      case 0:
      case 1:
        if (core_->failure().ok() && core_->CanIssue(now_, 1000)) core_->Issue(now_, 1000);
        return;
      case 2:
      case 3:
      case 4:
        return Ack();
      case 5:
        now_ += in_.U16() * kMs / 16;
        core_->Tick(now_);
        return;
      case 6: {
        Open(in_.U8() % replicas_, in_.U8());
        return;
      }
      case 7:
        core_->OnOpenFailed(now_, in_.U8() % replicas_, "no", in_.U8() == 0xff);
        return;
      case 8: {
        const std::vector<Seq> batch = core_->TakeStableBatch(1 << 20);
        if (batch.empty()) return;
        for (const Seq seq : batch) {
          if (stable_.size() < seq) stable_.resize(seq);
          stable_[seq - 1] = true;
        }
        core_->OnStable(now_, batch, absl::OkStatus());
        return;
      }
      case 9:
        if (std::exchange(noting_, false)) core_->OnNoteWritten(now_, absl::OkStatus());
        return;
      case 10:
        core_->OnApplied(core_->durable());
        if (syncing_) core_->OnSynced(now_, core_->applied(), absl::OkStatus());
        syncing_ = false;
        return;
      default:
        core_->RequestCheckpoint(now_);
        core_->Tick(now_);
        return;
    }
  }

  void Take() {
    const Replicator::Outputs out = core_->TakeOutputs();
    for (const auto& open : out.opens) base_[open.replica] = open.base;
    for (const auto& send : out.sends) {
      SALIUS_CHECK(send.first >= 1 && send.first <= send.last && send.last <= core_->issued());
      SALIUS_CHECK(send.first >= core_->replica(send.replica, now_).base);
    }
    syncing_ = syncing_ || out.start_sync;
    noting_ = noting_ || out.note.has_value();
  }

  void Check() {
    SALIUS_CHECK(core_->checkpoint() <= core_->applied() && core_->applied() <= core_->durable());
    SALIUS_CHECK(core_->durable() <= core_->issued());
    SALIUS_CHECK(core_->durable() >= durable_ && core_->checkpoint() >= checkpoint_);
    checkpoint_ = core_->checkpoint();
    for (Seq seq = durable_ + 1; seq <= core_->durable(); ++seq) {
      const bool stable = seq <= stable_.size() && stable_[seq - 1];
      const auto copies = seq > named_.size() ? 0
                                              : std::min(named_[seq - 1].replicas.size(),
                                                         named_[seq - 1].memories.size());
      SALIUS_CHECK(stable || copies >= static_cast<size_t>(acks_)) << seq;
    }
    durable_ = core_->durable();
    core_->NextTick(now_);
    core_->ModeDetail(now_);
    std::set<Incarnation> members;
    for (int replica = 0; replica < replicas_; ++replica) {
      const Replicator::ReplicaView view = core_->replica(replica, now_);
      SALIUS_CHECK(view.contiguous <= core_->issued());
      if (view.member)
        SALIUS_CHECK(view.incarnation != 0 && members.insert(view.incarnation).second);
    }
  }

  ByteReader& in_;
  int replicas_ = 0;
  int acks_ = 0;
  int64_t now_ = 1000 * kMs;
  const OwnedWindow window_ = NewWindow(Replicator::WindowSlots(1 << 20));
  std::optional<Replicator> core_;
  Incarnation life_[4] = {100, 200, 300, 400};
  Seq base_[4] = {1, 1, 1, 1};
  struct Named {
    std::set<int> replicas;
    std::set<Incarnation> memories;
  };
  std::vector<Named> named_;  // per seq: all that ever named it
  std::vector<bool> stable_;
  bool syncing_ = false, noting_ = false;
  Seq durable_ = 0;
  Seq checkpoint_ = 0;
};

}  // namespace
}  // namespace salius

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace salius;  // NOLINT: the function has to be outside
  ByteReader in(absl::MakeConstSpan(data, size));
  Session(in).Run();
  return 0;
}
