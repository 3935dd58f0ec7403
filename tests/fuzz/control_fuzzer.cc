// Parses messages of the control plane (proto/control.proto). They arrive from a replica or from a
// mounted volume's status socket. The fuzzer checks the text and the JSON for users, and the
// answers that a primary and a recovery take from a replica:
// - A message that parses serializes to the same message.
// - JSON is one line of well-formed JSON.
// - Text holds no control characters but line ends: a peer must not write to a user's terminal.
// - An answer holds the numbers of the message. A message with an impossible number is refused.
//
// The first byte selects the message type. control_service_fuzzer.cc sends requests to a replica.
#include <algorithm>
#include <string>

#include "client/cli/status_text.h"
#include "client/session/session_answer.h"
#include "common/check.h"
#include "common/limits.h"
#include "proto/control.pb.h"
#include "recovery/agree/answers.h"
#include "tests/fuzz/fuzz_util.h"

namespace salius {
namespace {

// Reads one JSON value strictly (RFC 8259). Whole() returns false for any other text.
class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : rest_(text) {}
  bool Whole() { return Value(0) && rest_.empty(); }

 private:
  bool Take(std::string_view token) {
    if (rest_.substr(0, token.size()) != token) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  bool String() {
    if (!Take("\"")) return false;
    while (!rest_.empty()) {
      const auto c = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      if (c == '"') return true;
      if (c < 0x20) return false;
      if (c != '\\') continue;
      if (rest_.empty()) return false;
      const char escaped = rest_.front();
      rest_.remove_prefix(1);
      if (escaped == 'u') {
        if (rest_.size() < 4) return false;
        for (const char digit : rest_.substr(0, 4)) {
          if (!isxdigit(static_cast<unsigned char>(digit))) return false;
        }
        rest_.remove_prefix(4);
      } else if (std::string_view("\"\\/bfnrt").find(escaped) == std::string_view::npos) {
        return false;
      }
    }
    return false;
  }
  bool Digits() {
    const size_t count = std::min(rest_.find_first_not_of("0123456789"), rest_.size());
    rest_.remove_prefix(count);
    return count > 0;
  }
  bool Number() {
    Take("-");
    return Digits() && (!Take(".") || Digits());
  }
  bool Value(int depth) {
    if (depth > 8) return false;
    if (Take("true") || Take("false") || Take("null")) return true;
    if (rest_.substr(0, 1) == "\"") return String();
    const bool object = rest_.substr(0, 1) == "{";
    if (!object && rest_.substr(0, 1) != "[") return Number();
    rest_.remove_prefix(1);
    const std::string_view end = object ? "}" : "]";
    if (Take(end)) return true;
    do {
      if (object && !(String() && Take(":"))) return false;
      if (!Value(depth + 1)) return false;
    } while (Take(","));
    return Take(end);
  }

  std::string_view rest_;
};

void CheckText(const std::string& text) {
  for (const char c : text) {
    SALIUS_CHECK(c == '\n' || (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f)) << text;
  }
}

void CheckJson(const std::string& json) { SALIUS_CHECK(JsonReader(json).Whole()) << json; }

// Checks that `answer` holds all numbers of the message, or is DATA_LOSS because one of them is
// above kMaxCount.
void CheckAnswer(const absl::StatusOr<recovery::Answer>& answer, uint64_t incarnation,
                 uint64_t promised_epoch, const control::VolumeInventory& said) {
  const bool possible =
      std::max({said.epoch(), said.base(), said.contiguous(), said.highest(), said.trimmed(),
                said.durable_mark(), said.checkpoint_mark(), promised_epoch}) <= kMaxCount;
  SALIUS_CHECK(answer.ok() == possible);
  if (!answer.ok()) {
    SALIUS_CHECK(absl::IsDataLoss(answer.status()));
    return;
  }
  const recovery::Inventory& taken = answer->inventory;
  SALIUS_CHECK(answer->address == "a:1" && answer->incarnation == incarnation);
  SALIUS_CHECK(taken.known == said.known() && taken.epoch == said.epoch());
  SALIUS_CHECK(taken.base == said.base() && taken.contiguous == said.contiguous());
  SALIUS_CHECK(taken.highest == said.highest() && taken.trimmed == said.trimmed());
  SALIUS_CHECK(taken.records == said.records() && taken.bytes == said.bytes());
  SALIUS_CHECK(taken.durable_mark == said.durable_mark());
  SALIUS_CHECK(taken.checkpoint_mark == said.checkpoint_mark());
  SALIUS_CHECK(taken.promised_epoch == promised_epoch);
}

void Use(const control::InventoryResponse& message) {
  CheckAnswer(recovery::AnswerFrom("a:1", message), message.incarnation(),
              message.inventory().promised_epoch(), message.inventory());
  // One impossible number in any field is enough for DATA_LOSS.
  using Said = control::VolumeInventory;
  for (const auto set : {&Said::set_epoch, &Said::set_base, &Said::set_contiguous,
                         &Said::set_highest, &Said::set_trimmed, &Said::set_durable_mark,
                         &Said::set_checkpoint_mark, &Said::set_promised_epoch}) {
    control::InventoryResponse beyond = message;
    (beyond.mutable_inventory()->*set)(kMaxCount + 1);
    SALIUS_CHECK(absl::IsDataLoss(recovery::AnswerFrom("a:1", beyond).status()));
  }
}
void Use(const control::FenceResponse& message) {
  CheckAnswer(recovery::AnswerFrom("a:1", message), message.incarnation(), message.promised_epoch(),
              message.inventory());
}
void Use(const control::OpenSessionResponse& message) {
  const auto opened = OpenedFrom("a:1", message);
  const bool good_key = message.ack_key().empty() || message.ack_key().size() == kSealKeyBytes;
  SALIUS_CHECK(opened.ok() ==
               (message.incarnation() != 0 && message.udp_port() - 1 < 65535 && good_key));
  if (!opened.ok()) return;
  SALIUS_CHECK(opened->incarnation == message.incarnation());
  SALIUS_CHECK(opened->udp_port == message.udp_port());
  SALIUS_CHECK(opened->free_bytes == message.free_bytes());
}
void Use(control::FetchResponse message) {
  const uint32_t sum = Crc32c(AsBytes(message.records()));
  SALIUS_CHECK(recovery::CheckChunk("a:1", message).ok() == (message.crc32c() == sum));
  message.set_crc32c(sum);
  SALIUS_CHECK_OK(recovery::CheckChunk("a:1", message));
  if (message.records().empty()) return;
  message.mutable_records()->back() ^= 1;
  SALIUS_CHECK(absl::IsDataLoss(recovery::CheckChunk("a:1", message)));
}
void Use(const control::VolumeStatusResponse& status) {
  CheckText(cli::MountedText(status));
  CheckJson(cli::MountedJson(status));
}
void Use(const control::ReplicaStatusResponse& status) {
  CheckText(cli::ReplicaText("host:7400", status));
  CheckJson(cli::ReplicaJson("host:7400", status));
}
template <typename Message>
void Use(const Message&) {}

template <typename Message>
void Fuzz(absl::Span<const uint8_t> bytes) {
  Message message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  const std::string written = message.SerializeAsString();
  Message again;
  SALIUS_CHECK(again.ParseFromString(written));
  SALIUS_CHECK(again.SerializeAsString() == written);
  Use(message);
}

}  // namespace
}  // namespace salius

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace salius;  // NOLINT: the function has to be outside
  if (size == 0) return 0;
  const absl::Span<const uint8_t> bytes = absl::MakeConstSpan(data, size).subspan(1);
  switch (data[0] % 12) {
    case 0:
      Fuzz<control::OpenSessionRequest>(bytes);
      break;
    case 1:
      Fuzz<control::OpenSessionResponse>(bytes);
      break;
    case 2:
      Fuzz<control::FenceRequest>(bytes);
      break;
    case 3:
      Fuzz<control::FenceResponse>(bytes);
      break;
    case 4:
      Fuzz<control::FetchRequest>(bytes);
      break;
    case 5:
      Fuzz<control::FetchResponse>(bytes);
      break;
    case 6:
      Fuzz<control::ReplicaStatusResponse>(bytes);
      break;
    case 7:
      Fuzz<control::VolumeStatusResponse>(bytes);
      break;
    case 8:
      Fuzz<control::InventoryRequest>(bytes);
      break;
    case 9:
      Fuzz<control::InventoryResponse>(bytes);
      break;
    case 10:
      Fuzz<control::DropVolumeRequest>(bytes);
      break;
    default:
      Fuzz<control::DropVolumeResponse>(bytes);
      break;
  }
  return 0;
}
