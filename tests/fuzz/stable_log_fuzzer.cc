// Opens the image of a whole stable log. For any content of the file, opening it returns a Status.
// A log that opens accepts a new record if it fits. Opened again, it returns the same records
// and the new one.
//
// The input is a small program that writes the ring, so that checksums are no obstacle. It writes
// entries with valid or damaged headers, raw bytes, and gaps.
#include <fcntl.h>

#include <string>
#include <vector>

#include "common/check.h"
#include "common/file.h"
#include "log/record.h"
#include "log/stable_log.h"
#include "log/stable_log_format.h"
#include "storage/backing.h"
#include "storage/fs_calls.h"
#include "tests/fuzz/fuzz_scratch.h"
#include "tests/fuzz/fuzz_util.h"

namespace salius {
namespace {

constexpr char kName[] = "stable.log";
constexpr uint64_t kCapacity = stable::kMinCapacity;
constexpr uint64_t kSalt = 0x1234;

VolumeId FuzzVolume() {
  VolumeId volume;
  volume.bytes.fill(1);
  return volume;
}

std::string Record(Seq seq, size_t body_bytes) {
  RecordHeader header;
  header.volume = FuzzVolume();
  header.epoch = 1 + seq / 16;
  header.seq = seq;
  return EncodeRecord(header, std::string(body_bytes, 'b'));
}

// Writes the file that the input describes.
class ImageWriter {
 public:
  ImageWriter(int fd, ByteReader& in) : fd_(fd), in_(in) {}

  void Write() {
    stable::FileHeader header;
    header.volume = FuzzVolume();
    header.capacity = kCapacity;
    header.salt = kSalt;
    header.start = in_.U32() / stable::kEntryAlign * stable::kEntryAlign;
    position_ = synced_ = header.start;
    header.generation = 1 + in_.U8() % 4;
    header.reach = header.start;
    // With two valid headers the log searches only the ring below the reach. With one it searches
    // the whole ring.
    const bool both = in_.U8() % 2 == 0;
    while (in_.remaining() > 0) Step();
    header.reach = std::min(std::max(end_, header.start), header.start + kCapacity);
    PutHeader(header);
    ++header.generation;
    if (both) PutHeader(header);
  }

 private:
  void Put(const std::string& bytes, uint64_t at) {
    SALIUS_CHECK_OK(PwriteFull(fd_, AsBytes(bytes), static_cast<int64_t>(at)));
  }
  void PutHeader(const stable::FileHeader& header) {
    Put(stable::EncodeFileHeader(header),
        header.generation % stable::kHeaderSlots * stable::kHeaderSlotBytes);
  }
  // Writes bytes at a position of the ring, up to the ring's end.
  void PutInRing(std::string bytes, uint64_t position) {
    const uint64_t at = position % kCapacity;
    if (bytes.size() > kCapacity - at) bytes.resize(kCapacity - at);
    Put(bytes, stable::kRingAt + at);
    const uint64_t end = position + bytes.size() + stable::kEntryAlign - 1;
    end_ = std::max(end_, end / stable::kEntryAlign * stable::kEntryAlign);
  }
  void Step() {
    const uint8_t what = in_.U8();
    switch (what % 8) {
      case 0:
      case 1:
      case 2:
        return Entry(stable::EntryKind::kRecord, Record(1 + what, in_.U16() % 5000), false);
      case 3:
        return Entry(stable::EntryKind::kDecision,
                     stable::EncodeDecision({what, in_.U8(), 0, 1, in_.U32()}), false);
      case 4:  // a pad to the ring's end, or of any size
        return Entry(
            stable::EntryKind::kPad,
            std::string(what & 0x80 ? in_.U16() : ToEnd() - stable::kEntryHeaderBytes, 'p'), false);
      case 5:
        return Entry(stable::EntryKind::kRecord, Record(what, in_.U8()), true);
      case 6: {
        const size_t size = std::min<size_t>(in_.U8(), in_.remaining());
        PutInRing(std::string(in_.String(size)), position_);
        position_ += size / stable::kEntryAlign * stable::kEntryAlign;
        return;
      }
      default:
        if (what & 0x80)
          synced_ = position_;  // a new batch
        else
          position_ += in_.U16() / stable::kEntryAlign * stable::kEntryAlign;
        return;
    }
  }
  uint64_t ToEnd() const {
    const uint64_t left = kCapacity - position_ % kCapacity;
    return std::max<uint64_t>(left, stable::kEntryHeaderBytes);
  }
  void Entry(stable::EntryKind kind, std::string payload, bool damage) {
    stable::EntryHeader header;
    header.kind = kind;
    header.payload_bytes = static_cast<uint32_t>(payload.size());
    header.position = position_;
    header.synced = synced_;
    if (kind == stable::EntryKind::kRecord) {
      header.payload_check = LoadU32(payload.data() + kRecordHeaderBytes - 4);
    } else if (kind == stable::EntryKind::kDecision) {
      header.payload_check = Crc32c(AsBytes(payload));
    }
    std::string bytes(stable::kEntryHeaderBytes, '\0');
    stable::EncodeEntryHeader(header, kSalt, MutableBytes(bytes));
    if (kind != stable::EntryKind::kPad) bytes += payload;
    bytes.resize((bytes.size() + 7) / 8 * 8, '\0');
    if (damage) bytes[in_.U16() % bytes.size()] ^= static_cast<char>(in_.U8());
    PutInRing(bytes, position_);
    position_ += header.total_bytes();
  }

  const int fd_;
  ByteReader& in_;
  uint64_t position_ = 0;
  uint64_t synced_ = 0;
  uint64_t end_ = 0;  // the largest position behind bytes that were put
};

void CheckOpenAppendOpen() {
  StableLog::Contents before;
  auto log = StableLog::Open(LinuxBacking(), ScratchDirectory(), kName, FuzzVolume(), &before);
  if (!log.ok()) {
    // No other error is possible: the file exists and can be read.
    SALIUS_CHECK(absl::IsDataLoss(log.status()) || absl::IsInvalidArgument(log.status()))
        << log.status();
    return;
  }
  for (const std::string& record : before.records) SALIUS_CHECK_OK(DecodeRecord(AsBytes(record)));
  const std::string record = Record(1000, 100);
  const bool must_fit = StableLog::EntryBytes(record.size()) <= log->free_bytes();
  const absl::Status appended = log->Append({{AsBytes(record), {}}});
  SALIUS_CHECK(appended.ok() || (absl::IsResourceExhausted(appended) && !must_fit)) << appended;
  if (appended.ok()) before.records.push_back(record);
  SALIUS_CHECK_OK(log->Cut(2, 3));

  StableLog::Contents after;
  SALIUS_CHECK_OK(StableLog::Open(LinuxBacking(), ScratchDirectory(), kName, FuzzVolume(), &after));
  SALIUS_CHECK(after.records == before.records);
  SALIUS_CHECK(after.decisions == before.decisions);
}

}  // namespace
}  // namespace salius

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace salius;  // NOLINT: the function has to be outside
  auto fd = OpenAt(ScratchDirectory(), kName, O_RDWR | O_CREAT | O_TRUNC, 0600);
  SALIUS_CHECK_OK(fd);
  ByteReader in(absl::MakeConstSpan(data, size));
  // One input in 256 has a file that is too short.
  const uint64_t file_bytes =
      in.U8() == 0xff ? in.U32() % (stable::kRingAt + kCapacity) : stable::kRingAt + kCapacity;
  ImageWriter(fd->get(), in).Write();
  SALIUS_CHECK_OK(fs::Truncate(fd->get(), file_bytes));
  CheckOpenAppendOpen();
  return 0;
}
