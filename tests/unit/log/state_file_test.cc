// The state file of docs/log-format.md: golden slot, torn writes, refusals.
#include "log/state_file.h"

#include <functional>
#include <string>

#include "absl/strings/escaping.h"
#include "common/bytes.h"
#include "common/crc32c.h"
#include "common/limits.h"
#include "gtest/gtest.h"
#include "storage/backing.h"
#include "tests/unit/log/fail_writes.h"
#include "tests/unit/log/golden.h"
#include "tests/unit/log/test_dir.h"

namespace salius {
namespace {

using Code = absl::StatusCode;
constexpr char kName[] = "state";

std::string Hex(const char* hex) { return absl::HexStringToBytes(hex); }
uint8_t* Data(std::string& bytes) { return reinterpret_cast<uint8_t*>(bytes.data()); }

VolumeState GoldenState() {
  VolumeState state;
  for (int i = 0; i < 16; ++i) state.volume.bytes[i] = static_cast<uint8_t>(0x10 + i);
  state.open = true;
  state.epoch = 3;
  state.mode = Mode::kReplicated;
  state.boot_id = "01234567-89ab-cdef-0123-456789abcdef";
  state.mount_id = 77;
  state.acks = 2;
  state.members = {{"10.0.0.1:7400", 0x1111222233334444, 1}, {"[::1]:7400", 5, 8}};
  state.checkpoint = 41;
  state.last_timestamp_ns = 0x1122334455667788;
  state.file_id_limit = 1002;
  state.recovered_epoch = 2;
  state.recovered_seq = 99;
  return state;
}

std::string GoldenSlot() {
  std::string slot = Hex(golden::kStateSlotUsed);
  slot.resize(kStateSlotBytes - 4, '\0');
  return slot + Hex(golden::kStateSlotCrc);
}

Code SlotCode(const std::string& slot) { return DecodeStateSlot(AsBytes(slot)).status().code(); }

Code ChangedSlotCode(const std::function<void(uint8_t*)>& change) {
  std::string slot = GoldenSlot();
  change(Data(slot));
  StoreU32(Data(slot) + kStateSlotBytes - 4, Crc32c(AsBytes(slot).first(kStateSlotBytes - 4)));
  return SlotCode(slot);
}

VolumeState WithCheckpoint(Seq checkpoint) {
  VolumeState state = GoldenState();
  state.checkpoint = checkpoint;
  return state;
}

TEST(StateSlotTest, GoldenBytes) {
  EXPECT_EQ(EncodeStateSlot(GoldenState(), 9), GoldenSlot());
  const auto decoded = DecodeStateSlot(AsBytes(GoldenSlot()));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->state, GoldenState());
  EXPECT_EQ(decoded->generation, 9u);
}

TEST(StateSlotTest, EveryFlippedBitIsDataLoss) {
  for (size_t bit = 0; bit < kStateSlotBytes * 8; bit += 7) {
    std::string slot = GoldenSlot();
    slot[bit / 8] = static_cast<char>(slot[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_EQ(SlotCode(slot), Code::kDataLoss) << "bit " << bit;
  }
}

TEST(StateSlotTest, WrongSizeIsDataLoss) {
  EXPECT_EQ(SlotCode(GoldenSlot().substr(1)), Code::kDataLoss);
  EXPECT_EQ(SlotCode(GoldenSlot() + "x"), Code::kDataLoss);
  EXPECT_EQ(SlotCode(""), Code::kDataLoss);
}

TEST(StateSlotTest, ContentThatNoProgramWritesIsRefused) {
  const auto refused = [](size_t at, uint8_t value) {
    EXPECT_EQ(ChangedSlotCode([&](uint8_t* bytes) { bytes[at] = value; }), Code::kInvalidArgument)
        << "byte " << at << " = " << int{value};
  };
  EXPECT_EQ(ChangedSlotCode([](uint8_t*) {}), Code::kOk);
  refused(0, 0);                  // magic
  refused(4, 2);                  // version
  refused(6, 1);                  // reserved
  refused(8, 0);                  // generation 0
  refused(15, 0x80);              // generations, epochs and seqs near the end of 64 bits
  refused(39, 0x80);
  refused(63, 0x80);
  refused(79, 0x80);
  refused(87, 0x80);
  refused(95, 0x80);
  refused(40, 2);                 // neither open nor clean
  refused(41, 0);                 // mode
  refused(41, 3);                 // mode
  refused(42, 41);                // boot id longer than its room
  refused(42, 255);               // boot id longer than the slot allows
  refused(42, 35);                // boot id followed by something
  refused(43, 3);                 // a member without an address
  refused(43, 1);                 // fewer members than acks, in an open replicated note
  refused(43, 255);               // more members than there can be
  refused(44, 0);                 // acks 0
  refused(44, 9);                 // acks beyond the replicas there can be
  refused(135, 1);                // behind the boot id
  refused(136 + 16, 201);         // address longer than its room
  refused(136 + 16, 0);           // no address
  refused(136 + 17, 1);           // reserved in a member
  refused(136 + 2 * 224 + 5, 1);  // a member that is not there
  refused(4000, 1);               // unused
}

TEST(StateFileTest, CreatedIsReadBack) {
  TestDir dir;
  {
    auto file = StateFile::Create(LinuxBacking(), dir.fd(), kName, GoldenState());
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->state(), GoldenState());
  }
  auto file = StateFile::Open(LinuxBacking(), dir.fd(), kName);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->state(), GoldenState());
  EXPECT_EQ(file->generation(), 2u);
}

TEST(StateFileTest, CreateRefusesToReplace) {
  TestDir dir;
  ASSERT_TRUE(StateFile::Create(LinuxBacking(), dir.fd(), kName, GoldenState()).ok());
  EXPECT_EQ(StateFile::Create(LinuxBacking(), dir.fd(), kName, GoldenState()).status().code(),
            Code::kAlreadyExists);
}

TEST(StateFileTest, MissingIsNotFound) {
  TestDir dir;
  EXPECT_EQ(StateFile::Open(LinuxBacking(), dir.fd(), kName).status().code(), Code::kNotFound);
}

TEST(StateFileTest, EveryNoteIsReadBack) {
  TestDir dir;
  ASSERT_TRUE(StateFile::Create(LinuxBacking(), dir.fd(), kName, GoldenState()).ok());
  for (Seq checkpoint = 100; checkpoint < 120; ++checkpoint) {
    auto file = StateFile::Open(LinuxBacking(), dir.fd(), kName);
    ASSERT_TRUE(file.ok()) << file.status();
    const uint64_t generation = file->generation();
    ASSERT_TRUE(file->Write(WithCheckpoint(checkpoint)).ok());
    EXPECT_EQ(file->generation(), generation + 1);
    auto again = StateFile::Open(LinuxBacking(), dir.fd(), kName);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->state(), WithCheckpoint(checkpoint));
  }
}

// A crash in the middle of Write leaves any number of the new slot's bytes.
TEST(StateFileTest, TornWriteLeavesTheOlderNoteAndCanBeWrittenOver) {
  TestDir dir(kInMemory);
  auto file = StateFile::Create(LinuxBacking(), dir.fd(), kName, WithCheckpoint(1));
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->Write(WithCheckpoint(2)).ok());  // generation 3, slot 1
  const UniqueFd raw = dir.Open(kName, O_RDWR);
  std::string before(kStateSlotBytes, '\0');
  ASSERT_TRUE(PreadFull(raw.get(), before.data(), before.size(), 0).ok());  // slot 0
  const std::string next = EncodeStateSlot(WithCheckpoint(3), 4);
  for (size_t torn = 0; torn <= kStateSlotBytes; ++torn) {
    const std::string mixed = next.substr(0, torn) + before.substr(torn);
    ASSERT_TRUE(PwriteFull(raw.get(), AsBytes(mixed), 0).ok());
    auto reopened = StateFile::Open(LinuxBacking(), dir.fd(), kName);
    ASSERT_TRUE(reopened.ok()) << torn << ": " << reopened.status();
    // The last bytes of both slots could be equal, but the checksum lies there.
    EXPECT_EQ(reopened->state().checkpoint, mixed == next ? 3u : 2u) << torn;
    if (torn % 512 == 100) {
      ASSERT_TRUE(reopened->Write(WithCheckpoint(9)).ok());
      EXPECT_EQ(StateFile::Open(LinuxBacking(), dir.fd(), kName)->state().checkpoint, 9u);
      // Restore the start of the next round: slot 1 holds checkpoint 2.
      ASSERT_TRUE(
          PwriteFull(raw.get(), AsBytes(EncodeStateSlot(WithCheckpoint(2), 3)), kStateSlotBytes)
              .ok());
    }
  }
}

TEST(StateFileTest, BothSlotsBadIsDataLossWithBothReasons) {
  TestDir dir;
  ASSERT_TRUE(StateFile::Create(LinuxBacking(), dir.fd(), kName, GoldenState()).ok());
  const UniqueFd raw = dir.Open(kName, O_RDWR);
  for (size_t slot = 0; slot < 2; ++slot) {
    const std::string junk(100, 'j');
    ASSERT_TRUE(PwriteFull(raw.get(), AsBytes(junk), slot * kStateSlotBytes + 200).ok());
  }
  const absl::Status status = StateFile::Open(LinuxBacking(), dir.fd(), kName).status();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_NE(status.message().find("slot 0"), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find("slot 1"), absl::string_view::npos) << status;
}

TEST(StateFileTest, EmptyFileIsDataLossNotANewVolume) {
  TestDir dir;
  dir.Open(kName, O_RDWR | O_CREAT);
  EXPECT_EQ(StateFile::Open(LinuxBacking(), dir.fd(), kName).status().code(), Code::kDataLoss);
}

TEST(StateFileTest, NewestSlotOfUnknownVersionIsRefusedNotSkipped) {
  TestDir dir;
  ASSERT_TRUE(StateFile::Create(LinuxBacking(), dir.fd(), kName, GoldenState()).ok());
  std::string slot = EncodeStateSlot(WithCheckpoint(5), 4);
  slot[4] = 2;
  StoreU32(Data(slot) + kStateSlotBytes - 4, Crc32c(AsBytes(slot).first(kStateSlotBytes - 4)));
  const UniqueFd raw = dir.Open(kName, O_RDWR);
  ASSERT_TRUE(PwriteFull(raw.get(), AsBytes(slot), 0).ok());
  EXPECT_EQ(StateFile::Open(LinuxBacking(), dir.fd(), kName).status().code(),
            Code::kInvalidArgument);
}

TEST(StateFileTest, NoteInTheWrongSlotIsRefused) {
  TestDir dir;
  ASSERT_TRUE(StateFile::Create(LinuxBacking(), dir.fd(), kName, GoldenState()).ok());
  const UniqueFd raw = dir.Open(kName, O_RDWR);
  const std::string slot = EncodeStateSlot(GoldenState(), 5);
  ASSERT_TRUE(PwriteFull(raw.get(), AsBytes(slot), 0).ok());
  EXPECT_EQ(StateFile::Open(LinuxBacking(), dir.fd(), kName).status().code(),
            Code::kInvalidArgument);
}

TEST(StateFileTest, AfterAFailedWriteItRefusesAllOthers) {
  TestDir dir;
  auto file = StateFile::Create(LinuxBacking(), dir.fd(), kName, WithCheckpoint(1));
  ASSERT_TRUE(file.ok());
  {
    const FailWrites fail(0);
    EXPECT_EQ(file->Write(WithCheckpoint(2)).code(), Code::kOutOfRange);  // EFBIG
  }
  EXPECT_EQ(file->Write(WithCheckpoint(2)).code(), Code::kFailedPrecondition);
  EXPECT_EQ(file->state().checkpoint, 1u);
  EXPECT_EQ(StateFile::Open(LinuxBacking(), dir.fd(), kName)->state().checkpoint, 1u);
}

TEST(StateFileTest, ImpossibleNotesAreRefusedAndNothingIsWritten) {
  TestDir dir;
  auto file = StateFile::Create(LinuxBacking(), dir.fd(), kName, GoldenState());
  ASSERT_TRUE(file.ok());
  const auto code = [&](const std::function<void(VolumeState&)>& change) {
    VolumeState state = GoldenState();
    change(state);
    return file->Write(state).code();
  };
  EXPECT_EQ(code([](VolumeState& s) { s.members.pop_back(); }), Code::kInvalidArgument);
  EXPECT_EQ(code([](VolumeState& s) { s.acks = 0; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](VolumeState& s) { s.members.resize(9, s.members[0]); }),
            Code::kInvalidArgument);
  EXPECT_EQ(code([](VolumeState& s) { s.members[0].address = std::string(201, 'a'); }),
            Code::kInvalidArgument);
  EXPECT_EQ(code([](VolumeState& s) { s.boot_id = std::string(41, 'b'); }), Code::kInvalidArgument);
  EXPECT_EQ(code([](VolumeState& s) { s.volume.bytes[0] ^= 1; }), Code::kInvalidArgument);
  EXPECT_EQ(file->generation(), 2u);
  // None of these failed on the disk: the file is still good.
  EXPECT_TRUE(file->Write(WithCheckpoint(50)).ok());
  // A note in mode local needs no members; neither does a clean one.
  EXPECT_EQ(code([](VolumeState& s) { s.mode = Mode::kLocal, s.members.clear(); }), Code::kOk);
  EXPECT_EQ(code([](VolumeState& s) { s.open = false, s.members.clear(); }), Code::kOk);
}

TEST(StateFileTest, ImpossibleFirstNoteIsRefused) {
  TestDir dir;
  VolumeState state = GoldenState();
  state.acks = 0;
  EXPECT_EQ(StateFile::Create(LinuxBacking(), dir.fd(), kName, state).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(StateFile::Open(LinuxBacking(), dir.fd(), kName).status().code(), Code::kNotFound);
}

TEST(StateFileTest, ModesHaveNames) {
  EXPECT_EQ(ModeName(Mode::kLocal), "local");
  EXPECT_EQ(ModeName(Mode::kReplicated), "replicated");
  EXPECT_EQ(ModeName(static_cast<Mode>(7)), "unknown");
}

}  // namespace
}  // namespace salius
