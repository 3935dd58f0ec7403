// Shared by the tests of the stable log.
#ifndef SALIUS_TESTS_UNIT_LOG_STABLE_LOG_UTIL_H_
#define SALIUS_TESTS_UNIT_LOG_STABLE_LOG_UTIL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/bytes.h"
#include "common/check.h"
#include "log/record.h"
#include "log/stable_log.h"
#include "storage/backing.h"
#include "tests/unit/log/test_dir.h"

namespace salius {

inline constexpr char kLogName[] = "stable.log";
inline constexpr uint64_t kMiB = uint64_t{1} << 20;

inline VolumeId TestVolume() {
  VolumeId volume;
  volume.bytes.fill(0x77);
  return volume;
}

// Returns a write record with a body that differs from every other.
inline std::string TestRecord(Epoch epoch, Seq seq, size_t body_bytes) {
  RecordHeader header;
  header.volume = TestVolume();
  header.epoch = epoch;
  header.seq = seq;
  header.file_id = 5;
  std::string body(body_bytes, '\0');
  for (size_t i = 0; i < body.size(); ++i) body[i] = static_cast<char>(epoch * 31 + seq * 7 + i);
  return EncodeRecord(header, body);
}

inline absl::Status AppendAll(StableLog& log, const std::vector<std::string>& records) {
  std::vector<StableLog::Item> items;
  for (const std::string& record : records) items.push_back({AsBytes(record), {}});
  return log.Append(items);
}

// Returns everything in the log of `dir`, which must be readable.
inline StableLog::Contents ReadLog(const TestDir& dir) {
  StableLog::Contents contents;
  SALIUS_CHECK_OK(StableLog::Open(LinuxBacking(), dir.fd(), kLogName, TestVolume(), &contents));
  return contents;
}

}  // namespace salius

#endif  // SALIUS_TESTS_UNIT_LOG_STABLE_LOG_UTIL_H_
