// Real sockets on loopback: batches, truncation, refused destinations, ports in use, multicast.
#include "transport/udp_socket.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace salius {
namespace {

using ::testing::HasSubstr;

SocketAddress Loopback(uint16_t port = 0) {
  return ResolveAddress(HostPort{"127.0.0.1", port}).value();
}

UdpSocket BindLoopback(UdpSocket::Options options = {}) {
  return UdpSocket::Bind(Loopback(), options).value();
}

// Receives until `want` datagrams are there or ten seconds have passed.
std::vector<std::string> ReceiveAll(UdpSocket& socket, size_t want, size_t buffer_bytes = 2048) {
  std::vector<std::string> got;
  InBatch batch(100, buffer_bytes);
  while (got.size() < want) {
    pollfd ready{socket.fd(), POLLIN, 0};
    if (poll(&ready, 1, 10000) <= 0) break;
    const size_t n = socket.Receive(batch, /*wait=*/false).value();
    for (size_t i = 0; i < n; ++i) {
      got.emplace_back(reinterpret_cast<const char*>(batch[i].bytes.data()), batch[i].bytes.size());
    }
  }
  return got;
}

size_t SendOne(UdpSocket& socket, const SocketAddress& to, const std::string& text) {
  const iovec part{const_cast<char*>(text.data()), text.size()};
  const OutDatagram out{&to, absl::MakeConstSpan(&part, 1)};
  return socket.Send(absl::MakeConstSpan(&out, 1));
}

// Checks that a socket bound to all addresses reports the one that a datagram was sent to, and that
// it can answer from there.
void ExpectAnswerFromTheAddressThatWasAsked(const std::string& any, const std::string& asked) {
  SCOPED_TRACE(any + " asked at " + asked);
  UdpSocket::Options options;
  options.local_address = true;
  options.coalesce = true;
  UdpSocket socket =
      UdpSocket::Bind(ResolveAddress(HostPort{any, 0}).value(), options).value();
  const SocketAddress to =
      ResolveAddress(HostPort{asked, socket.local().value().port()}).value();
  SocketAddress client_address = to;
  client_address.set_port(0);
  if (to.storage.ss_family == AF_INET) client_address = Loopback();
  UdpSocket client = UdpSocket::Bind(client_address, {}).value();
  for (int i = 0; i < 3; ++i) SendOne(client, to, "question");
  InBatch batch(10, 65536);
  pollfd ready{socket.fd(), POLLIN, 0};
  ASSERT_EQ(poll(&ready, 1, 10000), 1);
  ASSERT_GE(socket.Receive(batch, /*wait=*/false).value(), 1u);
  ASSERT_NE(batch[0].at, nullptr);
  // Two datagrams of one length make a run where the kernel cuts; both control messages go
  // together.
  std::string text = "answer";
  const iovec part{text.data(), text.size()};
  const OutDatagram out{batch[0].from, absl::MakeConstSpan(&part, 1), batch[0].at};
  const std::vector<OutDatagram> answers(2, out);
  ASSERT_EQ(socket.Send(answers), 2u);
  EXPECT_EQ(socket.send_errors(), 0u);
  InBatch received(10, 2048);
  pollfd answered{client.fd(), POLLIN, 0};
  ASSERT_EQ(poll(&answered, 1, 10000), 1);
  ASSERT_GE(client.Receive(received, /*wait=*/false).value(), 1u);
  EXPECT_EQ(FormatSockaddr(*received[0].from), FormatSockaddr(to));
}

TEST(UdpSocketTest, AnswersLeaveFromTheAddressThatWasAsked) {
  ExpectAnswerFromTheAddressThatWasAsked("0.0.0.0", "127.0.0.1");
  ExpectAnswerFromTheAddressThatWasAsked("0.0.0.0", "127.0.0.2");
  ExpectAnswerFromTheAddressThatWasAsked("::", "::1");
  ExpectAnswerFromTheAddressThatWasAsked("::", "127.0.0.3");
}

TEST(UdpSocketTest, WithoutTheOptionLocalAddressesAreUnset) {
  UdpSocket receiver = BindLoopback();
  UdpSocket sender = BindLoopback();
  SendOne(sender, receiver.local().value(), "x");
  InBatch batch(1, 2048);
  pollfd ready{receiver.fd(), POLLIN, 0};
  ASSERT_EQ(poll(&ready, 1, 10000), 1);
  ASSERT_EQ(receiver.Receive(batch, /*wait=*/false).value(), 1u);
  EXPECT_EQ(batch[0].at, nullptr);
}

TEST(UdpSocketTest, BatchLargerThanOneSystemCallArrivesWholeAndInOrder) {
  UdpSocket sender = BindLoopback();
  UdpSocket receiver = BindLoopback();
  const SocketAddress to = receiver.local().value();
  std::vector<std::string> texts;
  std::vector<std::vector<iovec>> parts;
  std::vector<OutDatagram> batch;
  for (int i = 0; i < 200; ++i) texts.push_back("datagram " + std::to_string(i));
  for (std::string& text : texts) {
    // Two parts each: they are gathered into one datagram.
    parts.push_back({{text.data(), 4}, {text.data() + 4, text.size() - 4}});
  }
  for (const auto& p : parts) batch.push_back({&to, p});
  EXPECT_EQ(sender.Send(batch), 200u);
  EXPECT_EQ(ReceiveAll(receiver, 200), texts);
  EXPECT_EQ(sender.send_errors(), 0u);
}

// Returns datagrams of these lengths, each with bytes of its own.
std::vector<std::string> Texts(const std::vector<size_t>& lengths) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < lengths.size(); ++i) {
    texts.emplace_back(lengths[i], static_cast<char>('a' + i % 26));
  }
  return texts;
}

// Sends them in one batch, in two parts each; returns what Send did.
size_t SendTexts(UdpSocket& socket, const SocketAddress& to,
                 const std::vector<std::string>& texts) {
  std::vector<std::vector<iovec>> parts;
  std::vector<OutDatagram> batch;
  for (const std::string& text : texts) {
    char* const data = const_cast<char*>(text.data());
    const size_t half = text.size() / 2;
    parts.push_back({{data, half}, {data + half, text.size() - half}});
  }
  for (const auto& p : parts) batch.push_back({&to, p});
  return socket.Send(batch);
}

std::vector<size_t> Lengths(size_t count, size_t each, size_t last) {
  std::vector<size_t> lengths(count, each);
  lengths.push_back(last);
  return lengths;
}

class UdpSegmentsTest : public testing::TestWithParam<const char*> {
 protected:
  UdpSocket Bind(bool coalesce = false) {
    UdpSocket::Options options;
    options.coalesce = coalesce;
    return UdpSocket::Bind(ResolveAddress(HostPort{GetParam(), 0}).value(), options).value();
  }
};
INSTANTIATE_TEST_SUITE_P(Loopback, UdpSegmentsTest, testing::Values("127.0.0.1", "::1"));

TEST_P(UdpSegmentsTest, EquallyLongDatagramsTravelAndArriveAsOneMessage) {
  UdpSocket sender = Bind();
  UdpSocket receiver = Bind(/*coalesce=*/true);
  const std::vector<std::string> texts = Texts(Lengths(44, 1472, 100));
  ASSERT_EQ(SendTexts(sender, receiver.local().value(), texts), texts.size());
  InBatch in(1, 1 << 16);  // room for one message
  ASSERT_EQ(receiver.Receive(in, /*wait=*/true).value(), texts.size());
  EXPECT_TRUE(in.full());
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(std::string(in[i].bytes.begin(), in[i].bytes.end()), texts[i]) << i;
    EXPECT_FALSE(in[i].truncated);
    EXPECT_EQ(*in[i].from, sender.local().value());
  }
  EXPECT_TRUE(sender.segments());
}

TEST_P(UdpSegmentsTest, AReceiverThatDoesNotWantThemJoinedGetsThemOneByOne) {
  UdpSocket sender = Bind();
  UdpSocket receiver = Bind();
  const std::vector<std::string> texts = Texts(Lengths(44, 1472, 100));
  ASSERT_EQ(SendTexts(sender, receiver.local().value(), texts), texts.size());
  EXPECT_EQ(ReceiveAll(receiver, texts.size()), texts);
}

TEST_P(UdpSegmentsTest, RunsOfEveryShapeArriveWholeAndInOrder) {
  UdpSocket sender = Bind();
  UdpSocket receiver = Bind(/*coalesce=*/true);
  std::vector<size_t> lengths = Lengths(130, 50, 50);  // more than one message's segments
  for (const size_t length : Lengths(9, 30000, 20000)) lengths.push_back(length);  // ... and bytes
  for (const size_t length : {1, 2, 3, 3, 2, 2, 1, 1, 60000, 7, 7, 65000, 65000}) {
    lengths.push_back(static_cast<size_t>(length));
  }
  const std::vector<std::string> texts = Texts(lengths);
  ASSERT_EQ(SendTexts(sender, receiver.local().value(), texts), texts.size());
  EXPECT_EQ(ReceiveAll(receiver, texts.size(), 1 << 16), texts);
  EXPECT_TRUE(sender.segments());
  EXPECT_EQ(sender.send_errors(), 0u);
}

TEST(UdpSocketTest, WhereTheKernelDoesNotCutThemTheyAreSentOneByOne) {
  UdpSocket sender = BindLoopback();
  UdpSocket receiver = BindLoopback();
  // The kernel refuses to cut datagrams without a checksum.
  const int on = 1;
  ASSERT_EQ(setsockopt(sender.fd(), SOL_SOCKET, SO_NO_CHECK, &on, sizeof(on)), 0);
  const std::vector<std::string> texts = Texts(Lengths(44, 1472, 100));
  EXPECT_TRUE(sender.segments());
  ASSERT_EQ(SendTexts(sender, receiver.local().value(), texts), texts.size());
  EXPECT_FALSE(sender.segments());
  EXPECT_EQ(ReceiveAll(receiver, texts.size()), texts);
  EXPECT_EQ(sender.send_errors(), 0u);
  // It tries again when the cause may have passed.
  const int off = 0;
  ASSERT_EQ(setsockopt(sender.fd(), SOL_SOCKET, SO_NO_CHECK, &off, sizeof(off)), 0);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!sender.segments()) ASSERT_LT(std::chrono::steady_clock::now(), end);
  ASSERT_EQ(SendTexts(sender, receiver.local().value(), texts), texts.size());
  EXPECT_EQ(ReceiveAll(receiver, texts.size()), texts);
  EXPECT_TRUE(sender.segments());
}

TEST(UdpSocketTest, ARunOfMoreThanTheKernelsPartsIsSeveralMessages) {
  UdpSocket sender = BindLoopback();
  UdpSocket receiver = BindLoopback();
  const SocketAddress to = receiver.local().value();
  std::string text(100, 'x');
  const std::vector<iovec> parts(100, iovec{text.data(), 1});
  const std::vector<OutDatagram> batch(30, OutDatagram{&to, parts});
  EXPECT_EQ(sender.Send(batch), batch.size());
  EXPECT_EQ(ReceiveAll(receiver, batch.size()), std::vector<std::string>(batch.size(), text));
  EXPECT_TRUE(sender.segments());
}

TEST(UdpSocketTest, ReceiveTellsTheSender) {
  UdpSocket sender = BindLoopback();
  UdpSocket receiver = BindLoopback();
  SendOne(sender, receiver.local().value(), "x");
  InBatch in(1, 16);
  ASSERT_EQ(receiver.Receive(in, /*wait=*/true).value(), 1u);
  EXPECT_EQ(in[0].bytes.size(), 1u);
  EXPECT_FALSE(in[0].truncated);
  EXPECT_EQ(*in[0].from, sender.local().value());
}

TEST(UdpSocketTest, DatagramLargerThanTheBufferIsMarkedTruncated) {
  UdpSocket sender = BindLoopback();
  UdpSocket receiver = BindLoopback();
  SendOne(sender, receiver.local().value(), std::string(100, 'x'));
  InBatch in(1, 16);
  ASSERT_EQ(receiver.Receive(in, /*wait=*/true).value(), 1u);
  EXPECT_TRUE(in[0].truncated);
  // The same batch receives again.
  SendOne(sender, receiver.local().value(), "short");
  ASSERT_EQ(receiver.Receive(in, /*wait=*/true).value(), 1u);
  EXPECT_FALSE(in[0].truncated);
  EXPECT_EQ(in[0].bytes.size(), 5u);
  EXPECT_EQ(*in[0].from, sender.local().value());
}

TEST(UdpSocketTest, WaitingReceiveEndsWithItsTime) {
  UdpSocket receiver = BindLoopback();
  ASSERT_TRUE(receiver.SetReceiveTimeout(20'000).ok());
  InBatch in(1, 16);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(receiver.Receive(in, /*wait=*/true).value(), 0u);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(20));
}

TEST(UdpSocketTest, ReceiveWithoutWaitingReturnsZeroWhenThereIsNothing) {
  UdpSocket receiver = BindLoopback();
  InBatch in(1, 16);
  EXPECT_EQ(receiver.Receive(in, /*wait=*/false).value(), 0u);
}

TEST(UdpSocketTest, AfterALoneDatagramSevenMoreAreTakenOneByOneWhenItWaits) {
  UdpSocket sender = BindLoopback();
  UdpSocket receiver = BindLoopback();
  const SocketAddress to = receiver.local().value();
  InBatch in(100, 2048);
  ASSERT_EQ(SendOne(sender, to, "lone"), 1u);
  ASSERT_EQ(receiver.Receive(in, /*wait=*/true).value(), 1u);
  for (int i = 0; i < 20; ++i) ASSERT_EQ(SendOne(sender, to, std::to_string(i)), 1u);
  for (int i = 0; i < 7; ++i) {
    ASSERT_EQ(receiver.Receive(in, /*wait=*/true).value(), 1u);
    EXPECT_FALSE(in.full());
    EXPECT_EQ(std::string(in[0].bytes.begin(), in[0].bytes.end()), std::to_string(i));
  }
  EXPECT_EQ(receiver.Receive(in, /*wait=*/true).value(), 13u);
  // The last batch had more than one datagram.
  for (int i = 0; i < 2; ++i) ASSERT_EQ(SendOne(sender, to, std::to_string(i)), 1u);
  EXPECT_EQ(receiver.Receive(in, /*wait=*/true).value(), 2u);
  // A receive that does not wait takes all.
  ASSERT_EQ(SendOne(sender, to, "lone"), 1u);
  ASSERT_EQ(receiver.Receive(in, /*wait=*/true).value(), 1u);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(SendOne(sender, to, std::to_string(i)), 1u);
  EXPECT_EQ(receiver.Receive(in, /*wait=*/false).value(), 3u);
}

TEST(UdpSocketTest, RefusedDestinationIsSkippedAndCounted) {
  UdpSocket sender = BindLoopback();
  UdpSocket receiver = BindLoopback();
  SocketAddress closed;
  {
    UdpSocket gone = BindLoopback();
    closed = gone.local().value();
  }
  // With error reporting on, the ICMP answer to the first datagram fails the next send.
  const int on = 1;
  ASSERT_EQ(setsockopt(sender.fd(), IPPROTO_IP, IP_RECVERR, &on, sizeof(on)), 0);
  ASSERT_EQ(SendOne(sender, closed, "lost"), 1u);
  pollfd error{sender.fd(), POLLERR, 0};
  ASSERT_EQ(poll(&error, 1, 10000), 1);
  std::string text = "kept";
  const iovec part{text.data(), text.size()};
  const SocketAddress open = receiver.local().value();
  const OutDatagram batch[2] = {{&closed, absl::MakeConstSpan(&part, 1)},
                                {&open, absl::MakeConstSpan(&part, 1)}};
  EXPECT_EQ(sender.Send(batch), 2u);
  EXPECT_EQ(sender.send_errors(), 1u);
  EXPECT_EQ(ReceiveAll(receiver, 1), std::vector<std::string>{"kept"});
}

TEST(UdpSocketTest, RefusedAnswersDoNotFailReceive) {
  UdpSocket socket = BindLoopback();
  SocketAddress closed;
  {
    UdpSocket gone = BindLoopback();
    closed = gone.local().value();
  }
  const int on = 1;
  ASSERT_EQ(setsockopt(socket.fd(), IPPROTO_IP, IP_RECVERR, &on, sizeof(on)), 0);
  ASSERT_EQ(SendOne(socket, closed, "lost"), 1u);
  pollfd error{socket.fd(), POLLERR, 0};
  ASSERT_EQ(poll(&error, 1, 10000), 1);
  InBatch in(1, 16);
  const auto got = socket.Receive(in, /*wait=*/false);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(*got, 0u);
}

TEST(UdpSocketTest, OversizedDatagramIsSkippedAndCounted) {
  UdpSocket sender = BindLoopback();
  UdpSocket receiver = BindLoopback();
  EXPECT_EQ(SendOne(sender, receiver.local().value(), std::string(65508, 'x')), 1u);
  EXPECT_EQ(sender.send_errors(), 1u);
  EXPECT_EQ(SendOne(sender, receiver.local().value(), std::string(65507, 'x')), 1u);
  EXPECT_EQ(sender.send_errors(), 1u);
  EXPECT_EQ(ReceiveAll(receiver, 1, 65507).at(0).size(), 65507u);
}

TEST(UdpSocketTest, PortInUseNamesThePort) {
  UdpSocket first = BindLoopback();
  const uint16_t port = first.local()->port();
  const auto second = UdpSocket::Bind(Loopback(port), {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(std::to_string(port)));
}

TEST(UdpSocketTest, PortIsSharedWhenAsked) {
  UdpSocket::Options shared;
  shared.reuse_port = true;
  UdpSocket first = BindLoopback(shared);
  EXPECT_TRUE(UdpSocket::Bind(first.local().value(), shared).ok());
}

TEST(UdpSocketTest, BindToAForeignAddressFails) {
  EXPECT_FALSE(UdpSocket::Bind(ResolveAddress(HostPort{"192.0.2.1", 0}).value(), {}).ok());
}

TEST(UdpSocketTest, ReceiveBufferIsReported) {
  UdpSocket::Options options;
  options.receive_buffer_bytes = 1 << 16;
  EXPECT_GE(BindLoopback(options).receive_buffer_bytes(), 1 << 16);
}

// UDP over loopback never fills the sender's buffer, so a local datagram socket stands in for it.
TEST(UdpSocketTest, FullSocketBufferEndsTheBatchEarly) {
  const auto bind_local = [](const std::string& name, SocketAddress* address) {
    UniqueFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_un local{};
    local.sun_family = AF_UNIX;  // abstract: the name starts with a zero byte
    name.copy(local.sun_path + 1, name.size());
    address->length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    std::memcpy(&address->storage, &local, address->length);
    EXPECT_EQ(bind(fd.get(), address->get(), address->length), 0);
    return UdpSocket::Adopt(std::move(fd));
  };
  SocketAddress from, to;
  const std::string name = "salius-udp-socket-test-" + std::to_string(getpid());
  UdpSocket sender = bind_local(name + "-s", &from);
  UdpSocket receiver = bind_local(name + "-r", &to);
  std::string text(4096, 'x');
  const iovec part{text.data(), text.size()};
  const std::vector<OutDatagram> batch(10000, OutDatagram{&to, absl::MakeConstSpan(&part, 1)});
  const size_t sent = sender.Send(batch);
  EXPECT_GT(sent, 0u);
  EXPECT_LT(sent, batch.size());
  EXPECT_EQ(sender.send_errors(), 0u);
  EXPECT_EQ(ReceiveAll(receiver, sent, 4096).size(), sent);
}

TEST(PathDatagramBytesTest, LoopbackCarriesTheLargestDatagram) {
  EXPECT_EQ(PathDatagramBytes(Loopback(9)).value(), 65507u);
}

TEST(PathDatagramBytesTest, NoRouteIsAnError) {
  EXPECT_FALSE(PathDatagramBytes(ResolveAddress(HostPort{"255.255.255.255", 9}).value()).ok());
}

TEST(InterfaceOfTest, FindsLoopbackAndRefusesForeignAddresses) {
  EXPECT_EQ(InterfaceOf(Loopback(7400)).value(), "lo");
  EXPECT_EQ(InterfaceOf(ResolveAddress(HostPort{"192.0.2.1", 0}).value()).status().code(),
            absl::StatusCode::kNotFound);
}

class MulticastTest : public ::testing::Test {
 protected:
  // A free port of a group in the local scope (RFC 2365).
  UdpSocket BindGroup() {
    UdpSocket::Options options;
    options.reuse_port = true;
    SocketAddress address = group_;
    UdpSocket socket = UdpSocket::Bind(address, options).value();
    group_ = socket.local().value();
    return socket;
  }
  SocketAddress group_ = ResolveAddress(HostPort{"239.255.74.1", 0}).value();
};

TEST_F(MulticastTest, EveryMemberOnThisHostReceivesTheDatagram) {
  UdpSocket one = BindGroup();
  UdpSocket two = BindGroup();
  ASSERT_TRUE(one.JoinGroup(group_, "lo").ok());
  ASSERT_TRUE(two.JoinGroup(group_, "lo").ok());
  UdpSocket sender = BindLoopback();
  ASSERT_TRUE(sender.PrepareMulticastSend(group_, /*loop=*/true).ok());
  ASSERT_EQ(SendOne(sender, group_, "to all"), 1u);
  EXPECT_EQ(ReceiveAll(one, 1), std::vector<std::string>{"to all"});
  EXPECT_EQ(ReceiveAll(two, 1), std::vector<std::string>{"to all"});
}

TEST_F(MulticastTest, SenderThatIsBoundToNoAddressLeavesByTheInterfaceTowardsAnAddress) {
  UdpSocket member = BindGroup();
  ASSERT_TRUE(member.JoinGroup(group_, "lo").ok());
  UdpSocket sender =
      UdpSocket::Bind(ResolveAddress(HostPort{"0.0.0.0", 0}).value(), UdpSocket::Options()).value();
  const absl::StatusOr<std::string> interface = InterfaceTowards(Loopback(1));
  ASSERT_TRUE(interface.ok()) << interface.status();
  EXPECT_EQ(*interface, "lo");
  ASSERT_TRUE(sender.PrepareMulticastSend(group_, /*loop=*/true, *interface).ok());
  ASSERT_EQ(SendOne(sender, group_, "by lo"), 1u);
  EXPECT_EQ(ReceiveAll(member, 1), std::vector<std::string>{"by lo"});
  EXPECT_EQ(sender.send_errors(), 0u);
}

TEST_F(MulticastTest, UnicastAddressIsNoGroup) {
  UdpSocket socket = BindLoopback();
  EXPECT_EQ(socket.JoinGroup(Loopback(1)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(socket.PrepareMulticastSend(Loopback(1), false).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(MulticastTest, UnknownInterfaceIsNamed) {
  UdpSocket socket = BindGroup();
  const absl::Status status = socket.JoinGroup(group_, "nosuchif0");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("nosuchif0"));
  EXPECT_EQ(socket.PrepareMulticastSend(group_, true, "nosuchif0").code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace salius
