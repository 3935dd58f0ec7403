// Gives a replica keys of sessions in any order, and sends it datagrams that are sealed with any of
// them. A datagram is accepted only under a key that the replica has, once, and for the session
// that the key belongs to.
#include <sys/uio.h>

#include <map>
#include <set>
#include <string>
#include <tuple>

#include "absl/types/span.h"
#include "common/check.h"
#include "proto/frame_format.h"
#include "proto/sealed_frame.h"
#include "replica/session_keys.h"
#include "tests/fuzz/fuzz_util.h"
#include "transport/key_ring.h"
#include "transport/sealer.h"

namespace salius {
namespace {

class Handshakes {
 public:
  explicit Handshakes(ByteReader& in) : in_(in) {}

  void Run() {
    while (in_.remaining() > 0) Step();
  }

 private:
  FrameSession Session() {
    FrameSession session;
    const uint8_t what = in_.U8();
    session.volume.bytes[0] = what & 3;
    session.epoch = 1 + (what >> 2 & 3);
    session.session = 1 + (what >> 4 & 1);
    return session;
  }

  void Step() {
    switch (in_.U8() % 8) {
      case 0:
      case 1:
        return Offer();
      case 2:
        return Plain();
      case 3: {
        const VolumeId volume = Session().volume;
        keys_.Drop(volume);
        return Forget([&](const FrameSession& session) { return session.volume == volume; });
      }
      default:
        return Send();
    }
  }

  template <typename Gone>
  void Forget(Gone gone) {
    std::erase_if(offers_, [&](const auto& entry) { return gone(entry.second.session); });
    std::erase_if(plain_, gone);
  }
  // Takes notice that the replica has a session of the volume.
  void Begin(const FrameSession& begun) {
    Forget([&](const FrameSession& session) {
      return session.volume == begun.volume && session != begun;
    });
  }

  void Offer() {
    SessionKeys::Offer offer;
    offer.session = Session();
    offer.key_id = in_.U8() % 8;
    offer.record_key[0] = in_.U8() % 2;
    offer.ack_sender = in_.U8() % 3;
    const bool had = ring_.Sealing(offer.key_id) != nullptr;
    const auto answer = keys_.Take(offer);
    if (!answer.ok()) {
      const auto code = answer.status().code();
      SALIUS_CHECK(code == absl::StatusCode::kInvalidArgument ||
                   code == absl::StatusCode::kAlreadyExists || code == absl::StatusCode::kAborted);
      // An offer that is refused for its id may have begun the session.
      if (code == absl::StatusCode::kAlreadyExists) Begin(offer.session);
      return;
    }
    SALIUS_CHECK(offer.key_id != 0 && offer.ack_sender != 0);
    Begin(offer.session);
    plain_.erase(offer.session);
    offers_[offer.key_id] = offer;
    // A key that is there for the first time, or again after it was forgotten, has no counters.
    if (!had) {
      std::erase_if(taken_, [&](const auto& one) { return std::get<0>(one) == offer.key_id; });
    }
    SALIUS_CHECK(ring_.Sealing(offer.key_id) != nullptr);
  }

  void Plain() {
    const FrameSession session = Session();
    if (!keys_.TakePlain(session).ok()) return;
    Begin(session);
    for (const auto& [id, offer] : offers_) {
      if (offer.session == session) return;
    }
    plain_.insert(session);
  }

  void Send() {
    const FrameSession session = Session();
    FrameHeader header;
    header.volume = session.volume;
    header.epoch = session.epoch;
    header.session = session.session;
    std::string frame(kFrameHeaderBytes, '\0');
    EncodeFrameHeader(header, MutableBytes(frame));
    const SealPrefix prefix{SealKind::kSealed, uint32_t{1} + in_.U8() % 8,
                            uint32_t{1} + in_.U8() % 4, uint64_t{1} + in_.U8()};
    SealKey key{};
    key[0] = in_.U8() % 2;
    const bool sealed = in_.U8() % 8 != 0;
    std::string datagram = frame;
    if (sealed) {
      datagram.resize(frame.size() + kSealBytes);
      const iovec part{frame.data(), frame.size()};
      Sealer(key).Seal(prefix, absl::MakeConstSpan(&part, 1), MutableBytes(datagram));
    }
    KeyRing::Opened opened;
    const SealRefusal refusal = ring_.Open({MutableBytes(datagram), datagram.size()}, &opened);
    if (refusal != SealRefusal::kNone) return;
    SALIUS_CHECK(AsText(opened.frame) == frame);
    if (!sealed) {
      SALIUS_CHECK(plain_.contains(session));
      return;
    }
    const auto offer = offers_.find(prefix.key_id);
    SALIUS_CHECK(offer != offers_.end());
    SALIUS_CHECK(offer->second.record_key == key && offer->second.session == session);
    SALIUS_CHECK(taken_.insert({prefix.key_id, prefix.sender, prefix.counter}).second);
  }

  struct Before {
    bool operator()(const FrameSession& a, const FrameSession& b) const {
      return std::tie(a.volume, a.epoch, a.session) < std::tie(b.volume, b.epoch, b.session);
    }
  };

  ByteReader& in_;
  KeyRing ring_;
  SessionKeys keys_{ring_};
  // Upper bounds of what the replica has.
  std::map<uint32_t, SessionKeys::Offer> offers_;
  std::set<FrameSession, Before> plain_;
  std::set<std::tuple<uint32_t, uint32_t, uint64_t>> taken_;  // key id, sender, counter
};

}  // namespace
}  // namespace salius

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  salius::ByteReader in(absl::MakeConstSpan(data, size));
  salius::Handshakes(in).Run();
  return 0;
}
