// The choice of replicas for the records, when there are enough for several.
#include "recovery/agree/collect.h"

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "tests/unit/recovery/fake_replica.h"

namespace salius::recovery {
namespace {

constexpr Epoch kEpoch = 7;
constexpr Seq kLast = 120;
constexpr absl::Duration kLong = absl::Seconds(20);  // only a failure takes this long

// Three replicas that hold records 1 to kLast.
class CollectTest : public ::testing::Test {
 protected:
  CollectTest() {
    for (Seq seq = 1; seq <= kLast; ++seq) stamper_.Write(50, seq, "body");
    request_.volume = TestVolume();
    request_.epoch = kEpoch;
    request_.timeout_ms = 10000;
    request_.least_piece = 10;
    for (const char* address : {"a:1", "b:1", "c:1"}) Hold(address, 1, kLast);
  }
  void Hold(const std::string& address, Seq first, Seq last) {
    FakeReplica& replica = net_.at(address);
    replica.epoch = kEpoch;
    replica.records.clear();
    for (Seq seq = first; seq <= last; ++seq) replica.records[seq] = stamper_.all()[seq - 1];
  }

  void Collect() {
    peers_.clear();
    for (const char* address : {"a:1", "b:1", "c:1"}) {
      Peer peer;
      peer.address = address;
      peer.client = net_.Connect(address);
      peer.answer = Answer{address, net_.at(address).incarnation, net_.at(address).inventory()};
      if (says_) says_(&peer.answer->inventory);
      if (after_answers_) after_answers_();
      peers_.push_back(std::move(peer));
    }
    ASSERT_OK(CollectAll(
        request_, &peers_,
        [this](uint64_t done, uint64_t total) {
          EXPECT_GE(done, done_);
          done_ = done;
          total_ = total;
        },
        [this] {
          ++asked_;
          return absl::OkStatus();
        },
        &coverage_, &collected_));
  }
  // Checks that every seq up to kLast is in hand, with the record that was stamped.
  void ExpectAll() {
    EXPECT_FALSE(coverage_.FirstMissing(0, kLast).has_value());
    std::set<Seq> seen;
    for (const Collected& of : collected_) {
      for (const RecordView& record : of.records.views()) {
        EXPECT_EQ(record.encoded(), stamper_.all()[record.seq() - 1]);
        seen.insert(record.seq());
      }
    }
    EXPECT_EQ(seen.size(), kLast);
  }
  size_t Brought(size_t peer) const { return collected_[peer].records.views().size(); }

  Stamper stamper_{kEpoch};
  FakeConnector net_;
  CollectRequest request_;
  std::vector<Peer> peers_;
  Coverage coverage_;
  std::vector<Collected> collected_;
  std::function<void(Inventory*)> says_;  // changes each answer
  std::function<void()> after_answers_;   // called after each answer
  uint64_t done_ = 0, total_ = 0;
  int asked_ = 0;
};

TEST_F(CollectTest, ManyRecordsAreBroughtByAllReplicasAtOnce) {  // R34
  absl::Mutex mutex;
  std::set<std::string> at_it;
  for (const char* address : {"a:1", "b:1", "c:1"}) {
    net_.at(address).on_fetch = [&, address] {
      const absl::MutexLock lock(&mutex);
      at_it.insert(address);
      const auto all = [&] { return at_it.size() == 3; };
      EXPECT_TRUE(mutex.AwaitWithTimeout(absl::Condition(&all), kLong)) << address;
    };
  }
  Collect();
  ExpectAll();
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_GE(Brought(i), 10u);
    EXPECT_TRUE(collected_[i].complete);
  }
  EXPECT_EQ(asked_, 3);
  EXPECT_GE(done_, kLast);
  EXPECT_EQ(total_, kLast);
}

TEST_F(CollectTest, ASlowReplicaLeavesTheRestToTheOthers) {  // R34
  absl::Mutex mutex;
  int others = 0;  // streams requested from the other replicas
  for (const char* address : {"a:1", "c:1"}) {
    net_.at(address).on_fetch = [&] {
      const absl::MutexLock lock(&mutex);
      ++others;
    };
  }
  net_.at("b:1").on_fetch = [&] {
    const absl::MutexLock lock(&mutex);
    // Twelve pieces of ten, one of them b's.
    const auto rest = [&] { return others >= 11; };
    EXPECT_TRUE(mutex.AwaitWithTimeout(absl::Condition(&rest), kLong)) << others;
  };
  Collect();
  ExpectAll();
  EXPECT_LE(net_.at("b:1").fetches, 1);
}

TEST_F(CollectTest, RecordsOfABrokenStreamAreFetchedFromOthers) {  // R35
  for (const bool one_thread : {false, true}) {
    request_.one_thread = one_thread;
    coverage_ = Coverage();
    done_ = 0;
    net_.at("a:1").break_after_chunks = 1;
    net_.at("b:1").fetch_fails = true;
    Collect();
    ExpectAll();
    EXPECT_EQ(Brought(1), 0u);
    // All that it holds is in hand, so it counts. (At once the others may leave it no piece to
    // fail.)
    EXPECT_TRUE(collected_[1].complete);
    if (one_thread) {
      EXPECT_GE(net_.at("b:1").fetches, 1);
    }
  }
}

TEST_F(CollectTest, StoppedReplicaIsNotAwaitedAndAskedAgainOnlyForMissingRecords) {  // R36
  request_.timeout_ms = 600'000;
  net_.at("b:1").fetch_hangs = true;
  // No other replica begins before b, so that b has a piece.
  absl::Mutex mutex;
  bool begun = false;
  net_.at("b:1").on_fetch = [&] {
    const absl::MutexLock lock(&mutex);
    begun = true;
  };
  for (const char* address : {"a:1", "c:1"}) {
    net_.at(address).on_fetch = [&] {
      const absl::MutexLock lock(&mutex);
      EXPECT_TRUE(mutex.AwaitWithTimeout(absl::Condition(&begun), kLong));
    };
  }
  Collect();
  ExpectAll();
  EXPECT_EQ(net_.at("b:1").fetches, 1);
  EXPECT_TRUE(collected_[1].complete);
}

TEST_F(CollectTest, FailedReplicaIsAskedForRecordsThatOnlyItHolds) {  // R39
  Hold("a:1", 1, 100);
  Hold("b:1", 1, kLast);
  net_.at("b:1").records[15][kRecordHeaderBytes] ^= 1;  // in the first pieces, of any replica
  Hold("c:1", 1, 100);
  request_.one_thread = true;
  net_.records_per_chunk = 1;
  Collect();
  ExpectAll();
  EXPECT_GE(Brought(1), kLast - 100);
}

// The memory changed after the fence, at which the replica gave its inventory. A record beyond a
// gap of the lost memory may have been acknowledged.
TEST_F(CollectTest, ReplicaWithAnotherIncarnationNowDoesNotCount) {  // R38
  for (const uint64_t least_piece : {uint64_t{10}, kLast}) {
    request_.least_piece = least_piece;
    coverage_ = Coverage();
    done_ = 0;
    for (const char* address : {"a:1", "b:1", "c:1"}) Hold(address, 1, 60);
    net_.at("a:1").records[100] = stamper_.all()[99];
    net_.at("a:1").incarnation = 1;
    after_answers_ = [this] {
      net_.at("a:1").incarnation = 2;
      net_.at("a:1").records.erase(100);
    };
    Collect();
    EXPECT_FALSE(collected_[0].complete);
    EXPECT_TRUE(absl::IsDataLoss(collected_[0].status));
    EXPECT_TRUE(collected_[1].complete);
  }
}

TEST_F(CollectTest, AReplicaThatBringsLessThanItSaidDoesNotCount) {  // R40
  Hold("b:1", 1, 60);
  Hold("c:1", 1, 60);
  after_answers_ = [this] { net_.at("a:1").records.erase(80); };
  Collect();
  EXPECT_EQ(coverage_.FirstMissing(0, kLast), 80u);
  EXPECT_FALSE(collected_[0].complete);
  EXPECT_TRUE(collected_[1].complete);
}

TEST_F(CollectTest, AnAnswerThatContradictsItselfDoesNotCount) {
  request_.least_piece = kLast;                                    // one after the other
  says_ = [](Inventory* inventory) { inventory->highest = 100; };  // contiguous up to kLast
  after_answers_ = [this] { net_.at("a:1").incarnation = 2; };
  Collect();
  EXPECT_TRUE(absl::IsDataLoss(collected_[0].status));
  for (const Collected& of : collected_) EXPECT_FALSE(of.complete);
}

TEST_F(CollectTest, AnyAnnouncedSizeIsAccepted) {
  for (const uint64_t records : {uint64_t{0}, uint64_t{1}, UINT64_MAX}) {
    says_ = [records](Inventory* inventory) {
      inventory->records = records;
      inventory->bytes = UINT64_MAX;
    };
    coverage_ = Coverage();
    done_ = 0;
    Collect();
    ExpectAll();
  }
}

TEST_F(CollectTest, SeqsUpToTheLargestAreAccepted) {
  says_ = [](Inventory* inventory) { inventory->contiguous = inventory->highest = UINT64_MAX - 1; };
  Collect();
  ExpectAll();
  for (const Collected& of : collected_) EXPECT_FALSE(of.complete);
}

TEST_F(CollectTest, ReplicaIsNotAskedForRecordsBelowItsBase) {
  Hold("b:1", 101, kLast);
  net_.at("b:1").base = 101;
  Collect();
  ExpectAll();
  EXPECT_EQ(net_.at("b:1").fetches, 0);
}

TEST_F(CollectTest, ReplicaWithFewRecordsIsAskedForThoseThatOthersLack) {
  Hold("a:1", 1, 100);
  Hold("b:1", 1, 90);
  Hold("c:1", 1, 20);
  for (Seq seq = 111; seq <= kLast; ++seq) net_.at("c:1").records[seq] = stamper_.all()[seq - 1];
  request_.one_thread = true;
  Collect();
  EXPECT_EQ(coverage_.FirstMissing(0, kLast), 101u);
  EXPECT_EQ(coverage_.LastMissing(0, kLast), 110u);
  EXPECT_EQ(Brought(2), 10u);
  EXPECT_EQ(net_.at("c:1").fetches, 1);
  for (const Collected& of : collected_) EXPECT_TRUE(of.complete);
}

TEST_F(CollectTest, RecordsInTheStableLogOrBelowTheCheckpointAreNotFetched) {
  request_.checkpoint = 30;
  request_.one_thread = true;
  for (Seq seq = 61; seq <= kLast; ++seq) coverage_.Add(seq);
  net_.records_per_chunk = 1;
  Collect();
  uint64_t brought = 0;
  for (size_t i = 0; i < 3; ++i) brought += Brought(i);
  EXPECT_EQ(brought, 30u);
  EXPECT_EQ(collected_[0].records.views().front().seq(), 31u);
}

TEST_F(CollectTest, FewRecordsAreAskedOfOneReplica) {  // R33
  request_.least_piece = kLast;
  Collect();
  ExpectAll();
  EXPECT_EQ(Brought(0), kLast);
  EXPECT_EQ(net_.at("b:1").fetches + net_.at("c:1").fetches, 0);
}

}  // namespace
}  // namespace salius::recovery
