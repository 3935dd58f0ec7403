#include "tests/bench/driver/sqlite_target.h"

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace salius::bench {

absl::StatusOr<std::unique_ptr<SqliteTarget>> SqliteTarget::Make(Plan plan) {
  std::unique_ptr<SqliteTarget> target(new SqliteTarget(std::move(plan)));
  SALIUS_RETURN_IF_ERROR(target->Open());
  return target;
}

absl::Status SqliteTarget::Error(const char* what) const {
  return absl::InternalError(absl::StrCat("SQLite: ", what, ": ", sqlite3_errmsg(database_.get())));
}

absl::Status SqliteTarget::Open() {
  sqlite3* database = nullptr;
  const int opened = sqlite3_open(plan_.file.c_str(), &database);
  database_.reset(database);
  if (opened != SQLITE_OK) return Error(plan_.file.c_str());

  // The pragma answers with the mode in force, in a row.
  std::string mode;
  const auto note = [](void* into, int, char** values, char**) {
    *static_cast<std::string*>(into) = values[0];
    return 0;
  };
  const std::string pragma = absl::StrCat("PRAGMA journal_mode=", plan_.journal);
  if (sqlite3_exec(database, pragma.c_str(), note, &mode, nullptr) != SQLITE_OK) {
    return Error(pragma.c_str());
  }
  if (mode != plan_.journal) {
    return absl::InvalidArgumentError(absl::StrCat("the journal mode stays ", mode));
  }
  constexpr char kTable[] =
      "PRAGMA synchronous=FULL;"
      "CREATE TABLE IF NOT EXISTS bench(n INTEGER PRIMARY KEY, body BLOB)";
  if (sqlite3_exec(database, kTable, nullptr, nullptr, nullptr) != SQLITE_OK) return Error(kTable);

  sqlite3_stmt* insert = nullptr;
  const int prepared =
      sqlite3_prepare_v2(database, "INSERT INTO bench(body) VALUES (?)", -1, &insert, nullptr);
  insert_.reset(insert);
  if (prepared != SQLITE_OK) return Error("INSERT");
  if (sqlite3_bind_blob64(insert, 1, data_.data(), data_.size(), SQLITE_STATIC) != SQLITE_OK) {
    return Error("bind");
  }
  return absl::OkStatus();
}

absl::Status SqliteTarget::Operate(size_t) {
  if (sqlite3_step(insert_.get()) != SQLITE_DONE) return Error("INSERT");
  if (sqlite3_reset(insert_.get()) != SQLITE_OK) return Error("INSERT");
  return absl::OkStatus();
}

}  // namespace salius::bench
