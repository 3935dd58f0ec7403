#include "tests/bench/driver/postgres_target.h"

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace salius::bench {
namespace {

// A value stays in its row uncompressed while it fits a page: exactly the requested bytes are
// written.
constexpr char kTable[] =
    "CREATE TABLE IF NOT EXISTS bench(body bytea) WITH (toast_tuple_target = 8160);"
    "ALTER TABLE bench ALTER body SET STORAGE EXTERNAL";
constexpr Oid kBytea = 17;

// Consumes the result.
absl::Status Check(PGconn* connection, PGresult* result) {
  const ExecStatusType status = PQresultStatus(result);
  PQclear(result);
  if (status == PGRES_COMMAND_OK) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("PostgreSQL: ", PQerrorMessage(connection)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<PostgresTarget>> PostgresTarget::Make(Plan plan) {
  std::unique_ptr<PostgresTarget> target(new PostgresTarget(std::move(plan)));
  for (uint64_t i = 0; i < target->plan_.writers; ++i) {
    Connection connection(PQconnectdb(target->plan_.server.c_str()));
    PGconn* const raw = connection.get();
    if (PQstatus(raw) != CONNECTION_OK) return absl::UnavailableError(PQerrorMessage(raw));
    if (i == 0) {
      SALIUS_RETURN_IF_ERROR(Check(raw, PQexec(raw, "SET client_min_messages = warning")));
      SALIUS_RETURN_IF_ERROR(Check(raw, PQexec(raw, kTable)));
    }
    SALIUS_RETURN_IF_ERROR(
        Check(raw, PQprepare(raw, "insert", "INSERT INTO bench(body) VALUES ($1)", 1, &kBytea)));
    target->connections_.push_back(std::move(connection));
  }
  return target;
}

absl::Status PostgresTarget::Prepare(size_t writer) {
  if (writer != 0) return absl::OkStatus();
  PGconn* const connection = connections_[0].get();
  return Check(connection, PQexec(connection, "TRUNCATE bench"));
}

absl::Status PostgresTarget::Operate(size_t writer) {
  PGconn* const connection = connections_[writer].get();
  const char* const value = data_.data();
  const int length = static_cast<int>(data_.size());
  const int binary = 1;
  return Check(connection, PQexecPrepared(connection, "insert", 1, &value, &length, &binary, 0));
}

}  // namespace salius::bench
