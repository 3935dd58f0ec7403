#include "replica/promise_keeper.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "common/bytes.h"
#include "common/check.h"
#include "common/strings.h"

namespace salius {

absl::StatusOr<PromiseKeeper::Loaded> PromiseKeeper::Load(PromiseStore& store,
                                                          const std::function<uint64_t()>& random) {
  Loaded loaded;
  const absl::StatusOr<std::string> bytes = store.Read();
  if (bytes.ok()) {
    absl::StatusOr<PromiseFile> file = DecodePromiseFile(AsBytes(*bytes));
    if (file.ok()) {
      loaded.file = *std::move(file);
      return loaded;
    }
    if (!absl::IsDataLoss(file.status())) {
      return absl::Status(file.status().code(),
                          absl::StrFormat("%s: %s", store.name(), Sv(file.status().message())));
    }
    loaded.damaged = true;
    loaded.problem = absl::StrFormat("%s: %s", store.name(), Sv(file.status().message()));
    store.SetAside();
  } else if (absl::IsNotFound(bytes.status())) {
    loaded.problem = absl::StrFormat("there was no %s", store.name());
  } else {
    return bytes.status();
  }
  while (loaded.file.store == 0) loaded.file.store = random();
  return loaded;
}

bool PromiseKeeper::IsRolledBack(const PromiseFile& file, Incarnation incarnation,
                                 uint64_t process_starts) {
  return file.incarnation == incarnation && process_starts <= file.process_starts;
}

PromiseKeeper::PromiseKeeper(PromiseStore& store, StoreId id, Source source)
    : store_(store), id_(id), source_(std::move(source)) {
  SALIUS_CHECK(id != 0);
}

absl::Status PromiseKeeper::Begin(Incarnation incarnation, uint64_t process_starts) {
  absl::MutexLock lock(&mutex_);
  incarnation_ = incarnation;
  process_starts_ = process_starts;
  return WriteLocked(/*always=*/true);
}

absl::Status PromiseKeeper::Keep() {
  absl::MutexLock lock(&mutex_);
  return WriteLocked(/*always=*/false);
}

absl::Status PromiseKeeper::WriteLocked(bool always) {
  PromiseSnapshot now = source_(written_);
  if (now.version == written_ && !always) return absl::OkStatus();
  PromiseFile file{id_, incarnation_, process_starts_, std::move(now.promises)};
  SALIUS_RETURN_IF_ERROR(store_.Write(EncodePromiseFile(file)));
  written_ = now.version;
  return absl::OkStatus();
}

}  // namespace salius
