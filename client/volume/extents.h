// The changes of one file that were issued and are not applied yet ("patches" in the paper on
// non-blocking writes, section 3.3). A reader sees the backing file with them laid over it.
//
// They are kept as an ordered set of extents that do not overlap: a later change cuts what it
// covers out of the earlier ones. So each byte has one extent, that of the last change, and reads cost no
// more when the same bytes were written often. An extent refers to its record's body, which the
// session keeps in any case until a checkpoint.
//
// Writes inside a page that touch each other are joined into one extent, of at most 64 records, with
// a copy of their bytes. It stays until the last of these records is applied. Until then it may show bytes that the backing
// file has already, which changes nothing: a later change of them has cut them out.
//
// Records may be applied in another order than they were issued, but never before an earlier one
// that they overlap. So removing the extents of an applied record leaves the right ones.
//
// pure: no thread, lock, socket or clock. The owner (Node) locks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/types/span.h"
#include "client/session/record_stream.h"

namespace salius {

// A range of a file with its content: written bytes, or zeros.
struct Extent {
  uint64_t begin = 0, end = 0;
  const char* data = nullptr;         // null: zeros
  std::shared_ptr<const void> owner;  // of `data`

  bool is_data() const { return data != nullptr; }
  std::string_view bytes() const { return {data, static_cast<size_t>(end - begin)}; }
};

class Extents {
 public:
  static constexpr uint64_t kPageBytes = 4096;

  // Adds `record`, a data op that is later than all others.
  void Add(RecordRef record);
  // Takes out the record `seq`, which was applied; no effect if it is not here.
  void Remove(Seq seq);
  bool empty() const { return count_ == 0; }
  // Returns the number of bytes that writes changed: each byte once.
  uint64_t bytes() const { return bytes_; }
  // Calls `use` with each record that is not applied, in the order of their seqs.
  template <typename Use>
  void ForEachRecord(const Use& use) const {
    for (const auto& [seq, record] : records_) {
      if (record != nullptr) use(record);
    }
  }
  // Returns the extents in [offset, offset + length), cut to it, in their order in the file.
  std::vector<Extent> In(uint64_t offset, uint64_t length) const;

 private:
  // Bytes that were copied from several records: those in [begin, end) of the file, with room up to
  // `limit`. Readers use them without a lock, so none is written twice.
  struct Joined {
    uint64_t begin = 0, end = 0, limit = 0;
    std::unique_ptr<char[]> bytes;

    // Adds bytes at the end. They have room.
    void Append(std::string_view data);
  };
  struct Value {
    uint64_t end = 0;
    const char* data = nullptr;
    std::shared_ptr<const void> owner;  // a record, or `joined`
    Joined* joined = nullptr;
    // The records that it is of.
    Seq seq = 0;
    std::vector<Seq> more;
  };
  using Map = absl::btree_map<uint64_t, Value>;

  // Makes `at` the begin of an extent if one goes across it.
  void Split(uint64_t at);
  Map::iterator Erase(Map::iterator extent);
  // Joins a write inside a page, whose range has no extent, to those that touch it there. Returns
  // false when there is none.
  bool Join(const Record& write);
  static void AddSeqs(const Value& from, Value& to);
  // Takes a record out of those of the extent. Returns whether it was the last one.
  static bool TakeSeq(Value& value, Seq seq);

  Map map_;  // by begin
  // In the order of their seqs; null: it is applied. The first one is not null.
  std::deque<std::pair<Seq, RecordRef>> records_;
  size_t count_ = 0;  // records that are not null
  uint64_t bytes_ = 0;
};

// Returns the file's size after a data op, when it was `size` before.
uint64_t SizeAfter(uint64_t size, const RecordHeader& header);

// Returns whether `extents`, which Extents::In returned, fill the whole range.
bool AreWhole(absl::Span<const Extent> extents, uint64_t offset, uint64_t length);

// Lays `extents` over `buffer`, which holds the bytes [offset, offset + buffer.size()) of the
// backing file with zeros beyond its end. Extents outside of it have no effect. Afterwards bytes
// beyond the end of the changed file are zero.
void Overlay(absl::Span<const Extent> extents, uint64_t offset, absl::Span<char> buffer);

}  // namespace salius
