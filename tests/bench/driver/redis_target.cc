#include "tests/bench/driver/redis_target.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"

namespace salius::bench {
namespace {

constexpr size_t kDigits = 16;
// WAIT returns after this time with the number of replicas: an error instead of a hang.
constexpr int kWaitMs = 10000;

std::string Bulk(const std::string& word) {
  return absl::StrCat("$", word.size(), "\r\n", word, "\r\n");
}

}  // namespace

absl::StatusOr<std::unique_ptr<RedisTarget>> RedisTarget::Make(Plan plan) {
  plan.size = std::max<uint64_t>(plan.size, kDigits);
  std::unique_ptr<RedisTarget> target(new RedisTarget(std::move(plan)));
  const Plan& made = target->plan_;
  for (uint64_t i = 0; i < made.writers; ++i) {
    SALIUS_ASSIGN_OR_RETURN(LineConnection connection, LineConnection::Connect(made.server));
    std::string request = absl::StrCat("*3\r\n", Bulk("SET"), Bulk(absl::StrCat("bench:", i)), "$",
                                       made.size, "\r\n");
    const size_t number_at = request.size();
    absl::StrAppend(&request, std::string(made.size, 'x'), "\r\n");
    if (made.acks > 0) {
      absl::StrAppend(&request, "*3\r\n", Bulk("WAIT"), Bulk(absl::StrCat(made.acks)),
                      Bulk(absl::StrCat(kWaitMs)));
    }
    target->writers_.push_back({std::move(connection), std::move(request), number_at});
  }
  return target;
}

absl::Status RedisTarget::Operate(size_t index) {
  Writer& writer = writers_[index];
  const std::string number = absl::StrFormat("%016d", ++writer.number);
  writer.request.replace(writer.number_at, kDigits, number);
  SALIUS_RETURN_IF_ERROR(writer.connection.Send(writer.request));
  SALIUS_ASSIGN_OR_RETURN(const std::string set, writer.connection.ReadLine());
  if (set != "+OK") return absl::InternalError("SET: " + set);
  if (plan_.acks == 0) return absl::OkStatus();
  SALIUS_ASSIGN_OR_RETURN(const std::string waited, writer.connection.ReadLine());
  uint64_t replicas = 0;
  if (waited.empty() || waited[0] != ':' || !absl::SimpleAtoi(waited.substr(1), &replicas) ||
      replicas < plan_.acks) {
    return absl::UnavailableError("WAIT: " + waited);
  }
  return absl::OkStatus();
}

}  // namespace salius::bench
