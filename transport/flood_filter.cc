#include "transport/flood_filter.h"

#include <utility>

#include "common/check.h"
#include "proto/frame_format.h"
#include "proto/layout.h"
#include "proto/sealed_frame.h"

namespace salius {
namespace {

using namespace frame_layout;  // NOLINT: offsets of the formats

// The program sees a datagram from its UDP header on.
constexpr uint32_t kSourcePortAt = 0;
constexpr uint32_t kPortAt = 2;
constexpr uint32_t kUdpBytes = 8;
constexpr uint32_t kAll = 0xFFFFFFFF;
// Version, kind and reserved bytes, as the kernel loads them.
constexpr uint32_t kSealedWord = uint32_t{kSealedFrameVersion} << 24;
constexpr uint32_t kNoticeWord = kSealedWord | uint32_t{1} << 16;
static_assert(kSealKindAt == kFrameVersionAt + 1 && kSealReservedAt == kFrameVersionAt + 2);

// Returns a number of the formats as the kernel loads it: big endian.
uint32_t Swapped(uint32_t number) { return __builtin_bswap32(number); }

// Code is added in the order in which it runs. A is the accumulator.
class Program {
 public:
  void Add(int code, uint32_t k) { code_.push_back({static_cast<uint16_t>(code), 0, 0, k}); }
  void LoadWord(size_t at) { Add(BPF_LD | BPF_W | BPF_ABS, kUdpBytes + static_cast<uint32_t>(at)); }
  void LoadByte(size_t at) { Add(BPF_LD | BPF_B | BPF_ABS, kUdpBytes + static_cast<uint32_t>(at)); }
  void LoadLength() { Add(BPF_LD | BPF_W | BPF_LEN, 0); }
  void Pass() { Add(BPF_RET | BPF_K, kAll); }
  // Passes one datagram of `passes`, a power of 2, and drops the others.
  void PassByChance(uint32_t passes) {
    Add(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(SKF_AD_OFF + SKF_AD_RANDOM));
    If(BPF_JSET | BPF_K, passes - 1, [this] { Add(BPF_RET | BPF_K, 0); });
    Pass();
  }
  // Runs what `block` adds if A compares with `value` as `how` says; or unless it does.
  template <typename Block>
  void If(int how, uint32_t value, Block block) {
    const size_t at = AddJump(how, value);
    block();
    code_[at].jf = Skipped(at);
  }
  template <typename Block>
  void Unless(int how, uint32_t value, Block block) {
    const size_t at = AddJump(how, value);
    block();
    code_[at].jt = Skipped(at);
  }

  std::vector<sock_filter> Take() {
    SALIUS_CHECK(code_.size() <= BPF_MAXINSNS);
    return std::move(code_);
  }

 private:
  size_t AddJump(int how, uint32_t value) {
    Add(BPF_JMP | how, value);
    return code_.size() - 1;
  }
  uint8_t Skipped(size_t jump) const {
    const size_t skipped = code_.size() - jump - 1;
    SALIUS_CHECK(skipped <= UINT8_MAX);
    return static_cast<uint8_t>(skipped);
  }

  std::vector<sock_filter> code_;
};

// Puts the low half of the counter into M[0].
void KeepCounter(Program& p) {
  for (size_t byte = 4; byte-- > 0;) {
    p.LoadByte(kSealCounterAt + byte);
    if (byte < 3) p.Add(BPF_ALU | BPF_OR | BPF_X, 0);
    if (byte > 0) p.Add(BPF_ALU | BPF_LSH | BPF_K, 8);
    if (byte > 0) p.Add(BPF_MISC | BPF_TAX, 0);
  }
  p.Add(BPF_ST, 0);
}

// Decides about a counter of a known sender.
void JudgeCounter(const FloodRules::Sender& sender, Program& p) {
  if (!sender.counts) return p.Pass();
  // The counters that pass may cross a multiple of 2^32: their high half is one of two.
  const uint64_t last = sender.oldest + kFilterSpan;
  p.LoadWord(kSealCounterAt + 4);
  p.Unless(BPF_JEQ | BPF_K, Swapped(static_cast<uint32_t>(sender.oldest >> 32)), [&] {
    p.Unless(BPF_JEQ | BPF_K, Swapped(static_cast<uint32_t>(last >> 32)),
             [&] { p.PassByChance(kDoubtfulPasses); });
  });
  p.Add(BPF_LD | BPF_MEM, 0);
  p.Add(BPF_ALU | BPF_SUB | BPF_K, static_cast<uint32_t>(sender.oldest));
  p.If(BPF_JSET | BPF_K, uint32_t{1} << 31, [&] { p.PassByChance(kBadPasses); });  // it is before
  p.If(BPF_JGT | BPF_K, kFilterSpan, [&] { p.PassByChance(kDoubtfulPasses); });
  p.Pass();
}

void JudgeSender(const FloodRules::Sender& sender, Program& p) {
  p.LoadWord(kSealKeyIdAt);
  p.If(BPF_JEQ | BPF_K, Swapped(sender.key_id), [&] {
    if (sender.sender == 0) return JudgeCounter(sender, p);
    p.LoadWord(kSealSenderAt);
    p.If(BPF_JEQ | BPF_K, Swapped(sender.sender), [&] { JudgeCounter(sender, p); });
  });
}

void JudgeNotice(const std::vector<uint32_t>& notices, Program& p) {
  p.LoadLength();
  p.If(BPF_JEQ | BPF_K, kUdpBytes + kSealPrefixBytes, [&] {
    p.LoadWord(kSealKeyIdAt);
    for (const uint32_t key_id : notices) {
      p.If(BPF_JEQ | BPF_K, Swapped(key_id), [&] { p.Pass(); });
    }
  });
  p.PassByChance(kBadPasses);
}

}  // namespace

std::vector<sock_filter> FloodProgram(const FloodRules& rules) {
  SALIUS_CHECK(rules.senders.size() <= FloodRules::kMostSenders);
  SALIUS_CHECK(rules.notices.size() <= FloodRules::kMostSenders);
  Program p;
  p.LoadLength();
  p.If(BPF_JEQ | BPF_K, kUdpBytes, [&] {
    p.Add(BPF_LD | BPF_H | BPF_ABS, kPortAt);
    p.Add(BPF_MISC | BPF_TAX, 0);
    p.Add(BPF_LD | BPF_H | BPF_ABS, kSourcePortAt);
    p.If(BPF_JEQ | BPF_X, 0, [&] { p.Pass(); });
    p.PassByChance(kBadPasses);
  });
  // A load beyond the end of a datagram would drop it.
  p.Unless(BPF_JGE | BPF_K, kUdpBytes + kSealPrefixBytes, [&] { p.PassByChance(kBadPasses); });
  p.LoadWord(kFrameMagicAt);
  if (rules.plain) p.If(BPF_JEQ | BPF_K, Swapped(kFrameMagic), [&] { p.Pass(); });
  p.Unless(BPF_JEQ | BPF_K, Swapped(kSealedFrameMagic), [&] { p.PassByChance(kBadPasses); });
  p.LoadWord(kFrameVersionAt);
  p.If(BPF_JEQ | BPF_K, kNoticeWord, [&] { JudgeNotice(rules.notices, p); });
  p.Unless(BPF_JEQ | BPF_K, kSealedWord, [&] { p.PassByChance(kBadPasses); });
  p.LoadLength();
  p.Unless(BPF_JGE | BPF_K, kUdpBytes + kSealBytes + kFrameHeaderBytes,
           [&] { p.PassByChance(kBadPasses); });
  if (rules.any_key) {
    p.Pass();
    return p.Take();
  }
  KeepCounter(p);
  for (const FloodRules::Sender& sender : rules.senders) JudgeSender(sender, p);
  p.PassByChance(kDoubtfulPasses);
  return p.Take();
}

}  // namespace salius
