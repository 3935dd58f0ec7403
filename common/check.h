// Checks of our own logic, and the two macros that pass a Status upwards.
//
// SALIUS_CHECK is for conditions that only a bug of ours can break; it is on in every build. Bytes
// from the network or the disk never reach a check: they give a Status.
#ifndef SALIUS_COMMON_CHECK_H_
#define SALIUS_COMMON_CHECK_H_

#include <memory>
#include <ostream>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace salius {

// Sets `ready`, which is called before a failed check is printed. When it returns false, stderr
// takes nothing, and the process ends without a word. For a program that writes its log in the
// background.
void BeforeCheckFails(bool (*ready)());

}  // namespace salius

namespace salius::check_internal {

// Collects the message of a failed check; its destructor prints it to stderr and aborts.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition, std::string_view message = "");
  CheckFailure(const CheckFailure&) = delete;
  CheckFailure& operator=(const CheckFailure&) = delete;
  [[noreturn]] ~CheckFailure();

  std::ostream& stream();

 private:
  struct Message;
  std::unique_ptr<Message> message_;
};

// Gives the whole streaming expression the type void; & binds weaker than <<.
struct Voidify {
  void operator&(std::ostream&) const {}
};

// Returns null when ok, otherwise the status for SALIUS_CHECK_OK.
std::unique_ptr<absl::Status> FailedStatus(const absl::Status& status);

template <typename T>
std::unique_ptr<absl::Status> FailedStatus(const absl::StatusOr<T>& status_or) {
  return FailedStatus(status_or.status());
}

}  // namespace salius::check_internal

// Aborts with file, line and condition unless `condition` holds. A message may be given as a second
// argument, streamed, or both: SALIUS_CHECK(a < b, "order") << a << " " << b;
#define SALIUS_CHECK(condition, ...)                                                      \
  __builtin_expect(static_cast<bool>(condition), 1)                                       \
      ? static_cast<void>(0)                                                              \
      : ::salius::check_internal::Voidify() &                                             \
            ::salius::check_internal::CheckFailure(__FILE__, __LINE__,                    \
                                                   #condition __VA_OPT__(, ) __VA_ARGS__) \
                .stream()

// Aborts unless the Status or StatusOr is ok; prints it. Takes streamed text too.
#define SALIUS_CHECK_OK(...)                                                        \
  for (auto salius_failed = ::salius::check_internal::FailedStatus(__VA_ARGS__);    \
       salius_failed != nullptr;)                                                   \
  ::salius::check_internal::CheckFailure(__FILE__, __LINE__, #__VA_ARGS__).stream() \
      << salius_failed->ToString() << " "

// Returns the absl::Status of the expression from this function unless it is ok.
#define SALIUS_RETURN_IF_ERROR(...)                                                            \
  do {                                                                                         \
    if (absl::Status salius_status = (__VA_ARGS__); !salius_status.ok()) return salius_status; \
  } while (false)

#define SALIUS_CONCAT_INNER(a, b) a##b
#define SALIUS_CONCAT(a, b) SALIUS_CONCAT_INNER(a, b)

// Evaluates an expression of type StatusOr<T>: returns its status from this function when it is an
// error, otherwise moves the value into lhs, which may be a declaration. Two statements: not for
// the body of an if without braces.
#define SALIUS_ASSIGN_OR_RETURN(lhs, ...)                           \
  auto SALIUS_CONCAT(salius_or_, __LINE__) = (__VA_ARGS__);         \
  if (!SALIUS_CONCAT(salius_or_, __LINE__).ok())                    \
    return std::move(SALIUS_CONCAT(salius_or_, __LINE__)).status(); \
  lhs = std::move(SALIUS_CONCAT(salius_or_, __LINE__)).value()

#endif  // SALIUS_COMMON_CHECK_H_
