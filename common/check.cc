#include "common/check.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

namespace salius {
namespace {

std::atomic<bool (*)()> g_ready{nullptr};

}  // namespace

void BeforeCheckFails(bool (*ready)()) { g_ready.store(ready); }

}  // namespace salius

namespace salius::check_internal {

struct CheckFailure::Message {
  std::ostringstream text;
};

CheckFailure::CheckFailure(const char* file, int line, const char* condition,
                           std::string_view message)
    : message_(std::make_unique<Message>()) {
  message_->text << file << ":" << line << ": check failed: " << condition << " ";
  if (!message.empty()) message_->text << message << " ";
}

CheckFailure::~CheckFailure() {
  bool (*const ready)() = g_ready.load();
  if (ready == nullptr || ready()) {
    const std::string text = message_->text.str();
    std::fprintf(stderr, "%s\n", text.c_str());
    std::fflush(stderr);
  }
  std::abort();
}

std::ostream& CheckFailure::stream() { return message_->text; }

std::unique_ptr<absl::Status> FailedStatus(const absl::Status& status) {
  if (status.ok()) return nullptr;
  return std::make_unique<absl::Status>(status);
}

}  // namespace salius::check_internal
