#include "replica/receive_loop.h"

#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/rseq.h"
#include "common/strings.h"
#include "replica/multicast_group.h"
#include "transport/udp_socket.h"

namespace salius {
namespace {

// Messages per batch: those of one system call (transport/udp_io.cc).
constexpr size_t kBatch = 64;
// Datagrams that are processed under one hold of the acceptor's lock and answered together; one
// message may be many.
constexpr size_t kPiece = 512;
// Batches from one channel before the other channels and the clock get their turn.
constexpr int kDrainBatches = 16;
constexpr int kTickMs = 250;
constexpr int64_t kTickNs = int64_t{kTickMs} * 1'000'000;
constexpr size_t kMaxGroups = 64;
// Interval between two answers "unknown session" to one source. It is short enough for a primary to
// notice, and keeps a flood of strays from being doubled.
constexpr int64_t kUnknownAnswerNs = 10'000'000;
constexpr size_t kUnknownSources = 1024;
constexpr size_t kMaxAskers = 4096;

}  // namespace

bool ReceiveLoop::IsAnyAddress(const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_addr.s_addr == INADDR_ANY;
  }
  return IN6_IS_ADDR_UNSPECIFIED(
      &reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_addr);
}

struct ReceiveLoop::Buffers {
  // The answer that a (source, volume, epoch, session, key) of the batch gets.
  struct Answer {
    const SocketAddress* to;
    const SocketAddress* from;  // may be null
    VolumeId volume;
    Epoch epoch;
    uint64_t session;
    uint32_t key_id;        // of the frames answered
    uint64_t send_time_ns;  // newest of the frames answered
    uint16_t flags;
    Acceptor::Standing standing;
    AckPayload ack;
  };
  struct Frame {
    const InDatagram* datagram;
    FrameHeader header;
    absl::Span<const uint8_t> payload;
  };

  Buffers() : in(kBatch, kDatagramBytes) {}

  static constexpr size_t kDatagramBytes = size_t{64} << 10;  // no datagram is larger
  using AckBytes = std::array<uint8_t, kFrameHeaderBytes + kMaxAckBytes>;
  InBatch in;
  std::vector<Frame> frames;
  std::vector<Answer> answers;
  // The answers' bytes and the datagrams that carry them.
  std::vector<AckBytes> acks;
  std::vector<iovec> parts;
  std::vector<OutDatagram> out;
};

absl::StatusOr<std::unique_ptr<ReceiveLoop>> ReceiveLoop::Create(
    std::unique_ptr<DatagramChannel> channel, const Options& options, SharedAcceptor& acceptor,
    ReplicaMetrics& metrics, Clock& clock) {
  SALIUS_ASSIGN_OR_RETURN(const SocketAddress local, channel->local());
  std::unique_ptr<ReceiveLoop> loop(
      new ReceiveLoop(std::move(channel), options, acceptor, metrics, clock));
  loop->port_ = local.port();
  loop->self_ = local;
  loop->any_address_ = IsAnyAddress(local);
  if (loop->any_address_) {
    SALIUS_ASSIGN_OR_RETURN(
        loop->self_, ResolveAddress(HostPort{
                         local.storage.ss_family == AF_INET ? "127.0.0.1" : "::1", local.port()}));
  }
  SALIUS_RETURN_IF_ERROR(loop->unicast_->channel->SetReceiveTimeout(kTickMs * 1000));
  return loop;
}

ReceiveLoop::ReceiveLoop(std::unique_ptr<DatagramChannel> channel, const Options& options,
                         SharedAcceptor& acceptor, ReplicaMetrics& metrics, Clock& clock)
    : options_(options),
      acceptor_(acceptor),
      metrics_(metrics),
      clock_(clock),
      unicast_(new Source{"", std::move(channel)}),
      sources_{unicast_},
      buffers_(std::make_unique<Buffers>()),
      unknown_answers_(kUnknownAnswerNs, kUnknownSources) {}

ReceiveLoop::~ReceiveLoop() { Stop(); }

void ReceiveLoop::Start() {
  SALIUS_CHECK(!thread_.joinable());
  thread_ = std::thread([this] { Run(); });
}

void ReceiveLoop::Stop() {
  if (!thread_.joinable()) return;
  stop_.store(true);
  Wake();
  thread_.join();
}

// Sends an empty datagram to itself. If it does not arrive, the loop wakes at its next tick.
void ReceiveLoop::Wake() {
  const OutDatagram nothing{&self_, {}};
  unicast_->channel->Send(absl::MakeConstSpan(&nothing, 1));
}

absl::StatusOr<std::string> ReceiveLoop::Interface(const std::string& primary) const {
  if (!options_.multicast_interface.empty()) return options_.multicast_interface;
  if (!IsAnyAddress(options_.listen)) return InterfaceOf(options_.listen);
  const absl::StatusOr<HostPort> host_port = ParseHostPort(primary, 0);
  if (!host_port.ok()) return std::string();
  const absl::StatusOr<SocketAddress> address = ResolveAddress(*host_port);
  const absl::StatusOr<std::string> towards =
      address.ok() ? InterfaceTowards(*address) : address.status();
  return towards.ok() ? *towards : std::string();
}

absl::StatusOr<std::string> ReceiveLoop::Join(const std::string& group,
                                              const std::string& primary) {
  SALIUS_ASSIGN_OR_RETURN(MulticastGroup parsed, ParseMulticastGroup(group));
  if (parsed.interface.empty()) {
    SALIUS_ASSIGN_OR_RETURN(parsed.interface, Interface(primary));
  }
  const std::string joined = parsed.ToString();
  std::vector<std::string> named;
  {
    absl::MutexLock lock(&acceptor_.mutex);
    named = acceptor_.acceptor.MulticastGroups();
  }
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& source : sources_) {
      if (source->group == joined) return joined;
    }
    if (sources_.size() > kMaxGroups) LeaveOtherGroups(named);
    if (sources_.size() > kMaxGroups) {
      return absl::ResourceExhaustedError(
          absl::StrFormat("sessions use %d multicast groups of this replica already", kMaxGroups));
    }
    // It is bound to the group, so that nothing else arrives, and shared with other replicas on
    // this host.
    UdpSocket::Options shared;
    shared.reuse_port = true;
    shared.coalesce = true;
    SALIUS_RETURN_IF_ERROR(ScopeTo(parsed.interface, &parsed.address));
    SALIUS_ASSIGN_OR_RETURN(UdpSocket socket, UdpSocket::Bind(parsed.address, shared));
    SALIUS_RETURN_IF_ERROR(socket.JoinGroup(parsed.address, parsed.interface));
    sources_.emplace_back(new Source{
        joined, WithLayer(options_.channel_layer, std::make_unique<UdpSocket>(std::move(socket)))});
    sources_changed_.store(true);
    Wake();
  }
  SLOG_INFO("multicast group {} joined", joined);
  return joined;
}

// Removes the channels of other groups. The loop's thread closes them when it notices.
void ReceiveLoop::LeaveOtherGroups(const std::vector<std::string>& groups) {
  const auto unused = [&](const std::shared_ptr<Source>& source) {
    return !source->group.empty() &&
           std::find(groups.begin(), groups.end(), source->group) == groups.end();
  };
  for (const auto& source : sources_) {
    if (unused(source)) SLOG_INFO("multicast group {} left: no session uses it", source->group);
  }
  sources_.erase(std::remove_if(sources_.begin(), sources_.end(), unused), sources_.end());
  sources_changed_.store(true);
}

std::vector<std::shared_ptr<ReceiveLoop::Source>> ReceiveLoop::Sources() const {
  absl::MutexLock lock(&mutex_);
  return sources_;
}

void ReceiveLoop::Run() {
  static_cast<void>(LeaveRestartableSequences());
  std::vector<std::shared_ptr<Source>> sources = Sources();
  while (!stop_.load()) {
    grouped_ = sources.size() > 1;
    if (sources.size() == 1) {
      // The receive itself waits, so that a batch needs no second system call.
      if (ReceiveBatch(*unicast_->channel, /*wait=*/true)) Drain(*unicast_->channel);
    } else {
      WaitReadable(sources);
    }
    if (clock_.MonotonicNanos() >= next_tick_ns_) Tick();
    if (sources_changed_.exchange(false)) sources = Sources();
  }
  for (const auto& source : Sources()) Drain(*source->channel);
  Tick();
}

// Waits for datagrams on any channel and processes them.
void ReceiveLoop::WaitReadable(const std::vector<std::shared_ptr<Source>>& sources) {
  std::array<pollfd, kMaxGroups + 1> fds;
  for (size_t i = 0; i < sources.size(); ++i) fds[i] = {sources[i]->channel->fd(), POLLIN, 0};
  // It is negative only after a signal: then the next round waits again.
  const int ready = poll(fds.data(), sources.size(), kTickMs);
  for (size_t i = 0; ready > 0 && i < sources.size(); ++i) {
    if (fds[i].revents != 0) Drain(*sources[i]->channel);
  }
}

void ReceiveLoop::Drain(DatagramChannel& channel) {
  for (int i = 0; i < kDrainBatches; ++i) {
    // A batch that is not full took all there was: no further call is needed.
    if (!ReceiveBatch(channel, /*wait=*/false)) return;
  }
}

bool ReceiveLoop::ReceiveBatch(DatagramChannel& channel, bool wait) {
  Buffers& b = *buffers_;
  const absl::StatusOr<size_t> got = channel.Receive(b.in, wait);
  if (!got.ok()) {
    metrics_.CountReceiveError();
    SLOG_DEBUG("receive: {}", Sv(got.status().message()));
    return false;
  }
  if (*got == 0) return false;
  for (size_t first = 0; first < *got; first += kPiece) {
    HandleBatch(first, std::min(first + kPiece, *got));
    SendAcks();
  }
  return b.in.full();
}

void ReceiveLoop::HandleBatch(size_t first, size_t last) {
  Buffers& b = *buffers_;
  b.frames.clear();
  b.answers.clear();
  if (asked_at_.size() > kMaxAskers) asked_at_.clear();
  uint64_t truncated = 0;
  uint64_t corrupt = 0;
  for (size_t i = first; i < last; ++i) {
    const InDatagram& in = b.in[i];
    if (in.truncated) {
      ++truncated;
      continue;
    }
    if (in.bytes.empty() && in.from->port() == port_) continue;  // Wake()
    absl::StatusOr<FrameHeader> header = DecodeFrameHeader(in.bytes);
    if (!header.ok()) {
      ++corrupt;
      continue;
    }
    b.frames.push_back({&in, *header, in.bytes.subspan(kFrameHeaderBytes)});
  }
  const int64_t now_ns = clock_.MonotonicNanos();
  absl::MutexLock lock(&acceptor_.mutex);
  Acceptor& acceptor = acceptor_.acceptor;
  for (; truncated > 0; --truncated) acceptor.CountDrop(Drop::kTruncated);
  for (; corrupt > 0; --corrupt) acceptor.CountDrop(Drop::kCorruptFrame);
  for (const Buffers::Frame& frame : b.frames) {
    const FrameHeader& h = frame.header;
    const Acceptor::FrameResult result = acceptor.OnFrame(now_ns, h, frame.payload, /*sealed=*/frame.datagram->key_id != 0);
    if (!result.reply) continue;
    const auto same = [&](const Buffers::Answer& a) {
      return a.epoch == h.epoch && a.session == h.session && a.volume == h.volume &&
             a.key_id == frame.datagram->key_id && *a.to == *frame.datagram->from;
    };
    auto it = std::find_if(b.answers.begin(), b.answers.end(), same);
    if (it == b.answers.end()) {
      b.answers.push_back({frame.datagram->from,
                           SourceAddressFor(*frame.datagram),
                           h.volume,
                           h.epoch,
                           h.session,
                           frame.datagram->key_id,
                           h.send_time_ns,
                           0,
                           result.standing,
                           {}});
      it = b.answers.end() - 1;
    }
    it->send_time_ns = std::max(it->send_time_ns, h.send_time_ns);
    it->flags |= result.flags;
    it->standing = result.standing;
  }
  size_t kept = 0;
  for (Buffers::Answer& answer : b.answers) {
    if (!MayAnswer(now_ns, answer.standing, *answer.to)) {
      acceptor.CountDrop(Drop::kRateLimited);
      continue;
    }
    answer.ack =
        acceptor.MakeAck(now_ns, answer.volume, answer.epoch, answer.session, answer.flags);
    if (&b.answers[kept] != &answer) b.answers[kept] = std::move(answer);
    ++kept;
  }
  b.answers.resize(kept);
}

const SocketAddress* ReceiveLoop::SourceAddressFor(const InDatagram& datagram) {
  if (!any_address_ || (datagram.at != nullptr && !grouped_)) return datagram.at;
  const std::string_view source(reinterpret_cast<const char*>(&datagram.from->storage),
                                datagram.from->length);
  const auto known = asked_at_.find(source);
  if (datagram.at == nullptr) return known == asked_at_.end() ? nullptr : &known->second;
  if (known == asked_at_.end()) {
    asked_at_.emplace(std::string(source), *datagram.at);
  } else if (!(known->second == *datagram.at)) {
    known->second = *datagram.at;
  }
  return datagram.at;
}

// Whether an answer may be sent: strays get few, a known or a fenced sender gets all.
bool ReceiveLoop::MayAnswer(int64_t now_ns, Acceptor::Standing standing, const SocketAddress& to) {
  if (standing == Acceptor::Standing::kCurrent || standing == Acceptor::Standing::kFenced) {
    return true;
  }
  const char* const bytes = reinterpret_cast<const char*>(&to.storage);
  return unknown_answers_.Allow(now_ns, std::string_view(bytes, to.length));
}

void ReceiveLoop::SendAcks() {
  Buffers& b = *buffers_;
  const size_t n = b.answers.size();
  b.acks.resize(std::max(b.acks.size(), n));
  b.parts.resize(b.acks.size());
  b.out.resize(b.acks.size());
  for (size_t i = 0; i < n; ++i) {
    const Buffers::Answer& answer = b.answers[i];
    uint8_t* const bytes = b.acks[i].data();
    const size_t payload = EncodeAckPayload(answer.ack, bytes + kFrameHeaderBytes);
    FrameHeader header;
    header.type = FrameType::kAck;
    header.payload_bytes = static_cast<uint32_t>(payload);
    header.volume = answer.volume;
    header.epoch = answer.epoch;
    header.session = answer.session;
    header.send_time_ns = answer.send_time_ns;
    EncodeFrameHeader(header, bytes);
    b.parts[i] = {bytes, kFrameHeaderBytes + payload};
    b.out[i] = {answer.to, absl::MakeConstSpan(&b.parts[i], 1), answer.from, answer.key_id};
  }
  // An answer that does not fit the socket's buffer is lost like any datagram: the primary asks
  // again.
  metrics_.CountAcks(unicast_->channel->Send(absl::MakeConstSpan(b.out).first(n)));
  metrics_.SetSendErrors(unicast_->channel->send_errors());
}

void ReceiveLoop::Tick() {
  const int64_t now_ns = clock_.MonotonicNanos();
  next_tick_ns_ = now_ns + kTickNs;
  Acceptor::TickReport report;
  {
    absl::MutexLock lock(&acceptor_.mutex);
    report = acceptor_.acceptor.Tick(now_ns);
  }
  for (const VolumeId& volume : report.became_overdue) {
    SLOG_WARN(
        "volume {} holds records older than k*tau that its primary has not checkpointed; "
        "they are kept",
        volume.ToString());
  }
  for (const VolumeId& volume : report.abandoned) {
    SLOG_WARN("volume {} had no frame, fence or fetch for --abandon-after: its log is dropped",
              volume.ToString());
  }
}

}  // namespace salius
