// Changes a replica's memory by sessions and datagrams, and restarts the process. A restarted
// process takes over the arena: header, slots, segment table, entries, records.
//
// The input is a small program of sessions, fences, frames, restarts and damage. A frame is whole,
// in fragments or forged. After each step the fuzzer reads back all records and checks:
// - A record held before is still held with the same bytes, unless it was trimmed, dropped or
//   superseded (I6).
// - The replica holds the records that the acknowledgement and the inventory name.
// - A restart keeps all of this, promises and marks included.
// - After damage to entries or the segment table, a restart gives the same records or another
//   incarnation (I5). Each later restart does so too, until the damaged segment is freed.
// - A slot of any content, written by the arena's own encoder, may be refused but does no harm.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/check.h"
#include "log/record.h"
#include "proto/frame.h"
#include "replica/acceptor.h"
#include "replica/arena.h"
#include "tests/fuzz/fuzz_util.h"

namespace salius {
namespace {

constexpr size_t kMemoryBytes = kMinArenaBytes;
constexpr int kVolumes = 3;
constexpr int kMaxSteps = 60;
constexpr int64_t kSecondNs = 1'000'000'000;

VolumeId Volume(uint8_t n) {
  VolumeId volume;
  volume.bytes.fill(static_cast<uint8_t>(1 + n % kVolumes));
  return volume;
}

// Returns a number: mostly small, sometimes at a border, sometimes any.
uint64_t Number(ByteReader& in) {
  const uint8_t what = in.U8();
  if (what < 0xe0) return what % 48;
  switch (what % 8) {
    case 0:
      return UINT64_MAX - in.U8() % 4;
    case 1:
      return (uint64_t{1} << 62) + in.U8() % 4 - 2;
    case 2:
      return (uint64_t{1} << 32) - in.U8() % 4;
    case 3:
      return in.U64();
    default:
      return in.U16();
  }
}

absl::Span<uint8_t> Memory() {
  static auto* const memory =
      static_cast<uint8_t*>(std::aligned_alloc(kArenaPageBytes, kMemoryBytes));
  return absl::MakeSpan(memory, kMemoryBytes);
}

using Records = std::map<Seq, std::string>;

// The inventory and all records that the replica holds for one volume.
struct Held {
  Inventory inventory;
  Records records;
};

class Replica {
 public:
  explicit Replica(ByteReader& in) : in_(in) {
    std::memset(Memory().data(), 0, Memory().size());
    SALIUS_CHECK_OK(Arena::Format(Memory(), Chance()));
    Attach();
  }

  void Run() {
    for (int step = 0; step < kMaxSteps && in_.remaining() > 0; ++step) {
      now_ns_ += in_.U8() * kSecondNs / 16;
      Step();
    }
    Restart(false, false);
    for (uint8_t n = 0; n < kVolumes; ++n) {
      SALIUS_CHECK_OK(acceptor_->DropVolume(Volume(n), UINT64_MAX));
    }
    if (!forged_) SALIUS_CHECK(acceptor_->used_bytes() == 0);
  }

 private:
  Arena::RandomSource Chance() {
    return [this] { return chance_ = chance_ * 6364136223846793005u + 1442695040888963407u; };
  }
  void Attach() {
    auto arena = Arena::Attach(Memory(), Chance());
    SALIUS_CHECK_OK(arena);
    arena_.emplace(*std::move(arena));
    Acceptor::Options options;
    options.promises = promises_;
    acceptor_ = std::make_unique<Acceptor>(*arena_, options, now_ns_, &report_);
  }

  Held Read(const VolumeId& volume) {
    Held held;
    held.inventory = acceptor_->GetInventory(now_ns_, volume);
    const Inventory& inventory = held.inventory;
    if (!inventory.known) return held;
    const auto fetch = acceptor_->StartFetch(volume, inventory.epoch, 0);
    SALIUS_CHECK_OK(fetch);
    std::string bytes;
    uint64_t read = 0;
    for (Seq cursor = fetch->start; cursor < fetch->upto;) {
      const auto some = acceptor_->ReadRecords(volume, inventory.epoch, *fetch, &cursor,
                                               bytes.size() + 1, &bytes);
      SALIUS_CHECK_OK(some);
      read += *some;
    }
    SALIUS_CHECK(read == fetch->count && read == inventory.records);
    for (std::string_view rest = bytes; !rest.empty();) {
      const auto record = DecodeRecord(AsBytes(rest));
      SALIUS_CHECK_OK(record);
      SALIUS_CHECK(record->volume == volume && record->epoch == inventory.epoch);
      SALIUS_CHECK(record->seq > inventory.trimmed && record->seq >= inventory.base);
      SALIUS_CHECK(record->seq <= inventory.highest);
      const bool added =
          held.records.emplace(record->seq, rest.substr(0, record->total_bytes())).second;
      SALIUS_CHECK(added) << record->seq;
      rest.remove_prefix(record->total_bytes());
    }
    CheckAck(volume, held);
    return held;
  }

  // Checks that the acknowledgement names only records that are held or trimmed, and that it
  // decodes to the same value.
  void CheckAck(const VolumeId& volume, const Held& held) {
    const Inventory& inventory = held.inventory;
    const AckPayload ack =
        acceptor_->MakeAck(now_ns_, volume, inventory.epoch, inventory.session, 0);
    std::string bytes(kMaxAckBytes, '\0');
    bytes.resize(EncodeAckPayload(ack, MutableBytes(bytes)));
    const auto decoded = DecodeAckPayload(AsBytes(bytes));
    SALIUS_CHECK_OK(decoded);
    SALIUS_CHECK(*decoded == ack);
    if ((ack.flags & (kAckFenced | kAckUnknownSession)) != 0) {
      SALIUS_CHECK(ack.contiguous == 0 && ack.ranges.empty());
      return;
    }
    SALIUS_CHECK(ack.incarnation == arena_->incarnation());
    const auto all_held = [&](Seq first, Seq last) {
      first = std::max({first, inventory.trimmed + 1, inventory.base});
      if (first > last) return true;
      const auto begin = held.records.lower_bound(first);
      const auto end = held.records.upper_bound(last);
      return static_cast<uint64_t>(std::distance(begin, end)) == last - first + 1;
    };
    SALIUS_CHECK(all_held(1, ack.contiguous));
    for (const SeqRange& range : ack.ranges) SALIUS_CHECK(all_held(range.first, range.last));
  }

  std::vector<Held> ReadAll() {
    std::vector<Held> all;
    for (uint8_t n = 0; n < kVolumes; ++n) all.push_back(Read(Volume(n)));
    SALIUS_CHECK(acceptor_->used_bytes() <= acceptor_->memory_bytes());
    return all;
  }

  // Checks that each record of `before` is still held, or was trimmed.
  static void CheckKept(const Held& before, const Held& after) {
    for (const auto& [seq, bytes] : before.records) {
      if (seq <= after.inventory.trimmed) continue;
      const auto found = after.records.find(seq);
      SALIUS_CHECK(found != after.records.end() && found->second == bytes) << seq;
    }
  }

  void Restart(bool damaged_entries, bool forged) {
    const std::vector<Held> before = ReadAll();
    const Incarnation incarnation = arena_->incarnation();
    if (damaged_entries) DamageEntries();
    if (forged) Forge();
    PromiseFile file;
    file.store = 1;
    file.promises = acceptor_->Promises(0).promises;
    const auto read = DecodePromiseFile(AsBytes(EncodePromiseFile(file)));
    SALIUS_CHECK_OK(read);
    promises_ = read->promises;
    Attach();
    const std::vector<Held> after = ReadAll();
    if (forged) return;
    if (!damaged_entries) {
      SALIUS_CHECK(report_.damaged == 0 || forged_ || hurt_) << report_.damaged;
    }
    if (arena_->incarnation() != incarnation) {
      SALIUS_CHECK(report_.damaged > 0);
      return;
    }
    for (size_t n = 0; n < before.size(); ++n) {
      const Inventory& a = before[n].inventory;
      const Inventory& b = after[n].inventory;
      SALIUS_CHECK(a.known == b.known && a.promised_epoch == b.promised_epoch);
      SALIUS_CHECK(a.epoch == b.epoch && a.session == b.session && a.base == b.base);
      SALIUS_CHECK(a.trimmed == b.trimmed && a.contiguous == b.contiguous);
      SALIUS_CHECK(a.highest == b.highest && a.durable_mark == b.durable_mark);
      SALIUS_CHECK(a.checkpoint_mark == b.checkpoint_mark);
      CheckKept(before[n], after[n]);
    }
  }

  // Changes one byte anywhere in the segment table or in a segment, most often in a used part.
  // Never restores a damaged byte: records that were given up would be there again.
  void DamageEntries() {
    hurt_ = true;
    const ArenaGeometry& g = arena_->geometry();
    const uint8_t what = in_.U8();
    size_t at = 0;
    if (what % 4 == 0) {
      at = g.segment_table_at + in_.U16() % (g.segment_count * kSegmentEntryBytes);
    } else {
      at = g.segments_at + what % g.segment_count * g.segment_bytes;
      at += what % 4 == 1 ? (in_.U32() % g.segment_bytes) : in_.U16() % 4096;
    }
    const uint8_t now = Memory()[at];
    Hurt& known = hurt_at_.emplace(at, Hurt{now, now}).first->second;
    if (now != known.hurt) known.sound = now;  // the replica has written there since
    uint8_t hurt = now ^ in_.U8();
    if (hurt == known.sound && now != known.sound) hurt ^= 0xff;
    Memory()[at] = known.hurt = hurt;
  }

  // Writes a slot with a valid checksum and any content.
  void Forge() {
    forged_ = true;
    const uint32_t index = in_.U8() % 4;
    VolumeSlot slot;
    if (arena_->slot(index) != nullptr) slot = *arena_->slot(index);
    const uint8_t fields = in_.U8();
    if (fields & 1) slot.volume = Volume(in_.U8());
    if (fields & 2) slot.epoch = Number(in_);
    if (fields & 4) slot.base = Number(in_);
    if (fields & 8) slot.trimmed = Number(in_);
    if (fields & 16) slot.grant_segments = static_cast<uint32_t>(Number(in_));
    if (fields & 32) slot.promise_epoch = Number(in_);
    if (fields & 64) slot.durable_mark = slot.checkpoint_mark = Number(in_);
    if (fields & 128) slot.tau_ms = Number(in_), slot.k = static_cast<uint32_t>(Number(in_));
    if (arena_->slot(index) != nullptr) {
      arena_->WriteSlot(index, slot);
    } else {
      arena_->NewSlot(slot).IgnoreError();
    }
  }

  std::string Record(const VolumeId& volume, Epoch epoch, Seq seq) {
    RecordHeader header;
    header.volume = volume;
    header.epoch = epoch;
    header.seq = seq;
    const uint8_t what = in_.U8();
    if (what >= 0xf0) header.durable_mark = Number(in_);
    if (what >= 0xf8) header.checkpoint_mark = Number(in_);
    header.arg0 = what;  // one seq may have different records
    return EncodeRecord(header, std::string(what % 8 == 7 ? in_.U16() : what % 32, 'b'));
  }

  void Frame(FrameType type) {
    FrameHeader header;
    header.type = type;
    header.volume = Volume(in_.U8());
    const Inventory inventory = acceptor_->GetInventory(now_ns_, header.volume);
    const uint8_t what = in_.U8();
    header.epoch = what >= 0xf0 ? Number(in_) : inventory.epoch;
    header.session = what % 16 == 15 ? in_.U8() : inventory.session;
    if (what & 1) {
      header.trim_mark = Number(in_);
      header.durable_mark = header.trim_mark + in_.U8() % 4;
      header.issued_mark = header.durable_mark + in_.U8() % 4;
    }
    std::string payload;
    if (type == FrameType::kRecords) {
      header.count = 1 + in_.U8() % 4;
      for (uint16_t i = 0; i < header.count; ++i) {
        payload += Record(header.volume, header.epoch, Number(in_));
      }
    } else if (type == FrameType::kFragment) {
      payload = Piece(header.volume, header.epoch);
    }
    if (what % 16 == 14 && !payload.empty()) {
      payload[in_.U16() % payload.size()] ^= static_cast<char>(in_.U8());
    }
    header.payload_bytes = static_cast<uint32_t>(payload.size());
    std::string datagram(kFrameHeaderBytes, '\0');
    EncodeFrameHeader(header, MutableBytes(datagram));
    Datagram(datagram + payload);
  }

  std::string Piece(const VolumeId& volume, Epoch epoch) {
    FragmentHeader fragment;
    fragment.seq = Number(in_);
    const std::string record = Record(volume, epoch, fragment.seq);
    fragment.record_bytes = static_cast<uint32_t>(record.size());
    const uint32_t pieces = 1 + in_.U8() % 4;
    const uint32_t length = (fragment.record_bytes + pieces - 1) / pieces;
    fragment.offset = in_.U8() % pieces * length;
    std::string payload(kFragmentHeaderBytes, '\0');
    EncodeFragmentHeader(fragment, MutableBytes(payload));
    return payload + record.substr(std::min<size_t>(fragment.offset, record.size()), length);
  }

  void Datagram(const std::string& bytes) {
    const auto header = DecodeFrameHeader(AsBytes(bytes));
    if (!header.ok()) return;
    const Held before = Read(header->volume);
    const auto result =
        acceptor_->OnFrame(now_ns_, *header, AsBytes(bytes).subspan(kFrameHeaderBytes));
    acceptor_->MakeAck(now_ns_, header->volume, header->epoch, header->session, result.flags);
    const Held after = Read(header->volume);
    CheckKept(before, after);
    if (result.standing != Acceptor::Standing::kCurrent) {
      SALIUS_CHECK(before.records == after.records);  // I4
    }
  }

  void Open() {
    SessionParams params;
    params.volume = Volume(in_.U8());
    params.epoch = Number(in_);
    params.session = 1 + in_.U8() % 2;
    params.base = Number(in_);
    params.tau_ms = Number(in_);
    params.k = in_.U8();
    params.memory_bytes = uint64_t{1} << in_.U8() % 24;
    const Held before = Read(params.volume);
    const auto opened = acceptor_->OpenSession(now_ns_, params);
    const Held after = Read(params.volume);
    if (!opened.ok() || params.epoch == before.inventory.epoch) {
      SALIUS_CHECK(before.records == after.records);
      return;
    }
    SALIUS_CHECK(params.epoch > before.inventory.epoch || !before.inventory.known);
    SALIUS_CHECK(params.epoch >= before.inventory.promised_epoch);  // I4
    SALIUS_CHECK(after.records.empty());
  }

  void Step() {
    switch (in_.U8() % 16) {
      case 0:
      case 1:
        return Open();
      case 2:
        acceptor_->Fence(Volume(in_.U8()), Number(in_), 1 + in_.U8() % 2).IgnoreError();
        return;
      case 3:
        acceptor_->DropVolume(Volume(in_.U8()), Number(in_)).IgnoreError();
        return;
      case 4:
        return Restart(false, false);
      case 5:
        return Restart(true, false);
      case 6:
        return Restart(false, true);
      case 7: {
        std::string bytes(in_.String(std::min<size_t>(in_.U8(), in_.remaining())));
        if (bytes.size() >= kFrameHeaderBytes) SealCrc(bytes, kFrameHeaderBytes - 4);
        return Datagram(bytes);
      }
      case 8:
        return Frame(FrameType::kProbe);
      case 9:
      case 10:
        return Frame(FrameType::kFragment);
      case 11:
        acceptor_->Tick(now_ns_);
        return;
      default:
        return Frame(FrameType::kRecords);
    }
  }

  ByteReader& in_;
  uint64_t chance_ = 1;
  int64_t now_ns_ = kSecondNs;
  bool forged_ = false, hurt_ = false;
  struct Hurt {
    uint8_t sound, hurt;  // the byte before the damage, and after it
  };
  std::map<size_t, Hurt> hurt_at_;
  std::optional<Arena> arena_;
  std::unique_ptr<Acceptor> acceptor_;
  std::vector<Promise> promises_;  // on the disk
  Acceptor::AttachReport report_;
};

// Attaches an arena whose first page and tables hold any bytes.
void FuzzAttach(absl::Span<const uint8_t> bytes) {
  std::memset(Memory().data(), 0, Memory().size());
  SALIUS_CHECK_OK(Arena::Format(Memory(), [] { return 7; }));
  ByteReader in(bytes);
  while (in.remaining() > 4) {
    const size_t at = in.U16() % 24576;
    const absl::Span<const uint8_t> some = in.Bytes(std::min<size_t>(in.U8(), in.remaining()));
    std::copy(some.begin(), some.end(), Memory().begin() + static_cast<ptrdiff_t>(at));
  }
  const auto arena = Arena::Attach(Memory(), [] { return 8; });
  if (!arena.ok()) {
    SALIUS_CHECK(absl::IsNotFound(arena.status()) || absl::IsDataLoss(arena.status()) ||
                 absl::IsFailedPrecondition(arena.status()));
  }
}

}  // namespace
}  // namespace salius

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace salius;  // NOLINT: the function has to be outside
  if (size > 0 && data[0] == 0xff) {
    FuzzAttach(absl::MakeConstSpan(data, size).subspan(1));
    return 0;
  }
  ByteReader in(absl::MakeConstSpan(data, size));
  Replica(in).Run();
  return 0;
}
