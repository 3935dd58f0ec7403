// SQLite: INSERT of one numbered row in a transaction of its own, synchronous=FULL. One writer.
#pragma once

#include <sqlite3.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "client/cli/bench_target.h"

namespace salius::bench {

class SqliteTarget : public cli::ClosedLoop {
 public:
  struct Plan {
    std::string file;             // new, or one that an earlier target made
    std::string journal = "wal";  // journal_mode
    uint64_t size = 4096;
  };
  // Makes the table bench(n, body) when there is none. INVALID_ARGUMENT when SQLite does not accept
  // the journal mode.
  static absl::StatusOr<std::unique_ptr<SqliteTarget>> Make(Plan plan);

 protected:
  absl::Status Operate(size_t writer) override;

 private:
  struct Close {
    void operator()(sqlite3* database) const { sqlite3_close(database); }
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  explicit SqliteTarget(Plan plan)
      : ClosedLoop(1), plan_(std::move(plan)), data_(plan_.size, 'x') {}
  absl::Status Open();
  absl::Status Error(const char* what) const;

  const Plan plan_;
  const std::string data_;
  std::unique_ptr<sqlite3, Close> database_;
  std::unique_ptr<sqlite3_stmt, Close> insert_;
};

}  // namespace salius::bench
