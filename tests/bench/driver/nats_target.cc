#include "tests/bench/driver/nats_target.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/random.h"

namespace salius::bench {

absl::StatusOr<std::unique_ptr<NatsTarget>> NatsTarget::Make(Plan plan) {
  std::unique_ptr<NatsTarget> target(new NatsTarget(std::move(plan)));
  const Plan& made = target->plan_;
  for (uint64_t i = 0; i < made.writers; ++i) {
    SALIUS_ASSIGN_OR_RETURN(LineConnection connection, LineConnection::Connect(made.server));
    SALIUS_ASSIGN_OR_RETURN(const std::string info, connection.ReadLine());
    if (!absl::StartsWith(info, "INFO ")) return absl::InternalError("no NATS server: " + info);
    // Acknowledgements come to a subject of this writer's own.
    const std::string inbox = absl::StrCat("_INBOX.", SecureRandom64());
    SALIUS_RETURN_IF_ERROR(connection.Send(
        absl::StrCat("CONNECT {\"verbose\":false,\"pedantic\":false}\r\nSUB ", inbox, " 1\r\n")));
    target->writers_.push_back(
        {std::move(connection), absl::StrCat("PUB ", made.subject, " ", inbox, " ", made.size,
                                             "\r\n", std::string(made.size, 'x'), "\r\n")});
  }
  return target;
}

// Returns the next message's payload, which has no line ends: acknowledgements are one line of
// JSON.
absl::StatusOr<std::string> NatsTarget::ReadMessage(LineConnection& connection) {
  for (;;) {
    SALIUS_ASSIGN_OR_RETURN(const std::string line, connection.ReadLine());
    if (absl::StartsWith(line, "MSG ")) return connection.ReadLine();
    if (line == "PING") {
      SALIUS_RETURN_IF_ERROR(connection.Send("PONG\r\n"));
    } else if (!absl::StartsWith(line, "INFO ")) {  // the server may send it at any time
      return absl::InternalError("NATS: " + line);
    }
  }
}

absl::Status NatsTarget::Operate(size_t index) {
  Writer& writer = writers_[index];
  SALIUS_RETURN_IF_ERROR(writer.connection.Send(writer.request));
  SALIUS_ASSIGN_OR_RETURN(const std::string answer, ReadMessage(writer.connection));
  // {"stream":"NAME","seq":N}, or {"error":{...},...}
  if (absl::StrContains(answer, "\"error\"") || !absl::StrContains(answer, "\"seq\"")) {
    return absl::InternalError("JetStream: " + answer);
  }
  return absl::OkStatus();
}

}  // namespace salius::bench
