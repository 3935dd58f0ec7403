// SALIUS_REQUIRE: SALIUS_CHECK (common/check.h) for code that needs the standard library only,
// because it is loaded into other programs. On in every build.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdlib>

namespace salius::require_internal {

// Prints `text` to stderr without a lock or an allocation, and aborts.
template <size_t kSize>
[[noreturn]] __attribute__((noinline, cold)) void Failed(const char (&text)[kSize]) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, kSize - 1);
  std::abort();
}

}  // namespace salius::require_internal

#define SALIUS_REQUIRE_TEXT_INNER(line) #line
#define SALIUS_REQUIRE_TEXT(line) SALIUS_REQUIRE_TEXT_INNER(line)

// Aborts with file, line and condition unless `condition` holds.
#define SALIUS_REQUIRE(condition)                   \
  __builtin_expect(static_cast<bool>(condition), 1) \
      ? static_cast<void>(0)                        \
      : ::salius::require_internal::Failed(         \
            __FILE__ ":" SALIUS_REQUIRE_TEXT(__LINE__) ": check failed: " #condition "\n")
