#include "client/volume/health.h"

#include <errno.h>

#include <memory>

#include "client/gate/page.h"
#include "common/file.h"
#include "gtest/gtest.h"
#include "tests/unit/volume/fake_stream.h"
#include "tests/unit/volume/null_sink.h"

namespace salius {
namespace {

class HealthTest : public ::testing::Test {
 protected:
  HealthTest() { stream_.Set(std::make_unique<FakeStream>(sink_, 2)); }

  NullSink sink_;
  StreamSlot stream_;
  Health health_{stream_};
};

TEST_F(HealthTest, HealthyVolumeAcceptsChanges) {
  EXPECT_TRUE(health_.Data().ok());
  EXPECT_TRUE(health_.Names().ok());
  EXPECT_TRUE(health_.failure().ok());
}

TEST_F(HealthTest, FailedStreamGivesEioForDataAndErofsForNames) {
  FakeOf(*stream_).Fail(absl::InternalError("test"));
  EXPECT_EQ(StatusErrno(health_.Data()), EIO);
  EXPECT_EQ(StatusErrno(health_.Names()), EROFS);
  EXPECT_TRUE(health_.failure().ok()) << "the failure is the stream's";
}

TEST_F(HealthTest, FirstOwnFailureIsKept) {
  health_.Fail(absl::InternalError("first"));
  health_.Fail(absl::InternalError("second"));
  EXPECT_EQ(health_.failure().message(), "first");
  EXPECT_EQ(StatusErrno(health_.Data()), EIO);
  EXPECT_EQ(StatusErrno(health_.Names()), EROFS);
}

TEST_F(HealthTest, OwnFailureEndsSyncsThatAskNoDaemon) {
  gate::Page page;
  Health gated(stream_, &page);
  EXPECT_NE(page.mapped, gate::kUncounted);
  gated.Fail(absl::InternalError("test"));
  EXPECT_EQ(page.mapped, gate::kUncounted);
  EXPECT_EQ(page.failed, 0u) << "outputs whose records are durable may be made";
}

}  // namespace
}  // namespace salius
