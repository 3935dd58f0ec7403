#include "replica/call_log.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace salius {
namespace {

CallEntry Call(CallKind kind, bool accepted, Epoch epoch) {
  return {.at_unix_ms = 1000 - epoch,  // A clock that goes back.
          .kind = kind,
          .accepted = accepted,
          .volume = std::string(16, 'v'),
          .epoch = epoch,
          .peer = "10.0.0.1:99",
          .reason = accepted ? "" : "no"};
}

std::vector<Epoch> EpochsOf(const CallLog& log) {
  std::vector<Epoch> epochs;
  for (const CallEntry& entry : log.Recent()) epochs.push_back(entry.epoch);
  return epochs;
}

double Total(CallKind kind, const char* result) {
  return GetCounter("salius_replica_control_calls_total", "",
                    {{"kind", std::string(CallName(kind))}, {"result", result}})
      .Value();
}

TEST(CallLog, CallsAreReturnedNewestFirst) {
  CallLog log;
  EXPECT_TRUE(log.Recent().empty());
  log.Add(Call(CallKind::kOpen, true, 1));
  log.Add(Call(CallKind::kFence, false, 2));
  log.Add(Call(CallKind::kOpen, true, 3));
  EXPECT_EQ(EpochsOf(log), (std::vector<Epoch>{3, 2, 1}));
  const CallEntry fence = log.Recent()[1];
  EXPECT_EQ(fence.kind, CallKind::kFence);
  EXPECT_FALSE(fence.accepted);
  EXPECT_EQ(fence.peer, "10.0.0.1:99");
  EXPECT_EQ(fence.reason, "no");
}

TEST(CallLog, RefusedCallsDoNotDisplaceAcceptedOnes) {
  CallLog log;
  log.Add(Call(CallKind::kFence, true, 1));
  for (Epoch epoch = 2; epoch < 102; ++epoch) log.Add(Call(CallKind::kFence, false, epoch));
  EXPECT_EQ(EpochsOf(log), (std::vector<Epoch>{101, 100, 99, 98, 97, 96, 95, 94, 1}));
}

TEST(CallLog, CallsAreCountedByKindAndResult) {
  CallLog log;
  const double refused = Total(CallKind::kDrop, "refused");
  const double accepted = Total(CallKind::kDrop, "accepted");
  const double forgets = Total(CallKind::kForget, "refused");
  for (int i = 0; i < 20; ++i) log.Add(Call(CallKind::kDrop, false, 1));
  log.Add(Call(CallKind::kDrop, true, 1));
  EXPECT_EQ(Total(CallKind::kDrop, "refused"), refused + 20);
  EXPECT_EQ(Total(CallKind::kDrop, "accepted"), accepted + 1);
  EXPECT_EQ(Total(CallKind::kForget, "refused"), forgets);
}

TEST(CallLog, LongTextsOfACallerAreCut) {
  CallLog log;
  CallEntry entry = Call(CallKind::kOpen, false, 1);
  entry.volume = entry.reason = std::string(1 << 20, 'x');
  log.Add(entry);
  EXPECT_EQ(log.Recent()[0].volume.size(), CallLog::kMaxText);
  EXPECT_EQ(log.Recent()[0].reason.size(), CallLog::kMaxText);
}

TEST(CallLog, LongTextIsCutBetweenCharacters) {
  CallLog log;
  CallEntry entry = Call(CallKind::kOpen, false, 1);
  entry.reason = "a";
  for (int i = 0; i < 100; ++i) entry.reason += "\xe2\x82\xac";  // Three bytes each.
  log.Add(entry);
  const std::string reason = log.Recent()[0].reason;
  EXPECT_EQ(reason.size(), 1u + 66 * 3);
  EXPECT_EQ(entry.reason.rfind(reason, 0), 0u);
}

TEST(CallLog, CallsAreCountedByIdentity) {
  CallLog log;
  CallEntry entry = Call(CallKind::kOpen, true, 1);
  entry.identity = "client/counted";
  for (int i = 0; i < 3; ++i) log.Add(entry);
  entry.accepted = false;
  log.Add(entry);
  const auto total = [](const char* result) {
    return GetCounter("salius_replica_identity_calls_total", "",
                      {{"identity", "client/counted"}, {"result", result}})
        .Value();
  };
  EXPECT_EQ(total("accepted"), 3);
  EXPECT_EQ(total("refused"), 1);
  EXPECT_EQ(log.Recent()[0].identity, "client/counted");
}

}  // namespace
}  // namespace salius
