// Applies records to files.
// - A record is decoded and applied, or refused.
// - Applying a record twice leaves the same file as applying it once (storage/apply.h).
// - No record changes a file's id.
// - Any bytes in the id's xattr are an id or DATA_LOSS.
//
// The first byte selects the case. Offsets and lengths are small, because the files lie in memory;
// tests/unit/storage/apply_test.cc checks the refusal of large ones.
#include <sys/stat.h>

#include <algorithm>
#include <string>

#include "common/check.h"
#include "log/record.h"
#include "storage/apply.h"
#include "storage/fs_calls.h"
#include "tests/fuzz/fuzz_scratch.h"
#include "tests/fuzz/fuzz_util.h"

namespace salius {
namespace {

constexpr FileId kId = 77;
constexpr uint64_t kMost = uint64_t{1} << 20;

UniqueFd NewFile(const std::string& name) {
  fs::RemoveTree(ScratchDirectory(), name).IgnoreError();
  auto fd = OpenAt(ScratchDirectory(), name, O_RDWR | O_CREAT | O_EXCL, 0600);
  SALIUS_CHECK_OK(fd);
  SALIUS_CHECK_OK(PwriteFull(fd->get(), AsBytes("content of a file"), 0));
  SALIUS_CHECK_OK(WriteFileId(fd->get(), kId));
  return *std::move(fd);
}

// Returns the state that a user sees: mode, owner, group, size, device number and data.
std::string Seen(int dirfd, const std::string& name) {
  const auto st = fs::StatAt(dirfd, name);
  SALIUS_CHECK_OK(st);
  std::string seen = std::to_string(st->st_mode) + " " + std::to_string(st->st_uid) + " " +
                     std::to_string(st->st_gid) + " " + std::to_string(st->st_size) + " " +
                     std::to_string(st->st_rdev) + " ";
  if (S_ISREG(st->st_mode)) {
    const auto data = ReadWholeFile(dirfd, name, 4 * kMost);
    SALIUS_CHECK_OK(data);
    seen += *data;
  }
  return seen;
}

void FuzzDataOp(ByteReader& in) {
  const UniqueFd fd = NewFile("data");
  RecordHeader header;
  header.op = static_cast<Op>(in.U8() % 15);
  header.arg0 = in.U32() % kMost;
  header.arg1 = in.U32() % kMost;
  header.arg2 = in.U8() % 64;
  const std::string_view body = in.String(in.remaining());
  const absl::Status once = ApplyData(fd.get(), header, body);
  const std::string seen = Seen(ScratchDirectory(), "data");
  const absl::Status twice = ApplyData(fd.get(), header, body);
  SALIUS_CHECK(once.code() == twice.code()) << once << twice;
  SALIUS_CHECK(Seen(ScratchDirectory(), "data") == seen);
  if (!IsDataOp(header.op)) SALIUS_CHECK(absl::IsInvalidArgument(once));
}

void FuzzAttrOp(ByteReader& in) {
  const UniqueFd fd = NewFile("attr");
  RecordHeader header;
  header.op = static_cast<Op>(in.U8() % 15);
  const std::string_view body = in.String(in.remaining());
  const absl::Status once = ApplyAttr(fd.get(), header, body);
  const std::string seen = Seen(ScratchDirectory(), "attr");
  const absl::Status twice = ApplyAttr(fd.get(), header, body);
  SALIUS_CHECK(once.code() == twice.code()) << once << twice;
  SALIUS_CHECK(Seen(ScratchDirectory(), "attr") == seen);
  const auto id = ReadFileId(fd.get());
  SALIUS_CHECK_OK(id);
  SALIUS_CHECK(*id == kId);
  if (!once.ok()) return;
  if (header.op == Op::kSetAttr) {
    const auto attr = AttrBody::Decode(body);
    SALIUS_CHECK_OK(attr);
    const auto st = fs::StatAt(fd.get(), "");
    SALIUS_CHECK_OK(st);
    if ((attr->mask & kAttrMode) != 0) SALIUS_CHECK((st->st_mode & 07777) == attr->mode);
    if ((attr->mask & kAttrUid) != 0 && attr->uid != UINT32_MAX) {
      SALIUS_CHECK(st->st_uid == attr->uid);
    }
  }
}

void FuzzCreate(ByteReader& in) {
  const auto create = CreateBody::Decode(in.String(in.remaining()));
  if (!create.ok()) return;
  const auto once = MakeObject(ScratchDirectory(), "made", kId, *create);
  if (!once.ok()) {
    fs::RemoveTree(ScratchDirectory(), "made").IgnoreError();
    return;
  }
  const std::string seen = Seen(ScratchDirectory(), "made");
  const auto twice = MakeObject(ScratchDirectory(), "made", kId, *create);
  SALIUS_CHECK_OK(twice);
  SALIUS_CHECK(Seen(ScratchDirectory(), "made") == seen);
  const auto id = ReadFileIdAt(ScratchDirectory(), "made");
  SALIUS_CHECK_OK(id);
  SALIUS_CHECK(*id == kId);
  const auto st = fs::StatAt(ScratchDirectory(), "made");
  SALIUS_CHECK_OK(st);
  SALIUS_CHECK((st->st_mode & S_IFMT) == (create->mode & S_IFMT));
  if (!S_ISLNK(create->mode)) SALIUS_CHECK((st->st_mode & 07777) == (create->mode & 07777));
  SALIUS_CHECK_OK(fs::RemoveTree(ScratchDirectory(), "made"));
}

void FuzzId(std::string_view bytes) {
  const UniqueFd fd = NewFile("id");
  if (!fs::SetXattr(fd.get(), kFileIdXattr, bytes).ok()) return;  // too long for the file system
  const auto id = ReadFileId(fd.get());
  if (bytes.size() == 8 && LoadU64(bytes.data()) != kNoFileId) {
    SALIUS_CHECK_OK(id);
    SALIUS_CHECK(*id == LoadU64(bytes.data()));
  } else {
    SALIUS_CHECK(absl::IsDataLoss(id.status()));
  }
}

}  // namespace
}  // namespace salius

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace salius;  // NOLINT: the function has to be outside
  ByteReader in(absl::MakeConstSpan(data, size));
  switch (in.U8() % 4) {
    case 0:
      FuzzDataOp(in);
      break;
    case 1:
      FuzzAttrOp(in);
      break;
    case 2:
      FuzzCreate(in);
      break;
    default:
      FuzzId(in.String(in.remaining()));
      break;
  }
  return 0;
}
