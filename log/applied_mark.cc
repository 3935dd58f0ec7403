#include "log/applied_mark.h"

#include <fcntl.h>

#include <atomic>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/file.h"
#include "common/file_system.h"

namespace salius {
namespace {

constexpr uint64_t kAppliedMagic = 0x314B52414D4C5341;  // "ASLMARK1"
constexpr size_t kPageBytes = 4096;

constexpr size_t kMagicWord = 0;
constexpr size_t kEpochWord = 1;
constexpr size_t kAppliedWord = 2;
constexpr size_t kCheckWord = 3;
constexpr size_t kComplaintsWord = 4;

// Stores a word. Another process reads the words after this one died at any instruction, so their
// order counts: release and acquire keep it.
void Put(uint64_t* page, size_t word, uint64_t value) {
  std::atomic_ref<uint64_t>(page[word]).store(value, std::memory_order_release);
}
uint64_t Get(uint64_t* page, size_t word) {
  return std::atomic_ref<uint64_t>(page[word]).load(std::memory_order_acquire);
}

// Returns false for a page that died half way through Reset, or was never written: it says nothing.
bool Valid(uint64_t* page) {
  return Get(page, kMagicWord) == kAppliedMagic &&
         Get(page, kCheckWord) == (Get(page, kEpochWord) ^ kAppliedMagic);
}

}  // namespace

bool AppliedMark::IsReliedOn(Files& files, int fd) {
  const absl::StatusOr<fs::FsKind> kind = files.KindOf(fd);
  return kind.ok() && !kind->journals_data && files.ComplaintsOf(fd).ok();
}

absl::StatusOr<AppliedMark> AppliedMark::Open(int salius_fd) {
  SALIUS_ASSIGN_OR_RETURN(const UniqueFd fd,
                          OpenAt(salius_fd, kFileName, O_RDWR | O_CREAT | O_NOFOLLOW, 0600));
  SALIUS_ASSIGN_OR_RETURN(const uint64_t size, FileSize(fd.get()));
  if (size < kPageBytes) {
    // Write it, rather than only make it longer: a store into a hole on a full disk is a SIGBUS.
    const std::vector<uint8_t> zeros(kPageBytes - size);
    SALIUS_RETURN_IF_ERROR(PwriteFull(fd.get(), zeros, static_cast<int64_t>(size)));
  }
  SALIUS_ASSIGN_OR_RETURN(void* const page, fs::MapShared(fd.get(), kPageBytes));
  return AppliedMark(static_cast<uint64_t*>(page));
}

AppliedMark AppliedMark::InMemory() {
  auto memory = std::make_unique<uint64_t[]>(kPageBytes / sizeof(uint64_t));
  AppliedMark mark(memory.get());
  mark.memory_ = std::move(memory);
  return mark;
}

void AppliedMark::Reset(Epoch epoch, uint64_t complaints) {
  Put(page_, kCheckWord, ~(epoch ^ kAppliedMagic));  // not valid until the last store
  Put(page_, kMagicWord, kAppliedMagic);
  Put(page_, kAppliedWord, 0);
  Put(page_, kComplaintsWord, complaints);
  Put(page_, kEpochWord, epoch);
  Put(page_, kCheckWord, epoch ^ kAppliedMagic);
}

void AppliedMark::Store(Seq applied) {
  SALIUS_CHECK(applied >= Get(page_, kAppliedWord)) << "the applied watermark never goes back";
  Put(page_, kAppliedWord, applied);
}

void AppliedMark::SyncBegins() {
  was_valid_ = Valid(page_);
  Put(page_, kCheckWord, ~(Get(page_, kEpochWord) ^ kAppliedMagic));
}

void AppliedMark::SyncEnds(bool ok) {
  if (ok && was_valid_) Put(page_, kCheckWord, Get(page_, kEpochWord) ^ kAppliedMagic);
}

Epoch AppliedMark::epoch() const { return Valid(page_) ? Get(page_, kEpochWord) : 0; }

Seq AppliedMark::applied() const { return Valid(page_) ? Get(page_, kAppliedWord) : 0; }

uint64_t AppliedMark::complaints() const {
  return Valid(page_) ? Get(page_, kComplaintsWord) : kUnknownComplaints;
}

void AppliedMark::Unmap() {
  if (page_ != nullptr && memory_ == nullptr) fs::Unmap(page_, kPageBytes);
}

AppliedMark::AppliedMark(AppliedMark&& other) noexcept
    : page_(std::exchange(other.page_, nullptr)),
      memory_(std::move(other.memory_)),
      was_valid_(other.was_valid_) {}

AppliedMark& AppliedMark::operator=(AppliedMark&& other) noexcept {
  if (this != &other) {
    Unmap();
    page_ = std::exchange(other.page_, nullptr);
    memory_ = std::move(other.memory_);
    was_valid_ = other.was_valid_;
  }
  return *this;
}

AppliedMark::~AppliedMark() { Unmap(); }

}  // namespace salius
