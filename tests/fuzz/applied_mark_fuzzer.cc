// Opens the page with the applied watermark. For any content of the file:
// - The page opens.
// - It reports the epoch and the watermark of a valid page, or 0 for both.
// - During a sync, and after a failed one, it reports 0.
// - The next process reads back the marks of a new session.
#include "log/applied_mark.h"

#include "common/check.h"
#include "tests/fuzz/fuzz_scratch.h"
#include "tests/fuzz/fuzz_util.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace salius;                          // NOLINT: the function has to be outside
  constexpr uint64_t kMagic = 0x314B52414D4C5341;  // docs/log-format.md
  WriteScratch("applied", absl::MakeConstSpan(data, size));
  Epoch epoch = 0;
  {
    auto mark = AppliedMark::Open(ScratchDirectory());
    SALIUS_CHECK_OK(mark);
    std::string page(reinterpret_cast<const char*>(data), size);
    if (page.size() < 32) page.resize(32, '\0');
    const bool valid = LoadU64(page.data()) == kMagic &&
                       LoadU64(page.data() + 24) == (LoadU64(page.data() + 8) ^ kMagic);
    epoch = LoadU64(page.data() + 8);
    SALIUS_CHECK(mark->epoch() == (valid ? epoch : 0));
    SALIUS_CHECK(mark->applied() == (valid ? LoadU64(page.data() + 16) : 0));
    page.resize(std::max<size_t>(page.size(), 40), '\0');
    SALIUS_CHECK(!valid || mark->complaints() == LoadU64(page.data() + 32));
    mark->SyncBegins();
    SALIUS_CHECK(mark->epoch() == 0 && mark->applied() == 0);
    mark->SyncEnds(size % 2 == 0);
    SALIUS_CHECK(mark->applied() == (valid && size % 2 == 0 ? LoadU64(page.data() + 16) : 0));
  }
  {
    auto mark = AppliedMark::Open(ScratchDirectory());
    SALIUS_CHECK_OK(mark);
    mark->Reset(epoch, size);
    SALIUS_CHECK(mark->epoch() == epoch && mark->applied() == 0);
    mark->Store(size);
  }
  const auto mark = AppliedMark::Open(ScratchDirectory());
  SALIUS_CHECK_OK(mark);
  SALIUS_CHECK(mark->epoch() == epoch && mark->applied() == size && mark->complaints() == size);
  return 0;
}
