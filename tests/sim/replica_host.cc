#include "tests/sim/replica_host.h"

#include "common/check.h"
#include "common/strings.h"

namespace salius::sim {
namespace {

absl::Span<const uint8_t> Bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

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

ReplicaHost::ReplicaHost(uint64_t seed) : random_(seed) { LoseMemory(0); }

void ReplicaHost::LoseMemory(int64_t now) {
  acceptor_.reset();
  arena_.reset();
  SALIUS_CHECK_OK(Arena::Format(memory(), [this] { return random_.Next(); }));
  RestartProcess(now);
}

void ReplicaHost::RestartProcess(int64_t now) {
  acceptor_.reset();
  arena_.reset();
  auto arena = Arena::Attach(memory(), [this] { return random_.Next(); });
  SALIUS_CHECK_OK(arena);
  arena_.emplace(*std::move(arena));
  acceptor_ = std::make_unique<Acceptor>(*arena_, Acceptor::Options(), Clock(now), nullptr);
}

std::string ReplicaHost::OnDatagram(int64_t now, std::string_view datagram) {
  const auto header = DecodeFrameHeader(Bytes(datagram));
  if (!header.ok()) {
    acceptor_->CountDrop(Drop::kCorruptFrame);
    return "";
  }
  const Acceptor::FrameResult result =
      acceptor_->OnFrame(Clock(now), *header, Bytes(datagram).subspan(kFrameHeaderBytes));
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
