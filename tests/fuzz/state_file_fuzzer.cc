// Opens the whole state file, which has two slots. For any content, opening it returns a Status. If
// the file opens:
// - The newest valid note is the state.
// - The next note can be written.
// - A torn write leaves the old note or the new one.
#include <fcntl.h>

#include <algorithm>

#include "common/check.h"
#include "common/limits.h"
#include "log/state_file.h"
#include "storage/backing.h"
#include "tests/fuzz/fuzz_scratch.h"
#include "tests/fuzz/fuzz_util.h"

namespace salius {
namespace {

constexpr char kName[] = "state";

VolumeState State(ByteReader& in) {
  VolumeState state;
  state.volume.bytes.fill(1);
  state.epoch = in.U8();
  state.open = in.U8() % 2 == 1;
  state.checkpoint = in.U16();
  const size_t members = in.U8() % (kMaxReplicas + 1);
  for (size_t i = 0; i < members; ++i) {
    state.members.push_back({"10.0.0." + std::to_string(i) + ":7400", in.U8() + 1u, in.U8()});
  }
  state.acks = std::max<uint32_t>(1, static_cast<uint32_t>(members) / 2);
  state.mode = members > 0 && in.U8() % 2 == 1 ? Mode::kReplicated : Mode::kLocal;
  state.boot_id = std::string(in.U8() % 41, 'b');
  return state;
}

// Returns a slot: a note with valid or damaged bytes, raw bytes, or zeros.
std::string Slot(ByteReader& in) {
  const uint8_t what = in.U8();
  std::string slot(kStateSlotBytes, '\0');
  if (what % 4 == 0) return slot;
  if (what % 4 == 1) {
    const std::string_view raw = in.String(std::min<size_t>(in.U8(), in.remaining()));
    std::copy(raw.begin(), raw.end(), slot.begin());
    return slot;
  }
  slot = EncodeStateSlot(State(in), in.U8() % 16 + 1);
  for (int patches = in.U8() % 4; patches > 0; --patches) {
    slot[in.U16() % 320] = static_cast<char>(in.U8());
  }
  // In half of the cases the checksum covers the damage.
  if (what % 4 == 2) SealCrc(slot, kStateSlotBytes - 4);
  return slot;
}

std::string ReadState() {
  auto bytes = ReadWholeFile(ScratchDirectory(), kName, 1 << 16);
  SALIUS_CHECK_OK(bytes);
  return *std::move(bytes);
}

// Returns the note that the file must report: of the two slots' valid notes, the one with the
// larger generation. Decodes both into `slots`.
const DecodedStateSlot* Newest(const std::string& file,
                               absl::StatusOr<DecodedStateSlot> (&slots)[2]) {
  const DecodedStateSlot* newest = nullptr;
  for (size_t i = 0; i < 2; ++i) {
    const size_t at = std::min(i * kStateSlotBytes, file.size());
    slots[i] = DecodeStateSlot(AsBytes(std::string_view(file).substr(at, kStateSlotBytes)));
    if (!slots[i].ok()) continue;
    if (newest == nullptr || slots[i]->generation > newest->generation) newest = &*slots[i];
  }
  return newest;
}

void CheckTornWrites(const std::string& before, const std::string& after, uint64_t generation,
                     const VolumeState& old_state, const VolumeState& new_state) {
  const size_t slot = generation % 2 * kStateSlotBytes;
  for (size_t cut = 0; cut <= kStateSlotBytes; cut += 512) {
    std::string torn = before;
    std::copy_n(after.begin() + static_cast<ptrdiff_t>(slot), cut,
                torn.begin() + static_cast<ptrdiff_t>(slot));
    WriteScratch(kName, AsBytes(torn));
    const auto file = StateFile::Open(LinuxBacking(), ScratchDirectory(), kName);
    SALIUS_CHECK_OK(file);
    SALIUS_CHECK(file->state() == (cut == kStateSlotBytes ? new_state : file->state()));
    SALIUS_CHECK(file->state() == old_state || file->state() == new_state);
  }
}

void FuzzFile(const std::string& bytes, ByteReader& in) {
  WriteScratch(kName, AsBytes(bytes));
  absl::StatusOr<DecodedStateSlot> slots[2];
  const DecodedStateSlot* const newest = Newest(bytes, slots);
  auto file = StateFile::Open(LinuxBacking(), ScratchDirectory(), kName);
  if (!file.ok()) {
    SALIUS_CHECK(absl::IsDataLoss(file.status()) || absl::IsInvalidArgument(file.status()));
    return;
  }
  SALIUS_CHECK(newest != nullptr && file->state() == newest->state);
  SALIUS_CHECK(file->generation() == newest->generation);

  VolumeState next = State(in);
  next.volume = file->state().volume;
  // The first sector must differ from that of a torn note in the slot. Otherwise both together
  // could be the note that was torn (state_file.h).
  next.boot_id = 'n' + next.boot_id.substr(0, 39);
  const VolumeState old_state = file->state();
  SALIUS_CHECK_OK(file->Write(next));
  const std::string written = ReadState();
  const auto again = StateFile::Open(LinuxBacking(), ScratchDirectory(), kName);
  SALIUS_CHECK_OK(again);
  SALIUS_CHECK(again->state() == next && again->generation() == newest->generation + 1);
  // The zeros of a longer file can complete a note that was cut off. Then another note may be the
  // state.
  std::string whole = bytes;
  whole.resize(2 * kStateSlotBytes, '\0');
  WriteScratch(kName, AsBytes(whole));
  const auto longer = StateFile::Open(LinuxBacking(), ScratchDirectory(), kName);
  if (longer.ok() && longer->state() == old_state) {
    CheckTornWrites(whole, written, again->generation(), old_state, next);
  }
}

}  // namespace
}  // namespace salius

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace salius;  // NOLINT: the function has to be outside
  ByteReader in(absl::MakeConstSpan(data, size));
  const uint8_t cut = in.U8();
  std::string bytes = Slot(in);
  bytes += Slot(in);
  if (cut == 0xff) bytes.resize(in.U16() % (bytes.size() + 1));
  FuzzFile(bytes, in);
  return 0;
}
