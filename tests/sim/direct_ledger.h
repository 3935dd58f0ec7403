// The outside ledger of a simulated direct volume: writes and acknowledged syncs of a file. A file is a row of cells. Each write gives a cell a new value. A cell's values
// are kept in the order of the page cache.
//
// After a recovery each cell must have a value that is not older than the last one that a successful
// sync covered (I1, I3). A sync covers what was in the page cache when it began, of every process.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace salius::sim {

class DirectLedger {
 public:
  static constexpr uint64_t kCellBytes = 1024;
  static constexpr uint64_t kCells = 8;
  using Marks = std::array<size_t, kCells>;

  // Returns the bytes of a cell with this value; 0 is the value of a hole.
  static std::string CellOf(uint64_t value);

  void Wrote(uint64_t cell, uint64_t value) { cells_[cell].values.push_back(value); }
  void TruncatedTo(uint64_t cells);
  // Returns the number of the newest value of each cell.
  Marks Newest() const;
  // Takes the values up to `marks` as acknowledged; with `name`, the file's name too.
  void Acknowledge(const Marks& marks, bool name);
  // Returns whether the file must be there.
  bool named() const { return named_; }

  // Returns how the content breaks what was acknowledged; empty when it does not. `newest`: each
  // cell must have its newest value.
  std::string Check(std::string_view content, bool newest) const;
  // Takes the content as what the disk has, from which a session begins.
  void StartWith(std::string_view content);

 private:
  struct Cell {
    std::vector<uint64_t> values{0};
    size_t acked = 0;  // the number of the value that may not be lost
  };
  static std::string Bytes(std::string_view content, uint64_t cell);

  std::array<Cell, kCells> cells_;
  bool named_ = false;
};

}  // namespace salius::sim
