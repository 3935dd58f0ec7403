#include "tests/sim/direct_ledger.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace salius::sim {
namespace {

// Returns the value of a cell's bytes; UINT64_MAX when they are no cell.
uint64_t ValueOf(const std::string& bytes) {
  uint64_t value = 0;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return bytes == DirectLedger::CellOf(value) ? value : UINT64_MAX;
}

}  // namespace

std::string DirectLedger::CellOf(uint64_t value) {
  std::string bytes(kCellBytes, '\0');
  for (size_t at = 0; at < bytes.size(); at += sizeof(value)) {
    std::memcpy(bytes.data() + at, &value, sizeof(value));
  }
  return bytes;
}

std::string DirectLedger::Bytes(std::string_view content, uint64_t cell) {
  const size_t at = std::min<size_t>(cell * kCellBytes, content.size());
  std::string bytes(content.substr(at, kCellBytes));
  bytes.resize(kCellBytes, '\0');
  return bytes;
}

void DirectLedger::TruncatedTo(uint64_t cells) {
  for (; cells < kCells; ++cells) cells_[cells].values.push_back(0);
}

DirectLedger::Marks DirectLedger::Newest() const {
  Marks marks;
  for (uint64_t i = 0; i < kCells; ++i) marks[i] = cells_[i].values.size() - 1;
  return marks;
}

void DirectLedger::Acknowledge(const Marks& marks, bool name) {
  named_ |= name;
  for (uint64_t i = 0; i < kCells; ++i) cells_[i].acked = std::max(cells_[i].acked, marks[i]);
}

std::string DirectLedger::Check(std::string_view content, bool newest) const {
  for (uint64_t i = 0; i < kCells; ++i) {
    const Cell& cell = cells_[i];
    const size_t least = newest ? cell.values.size() - 1 : cell.acked;
    const uint64_t value = ValueOf(Bytes(content, i));
    const auto begin = cell.values.begin() + static_cast<ptrdiff_t>(least);
    if (std::find(begin, cell.values.end(), value) != cell.values.end()) continue;
    const auto old = std::find(cell.values.begin(), begin, value);
    return absl::StrCat("cell ", i, " has ",
                        old == begin ? "bytes that were never written"
                                     : absl::StrCat("write ", old - cell.values.begin()),
                        ", and write ", least, " of ", cell.values.size() - 1,
                        newest ? " is the newest" : " was acknowledged");
  }
  return "";
}

void DirectLedger::StartWith(std::string_view content) {
  named_ = true;
  for (uint64_t i = 0; i < kCells; ++i) cells_[i] = {{ValueOf(Bytes(content, i))}, 0};
}

}  // namespace salius::sim
