// The smallest primary possible: one UDP socket and one gRPC stub. For tests against a served
// replica.
#pragma once

#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/crc32c.h"
#include "proto/control.grpc.pb.h"
#include "tests/unit/replica/replica_testing.h"
#include "transport/grpc_factory.h"
#include "transport/udp_socket.h"

namespace salius {

// A directory on tmpfs, removed at the end.
class ShmDir {
 public:
  ShmDir() {
    std::string name = "/dev/shm/salius-test-XXXXXX";
    SALIUS_CHECK(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~ShmDir() { Remove(); }
  void Remove() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct Acked {
  FrameHeader header;
  AckPayload ack;
};

class ReplicaClient {
 public:
  explicit ReplicaClient(uint16_t port, const std::string& host = "127.0.0.1",
                         std::shared_ptr<Credentials> keys = nullptr)
      : replica_(ResolveAddress(HostPort{host, port}).value()),
        socket_(UdpSocket::Bind(ResolveAddress(HostPort{host, 0}).value(), {}).value()) {
    stub_ = control::Replica::NewStub(TcpChannel(FormatSockaddr(replica_),
                                                   {.own_connection = true, .keys = std::move(keys)}));
  }

  control::Replica::Stub& stub() { return *stub_; }
  UdpSocket& socket() { return socket_; }

  static std::string Bytes(const VolumeId& volume) {
    return std::string(reinterpret_cast<const char*>(volume.bytes.data()), volume.bytes.size());
  }
  static control::OpenSessionRequest SessionRequest(Epoch epoch = 1, uint64_t session = 77,
                                                    Seq base = 1,
                                                    const VolumeId& volume = TestVolume()) {
    control::OpenSessionRequest request;
    request.set_volume(Bytes(volume));
    request.set_epoch(epoch);
    request.set_session(session);
    request.set_base(base);
    request.set_acks(1);
    request.set_tau_ms(30000);
    request.set_k(2);
    request.set_memory_bytes(uint64_t{4} << 20);
    return request;
  }
  grpc::Status Open(const control::OpenSessionRequest& request = SessionRequest(),
                    control::OpenSessionResponse* response = nullptr) {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    control::OpenSessionResponse ignored;
    return stub_->OpenSession(&context, request, response != nullptr ? response : &ignored);
  }
  control::InventoryResponse Inventory(const VolumeId& volume = TestVolume()) {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    control::InventoryRequest request;
    request.set_volume(Bytes(volume));
    control::InventoryResponse response;
    const grpc::Status status = stub_->Inventory(&context, request, &response);
    SALIUS_CHECK(status.ok()) << status.error_message();
    return response;
  }
  struct Fetched {
    grpc::Status status;
    uint64_t count = 0;
    Incarnation incarnation = 0;
    std::string records;
    size_t largest_chunk = 0;
    bool checksums_match = true;
  };
  Fetched Fetch(Epoch epoch = 1, Seq after = 0, const VolumeId& volume = TestVolume()) {
    Fetched fetched;
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    control::FetchRequest request;
    request.set_volume(Bytes(volume));
    request.set_epoch(epoch);
    request.set_after(after);
    const auto reader = stub_->Fetch(&context, request);
    control::FetchResponse message;
    bool first = true;
    while (reader->Read(&message)) {
      if (first) {
        fetched.count = message.count();
        fetched.incarnation = message.incarnation();
        first = false;
      }
      fetched.records += message.records();
      fetched.largest_chunk = std::max(fetched.largest_chunk, message.records().size());
      if (Crc32c(AsBytes(message.records())) != message.crc32c()) fetched.checksums_match = false;
    }
    fetched.status = reader->Finish();
    return fetched;
  }

  void SendTo(const SocketAddress& to, const std::string& datagram) {
    const iovec part{const_cast<char*>(datagram.data()), datagram.size()};
    const OutDatagram out{&to, absl::MakeConstSpan(&part, 1)};
    SALIUS_CHECK(socket_.Send(absl::MakeConstSpan(&out, 1)) == 1);
  }
  void SendRaw(const std::string& datagram) { SendTo(replica_, datagram); }
  void SendRecords(const std::vector<std::string>& records, Epoch epoch = 1, uint64_t session = 77,
                   uint64_t send_time = 0, const VolumeId& volume = TestVolume()) {
    FrameHeader header = TestFrame(records, epoch, session, volume);
    header.send_time_ns = send_time;
    SendRaw(Datagram(header, Join(records)));
  }

  // Returns the next acknowledgement within the time; nothing when none comes.
  std::optional<Acked> Receive(int timeout_ms = 10000) {
    pollfd ready{socket_.fd(), POLLIN, 0};
    if (poll(&ready, 1, timeout_ms) <= 0) return std::nullopt;
    InBatch in(1, 2048);
    if (socket_.Receive(in, false).value() == 0) return std::nullopt;
    const absl::Span<const uint8_t> bytes = in[0].bytes;
    Acked acked;
    acked.header = DecodeFrameHeader(bytes).value();
    SALIUS_CHECK(acked.header.type == FrameType::kAck);
    acked.ack = DecodeAckPayload(bytes.subspan(kFrameHeaderBytes)).value();
    return acked;
  }
  // Sends a probe and returns its own acknowledgement, which comes after those of all earlier
  // frames: a frame without an answer by then has none.
  std::optional<Acked> Probe(Epoch epoch = 1, uint64_t session = 77,
                             const VolumeId& volume = TestVolume()) {
    FrameHeader header = TestFrame({}, epoch, session, volume);
    header.send_time_ns = ++probe_time_;
    SendRaw(Datagram(header, ""));
    while (std::optional<Acked> acked = Receive()) {
      if (acked->header.send_time_ns == probe_time_) return acked;
    }
    return std::nullopt;
  }

 private:
  SocketAddress replica_;
  UdpSocket socket_;
  std::unique_ptr<control::Replica::Stub> stub_;
  uint64_t probe_time_ = uint64_t{1} << 60;
};

}  // namespace salius
