#include "common/lookup.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

namespace salius {
namespace {

Lookup::Answer Wait(const Lookup& lookup) {
  std::optional<Lookup::Answer> answer;
  while (!(answer = lookup.answer())) std::this_thread::yield();
  return *answer;
}

TEST(LookupTest, HasTheAnswerWhenItIsThere) {
  const auto lookup = Lookup::Start({"127.0.0.1", 7}, AF_UNSPEC);
  const Lookup::Answer answer = Wait(*lookup);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(FormatSockaddr(answer->front()), "127.0.0.1:7");
}

TEST(LookupTest, AnswersOfTheOtherFamilyAreNone) {
  EXPECT_EQ(Wait(*Lookup::Start({"127.0.0.1", 7}, AF_INET6)).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(LookupTest, UnawaitedLookupIsHarmless) {
  for (int i = 0; i < 100; ++i) (void)Lookup::Start({"127.0.0.1", 7}, AF_INET);
}

}  // namespace
}  // namespace salius
