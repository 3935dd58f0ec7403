#include "client/volume/fetch_policy.h"

#include <fcntl.h>

#include "common/check.h"

namespace salius {
namespace {

constexpr uint64_t kPage = Backing::kPageBytes;

// Opens the file so that a fetch is no access to it.
absl::StatusOr<BackingFd> OpenForFetch(Backing& backing, int fd) {
  return backing.Reopen(fd, O_RDWR | O_NOATIME);
}

class AsyncBg : public FetchPolicy {
 public:
  absl::Status BeforeWrite(int, uint64_t, uint64_t) override { return absl::OkStatus(); }
  bool PutsOff() const override { return false; }
};

class Lazy final : public AsyncBg {
 public:
  bool PutsOff() const override { return true; }
};

class AsyncFg final : public FetchPolicy {
 public:
  explicit AsyncFg(Backing& backing) : backing_(backing) {}
  absl::Status BeforeWrite(int fd, uint64_t offset, uint64_t length) override {
    SALIUS_ASSIGN_OR_RETURN(const std::vector<uint64_t> missing,
                            MissingPages(backing_, fd, offset, length));
    if (missing.empty()) return absl::OkStatus();
    SALIUS_ASSIGN_OR_RETURN(const BackingFd own, OpenForFetch(backing_, fd));
    for (const uint64_t page : missing) backing_.BeginFetch(own.get(), page, kPage);
    return absl::OkStatus();
  }
  bool PutsOff() const override { return false; }

 private:
  Backing& backing_;
};

class Blocking final : public FetchPolicy {
 public:
  explicit Blocking(Backing& backing) : backing_(backing) {}
  absl::Status BeforeWrite(int fd, uint64_t offset, uint64_t length) override {
    SALIUS_ASSIGN_OR_RETURN(const std::vector<uint64_t> missing,
                            MissingPages(backing_, fd, offset, length));
    return missing.empty() ? absl::OkStatus() : FetchPages(backing_, fd, missing);
  }
  bool PutsOff() const override { return false; }

 private:
  Backing& backing_;
};

constexpr struct {
  std::string_view text;
  FetchMode mode;
} kModes[] = {
    {"blocking", FetchMode::kBlocking},
    {"async-fg", FetchMode::kAsyncFg},
    {"async-bg", FetchMode::kAsyncBg},
    {"lazy", FetchMode::kLazy},
};

}  // namespace

absl::StatusOr<FetchMode> ParseFetchMode(std::string_view text) {
  for (const auto& [name, mode] : kModes) {
    if (text == name) return mode;
  }
  return absl::InvalidArgumentError("must be blocking, async-fg, async-bg or lazy");
}

std::string_view FetchModeText(FetchMode mode) {
  for (const auto& [name, known] : kModes) {
    if (known == mode) return name;
  }
  SALIUS_CHECK(false, "an unknown fetch mode");
}

std::unique_ptr<FetchPolicy> MakeFetchPolicy(FetchMode mode, Backing& backing) {
  switch (mode) {
    case FetchMode::kBlocking:
      return std::make_unique<Blocking>(backing);
    case FetchMode::kAsyncFg:
      return std::make_unique<AsyncFg>(backing);
    case FetchMode::kLazy:
      return std::make_unique<Lazy>();
    case FetchMode::kAsyncBg:
      return std::make_unique<AsyncBg>();
  }
  SALIUS_CHECK(false, "an unknown fetch mode");
}

bool IsPartialWrite(uint64_t offset, uint64_t length) {
  return length != 0 && ((offset % kPage) != 0 || ((offset + length) % kPage) != 0);
}

absl::StatusOr<std::vector<uint64_t>> MissingPages(Backing& backing, int fd, uint64_t offset,
                                                   uint64_t length) {
  std::vector<uint64_t> missing;
  if (!IsPartialWrite(offset, length)) return missing;
  const uint64_t end = offset + length;
  const uint64_t first = offset / kPage * kPage;
  const uint64_t last = end / kPage * kPage;  // behind the write's end, if that is a boundary
  const auto add = [&](uint64_t page) {
    if (!missing.empty() && missing.back() == page) return;
    if (!backing.ArePagesCached(fd, page, kPage)) missing.push_back(page);
  };
  if (offset != first) add(first);
  if (end != last) add(last);
  if (missing.empty()) return missing;
  SALIUS_ASSIGN_OR_RETURN(const uint64_t size, backing.SizeOf(fd));
  std::erase_if(missing, [&](uint64_t page) {
    const bool head = page < offset && page < size;
    const bool tail = page + kPage > end && end < size;
    return !head && !tail;
  });
  return missing;
}

absl::Status FetchPages(Backing& backing, int fd, const std::vector<uint64_t>& offsets) {
  SALIUS_ASSIGN_OR_RETURN(const BackingFd own, OpenForFetch(backing, fd));
  // All are begun before the first is waited for.
  if (offsets.size() > 1) {
    for (const uint64_t page : offsets) backing.BeginFetch(own.get(), page, kPage);
  }
  for (const uint64_t page : offsets) {
    char byte = 0;
    SALIUS_RETURN_IF_ERROR(backing.Pread(own.get(), &byte, 1, page).status());
  }
  return absl::OkStatus();
}

}  // namespace salius
