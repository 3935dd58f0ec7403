// Connections with and without TLS are told apart by their first byte, whenever it comes.
#include "transport/tls_sorter.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/file.h"
#include "gtest/gtest.h"

namespace salius {
namespace {

constexpr int kPatienceMs = 60'000;
constexpr char kPlain[] = "PRI * HTTP/2.0";
constexpr char kTls[] = "\x16\x03\x01";

class TlsSorterTest : public ::testing::Test {
 protected:
  struct Taken {
    UniqueFd connection;
    bool tls;
  };

  TlsSorterTest() {
    auto made = TlsSorter::Start(
        [this](UniqueFd connection, bool tls) {
          absl::MutexLock lock(&mutex_);
          taken_.push_back({std::move(connection), tls});
        },
        clock_);
    EXPECT_TRUE(made.ok()) << made.status();
    sorter_ = *std::move(made);
  }
  // Returns the client's end of a connection, and gives the other one to the sorter. The client has
  // sent `first`.
  UniqueFd Connect(const std::string& first) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    UniqueFd client(ends[0]);
    Send(client, first);
    sorter_->Add(UniqueFd(ends[1]));
    return client;
  }
  void Send(const UniqueFd& client, const std::string& text) {
    EXPECT_EQ(write(client.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  // Waits until `count` connections were taken; returns which use TLS.
  std::vector<bool> AwaitTaken(size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto there = [&] { return taken_.size() >= count; };
    mutex_.AwaitWithTimeout(absl::Condition(&there), absl::Milliseconds(kPatienceMs));
    std::vector<bool> tls;
    for (const Taken& one : taken_) tls.push_back(one.tls);
    return tls;
  }
  // Waits until the other end is closed.
  bool Ends(const UniqueFd& client) {
    pollfd ready{client.get(), POLLIN, 0};
    char byte;
    return poll(&ready, 1, kPatienceMs) == 1 && read(client.get(), &byte, 1) == 0;
  }

  ManualClock clock_;
  absl::Mutex mutex_;
  std::vector<Taken> taken_;  // guarded by mutex_
  std::unique_ptr<TlsSorter> sorter_;
};

TEST_F(TlsSorterTest, FirstByteDecidesAndStaysToBeRead) {
  const UniqueFd plain = Connect(kPlain);
  const UniqueFd tls = Connect(kTls);
  EXPECT_EQ(AwaitTaken(2), (std::vector<bool>{false, true}));
  absl::MutexLock lock(&mutex_);
  char bytes[64];
  const ssize_t got = read(taken_[0].connection.get(), bytes, sizeof(bytes));
  EXPECT_EQ(std::string(bytes, static_cast<size_t>(got)), kPlain);
}

TEST_F(TlsSorterTest, LateFirstByteIsAwaitedAndHoldsUpNoOther) {
  const UniqueFd late = Connect("");
  const UniqueFd tls = Connect(kTls);
  EXPECT_EQ(AwaitTaken(1), (std::vector<bool>{true}));
  Send(late, kPlain);
  EXPECT_EQ(AwaitTaken(2), (std::vector<bool>{true, false}));
}

TEST_F(TlsSorterTest, ConnectionThatEndsIsNotTaken) {
  UniqueFd ends = Connect("");
  ends.Reset();
  const UniqueFd tls = Connect("");
  Send(tls, kTls);
  EXPECT_EQ(AwaitTaken(1), (std::vector<bool>{true}));
}

TEST_F(TlsSorterTest, ConnectionThatSendsNothingIsClosed) {
  const UniqueFd silent = Connect("");
  clock_.Advance(std::chrono::nanoseconds(TlsSorter::kPatience).count() - 1);
  const UniqueFd later = Connect("");
  clock_.Advance(1);
  EXPECT_TRUE(Ends(silent));
  Send(later, kTls);
  EXPECT_EQ(AwaitTaken(1), (std::vector<bool>{true}));
}

TEST_F(TlsSorterTest, WaitingConnectionsAreClosedAtTheEnd) {
  const UniqueFd silent = Connect("");
  sorter_.reset();
  EXPECT_TRUE(Ends(silent));
  EXPECT_TRUE(AwaitTaken(0).empty());
}

}  // namespace
}  // namespace salius
