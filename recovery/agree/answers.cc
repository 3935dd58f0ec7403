#include "recovery/agree/answers.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "common/bytes.h"
#include "common/check.h"
#include "common/crc32c.h"
#include "common/limits.h"

namespace salius::recovery {
namespace {

Inventory FromProto(const control::VolumeInventory& from) {
  Inventory inventory;
  inventory.known = from.known();
  inventory.epoch = from.epoch();
  inventory.base = from.base();
  inventory.contiguous = from.contiguous();
  inventory.highest = from.highest();
  inventory.records = from.records();
  inventory.bytes = from.bytes();
  inventory.trimmed = from.trimmed();
  inventory.durable_mark = from.durable_mark();
  inventory.checkpoint_mark = from.checkpoint_mark();
  inventory.promised_epoch = from.promised_epoch();
  return inventory;
}

// Refuses numbers that no replica can reach: their sums would wrap.
absl::Status CheckNumbers(const std::string& address, const Inventory& i) {
  if (std::max({i.epoch, i.base, i.contiguous, i.highest, i.trimmed, i.durable_mark,
                i.checkpoint_mark, i.promised_epoch}) <= kMaxCount) {
    return absl::OkStatus();
  }
  return absl::DataLossError(
      absl::StrFormat("replica %s: its inventory holds a number beyond %d", address, kMaxCount));
}

}  // namespace

absl::StatusOr<Answer> AnswerFrom(const std::string& address,
                                  const control::InventoryResponse& message) {
  Answer answer{address, message.incarnation(), FromProto(message.inventory())};
  SALIUS_RETURN_IF_ERROR(CheckNumbers(address, answer.inventory));
  return answer;
}

absl::StatusOr<Answer> AnswerFrom(const std::string& address,
                                  const control::FenceResponse& message) {
  Answer answer{address, message.incarnation(), FromProto(message.inventory())};
  answer.inventory.promised_epoch = message.promised_epoch();
  SALIUS_RETURN_IF_ERROR(CheckNumbers(address, answer.inventory));
  return answer;
}

absl::Status CheckChunk(const std::string& address, const control::FetchResponse& message) {
  if (Crc32c(AsBytes(message.records())) == message.crc32c()) return absl::OkStatus();  // R37
  return absl::DataLossError(
      absl::StrFormat("replica %s: a chunk of records arrived damaged", address));
}

}  // namespace salius::recovery
