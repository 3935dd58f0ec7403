// Sends requests of any content to a replica's gRPC service (replica/control_service.cc), without
// gRPC itself.
//
// The input is a small program of requests, with records in between. After each request the fuzzer
// checks:
// - A failed request has changed nothing. An invalid volume or group gives INVALID_ARGUMENT.
// - A successful request has changed only its own volume, to the state in the answer.
// - A primary and a recovery accept the answer.
// - A fetch returns the records that the inventory counts.
// - Each group that the replica has noted is valid, so that it is valid after a restart, too.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/session/session_answer.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/limits.h"
#include "common/log.h"
#include "log/record.h"
#include "proto/frame.h"
#include "recovery/agree/answers.h"
#include "recovery/agree/record_set.h"
#include "replica/arena.h"
#include "replica/call_log.h"
#include "replica/control_service.h"
#include "replica/multicast_group.h"
#include "tests/fuzz/fuzz_util.h"
#include "tests/unit/replica/memory_promises.h"
#include "transport/udp_socket.h"

namespace salius {
namespace {

constexpr int kMaxSteps = 40;

absl::Span<uint8_t> Memory() {
  static auto* const memory =
      static_cast<uint8_t*>(std::aligned_alloc(kArenaPageBytes, kMinArenaBytes));
  return absl::MakeSpan(memory, kMinArenaBytes);
}

Arena NewArena() {
  std::memset(Memory().data(), 0, Memory().size());
  SALIUS_CHECK_OK(Arena::Format(Memory(), [] { return 7; }));
  auto arena = Arena::Attach(Memory(), [] { return 8; });
  SALIUS_CHECK_OK(arena);
  return *std::move(arena);
}

// Returns a loop that joins groups on the loopback interface. The loop never runs, and so never
// uses its acceptor.
ReceiveLoop& Loop() {
  static ReceiveLoop* const loop = [] {
    SALIUS_CHECK_OK(InitLogging("fuzzer", "off"));
    auto* const arena = new Arena(NewArena());
    auto* const acceptor = new SharedAcceptor(*arena, {}, 0, nullptr);
    auto* const metrics = new ReplicaMetrics(*acceptor, SystemClock(), arena->incarnation(), 1,
                                             /*sealed=*/false, *new KeyRing());
    ReceiveLoop::Options options;
    options.listen = ResolveAddress(HostPort{"127.0.0.1", 0}).value();
    auto socket = UdpSocket::Bind(options.listen, {});
    SALIUS_CHECK_OK(socket);
    auto made = ReceiveLoop::Create(std::make_unique<UdpSocket>(*std::move(socket)), options,
                                    *acceptor, *metrics, SystemClock());
    SALIUS_CHECK_OK(made);
    return made->release();
  }();
  return *loop;
}

uint64_t Number(ByteReader& in) {
  const uint8_t what = in.U8();
  if (what < 0xe0) return what % 16;
  if (what < 0xf0) return kMaxCount - 2 + what % 4;
  return what % 2 == 0 ? UINT64_MAX - in.U8() % 4 : in.U64();
}

std::string Text(ByteReader& in) {
  return std::string(in.String(std::min<size_t>(in.U8(), in.remaining())));
}

absl::StatusCode CodeOf(const grpc::Status& status) {
  return static_cast<absl::StatusCode>(status.error_code());
}

class Replica {
 public:
  explicit Replica(ByteReader& in) : in_(in) {}

  void Run() {
    for (int step = 0; step < kMaxSteps && in_.remaining() > 0; ++step) Step();
  }

 private:
  std::string Volume() {
    const uint8_t what = in_.U8();
    return what < 0xf0 ? std::string(16, static_cast<char>('a' + what % 2)) : Text(in_);
  }

  // Each volume's part of the status, and the rest of the status under an empty name.
  using State = std::map<std::string, std::string>;
  State Now() {
    control::ReplicaStatusResponse status;
    control::ReplicaStatusRequest request;
    request.set_volume(std::string(16, 'a'));
    SALIUS_CHECK(service_.Status(nullptr, &request, &status).ok());
    State state;
    for (const auto& volume : status.volumes()) {
      state[volume.volume()] = volume.SerializeAsString();
    }
    SALIUS_CHECK(static_cast<size_t>(status.calls_size()) <= 2 * kCallKinds * CallLog::kKept);
    status.clear_calls();
    status.clear_volumes();
    status.clear_free_bytes();
    status.clear_granted_bytes();
    status.clear_slots_used();
    status.clear_promises();
    state[""] = status.SerializeAsString();
    return state;
  }

  control::VolumeInventory Ask(const std::string& volume) {
    control::InventoryRequest request;
    request.set_volume(volume);
    control::InventoryResponse response;
    const grpc::Status status = service_.Inventory(nullptr, &request, &response);
    SALIUS_CHECK(status.ok() == (volume.size() == sizeof(VolumeId{}.bytes)));
    if (status.ok()) SALIUS_CHECK_OK(recovery::AnswerFrom("", response));
    return response.inventory();
  }

  // Checks that no volume but `changed` differs from `before`.
  void CheckOthers(State before, const std::string& changed) {
    State after = Now();
    before.erase(changed);
    after.erase(changed);
    SALIUS_CHECK(before == after);
  }

  // Returns whether the request succeeded. Checks that a failed request has changed nothing, and
  // that an invalid volume was refused.
  bool Check(const grpc::Status& status, const std::string& volume, const State& before) {
    const bool valid = volume.size() == sizeof(VolumeId{}.bytes);
    if (status.ok()) {
      SALIUS_CHECK(valid);
      CheckOthers(before, volume);
      return true;
    }
    SALIUS_CHECK(before == Now());
    const bool unavailable = CodeOf(status) == absl::StatusCode::kUnavailable;
    SALIUS_CHECK(valid || unavailable || CodeOf(status) == absl::StatusCode::kInvalidArgument);
    SALIUS_CHECK(!unavailable || stopped_);
    return false;
  }

  // Returns the text of a multicast group, valid or not, or "". A valid group is on no interface
  // but loopback.
  std::string Group() {
    const uint8_t what = in_.U8();
    if (what < 0xc0) return "";
    const std::string text = what < 0xd0 ? "239.255.74.3:7400" : Text(in_);
    const auto group = ParseMulticastGroup(text);
    if (!group.ok()) return text;
    SALIUS_CHECK(IsMulticast(group->address) && group->address.port() != 0);
    // Only numeric addresses, in no form that the system reads differently.
    SALIUS_CHECK(group->place.find_first_not_of("0123456789abcdefABCDEF.:[]") == std::string::npos);
    SALIUS_CHECK(group->interface.find('\0') == std::string::npos);
    const auto again = ParseMulticastGroup(group->ToString());
    SALIUS_CHECK_OK(again);
    SALIUS_CHECK(again->address == group->address && again->interface == group->interface);
    return group->interface.empty() || group->interface == "lo" ? text : "";
  }

  void Open() {
    control::OpenSessionRequest request;
    request.set_volume(Volume());
    request.set_epoch(Number(in_));
    request.set_session(in_.U8() % 4);
    request.set_base(Number(in_));
    request.set_tau_ms(Number(in_));
    request.set_k(in_.U8());
    request.set_memory_bytes(in_.U8() < 0xf0 ? 1 << 18 : Number(in_));
    request.set_multicast(Group());
    const State state = Now();
    const control::VolumeInventory before = Ask(request.volume());
    grpc::ServerContext context;
    control::OpenSessionResponse response;
    const grpc::Status status = service_.OpenSession(&context, &request, &response);
    const control::VolumeInventory after = Ask(request.volume());
    if (stopped_) SALIUS_CHECK(CodeOf(status) == absl::StatusCode::kUnavailable);
    if (!Check(status, request.volume(), state)) {
      if (!stopped_ && !request.multicast().empty() &&
          !ParseMulticastGroup(request.multicast()).ok()) {
        SALIUS_CHECK(CodeOf(status) == absl::StatusCode::kInvalidArgument);
      }
      return;
    }
    SALIUS_CHECK_OK(OpenedFrom("", response));
    SALIUS_CHECK(response.incarnation() == arena_.incarnation());
    SALIUS_CHECK(response.udp_port() == Loop().port());
    SALIUS_CHECK(response.free_bytes() <= Memory().size());
    SALIUS_CHECK(after.known() && after.epoch() == request.epoch());
    SALIUS_CHECK(after.session() == request.session());
    SALIUS_CHECK(after.promised_epoch() == before.promised_epoch());
    SALIUS_CHECK(request.epoch() >= before.promised_epoch());  // I4
    SALIUS_CHECK(Written(request.volume()).opened == request.epoch());
    if (before.known() && before.epoch() == request.epoch()) {
      SALIUS_CHECK(before.SerializeAsString() == after.SerializeAsString());
    } else {
      SALIUS_CHECK(request.epoch() > before.epoch());
      SALIUS_CHECK(after.base() == request.base() && after.records() == 0);
      SALIUS_CHECK(after.contiguous() + 1 == request.base() && after.trimmed() == 0);
      SALIUS_CHECK(after.durable_mark() == 0 && after.checkpoint_mark() == 0);
    }
    absl::MutexLock lock(&acceptor_.mutex);
    for (const std::string& group : acceptor_.acceptor.MulticastGroups()) {
      SALIUS_CHECK_OK(ParseMulticastGroup(group));
    }
  }

  void Fence() {
    control::FenceRequest request;
    request.set_volume(Volume());
    request.set_epoch(Number(in_));
    request.set_token(in_.U8() % 4);
    const State state = Now();
    const control::VolumeInventory before = Ask(request.volume());
    control::FenceResponse response;
    if (!Check(service_.Fence(nullptr, &request, &response), request.volume(), state)) return;
    const control::VolumeInventory after = Ask(request.volume());
    SALIUS_CHECK_OK(recovery::AnswerFrom("", response));
    SALIUS_CHECK(response.inventory().SerializeAsString() == after.SerializeAsString());
    SALIUS_CHECK(response.incarnation() == arena_.incarnation());
    SALIUS_CHECK(response.promised_epoch() == after.promised_epoch());
    if (!response.accepted()) {
      SALIUS_CHECK(before.SerializeAsString() == after.SerializeAsString());
      return;
    }
    SALIUS_CHECK(after.promised_epoch() == request.epoch());
    if (before.promised_epoch() != request.epoch()) {
      SALIUS_CHECK(request.epoch() > std::max(before.promised_epoch(), before.epoch()));
    }
    SALIUS_CHECK(Written(request.volume()).promised == request.epoch());  // I4
    SALIUS_CHECK(before.records() == after.records() && before.epoch() == after.epoch());
  }

  // Returns the promise file's entry for `volume`, or an empty promise.
  Promise Written(const std::string& volume) {
    const auto file = DecodePromiseFile(AsBytes(store_.content.value()));
    SALIUS_CHECK_OK(file);
    for (const Promise& promise : file->promises) {
      if (AsText(promise.volume) == volume) return promise;
    }
    return {};
  }
  static std::string AsText(const VolumeId& volume) {
    return std::string(volume.bytes.begin(), volume.bytes.end());
  }

  void Forget() {
    control::ForgetVolumeRequest request;
    request.set_volume(Volume());
    request.set_force(in_.U8() % 2 == 0);
    const State state = Now();
    const control::VolumeInventory before = Ask(request.volume());
    control::ForgetVolumeResponse response;
    const grpc::Status status = service_.ForgetVolume(nullptr, &request, &response);
    if (!Check(status, request.volume(), state)) {
      SALIUS_CHECK(!request.force() || request.volume().size() != sizeof(VolumeId{}.bytes));
      return;
    }
    const control::VolumeInventory after = Ask(request.volume());
    SALIUS_CHECK(!after.known() && after.promised_epoch() == 0);
    SALIUS_CHECK(response.bytes_freed() == before.bytes());
    SALIUS_CHECK(response.promised_epoch() == before.promised_epoch());
    if (before.known())
      SALIUS_CHECK(response.known() && (request.force() || before.records() == 0));
    if (response.known()) SALIUS_CHECK(Written(request.volume()).fence_epoch() == 0);
  }

  void Drop() {
    control::DropVolumeRequest request;
    request.set_volume(Volume());
    request.set_epoch(Number(in_));
    const State state = Now();
    const control::VolumeInventory before = Ask(request.volume());
    control::DropVolumeResponse response;
    const grpc::Status status = service_.DropVolume(nullptr, &request, &response);
    if (!Check(status, request.volume(), state)) {
      if (before.known()) SALIUS_CHECK(before.epoch() > request.epoch());
      return;
    }
    const control::VolumeInventory after = Ask(request.volume());
    SALIUS_CHECK(before.epoch() <= request.epoch() && response.bytes_freed() == before.bytes());
    SALIUS_CHECK(!after.known() && after.promised_epoch() == before.promised_epoch());
  }

  void Fetch() {
    control::FetchRequest request;
    request.set_volume(Volume());
    request.set_epoch(Number(in_));
    request.set_after(Number(in_));
    const uint8_t taken = in_.U8();
    const State state = Now();
    const control::VolumeInventory held = Ask(request.volume());
    if (taken % 4 != 3 && held.known()) request.set_epoch(held.epoch());
    uint64_t messages = 0, count = 0, records = 0;
    Seq last = request.after();
    const auto take = [&](const control::FetchResponse& message) {
      if (taken >= 0xe0 && messages >= taken % 4) return false;
      if (messages++ == 0) {
        SALIUS_CHECK(message.records().empty() && message.incarnation() == arena_.incarnation());
        count = message.count();
        return true;
      }
      SALIUS_CHECK_OK(recovery::CheckChunk("", message));
      recovery::RecordSet set;
      SALIUS_CHECK_OK(set.Add(message.records()));
      SALIUS_CHECK(!set.empty());
      for (const recovery::RecordView& record : set.views()) {
        SALIUS_CHECK(record.header.epoch == request.epoch() && record.seq() > last);
        last = record.seq();
        ++records;
      }
      return true;
    };
    const grpc::Status status = service_.FetchTo(request, take);
    const bool ok = Check(status, request.volume(), state);
    if (request.volume().size() != sizeof(VolumeId{}.bytes)) return;
    if (!held.known() || held.epoch() != request.epoch()) {
      SALIUS_CHECK(CodeOf(status) == absl::StatusCode::kNotFound && messages == 0);
    } else if (ok) {
      SALIUS_CHECK(records == count && count <= held.records());
      SALIUS_CHECK(count == 0 || last <= held.highest());
      if (request.after() == 0) SALIUS_CHECK(count == held.records());
    } else {
      SALIUS_CHECK(CodeOf(status) == absl::StatusCode::kCancelled && taken >= 0xe0);
    }
  }

  // Delivers records of the open session, sometimes with a trim mark.
  void Records() {
    const std::string volume(16, static_cast<char>('a' + in_.U8() % 2));
    const control::VolumeInventory held = Ask(volume);
    FrameHeader header;
    header.type = FrameType::kRecords;
    std::copy(volume.begin(), volume.end(), header.volume.bytes.begin());
    header.epoch = held.epoch();
    header.session = held.session();
    header.count = 1 + in_.U8() % 4;
    if (in_.U8() % 4 == 3) {
      header.trim_mark = header.durable_mark = header.issued_mark = Number(in_);
    }
    std::string payload;
    for (uint16_t i = 0; i < header.count; ++i) {
      RecordHeader record;
      record.volume = header.volume;
      record.epoch = header.epoch;
      record.seq = held.highest() + 1 + in_.U8() % 4;
      if (record.seq > kMaxCount) return;
      payload += EncodeRecord(record, std::string(in_.U16(), 'b'));
    }
    header.payload_bytes = static_cast<uint32_t>(payload.size());
    std::string bytes(kFrameHeaderBytes, '\0');
    EncodeFrameHeader(header, MutableBytes(bytes));
    bytes += payload;
    const auto decoded = DecodeFrameHeader(AsBytes(bytes));
    if (!decoded.ok()) return;
    absl::MutexLock lock(&acceptor_.mutex);
    acceptor_.acceptor.OnFrame(0, *decoded, AsBytes(bytes).subspan(kFrameHeaderBytes));
  }

  void Step() {
    switch (in_.U8() % 8) {
      case 0:
      case 1:
        return Open();
      case 2:
        return Fence();
      case 3:
        return Drop();
      case 4:
        return Fetch();
      case 5:
        if (const uint8_t what = in_.U8(); what < 0xf0) {
          if (what >= 0x80) Forget();
          return;
        }
        service_.StopSessions();
        stopped_ = true;
        return;
      default:
        return Records();
    }
  }

  ByteReader& in_;
  ReceiveLoop& loop_ = Loop();
  Arena arena_ = NewArena();
  ManualClock clock_;
  SharedAcceptor acceptor_{arena_, {}, clock_.MonotonicNanos(), nullptr};
  MemoryPromises store_;
  PromiseKeeper promises_{store_, 9, [this](uint64_t known) {
                            absl::MutexLock lock(&acceptor_.mutex);
                            return acceptor_.acceptor.Promises(known);
                          }};
  ControlService service_{acceptor_, promises_, loop_, clock_, "1"};
  bool stopped_ = false;
};

}  // namespace
}  // namespace salius

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace salius;  // NOLINT: the function has to be outside
  ByteReader in(absl::MakeConstSpan(data, size));
  Replica(in).Run();
  return 0;
}
