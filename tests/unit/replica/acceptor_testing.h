// Shared by the tests of the acceptor's rules.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "replica/acceptor.h"
#include "tests/unit/replica/replica_testing.h"

namespace salius {

using Standing = Acceptor::Standing;
using absl::StatusCode;

inline constexpr int64_t kSecond = 1'000'000'000;
inline constexpr uint64_t kSession = 77;

class AcceptorTest : public ::testing::Test {
 protected:
  AcceptorTest() { Format(); }

  void Format(uint64_t bytes = uint64_t{32} << 20) {
    acceptor_.reset();
    memory_ = std::make_unique<TestMemory>(bytes);
    arena_ = std::make_unique<Arena>(memory_->FormatAndAttach());
    acceptor_ = std::make_unique<Acceptor>(*arena_, options_, now_, nullptr);
  }
  // Starts a new process on the same memory. It has the promises of the disk, or only those that
  // the memory holds.
  Acceptor::AttachReport Restart(bool with_promises = true) {
    options_.promises.clear();
    if (with_promises) options_.promises = acceptor_->Promises(0).promises;
    acceptor_.reset();
    arena_ = std::make_unique<Arena>(memory_->Attach());
    Acceptor::AttachReport report;
    acceptor_ = std::make_unique<Acceptor>(*arena_, options_, now_, &report);
    return report;
  }

  // Reboots the host.
  void LoseMemory(bool with_promises = true) {
    options_.promises.clear();
    if (with_promises) options_.promises = acceptor_->Promises(0).promises;
    Format();
  }

  SessionParams Params(Epoch epoch = 1, uint64_t session = kSession, Seq base = 1) {
    SessionParams params;
    params.volume = TestVolume();
    params.epoch = epoch;
    params.session = session;
    params.base = base;
    params.tau_ms = 30000;
    params.k = 2;
    params.memory_bytes = uint64_t{4} << 20;
    return params;
  }
  StatusCode Open(Epoch epoch = 1, uint64_t session = kSession, Seq base = 1) {
    return acceptor_->OpenSession(now_, Params(epoch, session, base)).status().code();
  }
  bool Fence(Epoch epoch, uint64_t token) {
    return acceptor_->Fence(TestVolume(), epoch, token).value().accepted;
  }
  Acceptor::FrameResult Frame(FrameHeader header, const std::vector<std::string>& records) {
    const std::string payload = Join(records);
    return acceptor_->OnFrame(now_, header, AsBytes(payload));
  }
  Acceptor::FrameResult Send(const std::vector<std::string>& records, Epoch epoch = 1,
                             uint64_t session = kSession) {
    return Frame(TestFrame(records, epoch, session), records);
  }
  AckPayload Ack(Epoch epoch = 1, uint64_t session = kSession, uint16_t flags = 0) {
    return acceptor_->MakeAck(now_, TestVolume(), epoch, session, flags);
  }
  void Trim(Seq seq, Epoch epoch = 1, uint64_t session = kSession) {
    FrameHeader probe = TestFrame({}, epoch, session);
    probe.trim_mark = seq;
    Frame(probe, {});
  }
  Inventory Held() { return acceptor_->GetInventory(now_, TestVolume()); }
  uint64_t Drops(Drop reason) { return acceptor_->counters().drops[static_cast<size_t>(reason)]; }
  std::string FetchAll(Epoch epoch = 1) {
    const auto fetch = acceptor_->StartFetch(TestVolume(), epoch, 0);
    if (!fetch.ok()) return fetch.status().ToString();
    std::string all;
    Seq cursor = fetch->start;
    while (cursor < fetch->upto) {
      const auto read =
          acceptor_->ReadRecords(TestVolume(), epoch, *fetch, &cursor, all.size() + 1000, &all);
      if (!read.ok()) return read.status().ToString();
    }
    return all;
  }

  int64_t now_ = 100 * kSecond;
  Acceptor::Options options_;
  std::unique_ptr<TestMemory> memory_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<Acceptor> acceptor_;
};

}  // namespace salius
