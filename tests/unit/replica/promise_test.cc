// The promise file: its bytes, and its keeper.
#include "replica/promise.h"

#include <filesystem>
#include <string>

#include "absl/strings/escaping.h"
#include "common/bytes.h"
#include "common/crc32c.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "replica/promise_keeper.h"
#include "replica/promise_store.h"
#include "tests/unit/replica/memory_promises.h"
#include "tests/unit/replica/replica_client.h"

namespace salius {
namespace {

using ::testing::HasSubstr;

PromiseFile TestFile() {
  PromiseFile file;
  file.store = 0x1122334455667788;
  file.incarnation = 0x99AABBCCDDEEFF00;
  file.process_starts = 3;
  Promise one;
  one.volume = TestVolume(2);
  one.promised = 8;
  one.token = 0x0102030405060708;
  one.opened = 7;
  one.peer = PeerIdOf("10.77.0.1:40000");
  Promise two;
  two.volume = TestVolume(1);
  two.opened = 5;
  file.promises = {one, two};
  return file;
}

TEST(PromiseFileTest, GoldenBytesOfVersionOne) {
  const std::string bytes = EncodePromiseFile(TestFile());
  std::string golden = absl::HexStringToBytes(
      "53414c495553503101000000" "00000000" "8877665544332211" "00ffeeddccbbaa99"
      "0300000000000000" "02000000" "00000000" "00000000000000000000000000000000");
  const auto volume = [](const VolumeId& id) { return std::string(id.bytes.begin(), id.bytes.end()); };
  golden += volume(TestVolume(1)) +
            absl::HexStringToBytes("0000000000000000" "0000000000000000" "0500000000000000"
                                   "00000000000000000000000000000000" "0000000000000000");
  golden += volume(TestVolume(2)) +
            absl::HexStringToBytes("0800000000000000" "0807060504030201" "0700000000000000"
                                   "00000000000000000000ffff0a4d0001" "0000000000000000");
  ASSERT_EQ(golden.size(), kPromiseFileHeaderBytes + 2 * kPromiseBytes);
  const auto span = AsBytes(golden);
  StoreU32(reinterpret_cast<uint8_t*>(golden.data()) + 12,
           Crc32cExtend(Crc32c(span.first(12)), span.subspan(16)));
  EXPECT_EQ(absl::BytesToHexString(bytes), absl::BytesToHexString(golden));
}

TEST(PromiseFileTest, EntriesAreReadInTheOrderOfVolumes) {
  PromiseFile file = TestFile();
  const auto read = DecodePromiseFile(AsBytes(EncodePromiseFile(file)));
  ASSERT_TRUE(read.ok()) << read.status();
  std::swap(file.promises[0], file.promises[1]);
  EXPECT_EQ(*read, file);
}

TEST(PromiseFileTest, EachDamagedBitIsDataLoss) {
  const std::string good = EncodePromiseFile(TestFile());
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    EXPECT_TRUE(absl::IsDataLoss(DecodePromiseFile(AsBytes(bad)).status())) << bit;
  }
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_TRUE(absl::IsDataLoss(DecodePromiseFile(AsBytes(good.substr(0, size))).status()));
  }
}

TEST(PromiseFileTest, AnotherVersionIsNoDamage) {
  std::string bytes = EncodePromiseFile(TestFile());
  auto* const raw = reinterpret_cast<uint8_t*>(bytes.data());
  StoreU32(raw + 8, 2);
  StoreU32(raw + 12, Crc32cExtend(Crc32c({raw, 12}), AsBytes(bytes).subspan(16)));
  EXPECT_TRUE(absl::IsFailedPrecondition(DecodePromiseFile(AsBytes(bytes)).status()));
  MemoryPromises store;
  store.content = bytes;
  EXPECT_TRUE(
      absl::IsFailedPrecondition(PromiseKeeper::Load(store, [] { return 5; }).status()));
}

TEST(PromiseFileTest, HostsAreNamedWithoutTheirPorts) {
  EXPECT_EQ(PeerText(PeerIdOf("10.0.0.1:2345")), "10.0.0.1");
  EXPECT_EQ(PeerText(PeerIdOf("[fe80::1%eth0]:2345")), "fe80::1");
  EXPECT_EQ(PeerText(PeerIdOf("[::ffff:10.0.0.1]:1")), "10.0.0.1");
  EXPECT_EQ(PeerIdOf(""), PeerId{});
  EXPECT_EQ(PeerIdOf("a.name:1"), PeerId{});
}

class KeeperTest : public ::testing::Test {
 protected:
  PromiseKeeper Keeper() {
    return PromiseKeeper(store_, 9, [this](uint64_t known) {
      return PromiseSnapshot{version_, known == version_ ? std::vector<Promise>{} : promises_};
    });
  }
  PromiseFile Written() { return *DecodePromiseFile(AsBytes(store_.content.value())); }

  MemoryPromises store_;
  uint64_t version_ = 1;
  std::vector<Promise> promises_ = TestFile().promises;
};

TEST_F(KeeperTest, ChangesAreWrittenOnce) {
  PromiseKeeper keeper = Keeper();
  ASSERT_TRUE(keeper.Begin(100, 3).ok());
  EXPECT_EQ(Written().promises.size(), 2u);
  EXPECT_EQ(Written().process_starts, 3u);
  ASSERT_TRUE(keeper.Keep().ok());
  EXPECT_EQ(store_.writes, 1);
  promises_[0].promised = 20;
  ++version_;
  ASSERT_TRUE(keeper.Keep().ok());
  EXPECT_EQ(Written().promises[1].promised, 20u);
  EXPECT_EQ(Written().incarnation, 100u);
}

TEST_F(KeeperTest, FailedWriteIsRepeatedByTheNextCall) {
  PromiseKeeper keeper = Keeper();
  ASSERT_TRUE(keeper.Begin(100, 3).ok());
  promises_[0].promised = 20;
  ++version_;
  store_.fails = true;
  EXPECT_FALSE(keeper.Keep().ok());
  store_.fails = false;
  ASSERT_TRUE(keeper.Keep().ok());
  EXPECT_EQ(Written().promises[1].promised, 20u);
}

TEST_F(KeeperTest, AMissingOrDamagedFileIsANewStore) {
  auto loaded = PromiseKeeper::Load(store_, [] { return 5; });
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->file.store, 5u);
  EXPECT_FALSE(loaded->damaged);
  EXPECT_FALSE(loaded->problem.empty());
  store_.content = EncodePromiseFile(TestFile());
  loaded = PromiseKeeper::Load(store_, [] { return 5; });
  EXPECT_EQ(loaded->file.store, TestFile().store);
  EXPECT_TRUE(loaded->problem.empty());
  store_.content->back() = 'x';
  loaded = PromiseKeeper::Load(store_, [] { return 5; });
  ASSERT_TRUE(loaded.ok());
  EXPECT_TRUE(loaded->damaged);
  EXPECT_EQ(loaded->file.store, 5u);
  EXPECT_TRUE(loaded->file.promises.empty());
}

TEST_F(KeeperTest, AnArenaThatCountsFewerStartsWentBack) {
  const PromiseFile file = TestFile();  // starts: 3
  EXPECT_FALSE(PromiseKeeper::IsRolledBack(file, file.incarnation, 4));
  EXPECT_TRUE(PromiseKeeper::IsRolledBack(file, file.incarnation, 3));
  EXPECT_TRUE(PromiseKeeper::IsRolledBack(file, file.incarnation, 2));
  EXPECT_FALSE(PromiseKeeper::IsRolledBack(file, file.incarnation + 1, 1));
}

TEST(PromiseDirTest, ItIsMadeAndHeldByOneProcess) {
  const ShmDir top;
  const std::string path = top.path() + "/a/b";
  const auto dir = PromiseDir::Open(path);
  ASSERT_TRUE(dir.ok()) << dir.status();
  EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms::owner_all);
  EXPECT_TRUE(absl::IsNotFound((*dir)->Read().status()));
  ASSERT_TRUE((*dir)->Write("one").ok());
  ASSERT_TRUE((*dir)->Write("two").ok());
  EXPECT_EQ(*(*dir)->Read(), "two");
  const absl::Status second = PromiseDir::Open(path).status();
  EXPECT_TRUE(absl::IsUnavailable(second)) << second;
  EXPECT_THAT(std::string(second.message()), HasSubstr(path));
  (*dir)->SetAside();
  EXPECT_TRUE(absl::IsNotFound((*dir)->Read().status()));
  EXPECT_TRUE(std::filesystem::exists(path + "/promises.damaged"));
}

TEST(PromiseDirTest, FilesWritableByOthersAreRefused) {
  const std::string dir = ::testing::TempDir() + "open-promises";
  std::filesystem::create_directory(dir);
  std::filesystem::permissions(dir, std::filesystem::perms::all);
  const auto refused = PromiseDir::Open(dir);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("mode 0777"));
  std::filesystem::permissions(dir, std::filesystem::perms::owner_all);
  EXPECT_TRUE(PromiseDir::Open(dir).ok());
  std::filesystem::remove_all(dir);
}

TEST(PromiseDirTest, ImpossibleDirectoryIsRefusedWithAdvice) {
  const absl::Status refused = PromiseDir::Open("/proc/none/here").status();
  EXPECT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--state-dir"));
}

}  // namespace
}  // namespace salius
