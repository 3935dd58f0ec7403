#include "tests/sim/replica_host.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/bytes.h"
#include "common/check.h"

namespace salius::sim {
namespace {

constexpr int64_t kTickNs = 250'000'000;  // as replica/receive_loop.cc
// The acceptor dates a fence or a fetch by the last Tick, so its time is this vague.
constexpr int64_t kVague = 1'000'000'000;

std::vector<std::unique_ptr<uint8_t[]>>& FreeBlocks() {
  static auto* const blocks = new std::vector<std::unique_ptr<uint8_t[]>>;
  return *blocks;
}

}  // namespace

ReplicaHost::Block::Block() {
  if (FreeBlocks().empty()) {
    bytes = std::make_unique<uint8_t[]>(kMinArenaBytes);
  } else {
    bytes = std::move(FreeBlocks().back());
    FreeBlocks().pop_back();
  }
}

ReplicaHost::Block::~Block() { FreeBlocks().push_back(std::move(bytes)); }

ReplicaHost::ReplicaHost(uint64_t seed, int64_t abandon_after_ns, SealJudge* judge, bool plain_too)
    : abandon_after_(abandon_after_ns), judge_(judge), plain_too_(plain_too), random_(seed) {
  LoseMemory(0, false);
}

void ReplicaHost::LoseMemory(int64_t now, bool promises_too) {
  if (promises_too) {
    promises_.content.reset();
    promised_ = 0;
  }
  acceptor_.reset();
  arena_.reset();
  SALIUS_CHECK_OK(Arena::Format(memory(), [this] { return random_.Next(); }));
  given_up_ = 0;  // its new incarnation shows the loss
  Forget();
  RestartProcess(now);
}

void ReplicaHost::Remember() {
  if (copy_ == nullptr) copy_ = std::make_unique<Block>();
  std::memcpy(copy_->bytes.get(), block_.bytes.get(), kMinArenaBytes);
}

void ReplicaHost::PutBack(int64_t now) {
  acceptor_.reset();
  arena_.reset();
  std::memcpy(block_.bytes.get(), copy_->bytes.get(), kMinArenaBytes);
  RestartProcess(now);
}

void ReplicaHost::RestartProcess(int64_t now) {
  acceptor_.reset();
  arena_.reset();
  auto arena = Arena::Attach(memory(), [this] { return random_.Next(); });
  SALIUS_CHECK_OK(arena);
  arena_.emplace(*std::move(arena));
  auto loaded = PromiseKeeper::Load(promises_, [this] { return random_.Next(); });
  SALIUS_CHECK_OK(loaded);
  // It is detected if a process has started since the memory had its present content.
  if (PromiseKeeper::IsRolledBack(loaded->file, arena_->incarnation(), arena_->process_starts())) {
    arena_->NewIncarnation();
  }
  Acceptor::Options options;
  options.abandon_after_ns = abandon_after_;
  options.promises = loaded->file.promises;
  acceptor_ = std::make_unique<Acceptor>(*arena_, options, Clock(now), nullptr);
  keeper_ = std::make_unique<PromiseKeeper>(
      promises_, loaded->file.store, [this](uint64_t known) { return acceptor_->Promises(known); });
  SALIUS_CHECK_OK(keeper_->Begin(arena_->incarnation(), arena_->process_starts()));
  if (judge_ != nullptr) seal_ = std::make_unique<ReplicaSeal>(*judge_, plain_too_);
  NoteLife(now);
}

absl::StatusOr<Opening> ReplicaHost::Open(int64_t now, const SessionParams& params,
                                          const KeyOffer* offer) {
  SALIUS_ASSIGN_OR_RETURN(const uint64_t granted, acceptor_->OpenSession(Clock(now), params));
  SALIUS_RETURN_IF_ERROR(keeper_->Keep());
  if (params.epoch < promised_) {
    broken_promise_ = absl::StrCat("opens a session of epoch ", params.epoch,
                                   " though it had promised ", promised_, " to a recovery");
  }
  Opening opening{acceptor_->incarnation(), keeper_->id(), granted};
  opening.compact_records = takes_compact;
  if (offer != nullptr) {
    SALIUS_ASSIGN_OR_RETURN(opening.ack_key,
                            seal_->Take({params.volume, params.epoch, params.session}, *offer));
  }
  if (params.existing_only) {
    NoteLife(now);
  } else {
    Opened(now, params.epoch, params.base);
  }
  return opening;
}

absl::Status ReplicaHost::Drop(const VolumeId& volume, Epoch epoch) {
  SALIUS_RETURN_IF_ERROR(acceptor_->DropVolume(volume, epoch).status());
  if (seal_ != nullptr) seal_->Drop(volume);
  return absl::OkStatus();
}

absl::StatusOr<Acceptor::FenceResult> ReplicaHost::Fence(const VolumeId& volume, Epoch epoch,
                                                         uint64_t token) {
  const auto fenced = acceptor_->Fence(volume, epoch, token);
  if (!fenced.ok() || !fenced->accepted) return fenced;
  SALIUS_RETURN_IF_ERROR(keeper_->Keep());
  promised_ = std::max(promised_, epoch);
  return fenced;
}

void ReplicaHost::Opened(int64_t now, Epoch epoch, Seq base) {
  if (std::exchange(epoch_, epoch) != epoch) {
    given_up_ = 0;
  } else if (abandoned()) {
    given_up_ = base;
  }
  NoteLife(now);
}

std::string ReplicaHost::Tick(int64_t now) {
  const int64_t clock = Clock(now);
  if (clock < next_tick_ || now < stuck_until || now < down_until) return "";
  next_tick_ = clock + kTickNs;
  if (acceptor_->Tick(clock).abandoned.empty()) return "";
  given_up_ = kAll;
  if (abandon_after_ > 0 && clock - life_ > abandon_after_ - kVague) return "";
  return absl::StrCat("its log is given up ", (clock - life_) / 1'000'000,
                      " ms after the last contact, where it may be after ",
                      abandon_after_ / 1'000'000, " (0: never)");
}

std::string ReplicaHost::OnDatagram(int64_t now, std::string_view datagram) {
  if (seal_ == nullptr) return OnFrame(now, datagram, /*sealed=*/false);
  const ReplicaSeal::Arrived arrived = seal_->Open(Clock(now), datagram);
  if (arrived.frame.empty()) return arrived.notice;
  std::string answer = OnFrame(now, arrived.frame, arrived.key_id != 0);
  return answer.empty() ? answer : seal_->Seal(arrived.key_id, std::move(answer));
}

std::string ReplicaHost::OnFrame(int64_t now, std::string_view datagram, bool sealed) {
  const auto header = DecodeFrameHeader(AsBytes(datagram));
  if (!header.ok() || (header->type == FrameType::kCompact && !takes_compact)) {
    acceptor_->CountDrop(Drop::kCorruptFrame);
    return "";
  }
  const Acceptor::FrameResult result =
      acceptor_->OnFrame(Clock(now), *header, AsBytes(datagram).subspan(kFrameHeaderBytes), sealed);
  if (result.standing == Acceptor::Standing::kCurrent) NoteLife(now);
  if (!result.reply) return "";
  const AckPayload ack =
      acceptor_->MakeAck(Clock(now), header->volume, header->epoch, header->session, result.flags);
  std::string answer(kFrameHeaderBytes + kMaxAckBytes, '\0');
  auto* const out = reinterpret_cast<uint8_t*>(answer.data());
  const size_t size = EncodeAckPayload(ack, out + kFrameHeaderBytes);
  FrameHeader frame;
  frame.type = FrameType::kAck;
  frame.payload_bytes = static_cast<uint32_t>(size);
  frame.volume = header->volume;
  frame.epoch = header->epoch;
  frame.session = header->session;
  frame.send_time_ns = header->send_time_ns;
  EncodeFrameHeader(frame, out);
  answer.resize(kFrameHeaderBytes + size);
  return answer;
}

}  // namespace salius::sim
