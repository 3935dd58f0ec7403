#include "replica/owner_keeper.h"

#include "absl/strings/str_format.h"
#include "common/bytes.h"
#include "common/check.h"
#include "common/strings.h"

namespace salius {

absl::StatusOr<std::unique_ptr<OwnerKeeper>> OwnerKeeper::Load(PromiseStore& store,
                                                               uint32_t share_percent) {
  std::unique_ptr<OwnerKeeper> keeper(new OwnerKeeper(store, share_percent));
  const absl::StatusOr<std::string> bytes = store.Read();
  if (absl::IsNotFound(bytes.status())) return keeper;
  SALIUS_RETURN_IF_ERROR(bytes.status());
  absl::MutexLock lock(&keeper->mutex_);
  const absl::Status decoded = keeper->book_.Decode(AsBytes(*bytes));
  if (decoded.ok()) return keeper;
  return absl::Status(
      decoded.code(),
      absl::StrFormat("%s: %s. It says which client may use which volume. Put back a copy of it, or "
                      "remove it: then a volume belongs to the client that opens it next",
                      store.name(), Sv(decoded.message())));
}

absl::Status OwnerKeeper::Write() {
  const absl::Status written = store_.Write(book_.Encode());
  if (written.ok()) return written;
  return absl::UnavailableError(
      absl::StrFormat("this replica cannot keep a volume's owner: %s", Sv(written.message())));
}

absl::Status OwnerKeeper::MayUse(const keys::Identity& caller, const VolumeId& volume,
                                 bool used) const {
  absl::MutexLock lock(&mutex_);
  return book_.Check(caller, volume, OwnerBook::Action::kUse, used);
}

absl::Status OwnerKeeper::Claim(const keys::Identity& caller, const VolumeId& volume,
                                absl::FunctionRef<bool()> used,
                                absl::FunctionRef<absl::Status()> call) {
  bool claimed = false;
  // Two calls for a volume without an owner take turns: the second finds the first's claim, or its
  // failure. An owner's call waits for no other.
  absl::MutexLockMaybe claiming(OwnerOf(volume).empty() ? &claiming_ : nullptr);
  {
    absl::MutexLock lock(&mutex_);
    SALIUS_RETURN_IF_ERROR(book_.Check(caller, volume, OwnerBook::Action::kClaim, /*used=*/true));
    claimed = book_.Claim(caller, volume);
    if (claimed) {
      if (const absl::Status written = Write(); !written.ok()) {
        book_.Forget(volume);
        return written;
      }
    }
  }
  absl::Status result = call();
  if (result.ok() || !claimed || used()) return result;
  absl::MutexLock lock(&mutex_);
  book_.Forget(volume);
  // An owner too many in the file does no harm until the next write, which leaves it out.
  static_cast<void>(Write());
  return result;
}

absl::Status OwnerKeeper::Forget(const VolumeId& volume) {
  absl::MutexLock lock(&mutex_);
  if (book_.OwnerOf(volume).empty()) return absl::OkStatus();
  book_.Forget(volume);
  return Write();
}

bool OwnerKeeper::MaySee(const keys::Identity& caller, const VolumeId& volume) const {
  absl::MutexLock lock(&mutex_);
  return book_.MaySee(caller, volume);
}

std::string OwnerKeeper::OwnerOf(const VolumeId& volume) const {
  absl::MutexLock lock(&mutex_);
  return book_.OwnerOf(volume);
}

}  // namespace salius
