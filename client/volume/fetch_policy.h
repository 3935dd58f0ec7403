// Decides which thread fetches the page of a write that changes a part of it, and when (`fetch=`; the
// paper on non-blocking writes, section 4). The policy is asked only for writes that do not begin or end at
// a page's boundary. It acts only when the page is not in memory and lies inside the file.
//
// Threads: any. No state of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/backing.h"

namespace salius {

enum class FetchMode {
  kBlocking,  // the writer waits for it, as without non-blocking writes
  kAsyncFg,   // the writer begins the fetch, and does not wait
  kAsyncBg,   // a worker fetches it
  kLazy,      // a worker, when it cannot be avoided any more
};
inline constexpr FetchMode kDefaultFetch = FetchMode::kAsyncBg;

// Returns the mode that the text names; INVALID_ARGUMENT with what is allowed.
absl::StatusOr<FetchMode> ParseFetchMode(std::string_view text);
std::string_view FetchModeText(FetchMode mode);

class FetchPolicy {
 public:
  virtual ~FetchPolicy() = default;
  // Does the writer's part, before the write is stamped. `fd` is open for writing. An error is the
  // disk's; the write has not happened then.
  virtual absl::Status BeforeWrite(int fd, uint64_t offset, uint64_t length) = 0;
  // Returns whether a write whose page is missing is put off when it is to be applied.
  virtual bool PutsOff() const = 0;
};

// `backing` outlives it.
std::unique_ptr<FetchPolicy> MakeFetchPolicy(FetchMode mode, Backing& backing);

// Returns whether a write there changes only a part of its first or last page.
bool IsPartialWrite(uint64_t offset, uint64_t length);
// Returns the offsets of the pages that a write changes in part, that hold data of the file outside
// of the write, and that are not in memory. `fd` is open for reading or writing.
absl::StatusOr<std::vector<uint64_t>> MissingPages(Backing& backing, int fd, uint64_t offset,
                                                   uint64_t length);
// Waits until the pages at these offsets are in memory. `fd` may be O_PATH. It leaves the file's time
// of access. The pages may have left memory again when it returns.
absl::Status FetchPages(Backing& backing, int fd, const std::vector<uint64_t>& offsets);

}  // namespace salius
